"""Score modules: they map an input to a structure bound to its potentials."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from structsmooth.costs import Cost, Hamming, slack_rescaled
from structsmooth.sequences import Sequences, pad
from structsmooth.structures import LinearChain, SlackRescaled, Structure, Tree

if TYPE_CHECKING:
    from structsmooth.structures import FactorGraph


class ScoreModule(nn.Module, ABC):
    """A score function φ(x, ·; w): ``forward`` maps a batch of inputs to a structure bound to their scores.

    Subclass it, return a structure from ``forward``, and every loss and solver can train it.

    Attributes:
        affine: whether the potentials are affine in the trained parameters, so that linearizing them changes nothing.

    Example:
        >>> class Emissions(ScoreModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear, self.transition = nn.Linear(4, 3), nn.Parameter(torch.zeros(3, 3))
        ...     def forward(self, x):
        ...         return LinearChain(self.linear(x), self.transition)
        >>> Emissions()(torch.zeros(2, 5, 4)).max()[1].shape
        torch.Size([2, 5])
    """

    affine: bool = False

    if TYPE_CHECKING:

        def __call__(self, x: Any) -> Structure:
            """``nn.Module`` itself returns ``Any``."""

    @abstractmethod
    def forward(self, x: Any) -> Structure:
        """Structure over the outputs of the inputs ``x``."""


class TransitionMask(NamedTuple):
    """Scores to add to a chain: 0 for the labels that may follow each other, minus infinity for the others.

    Entry [i, j] of ``transition`` [S, S] is for label i followed by label j; ``start`` and ``stop`` [S] are for the
    first and the last label of a sequence.
    """

    transition: Tensor
    start: Tensor
    stop: Tensor


class LinearScore(ScoreModule):
    """Linear chain scores: features times weights, transitions, and scores of the first and the last label.

    Scores are linear in the parameters, so training is convex (the structural SVM, or the CRF). The parameters, in
    this order, are ``rows`` [F, S], ``transition`` [S, S] and ``ends`` [2, S] (first label, last label). They are
    initialized to zero.

    Args:
        features: number F of features (or attributes) of a token.
        states: number S of labels.
        dtype: dtype of the parameters; the compiled solvers use float64.

    Reference:
        Pillutla et al. (2019), Example 5.
    """

    affine = True

    def __init__(self, features: int, states: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        if features < 1 or states < 1:
            raise ValueError(f"features and states must be at least 1, got {features} and {states}")
        if not dtype.is_floating_point:
            raise TypeError(f"dtype must be floating point, got {dtype}")
        self.rows = nn.Parameter(torch.zeros(features, states, dtype=dtype))
        self.transition = nn.Parameter(torch.zeros(states, states, dtype=dtype))
        self.ends = nn.Parameter(torch.zeros(2, states, dtype=dtype))

    def forward(self, x: Sequences | Tensor | tuple[Tensor, Tensor]) -> LinearChain:
        """Chain over the labels of ``x``.

        Args:
            x: sequences, or dense features [B, T, F], alone or with lengths [B].
        """
        return linear_chain(x, self.rows, self.transition, self.ends)


class PairScore(ScoreModule):
    """Linear scores of chains, trees and graphs whose pairs of neighbours have features too.

    Scores are linear in the parameters, which are, in this order, ``rows`` [F, S] of nodes and ``pairs`` [G, S, S].
    They are initialized to zero. With rows of :class:`~structsmooth.problems.KernelFeatures` as features of nodes and
    of pairs, this is a kernel machine with a kernel for each kind of clique: the kernel of two outputs is Σ k(x_i, x_j)
    [y_i = y_j] over their nodes plus Σ k'(x_c, x_d) [y_c = y_d] over their pairs.

    Args:
        features: number F of features of a node.
        pair_features: number G of features of a pair.
        states: number S of labels.
        dtype: dtype of the parameters.

    Reference:
        Zhang, Saha and Vishwanathan (2014), section 4.3; Taskar, Guestrin and Koller (2004), section 6.

    Example:
        Pairs of the tokens of a chain are compared by a kernel of both of their points:

        >>> from structsmooth import BCFW, LinearModuleProblem
        >>> from structsmooth.problems import KernelFeatures
        >>> x = torch.randn(6, 4, 2, dtype=torch.float64)  # six chains of four tokens
        >>> couples = torch.cat([x[:, :-1], x[:, 1:]], -1)
        >>> k, k_pair = KernelFeatures().fit(x.flatten(0, 1)), KernelFeatures().fit(couples.flatten(0, 1))
        >>> nodes, pairs = k(x.flatten(0, 1)).view(6, 4, -1), k_pair(couples.flatten(0, 1)).view(6, 3, -1)
        >>> y = (x[..., 0] > 0).long()
        >>> data = [((nodes[i], pairs[i]), y[i]) for i in range(6)]
        >>> problem = LinearModuleProblem(PairScore(nodes.shape[-1], pairs.shape[-1], 2), data)
        >>> result = BCFW().solve(problem, lam=0.1, passes=20)
        >>> bool(result.row.gap < result.history[0].gap)
        True
    """

    affine = True

    def __init__(self, features: int, pair_features: int, states: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        counts = {"features": features, "pair_features": pair_features, "states": states}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")
        if not dtype.is_floating_point:
            raise TypeError(f"dtype must be floating point, got {dtype}")
        self.rows = nn.Parameter(torch.zeros(features, states, dtype=dtype))
        self.pairs = nn.Parameter(torch.zeros(pair_features, states, states, dtype=dtype))

    def forward(self, x: tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]) -> "LinearChain | Tree | FactorGraph":
        """The chain, tree or graph over the labels of ``x``.

        Args:
            x: features of nodes [B, N, F] and of pairs: [B, N − 1, G] for a chain, alone or with lengths int64 [B];
                [B, N, G] with parents int64 [B, N] for a tree, a row for each node and its parent; or [B, E, G] with
                edges int64 [B, E, 2] for any graph, -1 at padding. What is at padding and at roots does not matter.

        Raises:
            TypeError: features of another dtype than that of the weights.
            ValueError: features of other shapes.
        """
        nodes, pairs, *rest = x
        where = rest[0] if rest else None
        is_tree, is_graph = (where is not None and where.dim() == dims for dims in (2, 3))
        for name, given, weights in (("nodes", nodes, self.rows), ("pairs", pairs, self.pairs)):
            if given.dtype != weights.dtype:
                raise TypeError(
                    f"features of {name} must have the dtype of the weights, {weights.dtype}, got {given.dtype}"
                )
        count = nodes.shape[1] if is_tree else nodes.shape[1] - 1
        if is_graph:
            assert where is not None
            count = where.shape[1]
        expected = (len(nodes), nodes.shape[1], len(self.rows)), (len(nodes), count, len(self.pairs))
        for name, given, shape in zip(("nodes", "pairs"), (nodes, pairs), expected, strict=True):
            if given.shape != shape:
                raise ValueError(f"features of {name} must have shape {shape}, got {tuple(given.shape)}")
        if is_tree:
            assert where is not None
            below = torch.where((where >= 0).unsqueeze(-1), pairs, 0.0)
            return Tree(nodes @ self.rows, torch.einsum("bng,gij->bnij", below, self.pairs), where)
        if is_graph:
            assert where is not None
            from structsmooth.structures import FactorGraph  # loads with the first graph

            real = (where >= 0).all(-1)
            tables = torch.einsum("beg,gij->beij", torch.where(real.unsqueeze(-1), pairs, 0.0), self.pairs)
            return FactorGraph(nodes @ self.rows, where, tables, edge_mask=real)
        if where is not None:
            position = torch.arange(nodes.shape[1], device=nodes.device)
            inside = (position < where[:, None]).unsqueeze(-1)
            nodes, pairs = torch.where(inside, nodes, 0.0), torch.where(inside[:, 1:], pairs, 0.0)
        return LinearChain(nodes @ self.rows, torch.einsum("btg,gij->btij", pairs, self.pairs), where)


class SlackRescaledScores(ScoreModule):
    """The structures of another module, rescaled around the labels of a batch: slack rescaling for problems.

    Inputs are pairs of the module's input and labels. A :class:`~structsmooth.ModuleProblem` or, if scores are linear,
    a :class:`~structsmooth.LinearModuleProblem` over them with the cost :class:`~structsmooth.costs.RescaledMargin` is
    the finite sum of :class:`~structsmooth.SlackRescaledHinge` losses. In the dual, the atoms of outputs are
    statistics: their costs times the parts that they have and the labels lack.

    Args:
        module: maps a batch of inputs to a :class:`LinearChain` or :class:`Tree`.
        cost: as for :class:`~structsmooth.SlackRescaledHinge`.

    Example:
        >>> from structsmooth import BCFW, LinearModuleProblem
        >>> from structsmooth.costs import RescaledMargin
        >>> data = [(torch.eye(3)[[i % 3, 0, 1]], torch.tensor([i % 2, 0, 1])) for i in range(6)]
        >>> module = SlackRescaledScores(LinearScore(3, 2, torch.float32))
        >>> problem = LinearModuleProblem(module, [((x, y), y) for x, y in data], RescaledMargin())
        >>> result = BCFW().solve(problem, lam=1.0, passes=10)
        >>> bool(result.row.gap < result.history[0].gap)
        True
    """

    def __init__(self, module: nn.Module, cost: Cost = Hamming()) -> None:  # noqa: B008 - immutable
        super().__init__()
        self.module, self.cost = module, cost
        self.affine = getattr(module, "affine", False)

    def forward(self, x: tuple[Any, Tensor]) -> SlackRescaled:
        """Structure over the outputs of the inputs and labels ``x``."""
        inputs, y = x
        return slack_rescaled(self.module(inputs), y, self.cost)


def linear_chain(
    x: Sequences | Tensor | tuple[Tensor, Tensor], rows: Tensor, transition: Tensor, ends: Tensor
) -> LinearChain:
    """The chain of :class:`LinearScore` for given parameters."""
    if isinstance(x, Sequences):
        _check_sequences(x, len(rows))
        unary, lengths = pad(x.scores(rows), x.lengths), x.lengths
    else:
        dense, given = x if isinstance(x, tuple) else (x, None)
        _check_dense(dense, given, rows)
        full = dense.new_full(dense.shape[:1], dense.shape[1], dtype=torch.int64)
        lengths = full if given is None else given
        # Features at padding may have any value; a NaN among them would reach the gradient of the weights.
        inside = torch.arange(dense.shape[1], device=dense.device) < lengths[:, None]
        unary = torch.where(inside.unsqueeze(-1), dense, 0.0) @ rows
    position = torch.arange(unary.shape[1], device=unary.device)
    first, last = position == 0, position == (lengths - 1)[:, None]
    # Not a product with the masks: scores may be -inf.
    unary = unary + torch.where(first[:, None], ends[0], 0.0) + torch.where(last.unsqueeze(-1), ends[1], 0.0)
    return LinearChain(unary, transition, lengths)


def _check_sequences(x: Sequences, features: int) -> None:
    if len(x) == 0:
        raise ValueError("x must hold at least one sequence")
    if Structure.validate_args_default and not torch.compiler.is_compiling():
        x.check_features(features)


def _check_dense(x: Any, lengths: Any, rows: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be sequences or a torch.Tensor, got {type(x).__name__}")
    if x.dtype != rows.dtype:
        raise TypeError(f"x must have the dtype of the weights, {rows.dtype}, got {x.dtype}")
    if x.dim() != 3 or x.shape[-1] != len(rows):
        raise ValueError(f"x must have shape [B, T, F] with F = {len(rows)}, got {tuple(x.shape)}")
    if not (lengths is None or isinstance(lengths, Tensor)):
        raise TypeError(f"lengths must be a torch.Tensor, got {type(lengths).__name__}")
    if lengths is not None and lengths.shape != x.shape[:1]:
        raise ValueError(f"lengths must have shape [B] = {tuple(x.shape[:1])}, got {tuple(lengths.shape)}")
