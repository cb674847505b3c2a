"""The problem of poses, with products in place of automatic differentiation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from structsmooth.problems import DifferenceProblem, LinearModuleProblem
from structsmooth.problems.affine import AffineBatch, BatchOutput, Parts
from structsmooth.problems.linear.base import BlockBatch
from structsmooth.problems.linear.blocks import FeatureMap, OracleOutput, VectorMap
from structsmooth.smoothing import Max, Smoother
from structsmooth.tasks.pose.score import PoseScore


class PoseProblem(LinearModuleProblem):
    """A :class:`LinearModuleProblem` of poses, one image a batch; steps on the dual take less time, and are the same.

    Args:
        module: the scores.
        dataset: features of each image, and positions of the joints with costs.
        settings: those of :class:`LinearModuleProblem`.
    """

    module: PoseScore

    @classmethod
    def of(cls, module: PoseScore, data: Sequence[tuple[Any, Any]]) -> "PoseProblem":
        """The problem with springs that hold together, for images of any sizes."""
        return cls(module, data, cost=None, bounds=module.bounds(), chunk_size=1)

    @classmethod
    def of_hidden(
        cls, module: PoseScore, data: Sequence[tuple[Any, Any]], known: Sequence[Tensor]
    ) -> DifferenceProblem:
        """The problem in which some joints are hidden: they may be anywhere, and cost nothing.

        Args:
            module: the score.
            data: pairs of features and a pair of positions [N], any for hidden joints, and costs [N, H, W].
            known: which joints of each image are not hidden, bool [N].
        """
        whole, agreeing = [], []
        for (x, (y, costs)), visible in zip(data, known, strict=True):
            whole.append((x, (y, torch.where(visible[:, None, None], costs, 0.0))))
            elsewhere = torch.full_like(costs, -torch.inf).flatten(1).scatter(1, y.unsqueeze(1), 0.0).view_as(costs)
            agreeing.append((x, (y, torch.where(visible[:, None, None], elsewhere, 0.0))))
        return DifferenceProblem(cls.of(module, whole), cls.of(module, agreeing))

    def make_feature_map(self) -> FeatureMap:
        """The map from weights to scores, by products of features with filters."""
        return _FilterMap(self)

    def oracle(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        """The oracle of an image; the statistics of a pose need no gradient."""
        if not isinstance(smoother, Max):
            return super().oracle(potentials, block, smoother)
        with torch.no_grad():
            value, y = self.example(block).structure.replace(*potentials).max()
        return OracleOutput(value[0], self.parts(y[0], block), y[0])

    def parts(self, atom: Tensor, block: int) -> Parts:
        """Statistics of a pose in the shapes of the potentials."""
        with torch.no_grad():
            unary, deformation = self.example(block).structure.parts(atom.unsqueeze(0))
        return unary, deformation[0]

    def affine_batch(self, indices: Tensor) -> AffineBatch:
        """A pass over some of the images, which may have different sizes."""
        return _Image(self, indices) if len(indices) == 1 else BlockBatch(self, indices)


class _Image(BlockBatch):
    """A single image, whose statistics a full pass can keep."""

    def oracle(self, w: Tensor, smoother: Smoother, importances: Tensor | None = None) -> BatchOutput:
        """The answer of one oracle call, whose statistics are a batch of one."""
        answer = super().oracle(w, smoother, importances)
        return replace(answer, statistics=[m.unsqueeze(0) for m in answer.statistics], by_example=True)

    def adjoint(self, statistics: Sequence[Tensor]) -> Tensor:
        """Bᵀm, the adjoint of the map from weights to scores: [dim]."""
        return super().adjoint([m.squeeze(0) for m in statistics])


class _FilterMap(VectorMap):
    """The map from filters and springs to the potentials of poses, which keeps the strips of the last image."""

    def __init__(self, problem: PoseProblem) -> None:
        self.problem, self.module = problem, problem.module
        self.sizes = self.module.filters.numel(), self.module.springs.numel()
        self.image: tuple[int, Tensor] | None = None

    def scores(self, w: Tensor, block: int) -> Parts:
        filters, springs = (
            vector.view(like.shape)
            for vector, like in zip(w.split(self.sizes), (self.module.filters, self.module.springs), strict=True)
        )
        return self.module.potentials(filters, springs, self._strips(block))

    def vector(self, m: Parts, block: int) -> Tensor:
        unary, deformation = m
        return self.module.adjoint(unary, deformation, self._strips(block))

    def _strips(self, block: int) -> Tensor:
        if self.image is None or self.image[0] != block:
            self.image = (block, self.module.strips(self.problem.example(block).x).contiguous())
        return self.image[1]
