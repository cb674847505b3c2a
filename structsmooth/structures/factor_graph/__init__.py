"""Factor graphs: labels of nodes with scores for labels and for pairs at the edges of any graph; their relaxation."""

from structsmooth.structures.factor_graph.factors import (
    AtLeastOne,
    AtMostOne,
    Automaton,
    Budget,
    Count,
    Factor,
    Potts,
    Table,
)
from structsmooth.structures.factor_graph.graph import FactorGraph
from structsmooth.structures.factor_graph.local_polytope import LocalPolytope
from structsmooth.structures.factor_graph.relaxation import Relaxation

__all__ = [
    "AtLeastOne",
    "AtMostOne",
    "Automaton",
    "Budget",
    "Count",
    "Factor",
    "FactorGraph",
    "LocalPolytope",
    "Potts",
    "Relaxation",
    "Table",
]
