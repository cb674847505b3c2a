"""How unsure a distribution of outputs is, and which examples to look at first because of it."""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from structsmooth.structures import Structure

Rule = Literal["margin", "entropy", "length-normalized"]
"""By what examples are called uncertain."""

DEFAULT: Rule = "length-normalized"
"""The rule that ``python -m scripts annotation`` found best by the number of words annotated."""

_MOST_SHARED = 0.5  # of the distinct words of two examples that are not near-duplicates


def uncertainty(structure: Structure, by: Rule = DEFAULT) -> Tensor:
    """How unsure the distribution of each example of a batch is, the larger the less sure: float64 [B].

    Args:
        structure: whose scores are log-probabilities, up to a constant.
        by: ``"margin"`` for the logarithm of the probability of the second-best output minus that of the best one, at
            most 0, and −inf where there is only one; ``"entropy"`` for the entropy of all outputs, in nats;
            ``"length-normalized"`` for the same, which callers divide by lengths: see :func:`joined`.

    Raises:
        ValueError: an unknown rule.

    Example:
        >>> from structsmooth import Candidates
        >>> even, sure = torch.zeros(3), torch.tensor([9.0, 0.0, 0.0])
        >>> uncertainty(Candidates(torch.stack([even, sure])), "margin")
        tensor([ 0., -9.], dtype=torch.float64)
    """
    if by not in get_args(Rule):
        raise ValueError(f"by must be one of {', '.join(get_args(Rule))}, got {by!r}")
    with torch.no_grad():
        if by != "margin":
            return structure.entropy().double()
        values = structure.topk(2)[0].double()
        return values[:, 1] - values[:, 0]


def joined(pieces: Iterable[tuple[Sequence[int], Tensor]], lengths: Tensor, by: Rule) -> Tensor:
    """The uncertainty of examples whose pieces are independent, such as the sentences of a text: float64 [n].

    Entropies of pieces add. The second-best output of an example differs from the best one in a single piece, that of
    the smallest margin.

    Args:
        pieces: the numbers of the examples that pieces are of, and the :func:`uncertainty` of the pieces, in batches.
        lengths: of the examples, [n], by which entropies are divided if ``by`` says so.
        by: the rule.
    """
    found = torch.full((len(lengths),), -torch.inf if by == "margin" else 0.0, dtype=torch.float64)
    for numbers, values in pieces:
        found.scatter_reduce_(0, torch.tensor(numbers, dtype=torch.int64), values, "amax" if by == "margin" else "sum")
    return found / lengths.clamp_min(1) if by == "length-normalized" else found


def spread(order: Iterable[int], words: Sequence[frozenset[str]], count: int) -> list[int]:
    """The first examples of an order that are no near-duplicates of one before them: at most ``count`` numbers.

    Two examples are near-duplicates if they share more than half of the distinct words that either of them has.

    Args:
        order: numbers of the examples, the most wanted first.
        words: the distinct words of each example; examples without words are no near-duplicates of any.
        count: of examples wanted.

    Example:
        >>> texts = ["the bank lends", "the bank lends again", "she sang"]
        >>> spread([1, 0, 2], [frozenset(text.split()) for text in texts], 2)
        [1, 2]
    """
    chosen: list[int] = []
    for number in order:
        if len(chosen) >= count:
            break
        own, others = words[number], (words[other] for other in chosen)
        if all(len(own & other) <= _MOST_SHARED * len(own | other) for other in others):
            chosen.append(number)
    return chosen
