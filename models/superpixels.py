"""Scores and costs of binary graphs over superpixels."""

from typing import cast

import torch
from torch import Tensor, nn

from structsmooth.scores import ScoreModule
from structsmooth.structures import BinaryGraph, Structure


class SuperpixelGraph(BinaryGraph):
    """A :class:`~structsmooth.BinaryGraph` over superpixels that knows their ``sizes`` in pixels, [B, N]."""

    def __init__(self, unary: Tensor, edges: Tensor, pairwise: Tensor, sizes: Tensor) -> None:
        super().__init__(unary, edges, pairwise)
        self.sizes = sizes


class SuperpixelScore(ScoreModule):
    """score(y) = Σ_p ⟨w_U, x_p⟩ ([y_p = 1] − [y_p = 0]) + Σ_pq ⟨w_P, x_pq⟩ [y_p = y_q]: linear in w_U [F] and w_P [P].

    Supermodular where w_P ≥ 0, since pairwise features x_pq are not negative.

    Args:
        unary: number F of features of a superpixel.
        pairwise: number P of features of a border; 0 for no pairwise scores.

    Reference:
        Osokin et al. (2016), Appendix I.3, with rewards for agreement in place of penalties.
    """

    def __init__(self, unary: int, pairwise: int) -> None:
        super().__init__()
        self.unary = nn.Parameter(torch.zeros(unary, dtype=torch.float64))
        self.pairwise = nn.Parameter(torch.zeros(pairwise, dtype=torch.float64))

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds of the weights, [F + P] each, that keep scores supermodular."""
        lower = torch.cat([torch.full_like(self.unary, -torch.inf), torch.zeros_like(self.pairwise)]).detach()
        return lower, torch.full_like(lower, torch.inf)

    def forward(self, x: tuple[Tensor, Tensor, Tensor, Tensor]) -> SuperpixelGraph:
        """The graph of a batch of one image.

        Args:
            x: unary features [1, N, F], edges [1, E, 2], pairwise features [1, E, P], sizes [1, N].
        """
        features, edges, borders, sizes = x
        object_score = features.to(self.unary) @ self.unary
        agreement = (borders.to(self.pairwise) @ self.pairwise)[..., None, None]
        same = torch.eye(2, dtype=agreement.dtype, device=agreement.device)
        return SuperpixelGraph(torch.stack([-object_score, object_score], -1), edges[0], agreement * same, sizes)


def balanced_cost(structure: Structure, y: Tensor) -> Tensor:
    """Part costs [B, N, 2]: half the share that a wrong superpixel has in the area of its class.

    So object and background cost 1/2 each if they are all wrong, however large they are (Osokin et al. 2016, I.3).
    """
    sizes = cast(SuperpixelGraph, structure).sizes.to(structure.potentials[0])
    areas = sizes.new_zeros(len(y), 2).scatter_add_(1, y, sizes)
    mistake = sizes / (2 * areas.gather(1, y))
    return mistake.unsqueeze(-1) * (torch.arange(2, device=y.device) != y.unsqueeze(-1))
