"""Factors of graphs: scores and rules of several nodes together, and the relaxation over all of them."""

from structsmooth.structures.factor_graph import (
    And,
    AtLeastOne,
    AtMostOne,
    Automaton,
    Budget,
    Count,
    Factor,
    LocalPolytope,
    Or,
    Potts,
    Table,
)

__all__ = [
    "And",
    "AtLeastOne",
    "AtMostOne",
    "Automaton",
    "Budget",
    "Count",
    "Factor",
    "LocalPolytope",
    "Or",
    "Potts",
    "Table",
]
