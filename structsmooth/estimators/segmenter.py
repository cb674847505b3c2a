"""Two classes of the nodes of graphs, or of the pixels of images, in the form of scikit-learn."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, compute_class_weight
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from structsmooth.costs import WeightedHamming
from structsmooth.estimators.base import SolvedEstimator
from structsmooth.estimators.matrices import as_tensor, check_columns, require_columns
from structsmooth.estimators.outputs import Outputs
from structsmooth.estimators.weights import SampleWeights
from structsmooth.models.superpixels import SuperpixelScore
from structsmooth.problems import LinearModuleProblem
from structsmooth.solvers import Certificate
from structsmooth.structures import BinaryGraph


@dataclass(kw_only=True, eq=False, repr=False)
class GraphSegmenter(SolvedEstimator):
    """Two classes of the nodes of graphs, such as an object and its background, where neighbours tend to agree.

    X is a list of graphs: pairs of node features [N, F] and edges [E, 2], or triples with edge features [E, G], which
    must not be negative. An image [H, W, C] is the graph of its pixels and their neighbours. y is a list of the labels
    of nodes [N], or of pixels [H, W].

    The score of labels is Σ_v (⟨w, x_v⟩ + b)·(±1) + Σ_e ⟨u, x_e⟩ [the nodes of e agree], with + for the second class,
    u ≥ 0, and x_e = 1 without edge features. The loss is the structural hinge with the number of wrong nodes as cost,
    and the objective is the mean loss plus (λ/2)‖(w, b, u)‖². Inference is by graph cuts, and exact.

    Args:
        class_weight: what a wrong node of each class costs; ``"balanced"`` for costs in inverse proportion to the
            numbers of nodes, where an object is small. 1 if not given.
        lam: λ, a number or ``"c/n"``.
        solver: ``"auto"``, a name in ``structsmooth.solvers.SOLVERS``, or a solver, which keeps its own tolerance. It
            must keep bounds on weights, as :class:`~structsmooth.BCFW` does.
        max_iter: limit on passes over the data.
        tol: relative duality gap to reach.
        random_state: of the order of graphs.
        verbose: print a line after every pass.

    Attributes:
        classes_: the two labels, sorted.

    Raises:
        ValueError: graphs with shapes that do not match, edge features below zero, or labels other than two.

    Example:
        >>> import numpy as np
        >>> edges = np.array([[0, 1], [1, 2], [2, 3]])
        >>> X = [(np.array([[2.0], [1.0], [-0.2], [2.0]]), edges), (np.array([[-2.0], [0.2], [-1.0], [-2.0]]), edges)]
        >>> y = [np.array([1, 1, 1, 1]), np.array([0, 0, 0, 0])]
        >>> segmenter = GraphSegmenter(lam="0.1/n").fit(X, y)
        >>> [labels.tolist() for labels in segmenter.predict(X)]
        [[1, 1, 1, 1], [0, 0, 0, 0]]

    Reference:
        Anguelov et al. (2005), "Discriminative Learning of Markov Random Fields for Segmentation of 3D Scan Data".
    """

    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    lam: float | str = "10/n"

    def fit(self, X: Sequence[Any], y: Sequence[ArrayLike], sample_weight: ArrayLike | None = None) -> "GraphSegmenter":
        """Train on labelled graphs.

        Args:
            X: graphs or images.
            y: labels of their nodes or pixels.
            sample_weight: weights of the graphs, [n]: one of weight 2 counts as two, one of weight 0 not at all.
        """
        graphs, labels = _labelled(X, y)
        self.classes_ = np.unique(np.concatenate(labels))
        if len(self.classes_) != 2:
            raise ValueError(f"y must have two classes, got {self.classes_[:5].tolist()}")
        first = graphs[0]
        self._sizes, self._edge_columns = first.sizes, getattr(first.given[-1], "columns", None)
        check_columns(self, first.given[:1], reset=True)
        problem, weights = self._problem(graphs, labels, sample_weight)
        self._solve(problem, "proximal-bcfw", sample_weight=weights)
        return self

    def predict(self, X: Sequence[Any]) -> list[NDArray[Any]]:
        """The best labels of each graph, [N], or of each image, [H, W]."""
        labels = ((graph.max()[1][0].numpy(), shape) for graph, shape in self._structures(X))
        return Outputs(self.classes_[best].reshape(shape) for best, shape in labels)

    def decision_function(self, X: Sequence[Any]) -> list[NDArray[np.float64]]:
        """By how much the best labels with the second class at a node score more than the best with the first."""
        margins = ((graph.max_marginals()[0], shape) for graph, shape in self._structures(X))
        return [(best[:, 1] - best[:, 0]).numpy().reshape(shape) for best, shape in margins]

    def score(self, X: Sequence[Any], y: Sequence[ArrayLike], sample_weight: ArrayLike | None = None) -> float:
        """The share of nodes with the right label; nodes have the weight of their graph."""
        labels, found = _labelled(X, y)[1], self.predict(X)
        kept, weights = SampleWeights.of(sample_weight, len(labels))
        right = np.array([(labels[i] == found[i].ravel()).sum() for i in kept], dtype=np.float64)
        shares = np.ones(len(kept)) if weights is None else weights.numpy()
        return float(shares @ right / (shares @ [len(labels[i]) for i in kept]))

    def certify(self, X: Sequence[Any], y: Sequence[ArrayLike], sample_weight: ArrayLike | None = None) -> Certificate:
        """How far the weights are from the optimum on training data, by a dual bound of their own."""
        check_is_fitted(self, "weights_")
        return self._certificate(*self._problem(*_labelled(X, y), sample_weight))

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Scores of node features for the second class, against the first: [F]."""
        check_is_fitted(self, "weights_")
        return self.weights_[: self._sizes[0] - 1]

    @property
    def intercept_(self) -> float:
        """The score of the second class that does not depend on features."""
        check_is_fitted(self, "weights_")
        return float(self.weights_[self._sizes[0] - 1])

    @property
    def edge_coef_(self) -> NDArray[np.float64]:
        """Scores of edge features where the nodes of an edge agree: [G], or [1] without edge features."""
        check_is_fitted(self, "weights_")
        return self.weights_[self._sizes[0] :]

    def _problem(
        self, graphs: "list[_Graph]", labels: list[NDArray[Any]], sample_weight: ArrayLike | None
    ) -> tuple[LinearModuleProblem, Tensor | None]:
        """The finite sum over the graphs that have weight, and their weights."""
        self._check_sizes(graphs)
        if not np.isin(np.concatenate(labels), self.classes_).all():
            raise ValueError(f"y must have the classes of training, {self.classes_.tolist()}")
        kept, weights = SampleWeights.of(sample_weight, len(graphs))
        states = [torch.from_numpy(np.searchsorted(self.classes_, y)) for y in labels]
        module, data = SuperpixelScore(*self._sizes), [(graphs[i].inputs, states[i]) for i in kept]
        bounds, nodes = module.bounds(), np.concatenate([labels[i] for i in kept])
        cost = WeightedHamming(tuple(compute_class_weight(self.class_weight, classes=self.classes_, y=nodes)))
        return LinearModuleProblem(module, data, cost, bounds=bounds, chunk_size=1), weights

    def _structures(self, X: Sequence[Any]) -> Iterator[tuple[BinaryGraph, tuple[int, ...]]]:
        """The scores of each graph, and the shape of its labels."""
        check_is_fitted(self, "weights_")
        graphs = list(map(_graph, X))
        self._check_sizes(graphs)
        module = SuperpixelScore(*self._sizes)
        nn.utils.vector_to_parameters(self._weights, module.parameters())
        for graph in graphs:
            with torch.no_grad():
                structure = module(tuple(part[None] for part in graph.inputs))
            assert isinstance(structure, BinaryGraph)
            yield structure, graph.shape

    def _check_sizes(self, graphs: "list[_Graph]") -> None:
        check_columns(self, (graph.given[0] for graph in graphs), reset=False)
        for number, graph in enumerate(graphs):
            require_columns(f"edge features of graph {number}", graph.given[-1], self._edge_columns)
            if graph.sizes != self._sizes:
                nodes, edges = self._sizes[0] - 1, self._sizes[1]
                raise ValueError(
                    f"graph {number} must have {nodes} features of nodes and {edges} of edges, as the first"
                )


