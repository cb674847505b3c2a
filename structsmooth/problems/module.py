"""Any torch module with any dataset as a finite sum, and its linearization: the model of the prox-linear algorithm."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import Subset, default_collate

from structsmooth.costs import Hamming
from structsmooth.losses import Allowed, StructuralHinge, require_structure, with_partial_labels
from structsmooth.problems.affine import AffineProblem, StatisticsPass
from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.derived import DerivedProblem
from structsmooth.problems.linearized import LinearizedBatch, LinearizedPartialBatch
from structsmooth.problems.reductions import Shard, agreed, shared_mean
from structsmooth.problems.sharding import of_examples
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures.base import PartCosts, Structure
from structsmooth.structures.checks import require_count


class PartialLabels(NamedTuple):
    """Labels with holes: what a dataset holds in the place of labels of which not all is known.

    Attributes:
        y: labels, with any values where they are unknown.
        allowed: what is known: bool masks, as :meth:`StructuralHinge.forward` takes them.

    Example:
        >>> y = torch.tensor([0, -1, 1])
        >>> PartialLabels(y, y >= 0).allowed
        tensor([ True, False,  True])
    """

    y: Tensor
    allowed: Allowed


Labels = Tensor | tuple[Tensor, Tensor] | PartialLabels
"""Labels of a batch: alone, with part costs, or with masks of what is known of them."""
# Examples of a step at most, and steps of a pass at least, where nobody says how many.
_BATCH, _STEPS = 16, 20


class Dataset(Protocol):
    """A map-style dataset of pairs (input, labels)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Any, Any]: ...


def stacked(examples: list[Any]) -> Any:
    """What torch's ``default_collate`` gives; ``ValueError`` with what to do if the examples differ in size."""
    try:
        return default_collate(examples)
    except RuntimeError as error:
        if "equal size" not in str(error):
            raise
        raise ValueError(
            "examples have different sizes, which torch does not stack: give collate=, a function of the list of "
            "pairs, such as lambda pairs: ((pad_sequence([x for x, _ in pairs], batch_first=True), "
            "torch.tensor([len(x) for x, _ in pairs])), pad_sequence([y for _, y in pairs], batch_first=True)) for a "
            "module that takes (x, lengths), as LinearScore does"
        ) from error


