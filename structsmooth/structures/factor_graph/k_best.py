"""The k best outputs by elimination: values forwards, with the choices that they came from, and choices backwards."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class Ranked(NamedTuple):
    """The best values [..., K] in descending order, and where each of them was among all that were compared."""

    values: Tensor
    origin: Tensor


def ranked(values: Tensor, k: int) -> Ranked:
    """The k best (or all, if there are fewer) of the last dimension; ties go to the lowest index."""
    if k == 1:
        return Ranked(*values.max(-1, keepdim=True))
    ordered = values.sort(dim=-1, descending=True, stable=True)
    return Ranked(ordered.values[..., :k], ordered.indices[..., :k])


class Merge(NamedTuple):
    """How a list of values was made of two: entry ``origin`` is left slot · ``width`` + right slot."""

    child: int  # the message whose list is on the right
    width: int
    origin: Tensor  # [B, S, ..., S, K]


@dataclass(frozen=True)
class Merged:
    """Lists of values of the joint states of a scope, and how they were made of those of messages."""

    values: Tensor  # [B, S, ..., S, K]
    merges: tuple[Merge, ...] = ()

    def with_message(self, child: int, message: Tensor, k: int) -> "Merged":
        """Values of pairs of entries of this list and of that of a message, which broadcasts to the scope."""
        pairs = (self.values.unsqueeze(-1) + message.unsqueeze(-2)).flatten(-2)
        values, origin = ranked(pairs, k)
        return Merged(values, (*self.merges, Merge(child, message.shape[-1], origin)))

    def slots(self, cell: Tensor, slot: Tensor) -> dict[int, Tensor]:
        """The slots [B, k] of all messages that entry ``slot`` [B, k] at a joint state [B, k] was made of."""
        found = {}
        for merge in reversed(self.merges):
            origin = at(merge.origin, cell, slot)
            found[merge.child], slot = origin % merge.width, origin // merge.width
        return found


def at(table: Tensor, cell: Tensor, slot: Tensor) -> Tensor:
    """Entries [B, k] of lists [B, S, ..., S, K] at joint states, numbered in order, and slots."""
    width = table.shape[-1]
    return table.flatten(1).gather(1, cell * width + slot)
