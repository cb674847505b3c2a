"""Factor graphs: labels of nodes with scores for labels and for pairs at the edges of any graph; their relaxation."""

from structsmooth.structures.factor_graph.connections import SkipEdges as SkipEdges
from structsmooth.structures.factor_graph.connections import grid_edges as grid_edges
from structsmooth.structures.factor_graph.connections import skip_edges as skip_edges
from structsmooth.structures.factor_graph.factors import Automaton as Automaton
from structsmooth.structures.factor_graph.factors import Factor as Factor
from structsmooth.structures.factor_graph.factors import Potts as Potts
from structsmooth.structures.factor_graph.factors import Table as Table
from structsmooth.structures.factor_graph.graph import FactorGraph as FactorGraph
from structsmooth.structures.factor_graph.layers import Layers as Layers
from structsmooth.structures.factor_graph.local_polytope import LocalPolytope as LocalPolytope
from structsmooth.structures.factor_graph.logic import And as And
from structsmooth.structures.factor_graph.logic import AtLeastOne as AtLeastOne
from structsmooth.structures.factor_graph.logic import AtMostOne as AtMostOne
from structsmooth.structures.factor_graph.logic import Budget as Budget
from structsmooth.structures.factor_graph.logic import Count as Count
from structsmooth.structures.factor_graph.logic import Or as Or
from structsmooth.structures.factor_graph.relaxation import Relaxation as Relaxation
from structsmooth.structures.factor_graph.uai import read_uai as read_uai
from structsmooth.structures.factor_graph.uai import write_uai as write_uai