class ModuleProblem(Problem):
    """Structural hinge losses of a score module over a dataset, in plain torch, on the module's device.

    The weight vector is the module's trainable parameters, flattened in their order; if they have several dtypes, in
    the widest one, and each is rounded to its own where the module uses it.

    The module itself is not changed until :meth:`load` writes weights back: passes work on copies of its buffers. So
    batch normalization in ``train()`` mode normalizes by each batch and leaves its running statistics alone; those of
    the iterates would not fit averaged weights anyway. Compute them after :meth:`load`, with
    ``torch.optim.swa_utils.update_bn``; or better train in ``eval()`` mode, where the loss of an example does not
    depend on others, as in a finite sum.

    Args:
        module: maps a batch of inputs to a structure; see :class:`structsmooth.scores.ScoreModule`.
        dataset: pairs (x, y); or (x, (y, costs)) with part costs for each example, such as 1 − IoU of candidate boxes;
            or (x, PartialLabels(y, allowed)) in all examples, where some labels are unknown.
        cost: task loss; ``None`` for no margin. Not used where examples bring their own.
        batch_size: examples per stochastic step; a twentieth of all, at most 16, if not given.
        collate: puts a list of pairs together into a batch (x, y); torch's default if not given.
        smoother: of the objective; see :class:`~structsmooth.problems.Problem`.
        chunk_size: examples per batch in passes over all, if steps do not have more; few where inputs are large.

    Raises:
        TypeError: a size that is no int.
        ValueError: an empty dataset, a size below 1, or a module without trainable parameters, with a submodule under
            two names, or with a parameter that is computed from others.

    Example:
        >>> from structsmooth import LinearScore
        >>> from structsmooth.solvers import SVRG
        >>> data = [(torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])) for _ in range(8)]
        >>> problem = ModuleProblem(LinearScore(3, 2, torch.float32), data, batch_size=2)
        >>> result = SVRG().solve(problem, lam=0.1, passes=3)
        >>> problem.load(result.weights)
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset | Sequence[tuple[Any, Any]],
        cost: PartCosts | None = Hamming(),  # noqa: B008 - immutable
        batch_size: int | None = None,
        collate: Callable[[list[Any]], tuple[Any, Labels]] = stacked,
        smoother: Smoother = Max(),  # noqa: B008 - immutable
        chunk_size: int = 32,
    ) -> None:
        self.smoother = smoother
        self.module, self.dataset, self.cost, self.collate = module, dataset, cost, collate
        self.n = require_count("number of examples", len(dataset))
        size = min(_BATCH, -(-self.n // _STEPS)) if batch_size is None else batch_size
        self.batch_size = require_count("batch_size", size)
        self.chunk_size = require_count("chunk_size", chunk_size)
        self.parameters = _trainable(module)
        self.dim = require_count("number of trainable parameters", sum(p.numel() for p in self.parameters.values()))
        self._partial: bool | None = None
        self._is_relaxed = False  # whether the last structure was a relaxation, whose losses are not their bounds
        _check_module(module)

    def start(self) -> Tensor:
        """The module's parameters as they are now: [dim]."""
        return agreed(self, torch.cat([p.detach().flatten() for p in self.parameters.values()]))

    def to(self, device: torch.device | str) -> "ModuleProblem":
        """The problem itself, with its module on a device."""
        self.module.to(device)
        self.parameters = _trainable(self.module)  # new ones, where torch cannot put other data into them
        return self

    def load(self, w: Tensor) -> None:
        """Write weights [dim] into the module's parameters."""
        with torch.no_grad():
            for parameter, values in zip(self.parameters.values(), self._unflatten(w).values(), strict=True):
                parameter.copy_(values)

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples: [b]."""
        x, y = self.batch(indices)
        return self.losses_and_hinges(self.structure(w, x), y, smoother)[0]

    def batch_bounds(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Upper bounds of the losses of some examples: [b]."""
        x, y = self.batch(indices)
        losses, hinges = self.losses_and_hinges(self.structure(w, x), y, smoother)
        return hinges if isinstance(smoother, Max) and hinges is not None else losses

    def structure(self, w: Tensor, x: Any) -> Structure:
        """The structure of a batch of inputs under weights ``w``; differentiable."""
        buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        structure: Structure = functional_call(self.module, self._unflatten(w) | buffers, (x,))
        require_structure(structure, f"the forward of {type(self.module).__name__}")
        self._is_relaxed = structure.is_fractional
        return structure

    def linearized_batch(self, center: Tensor, x: Any, y: Labels) -> LinearizedBatch:
        """A batch of examples with scores linearized at ``center``, [dim]."""

        def structure(w: Tensor) -> Structure:
            return self.structure(w, x)

        labels, cost, allowed = self.labels_and_settings(y)
        if allowed is not None:
            return LinearizedPartialBatch(
                self.module, structure, lambda bound: with_partial_labels(bound, labels, allowed, cost), center
            )
        return LinearizedBatch(
            self.module, structure, lambda bound, smoother: self.losses_and_hinges(bound, y, smoother), center
        )

    def losses_and_hinges(self, structure: Structure, y: Labels, smoother: Smoother) -> tuple[Tensor, Tensor | None]:
        """Losses [b] of labels under a structure and, detached, those without smoothing if one call gives both."""
        labels, cost, allowed = self.labels_and_settings(y)
        return StructuralHinge(smoother, cost, "none").with_hinge(structure, labels, allowed)

    def labels_and_settings(self, labels: Labels) -> tuple[Tensor, PartCosts | Tensor | None, Allowed | None]:
        """Labels, the part costs that come with them or else the cost of the problem, and what is known of them."""
        if isinstance(labels, Tensor):
            return labels, self.cost, None
        if isinstance(labels, PartialLabels):
            return labels.y, self.cost, labels.allowed
        return (*labels, None)

    @property
    def partial(self) -> bool:
        """Whether labels are partial, as the last batch has them, or the first example where there was none yet."""
        if self._partial is None:
            with torch.random.fork_rng(devices=[]):  # a dataset may draw random numbers
                self.batch(torch.tensor([0]))
        return bool(self._partial)

    def inferences(self, indices: Tensor) -> int:
        """Number of oracle calls that some examples take: one each, or two if labels are partial."""
        return len(indices) * (2 if self.partial else 1)

    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """As in :meth:`Problem.full_pass`; with statistics it is that of the linearization at ``w``, which is equal."""
        if with_statistics:
            return LinearizedProblem(self, w).full_pass(w, smoother, with_loss=with_loss)
        return super().full_pass(w, smoother, with_loss=with_loss, with_statistics=False)

    def objective_loss(self, w: Tensor, smoother: Smoother, smoothed: float, wanted: bool) -> float | None:
        """As in :meth:`Problem.objective_loss`; for a relaxation by a pass of its own, whose losses are bounds."""
        if wanted and self._is_relaxed:
            return self.loss(w)
        return super().objective_loss(w, smoother, smoothed, wanted)

    def gradient_change(self, w: Tensor, snapshot: FullPass, indices: Tensor) -> Tensor:
        """As in :meth:`Problem.gradient_change`; one oracle call per example if the snapshot keeps statistics."""
        if not isinstance(snapshot, StatisticsPass) or snapshot.statistics is None:
            return super().gradient_change(w, snapshot, indices)

        def mean_change(examples: Tensor) -> tuple[Tensor]:
            x, y = self.batch(examples)
            here, there = self.linearized_batch(w, x, y), self.linearized_batch(snapshot.weights, x, y)
            now = LinearizedProblem(self, w).answer(here, w, examples, snapshot.smoother).statistics
            then = snapshot.batch(examples, now)
            assert then is not None
            return ((here.adjoint(now) - there.adjoint(then)) / len(examples),)

        return shared_mean(self, indices, mean_change)[0]

    @property
    def affine_scores(self) -> bool:
        """Whether the module declares that its scores are affine in its parameters."""
        return bool(getattr(self.module, "affine", False))

    @property
    def affine(self) -> bool:
        """Whether losses are convex in the weights: affine scores, and labels that are complete."""
        return self.affine_scores and not self.partial

    def linearize(self, w: Tensor) -> Problem:
        """Scores linearized at ``w`` [dim]; the problem itself if the module says that its scores are ``affine``.

        If labels are partial, the smoothed maximum of the outputs that agree with them is linearized there, too.
        """
        if w.shape != (self.dim,):
            raise ValueError(f"w must have shape [dim] = {(self.dim,)}, got {tuple(w.shape)}")
        return self if self.affine else LinearizedProblem(self, w)

    def batch(self, indices: Tensor) -> tuple[Any, Labels]:
        """Inputs and labels of some examples, on the device of the parameters."""
        x, y = self.collate([self.dataset[i] for i in indices.tolist()])
        device, self._partial = next(iter(self.parameters.values())).device, isinstance(y, PartialLabels)
        return to_device(x, device), to_device(y, device)

    @of_examples
    def subset(self, indices: Tensor) -> "ModuleProblem":
        """The same problem over some of its examples."""
        return self._over([self.dataset[i] for i in indices.tolist()])

    @of_examples
    def lazy_subset(self, indices: Tensor) -> "ModuleProblem":
        """The same problem over some of its examples, which are read from the dataset when they are needed."""
        return self._over(Subset(self.dataset, indices.tolist()))  # type: ignore[arg-type]

    def _over(self, dataset: Dataset | Sequence[tuple[Any, Any]]) -> "ModuleProblem":
        settings = (self.cost, self.batch_size, self.collate, self.smoother, self.chunk_size)
        return ModuleProblem(self.module, dataset, *settings)

    def _unflatten(self, w: Tensor) -> dict[str, Tensor]:
        pieces = w.split([p.numel() for p in self.parameters.values()])
        pairs = zip(self.parameters.items(), pieces, strict=True)
        return {name: piece.view(p.shape).to(p.dtype) for (name, p), piece in pairs}


