"""The map from weights to potentials of sparse linear chains: it touches the attributes of a sentence alone."""

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts
from structsmooth.problems.linear.sparse_chain.data import ChainData
from structsmooth.scores import linear_chain


class SparseChainFeatures:
    """Weights are a row of S numbers per attribute, then transitions [S, S], then scores of the ends [2, S].

    Potentials are unary scores [T, S] and transitions [S, S].
    """

    def __init__(self, data: ChainData) -> None:
        self.data = data

    def views(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A vector [dim] as attribute rows [F, S], transitions [S, S] and scores of the ends [2, S]."""
        features, states = self.data.features, self.data.states
        if w.shape != (self.data.dim,):
            raise ValueError(f"w must have shape {(self.data.dim,)}, got {tuple(w.shape)}")
        rows, transition, ends = w.view(-1, states).split([features, states, 2])
        return rows, transition, ends

    def scores(self, w: Tensor, block: int) -> Parts:
        """B_i w: unary potentials [T, S] and transitions [S, S]."""
        chain = linear_chain(self.data.sequences.select(torch.tensor([block])), *self.views(w))
        return chain.unary[0], chain.transition

    def add_adjoint(self, m: Parts, block: int, scale: float, w: Tensor) -> None:
        """w += scale · B_iᵀm in place, for statistics [T, S] and summed edges [S, S]."""
        nodes, edges = m
        rows, transition, ends = self.views(w)
        attributes, token = self._attributes(block)
        rows.index_add_(0, attributes, nodes[token], alpha=scale)
        transition.add_(edges, alpha=scale)
        ends.add_(nodes[[0, -1]], alpha=scale)

    def squared_norm(self, m: Parts, block: int) -> float:
        """‖B_iᵀm‖²."""
        nodes, edges = m
        attributes, token = self._attributes(block)
        used, row = attributes.unique(return_inverse=True)
        rows = nodes.new_zeros(len(used), self.data.states).index_add_(0, row, nodes[token])
        return float(rows.square().sum() + edges.square().sum() + nodes[[0, -1]].square().sum())

    def _attributes(self, block: int) -> tuple[Tensor, Tensor]:
        """Ids of the attributes of a sentence, repeated as they occur, and the token of each."""
        sequences, tokens = self.data.sequences, self.data.tokens(block)
        offsets = sequences.token_offsets[tokens.start : tokens.stop + 1].long()
        token = torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets.diff())
        return sequences.attributes[offsets[0] : offsets[-1]].long(), token
