"""Time of the max oracle of deformable trees on one thread, beside one pass over the same scores.

A pass adds a number to every score. Scores are Gaussian, or smooth as the responses of filters are: means over
5 x 5 positions. `Tree` finds the same placements by tables of all pairs of positions, where these fit.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from scripts.harness import command, option, print_table, sizes, timings
from structsmooth import DeformableTree, Tree

_LARGEST_TABLE = 50_000_000


@command(
    option("--grids", ["16x16", "32x32", "64x64", "128x128"], type=sizes(2), metavar="HxW"),
    option("--nodes", 14, "nodes of the tree"),
    option("--stiffness", 1.0, "factor of the weights of squares"),
    option("--repeats", 20, "calls of which the fastest counts"),
)
def main(options: Namespace) -> None:
    """Measure every grid and print the table."""
    print(f"{options.nodes} nodes; best of {options.repeats}, in nanoseconds for each position of each node\n")
    header = ["scores", "grid", "one pass", "max oracle", "ratio", "max-marginals", "max oracle of Tree"]
    print_table(header, rows(options), text_columns=2)


def rows(options: Namespace) -> Iterator[list[str]]:
    """One for each kind of scores and grid."""
    for name, draw in (("Gaussian", noise), ("smooth", smooth)):
        for height, width in options.grids:
            tree = deformable(draw(options.nodes, height, width), options.stiffness)
            yield [name, f"{height}x{width}", *_cells(tree, options.repeats)]


def noise(nodes: int, height: int, width: int) -> Tensor:
    """Gaussian scores [1, N, H, W]."""
    return torch.randn(1, nodes, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def smooth(nodes: int, height: int, width: int) -> Tensor:
    """Means of Gaussian scores over windows, scaled to a standard deviation of 1."""
    scores = torch.nn.functional.avg_pool2d(noise(nodes, height, width), 5, 1, 2, count_include_pad=False)
    return scores / scores.std()


def deformable(unary: Tensor, stiffness: float = 1.0) -> DeformableTree:
    """A tree in which node v hangs on node (v − 1) // 2."""
    nodes = unary.shape[1]
    springs = torch.tensor([0.1, 0.1 * stiffness, -0.1, 0.05 * stiffness], dtype=torch.float64).repeat(nodes, 1)
    anchors = torch.tensor([1.0, 2.5], dtype=torch.float64).repeat(nodes, 1)
    return DeformableTree(unary, springs, (torch.arange(nodes) - 1).div(2, rounding_mode="floor"), anchors)


def tabulated(tree: DeformableTree) -> Tree:
    """The same outputs and scores, with tables of pairs of positions."""
    height, width = tree.unary.shape[2:]
    places = tree.coordinates(torch.arange(height * width)).double()
    d = places - places.unsqueeze(1) - tree.anchors[:, None, None]
    costs = torch.einsum("vijc,vc->vij", torch.stack([d, d.square()], -1).flatten(3), tree.deformation)
    return Tree(tree.unary.flatten(2), -costs.unsqueeze(0), tree.parents.unsqueeze(0))


def _cells(tree: DeformableTree, repeats: int) -> list[str]:
    unary, target = tree.unary, torch.empty_like(tree.unary)

    def nanoseconds(call: Callable[[], object]) -> float:
        return 1e9 / unary.numel() * min(timings(call, repeats))

    passed, best = nanoseconds(lambda: torch.add(unary, 1.0, out=target)), nanoseconds(tree.max)
    pairs = unary.shape[1] * unary[0, 0].numel() ** 2
    tables = f"{nanoseconds(tabulated(tree).max):.0f}" if pairs <= _LARGEST_TABLE else "—"
    return [f"{passed:.2f}", f"{best:.1f}", f"{best / passed:.0f}", f"{nanoseconds(tree.max_marginals):.1f}", tables]


if __name__ == "__main__":
    raise SystemExit(main())
