"""Statistics of linear chains, packed: what states of a run keep for large data."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.compiled.arguments import checked
from structsmooth.lazy import LazyModule
from structsmooth.problems.linear.chain.data import ChainData, Part

compiled_packed = LazyModule("structsmooth.problems.linear.chain.compiled_packed")

# A digest of the lengths of sequences, and numbers of sequences, rows, states and entries.
_HEADER, _STATES = 5, 3


@dataclass(frozen=True)
class Packed:
    """Statistics of all sequences, of which few rows have more than a single 1.

    A label that is certain has a row with a single 1, and most transitions do not occur at all: such rows take two
    bytes. All values are kept as they are.
    """

    words: Tensor
    """Everything in one tensor, int64 [words]: what states hold."""

    @classmethod
    def empty(cls, data: ChainData, entries: int) -> "Packed":
        """Packed statistics whose values are still to be filled in."""
        rows = len(data.labels) + data.n * data.states
        return cls.of_sizes(data.digest, data.n, rows, data.states, entries)

    @classmethod
    def of_sizes(cls, digest: int, n: int, rows: int, states: int, entries: int) -> "Packed":
        """The same, by what the header has."""
        sizes = _sizes(n, rows, entries)
        words = torch.empty(_HEADER + sum(sizes), dtype=torch.int64)
        words[:_HEADER] = torch.tensor([digest, n, rows, states, entries])
        for narrow in words[_HEADER:].split(sizes)[1:3]:
            narrow[-1:] = 0  # what the last word has beyond them: equal statistics are equal words
        return cls(words)

    @cached_property
    def arrays(self) -> tuple[Any, ...]:
        """Starts, kinds, columns and values, as compiled passes take them."""
        _, n, rows, _, entries = self.words[:_HEADER].tolist()
        starts, kinds, columns, values = self.words[_HEADER:].split(_sizes(n, rows, entries))
        narrow = (kinds.view(torch.int16)[:rows], columns.view(torch.int16)[:entries])
        return tuple(part.numpy() for part in (starts, *narrow, values.view(torch.float64)))

    def part(self, part: Part) -> tuple[Any, ...]:
        """The arrays of some sequences; token t of all has kind t there."""
        starts, kinds, columns, values = self.arrays
        return starts[part.begin : part.end + 1], kinds[part.begin * part.data.states :], columns, values


def packed(data: ChainData, statistics: Tensor) -> Packed:
    """The packed form of statistics, which may have it already: first starts and kinds are filled in, then entries."""
    if _is_packed(statistics):
        return _checked(data, statistics)
    rows, offsets = data.checked_statistics(statistics).numpy(), data.arrays.offsets
    counted = Packed.empty(data, 0)
    compiled_packed.pack(rows, offsets, counted.arrays)
    full = Packed.empty(data, int(counted.arrays[0][-1]))
    compiled_packed.pack(rows, offsets, full.arrays)
    return full


def packed_labels(data: ChainData) -> Packed:
    """The packed statistics of the labels: what else than a single 1 a row may have is a pair that occurs often."""
    offsets, labels, states = data.sequences.offsets, data.labels, data.states
    node_rows, sequence = data.token_rows()
    first_rows = offsets + states * torch.arange(data.n + 1)
    following = torch.arange(len(labels)) > offsets[sequence]
    edge_rows = (offsets[1:] + states * torch.arange(data.n))[sequence[1:]] + labels[:-1]
    pairs, counts = (edge_rows * states + labels[1:])[following[1:]].unique(return_counts=True)
    rows, columns = pairs // states, pairs % states
    _, of_row, entries = rows.unique_consecutive(return_inverse=True, return_counts=True)
    single = (entries[of_row] == 1) & (counts == 1)
    full = Packed.empty(data, int((~single).sum()))
    starts, kinds, kept_columns, values = map(torch.from_numpy, full.arrays)
    starts.copy_(torch.searchsorted(rows[~single], first_rows))
    kinds.fill_(compiled_packed.EMPTY)[node_rows] = labels.to(kinds.dtype)
    kinds[rows] = torch.where(single, columns, compiled_packed.EMPTY - entries[of_row]).to(kinds.dtype)
    kept_columns.copy_(columns[~single])
    values.copy_(counts[~single])
    return full


def unpacked(data: ChainData, statistics: Tensor) -> Tensor:
    """Statistics as one vector of float64, which they may be already."""
    if not _is_packed(statistics):
        return statistics
    rows = torch.empty(len(data.labels) + data.n * data.states, data.states, dtype=torch.float64)
    compiled_packed.unpack(_checked(data, statistics).arrays, data.arrays.offsets, rows.numpy())
    return rows.view(-1)


def piece(words: Tensor, rows: Tensor, sequences: range) -> Tensor:
    """The packed statistics of neighbouring sequences, for :func:`joined`, from those of all, with ``rows`` [n] each.

    They say nothing of lengths, and so are of no problem yet.
    """
    starts, kinds, columns, values = Packed(words).arrays
    begin, end = (int(rows[:bound].sum()) for bound in (sequences.start, sequences.stop))
    first, last = (int(starts[bound]) for bound in (sequences.start, sequences.stop))
    own_starts = starts[sequences.start : sequences.stop + 1] - first
    states = int(words[_STATES])
    return _filled((0, len(sequences), states), own_starts, kinds[begin:end], columns[first:last], values[first:last])


def joined(data: ChainData, pieces: Sequence[Tensor]) -> Packed:
    """The packed statistics of sequences, from the pieces that they are in.

    Raises:
        ValueError: the pieces are of other sequences.
    """
    arrays = [Packed(words).arrays for words in pieces]
    before = np.cumsum([0, *(len(columns) for _, _, columns, _ in arrays)])
    starts = [starts[:-1] + first for (starts, *_), first in zip(arrays, before[:-1], strict=True)]
    narrow = [np.concatenate(parts) for parts in list(zip(*arrays, strict=True))[1:]]
    header = (data.digest, data.n, data.states)
    return _checked(data, _filled(header, np.concatenate([*starts, before[-1:]]), *narrow))


def _filled(header: tuple[int, int, int], starts: Any, kinds: Any, columns: Any, values: Any) -> Tensor:
    """The words of packed statistics, from a digest, numbers of sequences and states, and the arrays."""
    digest, n, states = header
    full = Packed.of_sizes(digest, n, len(kinds), states, len(columns))
    for array, found in zip(full.arrays, (starts, kinds, columns, values), strict=True):
        array[:] = found
    return full.words


class Changes:
    """What the steps of an epoch make of packed statistics, which stay as they are.

    A step adds the parts of an output, and perhaps those of outputs that the example holds. Each may give two entries:
    its own, and the 1 that its row had. An example that outgrows its space gets twice as much, so that it takes less
    than five times what it needs in the end; or space for all that its rows may have.

    The arrays are as long as that may ever need; the system provides no more memory than what is used. They are those
    of torch, since NumPy asks for large pages, of which few that are used would make up much memory.
    """

    def __init__(self, data: ChainData, before: Packed, steps: int, held: int) -> None:
        self.data, self.before = data, before
        kinds = before.arrays[1].copy()
        parts = 2 * int(data.sequences.lengths.max())
        most = min(4 * len(kinds) * data.states, 5 * (len(before.arrays[2]) + steps * 2 * parts * (1 + held)))
        entries = (torch.empty(most, dtype=dtype).numpy() for dtype in (torch.int16, torch.float64))
        places = (np.full(data.n, -1), np.empty(data.n, np.int64), np.zeros(1, np.int64))
        self.arrays = (kinds, *entries, *places)

    def packed(self) -> Packed:
        """The statistics after the epoch."""
        starts, kinds = np.empty(self.data.n + 1, np.int64), self.arrays[0]
        compiled_packed.count_changed(self.data.arrays.offsets, self.data.states, kinds, starts)
        after = Packed.empty(self.data, int(starts[-1]))
        after.arrays[0][:], after.arrays[1][:] = starts, kinds
        compiled_packed.gather_changed(self.before.arrays, self.arrays, *after.arrays[::2], after.arrays[3])
        return after


def _is_packed(statistics: Tensor) -> bool:
    return isinstance(statistics, Tensor) and statistics.dtype == torch.int64


def _checked(data: ChainData, words: Tensor) -> Packed:
    """Packed statistics, if they are of these sequences."""
    words = checked("statistics", words, torch.int64, -1)
    expected = [data.digest, data.n, len(data.labels) + data.n * data.states, data.states]
    *header, entries = words[:_HEADER].tolist() or [0]
    if header != expected or len(words) != _HEADER + sum(_sizes(expected[1], expected[2], entries)):
        raise ValueError(
            f"statistics must be of {data.n} sequences with {len(data.labels)} tokens and {data.states} labels, "
            "got packed ones of others"
        )
    return Packed(words)


def _sizes(n: int, rows: int, entries: int) -> list[int]:
    """Words that starts, kinds, columns and values take."""
    return [n + 1, -(-rows // 4), -(-entries // 4), entries]
