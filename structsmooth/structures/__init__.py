"""Output spaces bound to potentials, and their inference oracles."""

from structsmooth.structures.base import PartCosts, Structure, lengths_from_mask
from structsmooth.structures.candidates import Candidates
from structsmooth.structures.chain import LinearChain
from structsmooth.structures.search import SearchSpace
from structsmooth.structures.subwindows import Subwindows
from structsmooth.structures.tree import Tree

__all__ = [
    "Candidates",
    "LinearChain",
    "PartCosts",
    "SearchSpace",
    "Structure",
    "Subwindows",
    "Tree",
    "lengths_from_mask",
]
