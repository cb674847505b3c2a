"""Factors bound to the graphs of a batch: checked, and padded to tensors."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures import checks
from structsmooth.structures.factor_graph.expansion import Automata, Roles
from structsmooth.structures.factor_graph.factors import Factor
from structsmooth.structures.factor_graph.layout import Layout
from structsmooth.structures.factor_graph.reading import automata


def bind(
    factors: Sequence[Factor], unary: Tensor, layout: Layout, validate_args: bool
) -> tuple[Tensor, Automata, Roles]:
    """Scores [B, F, Q] of factors for unary scores [B, N, S], their automata, and how exact oracles take these.

    Raises:
        MemoryError: factors with too many states that are no tables.
        NotImplementedError: under ``torch.compile``.
        TypeError: what is no factor, or tensors of the wrong dtype.
        ValueError: factors that do not fit the graphs.
    """
    if torch.compiler.is_compiling():
        raise NotImplementedError(
            "a FactorGraph with factors must be built outside torch.compile: give it to the compiled function, and "
            "change its potentials there by replace()"
        )
    bound = [
        _bind_one(f"factors[{i}]", factor, unary, layout.node_mask, validate_args) for i, factor in enumerate(factors)
    ]
    scores, scopes, transitions = zip(*bound, strict=True)
    most, longest = (max(tensor.shape[-1] for tensor in tensors) for tensors in (scores, scopes))
    places = longest if any(len(table) > 1 for table in transitions) else 1
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in scores))
    batch_automata, roles = automata(
        torch.stack([pad(scope, (0, longest - scope.shape[-1]), value=-1) for scope in scopes], 1),
        torch.stack([_padded(table, places, most) for table in transitions]),
        [scope.shape[-1] for scope in scopes],
        _reads(unary, validate_args),
    )
    batch_automata.some(roles).check_size(layout.edge_mask)
    return torch.stack([pad(s.to(dtype), (0, most - s.shape[-1])) for s in scores], 1), batch_automata, roles


def _reads(unary: Tensor, validate_args: bool) -> bool:
    """Whether values of scopes may be read: not those of another device, which all its work would have to reach."""
    return validate_args or unary.device.type == "cpu"


def _padded(transitions: Tensor, places: int, states: int) -> Tensor:
    """Transitions [1 or k, Q, S] for so many places, and so many states of the automaton."""
    padded = pad(transitions, (0, 0, 0, states - transitions.shape[1]))
    return padded.expand(places, -1, -1) if len(padded) == 1 else pad(padded, (0, 0, 0, 0, 0, places - len(padded)))


def _bind_one(
    name: str, factor: Factor, unary: Tensor, node_mask: Tensor, validate_args: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [B, Q], scope [B, k] with padding at the end, and transitions [1 or k, Q, S]."""
    if not isinstance(factor, Factor):
        raise TypeError(f"{name} must be a Factor, got {type(factor).__name__}")
    batch, _, states = unary.shape
    try:
        transitions, scores = factor.automaton(states)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error
    checks.require_integers(f"transitions of {name}", transitions)
    checks.require_scores(f"scores of {name}", scores)
    tensors = {"scope": factor.scope, "scores": scores}
    if transitions.device.type != "cpu":  # where they are read, and so may be given
        tensors["transitions"] = transitions
    for kind, tensor in tensors.items():
        checks.require_device(f"{kind} of {name}", tensor, "unary", unary)
    transitions = transitions.cpu()
    size, shape = factor.scope.shape[-1], transitions.shape
    if len(shape) not in (2, 3) or 0 in shape or shape[-1] != states or (len(shape) == 3 and shape[0] != size):
        raise ValueError(
            f"transitions of {name} must have shape [Q, {states}], or [k, Q, {states}] with k = {size} for places of "
            f"its scope, got {tuple(shape)}"
        )
    count = shape[-2]
    outside = (transitions < 0) | (transitions >= count)
    if bool(outside.any()):
        entry = outside.nonzero()[0].tolist()
        raise ValueError(
            f"transitions of {name} must lead to states from 0 to {count - 1}; entry {', '.join(map(str, entry))} is "
            f"{int(transitions[tuple(entry)])}"
        )
    if scores.dim() not in (1, 2) or scores.shape[-1] != count or (scores.dim() == 2 and len(scores) not in (1, batch)):
        raise ValueError(
            f"scores of {name} must have shape [Q] = ({count},) or [B, Q] = {(batch, count)}, got {tuple(scores.shape)}"
        )
    scope = factor.scope.to(torch.int64)
    if scope.dim() == 2 and len(scope) != batch:
        raise ValueError(f"scope of {name} must have shape [k] or [B, k] with B = {batch}, got {tuple(scope.shape)}")
    scope = scope.expand(batch, -1)
    if validate_args:
        factor.check_scope()
        _check_scope(name, scope, node_mask)
    order = (scope < 0).to(torch.uint8).argsort(dim=1, stable=True)
    padding = scope < 0
    if len(shape) == 3 and _reads(unary, validate_args) and bool((padding[:, :-1] & ~padding[:, 1:]).any()):
        raise ValueError(f"scope of {name} must have padding at the end of rows: its places have their own transitions")
    return scores.expand(batch, -1), scope.gather(1, order), transitions.to(torch.int64).reshape(-1, count, states)


def _check_scope(name: str, scope: Tensor, node_mask: Tensor) -> None:
    nodes, real = node_mask.shape[1], scope >= 0
    ordered = scope.sort(dim=1).values
    twice = torch.zeros_like(real)
    twice[:, 1:] = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    inside = scope.clamp(0, nodes - 1)
    for wrong, rule in (
        ((scope < -1) | (scope >= nodes), f"must hold nodes from 0 to {nodes - 1}, or -1 at padding"),
        (real & ~node_mask.gather(1, inside), "must not hold padding; give -1 there"),
        (twice, "must hold no node twice"),
    ):
        if bool(wrong.any()):
            b = int(wrong.any(1).nonzero()[0])
            raise ValueError(f"scope of {name} {rule}; example {b}: {scope[b].tolist()}")
