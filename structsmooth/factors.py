"""Factors of graphs: scores and rules of several nodes together, and the relaxation over all of them."""

from structsmooth.structures.factor_graph import And as And
from structsmooth.structures.factor_graph import AtLeastOne as AtLeastOne
from structsmooth.structures.factor_graph import AtMostOne as AtMostOne
from structsmooth.structures.factor_graph import Automaton as Automaton
from structsmooth.structures.factor_graph import Budget as Budget
from structsmooth.structures.factor_graph import Count as Count
from structsmooth.structures.factor_graph import Factor as Factor
from structsmooth.structures.factor_graph import LocalPolytope as LocalPolytope
from structsmooth.structures.factor_graph import Or as Or
from structsmooth.structures.factor_graph import Potts as Potts
from structsmooth.structures.factor_graph import Table as Table
