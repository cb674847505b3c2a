"""The CRF layer: the behaviour of pytorch-crf, with any loss, names and constraints."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from structsmooth import StructuralHinge
from structsmooth.models import CRF
from structsmooth.text.schemes import transition_mask

torchcrf = pytest.importorskip("torchcrf")
EMISSIONS = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.tensor([[0, 1, 2, 3, 0], [1, 1, 0, 0, 0], [2, 3, 1, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])


def pair() -> tuple[CRF, Any]:
    """Our layer and that of pytorch-crf, with the same scores."""
    ours, theirs = CRF(4).double(), torchcrf.CRF(4, batch_first=True).double()
    for mine, other in (
        (ours.start, theirs.start_transitions),
        (ours.stop, theirs.end_transitions),
        (ours.transition, theirs.transitions),
    ):
        assert 0 < mine.detach().abs().max() <= 0.1  # of first scores, as theirs
        mine.data.copy_(other.data)
    return ours, theirs


@pytest.mark.parametrize(
    ("ours", "theirs"), [("none", "none"), ("sum", "sum"), ("mean", "mean"), ("token", "token_mean")]
)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_losses_and_gradients_are_those_of_pytorch_crf(ours: Any, theirs: str, dtype: torch.dtype) -> None:
    crf, other = pair()
    loss = crf.loss(EMISSIONS, Y, MASK.to(dtype), reduction=ours)
    expected = -other(EMISSIONS, Y, mask=MASK.bool(), reduction=theirs)
    assert_close(loss, expected)
    loss.sum().backward()
    expected.sum().backward()
    for mine, its in ((crf.start, other.start_transitions), (crf.transition, other.transitions)):
        assert_close(mine.grad, its.grad)


def test_decoding_is_that_of_pytorch_crf() -> None:
    crf, other = pair()
    assert crf.decode(EMISSIONS, MASK) == other.decode(EMISSIONS, MASK.bool())
    assert crf.decode(EMISSIONS) == other.decode(EMISSIONS, torch.ones(3, 5, dtype=torch.bool))
    assert_close(crf.log_prob(EMISSIONS, Y, MASK), other(EMISSIONS, Y, mask=MASK.bool(), reduction="none"))


def test_names_constraints_and_other_losses() -> None:
    tags = ["O", "B-PER", "I-PER", "B-LOC"]
    crf = CRF(tags, transition_mask(tags, "BIO"), objective=lambda reduction: StructuralHinge(reduction=reduction))
    emissions = torch.zeros(1, 3, 4)
    emissions[0, :, 2] = 9.0  # I-PER everywhere
    assert crf.decode(emissions) == [["B-PER", "I-PER", "I-PER"]]
    right = crf.loss(emissions, torch.tensor([[1, 2, 2]]), reduction="none")
    assert 0 <= right.item() < 1
    assert len([*crf.state_dict()]) == 3


def test_refuses() -> None:
    with pytest.raises(ValueError, match="constraints must be of 3 tags, got 2"):
        CRF(3, transition_mask(["O", "B-X"], "BIO"))
    with pytest.raises(ValueError, match="tags must be at least 1"):
        CRF([])
