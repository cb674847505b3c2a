"""Output spaces bound to potentials, and their inference oracles."""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names
from structsmooth.structures.best_max_marginal_first import best_max_marginal_first

if TYPE_CHECKING:
    from structsmooth.structures.alignments import Alignment
    from structsmooth.structures.base import PartCosts, Structure, lengths_from_mask
    from structsmooth.structures.candidates import BoxCandidates, Candidates
    from structsmooth.structures.chain import LinearChain
    from structsmooth.structures.chain.accepted import Accepted
    from structsmooth.structures.constituents import Constituents
    from structsmooth.structures.deformable_tree import DeformableTree
    from structsmooth.structures.factor_graph import (
        And,
        AtLeastOne,
        AtMostOne,
        Automaton,
        Budget,
        Count,
        Factor,
        FactorGraph,
        LocalPolytope,
        Or,
        Potts,
        Relaxation,
        Table,
    )
    from structsmooth.structures.grammars import Grammar
    from structsmooth.structures.graph_cut import BinaryGraph
    from structsmooth.structures.hidden_markov import HiddenMarkov
    from structsmooth.structures.low_rank import LowRankChain
    from structsmooth.structures.matching import Matching
    from structsmooth.structures.matching.assignment import linear_sum_assignment
    from structsmooth.structures.oracle_space import OracleSpace, from_oracle
    from structsmooth.structures.paths import PathGraph, Paths
    from structsmooth.structures.productions import Productions
    from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder, cached_program
    from structsmooth.structures.projective_trees import ProjectiveTree
    from structsmooth.structures.search import SearchSpace
    from structsmooth.structures.segments import SemiMarkov
    from structsmooth.structures.sibling_trees import SiblingTree
    from structsmooth.structures.slack import SlackRescaled
    from structsmooth.structures.spanning_tree import SpanningTree
    from structsmooth.structures.sparse_marginals import SparseSolution, sparse_map
    from structsmooth.structures.subsets import Subset
    from structsmooth.structures.subwindows import Subwindows
    from structsmooth.structures.tree import Tree
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "Accepted",
    "Alignment",
    "And",
    "AtLeastOne",
    "AtMostOne",
    "Automaton",
    "BinaryGraph",
    "BoxCandidates",
    "Budget",
    "Candidates",
    "Constituents",
    "Count",
    "DeformableTree",
    "DynamicProgram",
    "Factor",
    "FactorGraph",
    "Grammar",
    "HiddenMarkov",
    "LinearChain",
    "LocalPolytope",
    "LowRankChain",
    "Matching",
    "Or",
    "OracleSpace",
    "PartCosts",
    "PathGraph",
    "Paths",
    "Potts",
    "Productions",
    "Program",
    "ProgramBuilder",
    "ProjectiveTree",
    "Relaxation",
    "SearchSpace",
    "SemiMarkov",
    "SiblingTree",
    "SlackRescaled",
    "SpanningTree",
    "SparseSolution",
    "Structure",
    "Subset",
    "Subwindows",
    "Table",
    "Tree",
    "best_max_marginal_first",
    "cached_program",
    "from_oracle",
    "lengths_from_mask",
    "linear_sum_assignment",
    "sparse_map",
]
