"""Oracles of the linear chain as torch operators over Triton kernels, with the signatures of the compiled ones.

A sequence is one program of the grid; with many states, several programs share each position, and a few long sequences
are cut into stretches. Nothing waits for the device, and all results are deterministic. Sums are float32 for float32
and float64 for float64. Between passes, the messages [B, T, S] are kept, which are as many numbers as the unary scores;
the backward pass of the log-partition function gives its gradient right away, without marginals between.
"""

from torch import Tensor

from structsmooth.structures.chain.fused.exponential import sample
from structsmooth.structures.chain.fused.outputs import max_marginals, scores, smoothed_top_k
from structsmooth.structures.chain.fused.stretches import log_partition, marginals, surprisals, top_k
from structsmooth.structures.chain.reference import filtered
from structsmooth.structures.oracles import Traits

__all__ = [
    "filtered",
    "log_partition",
    "marginals",
    "max_marginals",
    "node_marginals",
    "sample",
    "scores",
    "smoothed_top_k",
    "sums",
    "surprisals",
    "top_k",
    "traits",
]

traits = Traits(checks_labels=True, checks_scores=True, differentiates_top_k=True, keeps_digits=True)
sums = None


def node_marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Node marginals [B, T, S]."""
    return marginals(unary, transition, lengths)[0]
