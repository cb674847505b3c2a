"""Factors of graphs, and graphs by a rule: scores of several nodes, layers of labels, grids, skip edges, UAI files."""

from structsmooth.structures.factor_graph import And as And
from structsmooth.structures.factor_graph import AtLeastOne as AtLeastOne
from structsmooth.structures.factor_graph import AtMostOne as AtMostOne
from structsmooth.structures.factor_graph import Automaton as Automaton
from structsmooth.structures.factor_graph import Budget as Budget
from structsmooth.structures.factor_graph import Count as Count
from structsmooth.structures.factor_graph import Factor as Factor
from structsmooth.structures.factor_graph import Layers as Layers
from structsmooth.structures.factor_graph import LocalPolytope as LocalPolytope
from structsmooth.structures.factor_graph import Or as Or
from structsmooth.structures.factor_graph import Potts as Potts
from structsmooth.structures.factor_graph import SkipEdges as SkipEdges
from structsmooth.structures.factor_graph import Table as Table
from structsmooth.structures.factor_graph import grid_edges as grid_edges
from structsmooth.structures.factor_graph import read_uai as read_uai
from structsmooth.structures.factor_graph import skip_edges as skip_edges
from structsmooth.structures.factor_graph import write_uai as write_uai
