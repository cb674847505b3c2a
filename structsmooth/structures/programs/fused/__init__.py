"""Oracles of programs as torch operators over Triton kernels, with the signatures of the compiled ones.

An example is one program of the grid. Nothing waits for the device. Sums have the dtype of the scores, and those of
kernels a fixed order. Second derivatives are computed by torch, level by level.
"""

from structsmooth.structures.programs.fused.operators import log_partition, probabilities, sample, top_k

__all__ = ["log_partition", "probabilities", "sample", "top_k"]
