"""Predicted sets of labels, with what else their graphs tell."""

from collections.abc import Sequence

import torch
from torch import Tensor

from structsmooth.structures import FactorGraph

Ranked = list[tuple[float, tuple[str, ...]]]


class RankedSets(list[Ranked]):
    """The best sets of labels of each example with their scores, and the graphs that they are outputs of.

    Args:
        sets: for each example, best first.
        graphs: of the examples, in batches.
    """

    def __init__(self, sets: Sequence[Ranked], graphs: Sequence[FactorGraph]) -> None:
        super().__init__(sets)
        self.graphs = graphs

    def margins(self) -> Tensor:
        """For each label, the largest score of a set with it minus the largest of one without it: [n, L].

        Computed on demand: it takes far longer than the best sets.
        """
        return torch.cat([graph.max_marginals().diff(dim=-1).squeeze(-1) for graph in self.graphs])
