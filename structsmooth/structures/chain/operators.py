"""Oracles of the linear chain as torch operators over compiled loops (CPU).

Value and statistics come from one pass; the backward pass is a product with saved statistics. Transitions have shape
[1 or B, 1 or T-1, S, S]. The operators are opaque to ``torch.compile``, so models that use them compile without graph
breaks.
"""

from typing import Any

import torch
from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures.chain import reference
from structsmooth.structures.checks import check_lengths, length_mask, require_labels
from structsmooth.structures.operators import (
    OPERATORS,
    Backward,
    asks_gradients,
    compiled_operator,
    exp_oracle_backward,
    gradient_of_plain,
    log_partition_backward,
    no_labels,
    no_samples,
    save_inputs_and_statistics,
    tangents_backward,
    without_statistics,
    zeros_like_scores,
)
from structsmooth.structures.oracles import Traits

compiled = LazyLoops("structsmooth.structures.chain.compiled")
_CHAINS = "Tensor unary, Tensor transition, Tensor lengths"


def checked_inputs(unary: Tensor, transition: Tensor, lengths: Tensor, *others: Any) -> tuple[Tensor, ...]:
    """Tensors, with lengths that do not lead out of them."""
    check_lengths(lengths, unary.shape[1])
    return unary, transition, lengths, *(other for other in others if isinstance(other, Tensor))


def _pairs(unary: Tensor) -> int:
    """Number of pairs of labels of neighbours."""
    return unary.numel() * unary.shape[2]


def _best(unary: Any, transition: Any, lengths: Any, values: Any, y: Any, begin: int, end: int) -> None:
    if values.shape[1] == 1:
        compiled.batch_viterbi(unary, transition, lengths, values, y, begin, end)
    else:
        compiled.batch_top_k(unary, transition, lengths, values.shape[1], values, y, begin, end)


