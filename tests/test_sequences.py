"""Sparse sequences against lists of lists."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from structsmooth.problems import SparseSequences
from structsmooth.sequences import pad

Lists = list[list[list[int]]]  # sequences of tokens of attributes

tokens = st.lists(st.integers(0, 9), max_size=4)
sequences = st.lists(st.lists(tokens, min_size=1, max_size=4), max_size=5)


def pack(lists: Lists) -> SparseSequences:
    flat = [token for sequence in lists for token in sequence]

    def offsets(rows: list[list[object]]) -> Tensor:
        return torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)

    attributes = torch.tensor([a for token in flat for a in token], dtype=torch.int32)
    return SparseSequences(attributes, offsets(flat), offsets(lists))


def unpack(x: SparseSequences) -> Lists:
    rows = [x.attributes[a:b].tolist() for a, b in zip(x.token_offsets, x.token_offsets[1:], strict=False)]
    return [rows[a:b] for a, b in zip(x.offsets, x.offsets[1:], strict=False)]


@given(sequences)
def test_lengths(lists: Lists) -> None:
    x = pack(lists)
    assert unpack(x) == lists
    assert len(x) == len(lists)
    assert x.lengths.tolist() == [len(sequence) for sequence in lists]
    assert x.lengths.dtype == torch.int64


@given(sequences, st.data())
def test_select_takes_sequences_in_any_order_and_number(lists: Lists, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, len(lists) - 1)) if lists else st.just([]))
    x = pack(lists)
    selected = x.select(torch.tensor(indices, dtype=torch.int64))
    assert unpack(selected) == [lists[i] for i in indices]
    assert unpack(x) == lists


@given(sequences.filter(len), st.data())
def test_tokens_are_positions_in_the_corpus(lists: Lists, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, len(lists) - 1)))
    numbers, count = [], 0
    for sequence in lists:
        numbers.append(list(range(count, count + len(sequence))))
        count += len(sequence)
    positions = pack(lists).tokens(torch.tensor(indices, dtype=torch.int64))
    assert positions.tolist() == [t for i in indices for t in numbers[i]]


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
@pytest.mark.parametrize("width", [(), (2,), (2, 3)])
def test_pad(width: tuple[int, ...], dtype: torch.dtype) -> None:
    values = torch.arange(1, 7).view(6, *[1] * len(width)).expand(6, *width).to(dtype)
    padded = pad(values, torch.tensor([1, 3, 2]))
    assert padded.shape == (3, 3, *width)
    assert padded.dtype == dtype
    expected = torch.tensor([[1, 0, 0], [2, 3, 4], [5, 6, 0]]).view(3, 3, *[1] * len(width)).expand_as(padded)
    assert torch.equal(padded, expected.to(dtype))


def test_pad_passes_gradients() -> None:
    values = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: pad(v, torch.tensor([1, 3])), values)
