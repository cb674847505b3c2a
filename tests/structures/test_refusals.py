"""Bad potentials, labels, costs and k are refused by every structure, in its constructor and by its methods."""

import re
from inspect import signature
from typing import Any

import torch
from member import Member, potentials_of, rows, with_potentials
from refusals import Refusals, refusing
from structure_members import MEMBERS, box_candidates, every
from torch import Tensor

from structsmooth import Hamming, Matching, Structure

NAN, NOTHING = torch.nan, torch.zeros(())
# The argument of hidden Markov models that becomes a potential has another name.
BUILT_IN = {name: member for name, member in MEMBERS.items() if name not in ("SearchSpace", "HiddenMarkov")}


def shape_of(tensor: Tensor) -> str:
    return re.escape(str(tuple(tensor.shape)))


def spoiled(good: Tensor, used: Tensor, entry: float) -> Tensor:
    """With one bad entry, the last of those that are in use."""
    last = used.expand_as(good).nonzero()[-1]
    return good.index_put(tuple(last), torch.tensor(entry, dtype=good.dtype))


def bad_potentials(name: str, good: Tensor, used: Tensor) -> dict[str, tuple[Any, type[Exception], str]]:
    """What is refused in the place of good potentials, and how."""
    kind, number, shape = f"{name} must be a torch.Tensor", f"{name} must be floating point", f"{name} must have shape"
    finite = rf"{name} must not contain NaN or \+inf"
    return {
        "a list": (good.tolist(), TypeError, f"{kind}, got list"),
        "an array": (good.numpy(), TypeError, f"{kind}, got ndarray"),
        "None": (None, TypeError, f"{kind}, got NoneType"),
        "integers": (torch.ones_like(good, dtype=torch.int64), TypeError, f"{number}, got torch.int64"),
        "booleans": (good > 0, TypeError, f"{number}, got torch.bool"),
        "complex": (good * 1j, TypeError, f"{number}, got torch.complex128"),
        "without the last dimension": (good[..., 0], ValueError, rf"{shape} .* got {shape_of(good[..., 0])}"),
        "with a dimension too many": (good[None], ValueError, rf"{shape} .* got {shape_of(good[None])}"),
        "empty": (good[..., :0], ValueError, rf"{shape} .* got {shape_of(good[..., :0])}"),
        "NaN": (spoiled(good, used, NAN), ValueError, finite),
        "+inf": (spoiled(good, used, torch.inf), ValueError, finite),
        "elsewhere": (good.to("meta"), ValueError, "must be on the device of .*, (cpu, got meta|meta, got cpu)"),
    }


def calls_with_bad_potentials(member: Member) -> Refusals:
    instance = member.random("tiny")
    structure, potentials = member.build(*instance), potentials_of(instance)
    used = member.used(*instance) if member.used else [torch.ones_like(p, dtype=torch.bool) for p in potentials]
    parameters = signature(type(structure)).parameters.values()
    optional = {parameter.name for parameter in parameters if parameter.default is None}
    cases: Refusals = {}
    for i, name in enumerate(structure.potential_names):
        for defect, (bad, error, message) in bad_potentials(name, potentials[i], used[i]).items():
            wrong = [*potentials[:i], bad, *potentials[i + 1 :]]
            arguments = with_potentials(instance, wrong)
            if defect == "empty" and isinstance(structure, Matching):
                continue  # which may have no columns
            # One tensor alone may be anywhere, boxes need scores that they fit, and what has a default may be left out.
            excused = {"elsewhere": len(instance) == 1, "None": name in optional}
            if member.build is not box_candidates and not excused.get(defect):
                cases[f"{name}: {defect}"] = (lambda a=arguments: member.build(*a), error, message)
            cases[f"replacing {name}: {defect}"] = (lambda p=wrong: structure.replace(*p), error, message)
    return cases


