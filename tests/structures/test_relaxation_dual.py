"""Local search on factor graphs: compiled and plain torch alike."""

import torch

from structsmooth.structures.factor_graph.layout import Layout
from structsmooth.structures.factor_graph.relaxation_dual import RelaxationDual


def plainly_improved(problem: RelaxationDual, y: torch.Tensor, sweeps: int) -> torch.Tensor:
    """Node after node in the order of colors, by the scores of all outputs that differ there."""
    y = y.clone()
    for _ in range(sweeps):
        for b in range(len(y)):
            for v in sorted(range(y.shape[1]), key=lambda v: (int(problem.color[b, v]), v)):
                if not problem.layout.node_mask[b, v]:
                    continue
                outputs = y[b].repeat(problem.unary.shape[-1], 1)
                outputs[:, v] = torch.arange(problem.unary.shape[-1])
                one = RelaxationDual(
                    *(t[b].expand(len(outputs), *t[b].shape) for t in (problem.unary, problem.pairwise)),
                    Layout(*(t[b].expand(len(outputs), *t[b].shape) for t in problem.layout)),
                )
                scores = one.value(one.vertex(outputs))
                if scores.max() > scores[y[b, v]]:
                    y[b, v] = scores.argmax()
    return y


def test_improvements_are_the_best_labels_given_the_neighbours() -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.tensor([[0, 1], [2, 1], [2, 0], [3, 2], [3, 4]])
    node_mask, edge_mask = torch.ones(4, 5, dtype=torch.bool), torch.ones(4, 5, dtype=torch.bool)
    node_mask[1, 4], edge_mask[1, 4] = False, False
    layout = Layout(edges.expand(4, -1, -1), node_mask, edge_mask)
    unary = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64) * node_mask[..., None]
    pairwise = 2 * torch.randn(4, 5, 3, 3, generator=generator, dtype=torch.float64) * edge_mask[..., None, None]
    problem = RelaxationDual(unary, pairwise, layout)
    start = torch.zeros(4, 5, dtype=torch.int64)
    for sweeps in (1, 4):
        expected = plainly_improved(problem, start, sweeps)
        assert torch.equal(problem.improved(start, sweeps), expected)
        assert not torch.equal(expected, start)
    assert not start.any()
