"""Oracles of programs as torch operators over Triton kernels, with the signatures of the compiled ones.

An example is one program of the grid. Nothing waits for the device. Sums have the dtype of the scores, and those of
kernels are the same every time. Third derivatives, and the gradient of max-marginals, are computed by torch, level by
level.
"""

from structsmooth.structures.programs.fused.outputs import sample, scores_of_outputs, smoothed_top_k, top_k
from structsmooth.structures.programs.fused.sums import log_partition, max_marginals, probabilities

__all__ = ["log_partition", "max_marginals", "probabilities", "sample", "scores_of_outputs", "smoothed_top_k", "top_k"]
