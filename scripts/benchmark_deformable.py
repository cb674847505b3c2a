"""Time of the max oracle of deformable trees on one thread, beside one pass over the same scores.

A pass adds a number to every score. Scores are Gaussian, or smooth as the responses of filters are: means over
5 x 5 positions. `Tree` finds the same placements by tables of all pairs of positions, where these fit.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from structsmooth import DeformableTree, Tree

_GRIDS = ("16x16", "32x32", "64x64", "128x128")
_LARGEST_TABLE = 50_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every grid and print the table."""
    torch.set_num_threads(1)
    options = _parser().parse_args(arguments)
    print(f"{options.nodes} nodes; best of {options.repeats}, in nanoseconds for each position of each node\n")
    print("| scores | grid | one pass | max oracle | ratio | max-marginals | max oracle of Tree |")
    print("| --- | --- |" + " ---: |" * 5)
    for name, draw in (("Gaussian", noise), ("smooth", smooth)):
        for height, width in options.grids:
            cells = _cells(deformable(draw(options.nodes, height, width), options.stiffness), options.repeats)
            print(f"| {name} | {height}x{width} | {cells} |")
    return 0


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


def seconds(call: Callable[[], object], repeats: int) -> float:
    """The least time of a call."""

    def once() -> float:
        started = time.perf_counter()
        call()
        return time.perf_counter() - started

    call()
    return min(once() for _ in range(repeats))


def _cells(tree: DeformableTree, repeats: int) -> str:
    unary, target = tree.unary, torch.empty_like(tree.unary)
    scale = 1e9 / unary.numel()
    passed = scale * seconds(lambda: torch.add(unary, 1.0, out=target), repeats)
    best = scale * seconds(tree.max, repeats)
    marginals = scale * seconds(tree.max_marginals, repeats)
    pairs = unary.shape[1] * unary[0, 0].numel() ** 2
    tables = f"{scale * seconds(tabulated(tree).max, repeats):.0f}" if pairs <= _LARGEST_TABLE else "—"
    return f"{passed:.2f} | {best:.1f} | {best / passed:.0f} | {marginals:.1f} | {tables}"


def _grid(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    return int(height), int(width)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--grids", nargs="+", type=_grid, default=[_grid(text) for text in _GRIDS], metavar="HxW")
    parser.add_argument("--nodes", type=int, default=14, help="nodes of the tree")
    parser.add_argument("--stiffness", type=float, default=1.0, help="factor of the weights of squares")
    parser.add_argument("--repeats", type=int, default=20, help="calls of which the fastest counts")
    return parser


if __name__ == "__main__":
    sys.exit(main())
