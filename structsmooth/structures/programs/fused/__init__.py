"""Oracles of programs as torch operators over Triton kernels, with the signatures of the compiled ones.

An example is one program of the grid. Nothing waits for the device. Sums have the dtype of the scores, and those of
kernels are the same every time. Third derivatives, and the gradient of max-marginals, are computed by torch, level by
level.
"""

from structsmooth.structures.oracles import Traits
from structsmooth.structures.programs.fused.outputs import sample, scores_of_outputs, smoothed_top_k, top_k
from structsmooth.structures.programs.fused.sums import log_partition, marginals, max_marginals
from structsmooth.structures.programs.reference import as_argument, outputs

__all__ = [
    "as_argument",
    "log_partition",
    "marginals",
    "max_marginals",
    "outputs",
    "sample",
    "scores_of_outputs",
    "smoothed_top_k",
    "sums",
    "top_k",
    "traits",
]

traits, sums = Traits(differentiates_top_k=True, keeps_digits=True), None