class _Graph(NamedTuple):
    """A graph as the score module takes it, without the dimension of the batch, and the shape of its labels.

    ``given`` are its parts as the caller has them: features of nodes first, and those of edges last, if any.
    """

    inputs: tuple[Tensor, ...]
    shape: tuple[int, ...]
    given: Sequence[Any]

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of features of nodes, with the constant one, and of edges."""
        return self.inputs[0].shape[1], self.inputs[2].shape[1]


def _graph(x: Any) -> _Graph:
    """A pair or triple of arrays, or an image, as a graph."""
    if isinstance(x, tuple | list):
        if len(x) not in (2, 3):
            raise ValueError(f"a graph must be node features, edges and, if any, edge features; got {len(x)} parts")
        features = check_array(x[0], dtype=np.float64, input_name="node features")
        shape: tuple[int, ...] = (len(features),)
        edges = np.asarray(x[1])
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
            raise ValueError(f"edges must be integers [E, 2], got {edges.dtype} {list(edges.shape)}")
        rewards = np.ones((len(edges), 1)) if len(x) == 2 else np.asarray(x[2], dtype=np.float64)
        if rewards.ndim != 2 or len(rewards) != len(edges) or not (rewards >= 0).all():
            raise ValueError(
                f"edge features must be numbers of 0 or more, [{len(edges)}, G], got {list(rewards.shape)}"
            )
    else:
        image = np.asarray(x, dtype=np.float64)
        if image.ndim != 3:
            raise ValueError(f"an image must have the shape [H, W, C], got {list(image.shape)}")
        shape = image.shape[:2]
        features = check_array(image.reshape(-1, image.shape[2]), input_name="images")
        pixels = np.arange(len(features)).reshape(shape)
        ends = ((pixels[:, :-1], pixels[:, 1:]), (pixels[:-1], pixels[1:]))
        edges = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in ends])
        rewards = np.ones((len(edges), 1))
    constant = np.ones((len(features), 1))
    arrays = (np.hstack([features, constant]), edges.astype(np.int64), rewards, constant[:, 0])
    return _Graph(tuple(map(as_tensor, arrays)), shape, x if isinstance(x, tuple | list) else [x])


def _labelled(X: Sequence[Any], y: Sequence[ArrayLike]) -> tuple[list[_Graph], list[NDArray[Any]]]:
    """Graphs with the labels of their nodes, [N] each."""
    graphs, labels = list(map(_graph, X)), list(map(np.asarray, y))
    if len(graphs) != len(labels) or not graphs:
        raise ValueError(f"X and y must have as many graphs, one at least, got {len(graphs)} and {len(labels)}")
    for number, (graph, states) in enumerate(zip(graphs, labels, strict=True)):
        if states.shape != graph.shape:
            raise ValueError(f"y of graph {number} must have shape {list(graph.shape)}, got {list(states.shape)}")
    return graphs, [states.ravel() for states in labels]
