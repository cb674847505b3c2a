"""What runs carry, show and return: states, progress, results, and how a run ends."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_args, get_origin, get_type_hints, runtime_checkable

import torch
from torch import Tensor

from structsmooth.compiled import clock
from structsmooth.history import History, Row
from structsmooth.problems.base import FullPass, Problem
from structsmooth.smoothing import Smoother


class Status(Enum):
    """Why a solver stopped."""

    CONVERGED = "converged"
    PASS_LIMIT = "pass limit"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    DIVERGED = "diverged"


@dataclass
class Result:
    """What a solver returns.

    Attributes:
        weights: [dim]; those of the row with the smallest objective, which need not be the last pass.
        row: the row of ``history`` that describes them, with the best lower bound of the run.
        history: one row per recorded pass.
        status: why the solver stopped.
        message: the same as a sentence.
        state: all that the solver carried; ``(state, history)`` is what ``resume`` takes.
    """

    weights: Tensor
    row: Row
    history: History
    status: Status
    message: str
    state: "State"

    @classmethod
    def of(cls, state: "State", row: Row, history: History, status: Status, retries: int) -> "Result":
        """The best weights of a run, with a sentence on why there are no better ones.

        Args:
            state: after the last pass.
            row: of the best weights.
            history: of the run.
            status: why it ended.
            retries: how many passes were undone.
        """
        gap = "" if row.gap is None else f", duality gap {row.gap:.2g}"
        reached = f"objective {row.objective:.6g}{gap} after {row.passes} passes"
        if row.passes < history[-1].passes:
            reached += f", the best of {history[-1].passes}"
        advice = {
            Status.CONVERGED: f"{'the gap' if row.gap is not None else 'what could be gained'} is below the tolerance",
            Status.PASS_LIMIT: _prospect(row, history),
            Status.STOPPED: "a callback asked for it",
            Status.INTERRUPTED: "stopped on request",
            Status.DIVERGED: f"no step size worked in {retries} tries; check the scale of the features",
        }[status]
        return cls(state.best_weights, row, history, status, f"{status.value}: {reached}; {advice}", state)


def _prospect(best: Row, history: History) -> str:
    """What more passes can do, as far as is known: at most the gap, or what the last ones did."""
    last = history[-1]
    if last.passes == 0:
        return "no pass was made"
    if best.gap is not None:
        return f"more passes can lower the objective by {best.gap:.2g} at most"
    if best.passes < last.passes or len(history) < 2:
        return f"the objective has not decreased since pass {best.passes}"
    before = history[-2]
    return f"the objective fell by {before.objective - last.objective:.2g} since pass {before.passes}"


@dataclass
class Work:
    """Oracle calls and seconds that something took, without the compilation of inner loops."""

    oracle_calls: int = 0
    seconds: float = 0.0

    @contextmanager
    def counted(self, problem: Problem) -> Iterator[None]:
        """Add what the block takes, even if an exception ends it."""
        calls, started = problem.oracle_calls, clock.seconds()
        try:
            yield
        finally:
            self.oracle_calls += problem.oracle_calls - calls
            self.seconds += clock.seconds() - started


@dataclass
class PassMemo:
    """The last full pass that a run keeps, for whoever asks for the same one again.

    It is as large as several iterates, so that it is forgotten when a pass at other weights is asked for.

    Attributes:
        full: the pass; ``None`` if there is none.
        work: what it took, as long as no state has been charged with it.
        owed: of that, what the state that makes use of it is to be charged with.
    """

    full: FullPass | None = None
    work: Work = field(default_factory=Work)
    owed: Work = field(default_factory=Work)

    def find(self, problem: Problem, weights: Tensor, smoother: Smoother) -> FullPass | None:
        """The pass, if it is at these weights under this smoother."""
        full = self.full
        if full is None or full.smoother != problem.effective_smoother(smoother):
            return None
        # Last, since it reads all weights.
        return full if torch.equal(full.weights, weights) else None

    def full_pass(self, problem: Problem, weights: Tensor, smoother: Smoother) -> FullPass:
        """The full pass at some weights, which is made unless it is the one at hand."""
        found = self.find(problem, weights, smoother)
        if found is None:
            self.full = None
            return problem.full_pass(weights, problem.effective_smoother(smoother))
        self.owed, self.work = self.work, Work()
        return found


@dataclass
class State:
    """All that a solver carries from one pass to the next.

    Solvers add fields: numbers, tensors, sequences of vectors, and dataclasses of such fields, as points of the dual.

    Attributes:
        weights: current iterate, [dim].
        step_size: current step size; 0 where every step searches for its own.
        passes: stochastic passes so far.
        oracle_calls: inferences so far.
        seconds: time so far.
        dual: lower bound on the optimum; ``None`` as long as there is none.
        best: the weights of the best pass so far, [dim], which a run keeps; empty if they are the current ones.
        memo: the last evaluation of the run, in the state that :meth:`Solver.advance` gets. The state that it returns
            may bring the full pass at its weights, which then evaluates it. It is never saved.
        partitioned: whether each of several processes may have a part of the state, which it saves by itself: what
            belongs to its own blocks. The solver then is :class:`Partitioning`.
    """

    partitioned: ClassVar[bool] = False

    weights: Tensor
    step_size: float = 0.0
    passes: int = 0
    oracle_calls: int = 0
    seconds: float = 0.0
    dual: float | None = None
    best: Tensor = field(default_factory=lambda: empty())
    memo: PassMemo = field(default_factory=PassMemo, repr=False, compare=False)

    @property
    def own_blocks(self) -> int:
        """Number of blocks that the process has its part of, in a state that is partitioned."""
        return 0

    @property
    def best_weights(self) -> Tensor:
        """The weights of the best pass so far, [dim]."""
        return self.best if len(self.best) else self.weights

    def observe(self, full: FullPass, lam: float) -> None:
        """Learn from a full pass; nothing here. A state without a dual iterate improves its lower bound."""

    def charge(self, work: Work) -> None:
        """Count work as the solver's."""
        self.oracle_calls += work.oracle_calls
        self.seconds += work.seconds

    def split(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers, for saving; those of a dataclass in a field have the name of the field as a prefix."""
        tensors, numbers = _split(self)
        elsewhere = {name: str(tensor.device) for name, tensor in tensors.items() if tensor.device.type != "cpu"}
        return tensors, numbers | {_DEVICES: elsewhere} if elsewhere else numbers

    @classmethod
    def joined(cls: "type[S]", tensors: dict[str, Tensor], numbers: dict[str, Any]) -> "S":
        """The inverse of :meth:`split`; fields that only older versions had are ignored."""
        moved = {name: tensors[name].to(device) for name, device in numbers.get(_DEVICES, {}).items()}
        joined: S = _joined(cls, tensors | moved, numbers)
        return joined


S = TypeVar("S", bound=State)


@runtime_checkable
class Partitioning(Protocol[S]):
    """A solver whose states are partitioned. The blocks of all, in the order of processes, do not depend on these."""

    def blocks_of(self, problem: Problem) -> int:
        """Number of blocks that this process has its part of."""

    def part(self, problem: Problem, state: S, blocks: range) -> S:
        """A state with the parts of some neighbouring blocks alone, of a state of any process."""

    def assembled(self, problem: Problem, parts: Sequence[S]) -> S:
        """The state of this process, from the parts that all of its blocks are in, in order."""


# What the name of a sequence of vectors is followed by for their lengths; the vectors are saved end to end.
_SIZES = ".sizes"
# The devices of the tensors that are not on the CPU, which they return to.
_DEVICES = "devices"


def _split(value: Any, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and numbers of a dataclass, and the names of the classes of dataclasses in its fields."""
    tensors, numbers = dict[str, Tensor](), dict[str, Any]()
    for f in fields(value):
        name, entry = prefix + f.name, getattr(value, f.name)
        if isinstance(entry, PassMemo):
            continue
        if isinstance(entry, Tensor):
            tensors[name] = entry
        elif isinstance(entry, list | tuple) and entry and isinstance(entry[0], Tensor):
            tensors |= {name: torch.cat([*entry]), name + _SIZES: torch.tensor([*map(len, entry)])}
        elif is_dataclass(entry):
            inner_tensors, inner_numbers = _split(entry, f"{name}.")
            tensors, numbers = tensors | inner_tensors, numbers | {name: type(entry).__name__} | inner_numbers
        else:
            numbers[name] = entry
    return tensors, numbers


def _joined(kind: Any, tensors: dict[str, Tensor], numbers: dict[str, Any], prefix: str = "") -> Any:
    """The inverse of :func:`_split`; fields that were not saved have their defaults."""
    hints, values = get_type_hints(kind), dict[str, Any]()
    for f in fields(kind):
        name, hint = prefix + f.name, hints[f.name]
        if name + _SIZES in tensors:
            # Not views: sums over vectors at other places in memory round differently.
            vectors = map(torch.clone, tensors[name].split(tensors[name + _SIZES].tolist()))
            values[f.name] = (get_origin(hint) or hint)(vectors)
        elif name in tensors:
            values[f.name] = tensors[name]
        elif name in numbers:
            saved, kinds = numbers[name], {cls.__name__: cls for cls in _dataclasses(hint)}
            # A dataclass in a field was saved as the name of its class, and its own fields beside it.
            inner = isinstance(saved, str) and saved in kinds
            values[f.name] = _joined(kinds[saved], tensors, numbers, f"{name}.") if inner else saved
    return kind(**values)


def _dataclasses(hint: Any) -> Iterator[type]:
    """The dataclasses that a value of a declared type may be of."""
    for kind in get_args(hint) or (hint,):
        if isinstance(kind, type) and is_dataclass(kind):
            yield kind
            for subclass in kind.__subclasses__():
                yield from _dataclasses(subclass)


def empty() -> Tensor:
    """What a state holds for a tensor that it does not have."""
    return torch.zeros(0)


@dataclass
class Progress(Generic[S]):
    """What callbacks see after every pass; they may add to ``row.metrics``.

    ``history`` is the live list: it grows with the run. To keep it as it is now, copy it: ``History(history)``.
    """

    problem: Problem
    state: S
    row: Row
    history: History


Callback = Callable[[Progress[Any]], None]


class Stop(Exception):  # noqa: N818 - no error, like StopIteration
    """Raised by a callback to end the run with the pass just made."""
