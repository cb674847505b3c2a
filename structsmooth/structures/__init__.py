"""Output spaces bound to potentials, and their inference oracles."""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names
from structsmooth.structures.best_max_marginal_first import best_max_marginal_first as best_max_marginal_first

if TYPE_CHECKING:
    from structsmooth.structures.alignments import Alignment as Alignment
    from structsmooth.structures.base import PartCosts as PartCosts
    from structsmooth.structures.base import Structure as Structure
    from structsmooth.structures.base import lengths_from_mask as lengths_from_mask
    from structsmooth.structures.candidates import BoxCandidates as BoxCandidates
    from structsmooth.structures.candidates import Candidates as Candidates
    from structsmooth.structures.chain import LinearChain as LinearChain
    from structsmooth.structures.chain.accepted import Accepted as Accepted
    from structsmooth.structures.constituents import Constituents as Constituents
    from structsmooth.structures.deformable_tree import DeformableTree as DeformableTree
    from structsmooth.structures.factor_graph import And as And
    from structsmooth.structures.factor_graph import AtLeastOne as AtLeastOne
    from structsmooth.structures.factor_graph import AtMostOne as AtMostOne
    from structsmooth.structures.factor_graph import Automaton as Automaton
    from structsmooth.structures.factor_graph import Budget as Budget
    from structsmooth.structures.factor_graph import Count as Count
    from structsmooth.structures.factor_graph import Factor as Factor
    from structsmooth.structures.factor_graph import FactorGraph as FactorGraph
    from structsmooth.structures.factor_graph import LocalPolytope as LocalPolytope
    from structsmooth.structures.factor_graph import Or as Or
    from structsmooth.structures.factor_graph import Potts as Potts
    from structsmooth.structures.factor_graph import Relaxation as Relaxation
    from structsmooth.structures.factor_graph import Table as Table
    from structsmooth.structures.grammars import Grammar as Grammar
    from structsmooth.structures.graph_cut import BinaryGraph as BinaryGraph
    from structsmooth.structures.hidden_markov import HiddenMarkov as HiddenMarkov
    from structsmooth.structures.low_rank import LowRankChain as LowRankChain
    from structsmooth.structures.matching import Matching as Matching
    from structsmooth.structures.matching.assignment import linear_sum_assignment as linear_sum_assignment
    from structsmooth.structures.oracle_space import OracleSpace as OracleSpace
    from structsmooth.structures.oracle_space import from_oracle as from_oracle
    from structsmooth.structures.paths import PathGraph as PathGraph
    from structsmooth.structures.paths import Paths as Paths
    from structsmooth.structures.productions import Productions as Productions
    from structsmooth.structures.programs import DynamicProgram as DynamicProgram
    from structsmooth.structures.programs import Program as Program
    from structsmooth.structures.programs import ProgramBuilder as ProgramBuilder
    from structsmooth.structures.programs import cached_program as cached_program
    from structsmooth.structures.projective_trees import ProjectiveTree as ProjectiveTree
    from structsmooth.structures.search import SearchSpace as SearchSpace
    from structsmooth.structures.segments import SemiMarkov as SemiMarkov
    from structsmooth.structures.sibling_trees import SiblingTree as SiblingTree
    from structsmooth.structures.slack import SlackRescaled as SlackRescaled
    from structsmooth.structures.spanning_tree import SpanningTree as SpanningTree
    from structsmooth.structures.sparse_marginals import SparseSolution as SparseSolution
    from structsmooth.structures.sparse_marginals import sparse_map as sparse_map
    from structsmooth.structures.subsets import Subset as Subset
    from structsmooth.structures.subwindows import Subwindows as Subwindows
    from structsmooth.structures.tree import Tree as Tree
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "structsmooth.structures.alignments": "Alignment",
            "structsmooth.structures.base": "PartCosts Structure lengths_from_mask",
            "structsmooth.structures.candidates": "BoxCandidates Candidates",
            "structsmooth.structures.chain": "LinearChain",
            "structsmooth.structures.chain.accepted": "Accepted",
            "structsmooth.structures.constituents": "Constituents",
            "structsmooth.structures.deformable_tree": "DeformableTree",
            "structsmooth.structures.factor_graph": (
                "And AtLeastOne AtMostOne Automaton Budget Count Factor FactorGraph LocalPolytope Or Potts Relaxation "
                "Table"
            ),
            "structsmooth.structures.grammars": "Grammar",
            "structsmooth.structures.graph_cut": "BinaryGraph",
            "structsmooth.structures.hidden_markov": "HiddenMarkov",
            "structsmooth.structures.low_rank": "LowRankChain",
            "structsmooth.structures.matching": "Matching",
            "structsmooth.structures.matching.assignment": "linear_sum_assignment",
            "structsmooth.structures.oracle_space": "OracleSpace from_oracle",
            "structsmooth.structures.paths": "PathGraph Paths",
            "structsmooth.structures.productions": "Productions",
            "structsmooth.structures.programs": "DynamicProgram Program ProgramBuilder cached_program",
            "structsmooth.structures.projective_trees": "ProjectiveTree",
            "structsmooth.structures.search": "SearchSpace",
            "structsmooth.structures.segments": "SemiMarkov",
            "structsmooth.structures.sibling_trees": "SiblingTree",
            "structsmooth.structures.slack": "SlackRescaled",
            "structsmooth.structures.spanning_tree": "SpanningTree",
            "structsmooth.structures.sparse_marginals": "SparseSolution sparse_map",
            "structsmooth.structures.subsets": "Subset",
            "structsmooth.structures.subwindows": "Subwindows",
            "structsmooth.structures.tree": "Tree",
        },
        others="best_max_marginal_first",
    )