class LinearizedProblem(DerivedProblem, AffineProblem):
    """The losses of a module problem with potentials θ_i(w_k) + J_i · (w − w_k), J_i the Jacobian of θ_i at w_k.

    Convex in w, on the module's device. J_i is never formed: each batch makes one forward pass of the module at w_k
    and one backward pass that can be differentiated, which give products with J_i and its transpose. So the module
    needs second derivatives (not of its own scores, but of its operators), as for a gradient penalty. Recurrent
    modules are run without cuDNN, which has none; for attention take PyTorch's math kernel.

    Args:
        problem: with any scores.
        w: w_k, [dim].

    Reference:
        Pillutla et al. (2019), section 6.1.
    """

    problem: ModuleProblem
    affine, affine_scores, partial = True, True, False  # what is not convex is linearized

    def __init__(self, problem: ModuleProblem, w: Tensor) -> None:
        super().__init__(problem, w)
        self.center = w.detach().clone()
        if problem.shard is not None:
            self.shard = Shard(problem.shard.local.linearize(self.center))

    def start(self) -> Tensor:
        """Weights to start from: w_k, [dim]."""
        return self.center.clone()

    def affine_batch(self, indices: Tensor) -> LinearizedBatch:
        """A batch of examples whose scores are linearized at the center."""
        return self.problem.linearized_batch(self.center, *self.problem.batch(indices))

    def linearize(self, w: Tensor) -> "LinearizedProblem":
        """The problem itself, which is linearized already."""
        return self


def _check_module(module: nn.Module) -> None:
    """Raise ``ValueError`` for what ``torch.func.functional_call`` would not restore after a pass."""
    names: dict[nn.Module, str] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        if part in names:
            raise ValueError(
                f"module has one submodule under two names, {names[part]!r} and {name!r}: register it once, "
                "and call it twice"
            )
        names[part] = name
    for name, parameter in module.named_parameters():
        if not parameter.is_leaf:
            raise ValueError(
                f"parameter {name!r} is computed from other tensors: register the tensors that are trained"
            )


def _trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters of a module by name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def to_device(x: Any, device: torch.device) -> Any:
    """Move an input to a device: a tensor, a tuple of inputs, or anything else with a ``to`` method."""
    if isinstance(x, PartialLabels):
        return PartialLabels(*to_device(tuple(x), device))
    if isinstance(x, (tuple, list)):
        return tuple(to_device(item, device) for item in x)
    return x.to(device) if hasattr(x, "to") else x