def save_found(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what the gradient of the top-K oracle needs: the outputs, and the shapes of the scores."""
    unary, transition, lengths, _ = inputs
    ctx.save_for_backward(lengths, *output)
    ctx.states, ctx.transition_shape = unary.shape[-1], transition.shape


def found_backward(weighted_parts: str) -> Backward:
    """The gradient of the top-K oracle, by an operator of this name, which is faster than by scores of the outputs."""

    def backward(ctx: Any, grad: Tensor, _grad_y: Tensor) -> tuple[Tensor, Tensor]:
        lengths, values, y = ctx.saved_tensors
        weights = torch.where(values > -torch.inf, grad, 0.0)
        node, edge = OPERATORS[weighted_parts](weights, y, lengths, ctx.states, ctx.transition_shape)
        return node, edge

    return backward


top_k = compiled_operator(
    f"chain_top_k({_CHAINS}, SymInt k) -> (Tensor, Tensor)",
    results=no_labels,
    loop=_best,
    reads=checked_inputs,
    operations=lambda unary, transition, lengths, k: k * _pairs(unary),
    gradient=found_backward("chain_weighted_parts"),
    save=save_found,
)
"""Values [B, k] and outputs [B, k, T] (Algorithm 2)."""


def parts_backward(scores: str) -> Backward:
    """The gradient of weighted sums of parts, by an operator of this name for scores of the outputs."""

    def backward(ctx: Any, grad_node: Tensor, grad_edge: Tensor) -> tuple[Tensor]:
        _, y, lengths = ctx.saved_tensors
        return (OPERATORS[scores](grad_node, grad_edge, lengths, y),)

    return backward


weighted_parts = compiled_operator(
    "chain_weighted_parts(Tensor weights, Tensor y, Tensor lengths, SymInt states, SymInt[] transition_shape)"
    " -> (Tensor, Tensor)",
    results=lambda weights, y, lengths, states, transition_shape: (
        weights.new_zeros(y.shape[0], y.shape[2], states),
        weights.new_zeros(transition_shape),
    ),
    loop=lambda *arrays: compiled.batch_parts(*arrays[:-2]),
    operations=lambda *_: 0,
    gradient=parts_backward("chain_scores"),
)
"""Weighted sums of the parts of outputs y [B, K, T], with weights [B, K]: [B, T, S] and ``transition_shape``."""


def _score(unary: Any, transition: Any, lengths: Any, y: Any, scores: Any, *_all: int) -> None:
    if not compiled.batch_scores(unary, transition, lengths, y, scores):
        _refuse_labels(unary, lengths, y)


def _refuse_labels(unary: Any, lengths: Any, y: Any) -> None:
    mask = length_mask(torch.from_numpy(lengths), y.shape[2])
    require_labels(torch.from_numpy(y).masked_select(mask.unsqueeze(1)), unary.shape[2])


def save_shapes(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    """Keep what the gradient of scores needs: the outputs, and the shapes of the scores."""
    unary, transition, lengths, y = inputs
    ctx.save_for_backward(lengths, y)
    ctx.states, ctx.transition_shape = unary.shape[-1], transition.shape


def scores_backward(weighted_parts: str) -> Backward:
    """The gradient of scores of outputs, by an operator of this name for weighted sums of parts."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        lengths, y = ctx.saved_tensors
        node, edge = OPERATORS[weighted_parts](grad, y, lengths, ctx.states, ctx.transition_shape)
        return node, edge

    return backward


scores = compiled_operator(
    f"chain_scores({_CHAINS}, Tensor y) -> Tensor",
    results=lambda unary, transition, lengths, y: unary.new_empty(y.shape[:2]),
    loop=_score,
    reads=checked_inputs,
    operations=lambda *_: 0,
    gradient=scores_backward("chain_weighted_parts"),
    save=save_shapes,
)
"""Scores [B, K] of outputs [B, K, T]."""


def _moved(
    potentials: tuple[Tensor, Tensor], weights: tuple[Tensor | None, Tensor | None], lengths: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    """Gradients of ⟨weights, marginals⟩ by potentials, of which each example may have its own as far as weights do."""
    (unary, transition), (node, edge) = potentials, weights
    node = torch.zeros_like(unary) if node is None else node
    edge = node.new_zeros(len(unary), *transition.shape[1:]) if edge is None else edge
    moved = tangents(unary, transition.expand(edge.shape), node, edge, lengths)
    return moved[0], moved[1].sum_to_size(transition.shape)


def _sum(unary: Any, transition: Any, lengths: Any, y: Any, *results: Any) -> None:
    if not compiled.batch_marginals(unary, transition, lengths, y, *results):
        _refuse_labels(unary, lengths, y)


def _no_marginals(
    unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor, per_edge: bool
) -> tuple[Tensor, Tensor, Tensor]:
    batch, steps, states = unary.shape
    edge = unary.new_zeros(batch, steps - 1 if per_edge else 1, states, states)
    return unary.new_zeros(batch), unary.new_zeros(unary.shape), edge


log_partition_and_marginals = compiled_operator(
    f"chain_marginals({_CHAINS}, Tensor y, bool per_edge) -> (Tensor, Tensor, Tensor)",
    results=_no_marginals,
    loop=_sum,
    reads=checked_inputs,
    operations=lambda unary, *_: 4 * _pairs(unary),
    finish=without_statistics,
    gradient=exp_oracle_backward(_moved),
    save=save_inputs_and_statistics,
)
"""Log-partition [B], node marginals [B, T, S] and edge marginals [B, T-1, S, S], or [B, 1, S, S] summed over t.

Of outputs y [B, 1, T], in place of [B, 0, T], scores and parts are subtracted: the log-partition becomes minus their
log-probability, +inf if that is no number, and the marginals its derivatives.
"""

tangents = compiled_operator(
    "chain_tangents(Tensor unary, Tensor transition, Tensor node, Tensor edge, Tensor lengths) -> (Tensor, Tensor)",
    results=lambda unary, transition, node, edge, lengths: (unary.new_zeros(unary.shape), unary.new_zeros(edge.shape)),
    loop=compiled.batch_tangents,
    reads=lambda *tensors: (*tensors[:4], *checked_inputs(*tensors[:2], tensors[4])[2:]),
    operations=lambda unary, *_: 10 * _pairs(unary),
    gradient=tangents_backward("chain_tangents", reference.log_partition, 2),
)
"""Derivatives of node marginals and edge marginals in directions ``node`` [B, T, S] and ``edge`` [B, E, S, S].

Transitions are [B, E, S, S], too; results are shaped as the directions.
"""


def has_edges(transition: Tensor) -> bool:
    """Whether pairs of neighbours may have transitions [1 or B, 1 or T-1, S, S] of their own.

    They have if their number is open in an exported program, which may not depend on what it is.
    """
    pairs: int | torch.SymInt = transition.shape[1]
    return isinstance(pairs, torch.SymInt) or pairs != 1


traits, smoothed_top_k = Traits(checks_labels=True, differentiates_top_k=True), None


def exp_oracle(unary: Tensor, transition: Tensor, lengths: Tensor, per_edge: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition [B], node marginals [B, T, S] and edge marginals [B, T-1, S, S], or [B, 1, S, S] summed over t."""
    none = lengths.new_empty(unary.shape[0], 0, unary.shape[1])
    return log_partition_and_marginals(unary, transition, lengths, none, per_edge)


def sums(unary: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition [B], and marginals of nodes and edges; of transitions that are shared, the sums over positions."""
    return exp_oracle(unary, transition, lengths, has_edges(transition))


_value = compiled_operator(
    f"chain_log_partition({_CHAINS}) -> Tensor",
    results=lambda unary, *_: unary.new_empty(unary.shape[0]),
    loop=compiled.batch_log_partition,
    reads=checked_inputs,
    operations=lambda unary, *_: 2 * _pairs(unary),
    gradient=log_partition_backward(lambda *arguments: sums(*arguments)[1:]),
)
"""Log-partition [B] alone."""


def log_partition(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Log-partition [B]; if a gradient is asked, by the pass that finds it, too, since two take longer."""
    if asks_gradients(unary, transition):
        return sums(unary, transition, lengths)[0]
    log_z: Tensor = _value(unary, transition, lengths)
    return log_z


def node_marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Node marginals [B, T, S]."""
    return sums(unary, transition, lengths)[1]


def surprisals(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    """Minus the log-probabilities [B] of outputs [B, T]; +inf if one is no number."""
    return log_partition_and_marginals(unary, transition, lengths, y.unsqueeze(1), has_edges(transition))[0]


def marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Node marginals [B, T, S] and edge marginals [B, T-1, S, S]."""
    return exp_oracle(unary, transition, lengths, True)[1:]


max_marginals = compiled_operator(
    f"chain_max_marginals({_CHAINS}) -> Tensor",
    results=zeros_like_scores,
    loop=compiled.batch_max_marginals,
    reads=checked_inputs,
    operations=lambda unary, *_: 2 * _pairs(unary),
    gradient=gradient_of_plain(reference.max_marginals, 2),
)
"""Max-marginals [B, T, S]."""

filtered = compiled_operator(
    f"chain_filtered({_CHAINS}) -> Tensor",
    results=zeros_like_scores,
    loop=compiled.batch_filtered,
    reads=checked_inputs,
    operations=lambda unary, *_: 2 * _pairs(unary),
    gradient=gradient_of_plain(reference.filtered, 2),
)
"""Marginals [B, T, S] of each position without the scores behind it."""

sample = compiled_operator(
    f"chain_sample({_CHAINS}, Tensor uniform) -> Tensor",
    results=no_samples,
    loop=compiled.batch_sample,
    reads=checked_inputs,
    operations=lambda unary, transition, lengths, uniform: 2 * unary.numel() * (unary.shape[2] + uniform.shape[1]),
)
"""Samples [B, n, T] at uniform numbers of that shape."""
