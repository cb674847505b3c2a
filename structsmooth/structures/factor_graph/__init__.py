"""Factor graphs: labels of nodes with scores for labels and for pairs at the edges of any graph; their relaxation."""

from structsmooth.structures.factor_graph.factors import Automaton, Factor, Potts, Table
from structsmooth.structures.factor_graph.graph import FactorGraph
from structsmooth.structures.factor_graph.local_polytope import LocalPolytope
from structsmooth.structures.factor_graph.logic import And, AtLeastOne, AtMostOne, Budget, Count, Or
from structsmooth.structures.factor_graph.relaxation import Relaxation

__all__ = [
    "And",
    "AtLeastOne",
    "AtMostOne",
    "Automaton",
    "Budget",
    "Count",
    "Factor",
    "FactorGraph",
    "LocalPolytope",
    "Or",
    "Potts",
    "Relaxation",
    "Table",
]
