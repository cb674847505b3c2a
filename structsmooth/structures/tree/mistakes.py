"""Outputs of trees by number of mistakes: the recursion of :mod:`.reference` over a semiring of polynomials."""

import torch
from torch import Tensor

from structsmooth.structures.mistakes import ByMistakes, counted
from structsmooth.structures.semirings import Semiring
from structsmooth.structures.tree import Tree, reference


def by_mistakes(tree: Tree, y: Tensor) -> ByMistakes:
    """The outputs of trees by the number of labels in which they differ from ``y`` [B, N]."""
    unary, pairwise = tree._accumulated()
    forest = reference.forest(tree.parents, tree.mask)
    labels = tree.checked_labels(y).gather(1, forest.nodes).unsqueeze(-1)
    wrong = (torch.arange(unary.shape[2], device=unary.device) != labels) & forest.real.unsqueeze(-1)
    wrong = torch.nn.functional.pad(wrong, (0, 0, 0, 1))  # what all roots hang on is no mistake

    def recursion(semiring: Semiring, unary: Tensor, pairwise: Tensor) -> Tensor:
        polynomials = Polynomials(semiring, wrong)
        return polynomials.split(reference.recursion(polynomials, unary, pairwise, forest))

    return ByMistakes(unary, pairwise, recursion)


class Polynomials(Semiring):
    """Polynomials in the number of mistakes, 0 to N, over another semiring: their coefficients are [..., (N + 1) R].

    Args:
        semiring: of the coefficients.
        wrong: which states of the nodes, and of what all roots hang on, are mistakes: [B, N + 1, S].
    """

    def __init__(self, semiring: Semiring, wrong: Tensor) -> None:
        self.semiring, self.wrong, self.most = semiring, wrong, wrong.shape[1] - 1

    def split(self, values: Tensor) -> Tensor:
        """Values [..., (N + 1) R] as [..., N + 1, R]."""
        coefficients: Tensor = values.unflatten(-1, (self.most + 1, -1))
        return coefficients

    def embed(self, scores: Tensor) -> Tensor:
        """Scores [B, N + 1, S] of all nodes as monomials."""
        return counted(self.semiring.embed(scores), self.wrong, self.most).flatten(-2)

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """Sums of the coefficients."""
        return self.semiring.sum(self.split(values), dim).flatten(-2)

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """The sums over all ways to divide the mistakes between ``left`` and ``right``."""
        first, second = self.split(left), self.split(right)
        counts = torch.arange(self.most + 1, device=left.device)
        rest = counts - counts[:, None]  # [a, c]: of c mistakes, those that are not among the first a
        second = torch.where((rest >= 0)[..., None], second[..., rest.clamp_min(0), :], -torch.inf)
        pairs = self.semiring.product(first.unsqueeze(-2).expand_as(second), second)
        return self.semiring.sum(pairs, pairs.dim() - 3).flatten(-2)
