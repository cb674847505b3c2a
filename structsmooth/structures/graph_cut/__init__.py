"""Binary graphs: labels 0 and 1 of nodes that tend to agree along edges, with inference by graph cuts."""

from typing import ClassVar

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened, widened_pair
from structsmooth.structures.graph_cut import operators


class BinaryGraph(Structure):
    """All labelings of N nodes by 0 and 1, bound to unary scores and to supermodular scores of pairs.

    score(y) = Σ_v unary[b, v, y_v] + Σ_e pairwise[b, e, y_a, y_b], with (a, b) = edges[e]. All examples of a batch
    share the graph. It may have parallel edges, but no loops. An output is an int64 tensor [B, N].

    The max oracle is one minimum cut. Max-marginals take N more cuts, each of which continues the flow of the first.
    Top-K is best max-marginal first (:func:`best_max_marginal_first`), which takes a few more cuts per output. The exp
    oracle is #P-complete: ``logsumexp`` and ``marginals`` raise ``NotImplementedError``.

    Compiled code finds the cuts in float64 on the CPU, on every core that torch may use. Tensors on other devices are
    copied to the CPU; results and gradients are copied back. A value is the score of its labeling. No labeling has a
    higher score, up to the rounding of float64 relative to the scores in which the two labelings differ, at any scale.
    Among the best labelings, ``max`` returns the one whose nodes of label 1 are a subset of those of every other (hence
    also the first in lexicographic order). ``topk`` is deterministic among ties.

    Scores must be small enough that no sum of them is infinite: at most m / (16 N) in unary and m / (32 E) in pairwise,
    where m is the largest number of their dtype, or of float32 if that is smaller. Penalties may be any numbers.

    -inf forbids a label or a pair of labels. An example without any allowed output has value -inf and zero gradient.

    Args:
        unary: scores [B, N, 2] of each label, floating point.
        edges: end nodes a and b of each edge, integers [E, 2], a ≠ b; E may be 0.
        pairwise: scores [B, E, 2, 2]; entry [b, e, i, j] is for y_a = i, y_b = j. Supermodular at every edge:
            s00 + s11 >= s01 + s10. A violation of up to four roundings of the largest of the four scores is treated
            as equality. If -inf is among them: where both s01 and s10 are finite, s00 and s11 must be too.
        validate_args: whether to check values too: NaN, +inf, range, supermodularity, ends of edges, ranges of labels.
            Costs a few reductions, and a synchronization on a GPU. Default: ``Structure.validate_args_default``.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Pillutla et al. (2019), Appendix C.2, Algorithm 11; Kolmogorov and Zabih (2004).

    Example:
        >>> unary = torch.tensor([[[0.0, 2.0], [0.5, 0.0], [1.0, 0.0]]])
        >>> agree = torch.eye(2).expand(1, 2, 2, 2)
        >>> BinaryGraph(unary, torch.tensor([[0, 1], [1, 2]]), agree).max()
        (tensor([4.5000]), tensor([[1, 0, 0]]))
    """

    labels_are_classes = True
    potential_names = ("unary", "pairwise")
    field_names = ("edges",)
    free_potentials: ClassVar[int | None] = 1  # scores of pairs must remain supermodular

    def __init__(self, unary: Tensor, edges: Tensor, pairwise: Tensor, *, validate_args: bool | None = None) -> None:
        checks.require_integers("edges", edges)
        if edges.dim() != 2 or edges.shape[1] != 2:
            raise ValueError(f"edges must have shape [E, 2], got {tuple(edges.shape)}")
        self.unary, self.edges, self.pairwise = unary, edges.to(torch.int64), pairwise
        self.check_shapes()
        super().__init__(validate_args)
        if self.validate_args:
            _check_edges(self.edges, unary.shape[1])

    def check_shapes(self) -> None:
        """Raise unless scores are [B, N, 2] and [B, E, 2, 2]."""
        unary, pairwise = self.unary, self.pairwise
        checks.require_scores("unary", unary)
        checks.require_scores("pairwise", pairwise)
        if unary.dim() != 3 or unary.shape[1] == 0 or unary.shape[2] != 2:
            raise ValueError(f"unary must have shape [B, N, 2] with N >= 1, got {tuple(unary.shape)}")
        checks.require_shape("pairwise", pairwise, "[B, E, 2, 2]", (unary.shape[0], self.edges.shape[0], 2, 2))
        checks.require_device("pairwise", pairwise, "unary", unary)
        checks.require_device("edges", self.edges, "unary", unary)

    def check_values(self, name: str) -> None:
        """Raise ``ValueError`` for NaN or +inf, scores out of range, or pairwise scores that are not supermodular."""
        super().check_values(name)
        _check_range(name, getattr(self, name))
        if name == "pairwise":
            _check_supermodular(self.pairwise)

    def batched(self) -> "BinaryGraph":
        """The structure itself."""
        return self

    def score(self, y: Tensor) -> Tensor:
        """Score of the labelings ``y`` [B, N]: [B], differentiable."""
        y = self.checked_labels(y)
        unary, pairwise = self._accumulated()
        nodes = unary.gather(2, y.unsqueeze(-1)).sum((1, 2))
        return nodes + pairwise.flatten(2).gather(2, operators.pairs(y, self.edges).unsqueeze(-1)).sum((1, 2))

    def parts(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Indicators of labels [B, N, 2] and of pairs at the edges [B, E, 2, 2]."""
        y = self.checked_labels(y)
        dtype = self._accumulated()[0].dtype
        pairs = torch.nn.functional.one_hot(operators.pairs(y, self.edges), 4)
        return torch.nn.functional.one_hot(y, 2).to(dtype), pairs.unflatten(-1, (2, 2)).to(dtype)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct labelings [B, k, N] (Algorithm 10).

        Values are -inf, and labels 0, where fewer than k labelings have a finite score.
        """
        return self.with_gradients(*operators.top_k(*self._accumulated(), self.edges, check_k(k)))

    def max_marginals(self) -> Tensor:
        """Largest score [B, N, 2] of a labeling with y_v = j (Definition 13)."""
        return operators.max_marginals(*self._accumulated(), self.edges)

    def _accumulated(self) -> tuple[Tensor, Tensor]:
        """Unary and pairwise scores in the dtype of the values."""
        return widened_pair(self.unary, self.pairwise)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels as int64."""
        return checks.checked_classes(self, y, "[B, N]", 2)


def _check_edges(edges: Tensor, nodes: int) -> None:
    operators.check_edges(edges, nodes)
    loops = edges[:, 0] == edges[:, 1]
    if bool(loops.any()):
        e = int(loops.nonzero()[0])
        raise ValueError(f"edges must join two nodes, got edge {e} from {int(edges[e, 0])} to itself")


def _check_range(name: str, scores: Tensor) -> None:
    """Refuse scores whose sums could overflow: those of each kind may add up to an eighth of the largest number."""
    if not scores.numel():
        return
    dtype, largest = widened(scores).dtype, float(scores.detach().amax())
    limit = torch.finfo(dtype).max / 8 / scores[0].numel()
    if largest > limit:
        raise ValueError(
            f"{name} must be at most {limit:.3g}, so that sums of scores are finite in {dtype}, got {largest:.3g}: "
            "scale the scores down"
        )


def _check_supermodular(pairwise: Tensor) -> None:
    tables = pairwise.detach().double().flatten(2)
    s00, s01, s10, s11 = tables.unbind(-1)
    largest = torch.where(tables.isfinite(), tables, 0.0).abs().amax(-1)
    wrong = s01 + s10 > s00 + s11 + 4 * torch.finfo(pairwise.dtype).eps * largest
    if bool(wrong.any()):
        b, e = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"pairwise must be supermodular, s00 + s11 >= s01 + s10, at every edge, got {pairwise[b, e].tolist()} "
            f"at example {b}, edge {e}"
        )
