"""Structures whose oracles run on the CPU copy their scores to it once, wherever these are."""

import pytest
import torch
from structure_members import MEMBERS
from torch import Tensor
from torch.testing import assert_close

from structsmooth.structures import operators


@pytest.mark.parametrize("name", ["BinaryGraph", "Matching", "FactorGraph"])
def test_an_oracle_takes_one_copy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried on the CPU, as if it were another device."""
    structure = MEMBERS[name].structure("tiny")
    expected, copies, to_cpu = structure.topk(2), [], Tensor.cpu

    def counting(tensor: Tensor) -> Tensor:
        if tensor.dtype == torch.uint8:  # copies of what is there already take nothing
            copies.append(len(tensor))
        return to_cpu(tensor)

    # The oracles of a factor graph are called with what has been copied, which is on the CPU.
    monkeypatch.setattr(operators, "is_on_cpu", lambda tensor: name == "FactorGraph" and bool(copies))
    monkeypatch.setattr(Tensor, "cpu", counting)
    assert_close(structure.topk(2), expected, rtol=0, atol=0)
    assert len(copies) == 1
    assert copies[0] >= sum(scores.nbytes for scores in structure.potentials)


def test_copies_keep_shapes_and_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "is_on_cpu", lambda tensor: False)
    own = [torch.arange(3) > 1, torch.rand(2, 3).mT, torch.arange(4.0).half(), torch.zeros(0, 2).double()]
    assert_close(operators.on_cpu(*own), own, rtol=0, atol=0)