def bad_calls(structure: Structure, y: Tensor, single: Structure) -> Refusals:
    """Calls of the methods of a structure; ``single`` is its first example."""
    augmented, first = structure.cost_augmented, structure.potentials[0]
    count, large = len(structure.potentials), torch.zeros(7, 7, 7, 7, 7)
    k, integers, labels = "k must be", "y must hold integer", "y must hold (labels|boxes)"
    shape, elsewhere = r"y must have shape \[B.*\] =", "y must be on the device of .*, cpu, got meta"
    cost, each = "cost must be a cost, a tensor", "cost must have one"
    broadcast = "cost must broadcast to the potentials of shape"
    return {
        "k is 0": (lambda: structure.topk(0), ValueError, f"{k} at least 1, got 0"),
        "k is negative": (lambda: structure.topk(-3), ValueError, f"{k} at least 1, got -3"),
        "k is a float": (lambda: structure.topk(2.0), TypeError, f"{k} an int, got float"),
        "k is a boolean": (lambda: structure.topk(True), TypeError, f"{k} an int, got bool"),
        "k is None": (lambda: structure.topk(None), TypeError, f"{k} an int, got NoneType"),
        "y is a list": (lambda: structure.score(y.tolist()), TypeError, "y must be a torch.Tensor, got list"),
        "y holds floats": (lambda: structure.score(y * 1.0), TypeError, f"{integers} .*, got torch.float32"),
        "y holds booleans": (lambda: structure.parts(y > 0), TypeError, f"{integers} .*, got torch.bool"),
        "y of one example": (lambda: structure.parts(y[0]), ValueError, rf"{shape} .*, got {shape_of(y[0])}"),
        "y of a batch too large": (lambda: structure.score(torch.cat([y, y])), ValueError, f"{shape} .*, got "),
        "y with a dimension too many": (lambda: structure.score(y[..., None]), ValueError, f"{shape} .*, got "),
        "y elsewhere": (
            lambda: structure.score(y.to("meta")),
            ValueError,
            elsewhere,
        ),
        "labels too large": (lambda: structure.score(y + 100), ValueError, labels),
        "labels too small": (lambda: structure.parts(y - 100), ValueError, labels),
        "a list to cost": (lambda: augmented(y.tolist(), NOTHING), TypeError, "y must be a torch.Tensor, got list"),
        "floats to cost": (lambda: augmented(y * 1.0, Hamming()), TypeError, integers),
        "labels too long to cost": (lambda: augmented(y[..., None], Hamming()), ValueError, shape),
        "labels too large to cost": (lambda: augmented(y + 100, Hamming()), ValueError, labels),
        "a string as cost": (lambda: augmented(y, "hamming"), TypeError, f"{cost} .*, got str"),
        "a list as cost": (lambda: augmented(y, [NOTHING] * count), TypeError, f"{cost} .*, got list"),
        "a cost that gives a list": (lambda: augmented(y, lambda *_: [1.0]), TypeError, f"{cost} .*, got list"),
        "numbers as costs": (lambda: augmented(y, (0.0,) * count), TypeError, f"{cost} .*, got tuple"),
        "too many costs": (lambda: augmented(y, (NOTHING,) * (count + 1)), ValueError, f"{each} .*, got {count + 1}"),
        "no costs": (lambda: augmented(y, ()), ValueError, f"{each} .*, got 0"),
        "a cost too large": (lambda: augmented(y, large), ValueError, f"{broadcast} {shape_of(first)}, got"),
        "a last cost too large": (
            lambda: augmented(y, (*[NOTHING] * (count - 1), large)),
            ValueError,
            f"{broadcast} {shape_of(structure.potentials[-1])}, got {shape_of(large)}",
        ),
        "a cost of other sizes": (lambda: augmented(y, torch.zeros(first.shape[-1] + 7)), ValueError, broadcast),
        "a cost of more examples": (
            lambda: single.cost_augmented(y[:1], torch.zeros_like(first)),
            ValueError,
            f"{broadcast} {shape_of(single.potentials[0])}, got {shape_of(first)}",
        ),
        "a cost of NaN": (lambda: augmented(y, torch.full((), NAN)), ValueError, "must not contain NaN"),
        "replacing by too few": (lambda: structure.replace(), ValueError, "replace takes .*potentials, .*, got 0"),
        "replacing by too many": (
            lambda: structure.replace(*structure.potentials, first),
            ValueError,
            f"replace takes .*, {' and '.join(structure.potential_names)}, got {count + 1}",
        ),
        "replacing by another size": (
            lambda: structure.replace(torch.cat([first] * 2, -1), *structure.potentials[1:]),
            ValueError,
            rf"{structure.potential_names[0]} must have shape {shape_of(first)} as before, got",
        ),
        "replacing by another batch": (
            lambda: structure.replace(*single.potentials),
            ValueError,
            rf"{structure.potential_names[0]} must have shape {shape_of(first)} as before, got",
        ),
    }


def calls(member: Member) -> Refusals:
    instance = member.random("tiny")
    y = member.labels(potentials_of(instance)[0])
    return bad_calls(member.build(*instance), y, member.build(*rows(instance, slice(1))))


def bad_lengths() -> Refusals:
    """Structures that take lengths, with lengths that are too large."""
    cases: Refusals = {}
    for name, member in BUILT_IN.items():
        instance = member.random("tiny")
        lengths = getattr(member.build(*instance), "lengths", torch.empty(0))
        for i, tensor in enumerate(instance):
            if torch.equal(tensor, lengths):
                wrong = [*instance[:i], lengths + 100, *instance[i + 1 :]]
                cases[name] = (lambda m=member, w=wrong: m.build(*w), ValueError, "lengths must be from 0 to")
    return cases


test_refuses_bad_potentials = refusing(
    {f"{name}: {c}": case for name, m in BUILT_IN.items() for c, case in calls_with_bad_potentials(m).items()}
)
test_refuses_bad_calls = refusing(
    {f"{name}: {c}": case for name, m in BUILT_IN.items() for c, case in calls(m).items()}
)
test_refuses_bad_lengths = refusing(bad_lengths())


@every()
def test_values_are_not_checked_on_request(member: Member) -> None:
    instance = member.random("tiny")
    bad = with_potentials(instance, [torch.full_like(scores, NAN) for scores in potentials_of(instance)])
    structure = member.build(*bad, validate_args=False)
    assert structure.replace(*structure.potentials).validate_args is False
    assert member.build(*instance).validate_args is True
    assert structure.checked_labels(member.labels(structure.potentials[0]) + 100).dtype == torch.int64
