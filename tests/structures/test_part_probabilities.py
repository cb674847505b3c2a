"""Probabilities of the arcs and the segments of outputs, by enumeration."""

import pytest
import torch

from structsmooth import ProjectiveTree, SemiMarkov, SpanningTree


def shares(structure, y):
    """For each part of an output, the probability of the outputs that have it: [M]."""
    values, outputs = structure.topk(3000)
    found = values[0] > -torch.inf
    probabilities, every = values[0][found].softmax(0), structure.derivation(y).tolist()[0]
    uses = [set(structure.derivation(other[None]).tolist()[0]) for other in outputs[0][found]]
    return [sum(float(p) for p, used in zip(probabilities, uses, strict=True) if part in used) for part in every]


@pytest.mark.parametrize("kind", [ProjectiveTree, SpanningTree])
@pytest.mark.parametrize("labels", [None, 2])
def test_arcs(kind, labels):
    generator = torch.Generator().manual_seed(0)
    arcs, root = (torch.randn(2, *shape, generator=generator).double() for shape in ((4, 4), (4,)))
    of_labels = None if labels is None else torch.randn(2, 4, 4, labels, generator=generator).double()
    trees = kind(arcs, root, of_labels, torch.tensor([4, 3]))
    _, y = trees.max()
    found = trees.arc_probabilities(y)
    for row, words in enumerate((4, 3)):
        assert found[row, :words].tolist() == pytest.approx(shares(trees[row], y[row : row + 1])[:words], abs=1e-10)
    assert found[1, 3] == 0


@pytest.mark.parametrize("with_segments", [True, False])
def test_segments(with_segments):
    generator = torch.Generator().manual_seed(1)
    shapes = ((2, 5, 2), (2, 2), (3, 2), (2, 5, 3, 2))
    potentials = [torch.randn(*shape, generator=generator).double() for shape in shapes][: 3 + with_segments]
    structure = SemiMarkov(*potentials, lengths=torch.tensor([5, 3]))
    _, y = structure.max()
    found = structure.segment_probabilities(y)
    for row, steps in enumerate((5, 3)):
        starts = (y[row, :steps] >= 0).nonzero().flatten()
        expected = shares(structure[row], y[row : row + 1])
        assert found[row, starts].tolist() == pytest.approx([expected[t] for t in starts], abs=1e-10)
        assert float(found[row].sum()) == pytest.approx(float(found[row, starts].sum()))
