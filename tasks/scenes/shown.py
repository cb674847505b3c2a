"""What segmenters of scenes learned, in reports."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from structsmooth.markup import Block, Matrix, weight_table
from structsmooth.tasks.scenes.graphs import EDGE_NAMES, Graph, edge_types_of, split_weights


def weight_blocks(classes: Sequence[str], weights: Tensor, graph: Graph) -> list[Block]:
    """Weights of the probabilities of classes, by level, and of the features of edges in a graph of some kind."""
    unary, pairwise = split_weights(weights.detach(), len(classes))
    level, above, constant = np.split(unary.numpy(), [len(classes), 2 * len(classes)], 2)
    alone = np.dstack([[level[0], above[1]], constant])
    columns, axes = [*classes, "constant"], ("scored class", "probable class")
    edge_types = edge_types_of(graph)
    blocks: list[Block] = [
        Matrix("Fine superpixels: weights of their own probabilities", classes, columns, alone[0], *axes),
        Matrix("Fine superpixels: weights of the coarse ones' probabilities", classes, classes, above[0], *axes),
    ]
    if 1 in edge_types:  # then coarse superpixels are nodes
        blocks.append(Matrix("Coarse superpixels: weights of probabilities", classes, columns, alone[1], *axes))
    if edge_types:
        names = [name for t in edge_types for name in EDGE_NAMES[t]]
        values = [weight for t in edge_types for weight in pairwise[t, : len(EDGE_NAMES[t])].tolist()]
        blocks.append(weight_table("Edges: scores of one class on both ends", ("edge", "feature"), names, values))
    return blocks
