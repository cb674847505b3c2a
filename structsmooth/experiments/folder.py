"""The folder of a run: its checkpoint, from which it can go on, and its record."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple
from uuid import uuid4

from torch import Tensor

from structsmooth import processes
from structsmooth.checkpoint import load_state, load_values, save_state, write_atomic
from structsmooth.experiments.shares import history_of, rearranged
from structsmooth.history import History
from structsmooth.problems import Problem
from structsmooth.solvers import Progress, Solver, State

try:
    from fcntl import LOCK_EX, LOCK_NB
    from fcntl import flock as lock_folder
except ImportError:  # on Windows
    lock_folder = None  # type: ignore[assignment]

# A file by which processes find out whether they see the same folder.
_TOKEN = "shared"
# What a run that was killed may leave.
_BEFORE_THE_FIRST_CHECKPOINT = {"history.jsonl", "checkpoint.safetensors", "checkpoint.parts", "encoder", _TOKEN}
# What the checkpoint of a run has beside tensors.
_RUN = {"settings", "state", "history"}
# Writing checkpoints takes about one part in so many of the time.
PATIENCE = 10.0


@dataclass(frozen=True)
class RunFolder:
    """The files of one run, in a folder that is made when something is saved; loading executes no code.

    Args:
        path: of the folder.
        settings: of the run, as plain JSON, which a run that goes on from its checkpoint must have, too.
    """

    path: Path
    settings: Mapping[str, Any] = field(default_factory=dict)

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block in which no other process may run here: a lock of the folder, which ends with its process.

        The folder is made, and taken away if nothing was saved. Windows and some network file systems lock no folders.

        Raises:
            ValueError: another process runs here.
            NotADirectoryError: it is a file.
        """
        with suppress(FileExistsError):
            self.path.mkdir(parents=True)
        if lock_folder is None:
            yield
            return
        place = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                lock_folder(place, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                busy = f"{self.path}: another run writes into this folder: wait for its end, or choose another --out"
                raise ValueError(busy) from None
            except OSError:  # a file system without locks
                pass
            try:
                yield
            finally:
                with suppress(OSError):  # it has files
                    self.path.rmdir()
        finally:
            os.close(place)

    def claim(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse a directory whose files a run would replace unasked.

        Raises:
            ValueError: it holds another model or run, or files that no run wrote.
            NotADirectoryError: it is a file.
        """
        names = {path.name.removesuffix(".tmp") for path in self.path.iterdir()} if self.path.exists() else set()
        if not names <= _BEFORE_THE_FIRST_CHECKPOINT and not self._holds_run():
            raise ValueError(f"{self.path} has files that structsmooth train did not write: choose another --out")
        complete = "model.json" in names
        if resume and complete and not self._checkpoint.exists():
            raise ValueError(f"{self.path} has a model but no checkpoint to resume: choose another --out")
        if not (resume or overwrite) and (complete or self._checkpoint.exists()):
            raise ValueError(
                f"{self.path} has a model or a run already: --resume continues it, --overwrite replaces it, "
                "or choose another --out"
            )

    def save_checkpoint(self, progress: Progress[Any]) -> None:
        """Save a run after a pass, so that it can go on from there.

        The first of several processes saves its state; the others too, if the states are parts of a whole. Each writes
        into the folder as its own machine has it, which need not be the one that others see.
        """
        state, history = progress.state, progress.history
        parts: dict[str, Any] = {"blocks": state.own_blocks}
        if state.partitioned and processes.count() > 1:
            told = processes.gathered((uuid4().hex, gethostname()))
            parts |= {"mark": told[0][0], "hosts": [host for _, host in told]}
            if processes.rank() > 0:
                self._save_part(state, history, parts)
            processes.wait()  # until all parts are there: the first one makes the checkpoint complete
        if processes.rank() == 0:
            tensors, numbers = state.split()
            self.save_state(tensors, numbers, history, parts)

    def save_state(
        self, tensors: dict[str, Tensor], numbers: Any, history: History, parts: Mapping[str, Any] | None = None
    ) -> None:
        """Save where a run is, as tensors and plain JSON, with its history; and what is known of its parts."""
        self.path.mkdir(parents=True, exist_ok=True)
        # First, so that it is complete wherever the checkpoint is of a complete run.
        write_atomic(self.path / "history.jsonl", history.to_json_lines())
        save_state(self._checkpoint, tensors, self._values(numbers, history, parts or {}))

    def load_checkpoint(self, solver: Solver[Any], problem: Problem) -> tuple[State, History] | None:
        """State and history of the run to resume, wherever processes have them; ``None`` if there is no checkpoint.

        Parts of a state go to the processes that have their blocks of the problem now: there may be more or fewer.

        Raises:
            ValueError: the checkpoint is of a run with other settings, or not all parts of it are there.
        """
        apart = solver.state_type.partitioned
        if (found := self._found(apart)) is None:
            return None
        if apart and len(found.blocks) != processes.count():
            return rearranged(solver, problem, found.files, found.blocks)
        tensors, values = processes.delivered(processes.rank() if apart else 0, found.loaders())
        return solver.state_type.joined(tensors, values["state"]), history_of(values)

    def load_state(self) -> tuple[dict[str, Tensor], Any, History] | None:
        """What :meth:`save_state` saved, in any of the processes; ``None`` if there is no checkpoint.

        Raises:
            ValueError: the checkpoint is of a run with other settings.
        """
        if (found := self._found(apart=False)) is None:
            return None
        tensors, values = processes.delivered(0, found.loaders())
        return tensors, values["state"], history_of(values)

    def load_history(self) -> tuple[dict[str, Any], History]:
        """Settings and history of the run.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: it is damaged.
        """
        values = load_values(self._checkpoint)
        return values["settings"], history_of(values)

    def has_checkpoint(self, solver: Solver[Any]) -> bool:
        """Whether there is a checkpoint; with the errors of :meth:`load_checkpoint`, but without reading the state."""
        return self._found(solver.state_type.partitioned) is not None

    def is_shared(self) -> bool:
        """Whether all processes see the same folder."""
        token, mark = self.path / _TOKEN, processes.gathered(uuid4().hex)[0]
        if processes.rank() == 0:
            self.path.mkdir(parents=True, exist_ok=True)
            token.write_text(mark)
        processes.wait()
        seen = all(processes.gathered(token.exists() and token.read_text() == mark))
        if processes.rank() == 0:
            token.unlink()
        return seen

    def _found(self, apart: bool) -> "_Checkpoint | None":
        """The last checkpoint that all processes together have all parts of; ``None`` if there is none.

        A part belongs to a share of the examples, and not to a machine: those that start again may have other numbers.
        """
        own = processes.run_on_all_ranks(lambda: list(self._saved(apart)))
        saved = processes.concatenated(own)
        for some in sorted({part.of: part for part in saved}.values(), key=lambda part: part.of.passes, reverse=True):
            parts = {part.number: part for part in saved if part.of == some.of}
            if len(parts) == some.parts:
                files = {part.number: part.file for part in own if part.of == some.of}
                return _Checkpoint(files, [parts[number].blocks for number in range(some.parts)])
        last = max(saved, key=lambda part: part.of.passes, default=None)
        # A run that ended while it wrote its first checkpoint has parts of that, and loses one pass.
        if last is not None and last.of.passes > 1:
            lost = set(range(last.parts)) - {part.number for part in saved if part.of == last.of}
            names = ", ".join(f"part {part} of {last.parts}, which host {last.hosts[part]} saved" for part in lost)
            raise ValueError(
                f"{self.path}: of the checkpoint after pass {last.of.passes} no process has {names}: "
                "start that host again, with its disk, or start anew with --overwrite"
            )
        return None

    def _saved(self, apart: bool) -> Iterator["_Part"]:
        """The files of this run on the disk of this process."""
        if self._checkpoint.exists():
            values = load_values(self._checkpoint)
            self._check_run(values)
            yield _Part.of_file(0, values, self._checkpoint)
        for file in sorted(self._parts.glob("*.safetensors")) if apart else ():
            values = load_values(file)
            if values["settings"] == self._given:  # and not of a run before
                yield _Part.of_file(int(file.name.partition("-")[0]), values, file)

    def keeper(self, solver: Solver[Any]) -> "CheckpointCallback":
        """A callback that saves a run of a solver here."""
        # Processes that save parts of a state must save the same pass.
        is_apart = solver.state_type.partitioned and processes.count() > 1
        return CheckpointCallback(self.save_checkpoint, 0.0 if is_apart else PATIENCE)

    def finished(self) -> dict[str, Any] | None:
        """The record that :meth:`finish` wrote; ``None`` if there is none.

        Raises:
            ValueError: the record is damaged, or of a run with other settings.
        """
        if not self._record.exists():
            return None
        try:
            record: dict[str, Any] = json.loads(self._record.read_text())
            self._check(self._record, record["settings"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{self._record}: not the record of a run ({error})") from error
        return record

    def finish(self, record: Mapping[str, Any]) -> None:
        """Replace the checkpoint of a run by a record of it, in JSON."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self._record, json.dumps({"settings": self.settings, **record}, indent=1))
        self._discard(self._checkpoint, self.path / "history.jsonl")

    def restart(self) -> None:
        """Forget the run in the folder: its record and its checkpoint."""
        self._discard(self._record, self._checkpoint, self.path / "history.jsonl")

    def _discard(self, *paths: Path) -> None:
        for path in paths:
            path.unlink(missing_ok=True)

    def _holds_run(self) -> bool:
        """Whether a run wrote a model or a checkpoint here."""
        model = self.path / "model.json"
        try:
            if model.exists():
                return bool(json.loads(model.read_text()).keys() >= {"settings", "metrics"})
            return load_values(self._checkpoint).keys() >= _RUN
        except (FileNotFoundError, ValueError, AttributeError):
            return False

    def _values(self, numbers: Any, history: History, parts: Mapping[str, Any]) -> dict[str, Any]:
        """What a checkpoint, or a part of it, has beside tensors."""
        rows = [row.as_dict() for row in history]
        return {"settings": dict(self.settings), "state": numbers, "history": rows, **parts}

    def _check_run(self, values: Mapping[str, Any]) -> None:
        if not values.keys() >= _RUN:
            raise ValueError(f"{self._checkpoint}: not the checkpoint of a run")
        self._check(self._checkpoint, values["settings"])

    def _check(self, file: Path, saved: Mapping[str, Any]) -> None:
        """Refuse a file of a run with other settings."""
        given = self._given
        for name in ["solver", *{**saved, **given}]:
            if saved.get(name) != given.get(name):
                raise ValueError(
                    f"{file} is of a run with {name} = {saved.get(name)!r}, not {given.get(name)!r}: "
                    "resume with the same options, version and data, or start anew in another --out"
                )

    @property
    def _given(self) -> dict[str, Any]:
        """The settings as they are read from a file."""
        given: dict[str, Any] = json.loads(json.dumps(dict(self.settings)))
        return given

    def _save_part(self, state: State, history: History, parts: Mapping[str, Any]) -> None:
        """Save the state of a process, but not where the one of a pass before is, which the checkpoint needs."""
        self._parts.mkdir(parents=True, exist_ok=True)
        tensors, numbers = state.split()
        file = self._parts / f"{processes.rank()}-{state.passes % 2}.safetensors"
        save_state(file, tensors, self._values(numbers, history, parts))

    @property
    def _parts(self) -> Path:
        return self.path / "checkpoint.parts"

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def _record(self) -> Path:
        return self.path / "run.json"


class _Moment(NamedTuple):
    """When a checkpoint was made: after so many passes; of one in parts, a mark that no other checkpoint has."""

    passes: int
    mark: str


class _Part(NamedTuple):
    """A file with a part of a checkpoint; the whole one is part 0.

    Attributes:
        number: of the process that saved it, and of its share of the examples.
        of: the checkpoint.
        hosts: that saved the parts, in order; none for a whole checkpoint.
        blocks: number of blocks that it has.
        file: on the disk of one process.
    """

    number: int
    of: _Moment
    hosts: list[str]
    blocks: int
    file: Path

    @classmethod
    def of_file(cls, number: int, values: Mapping[str, Any], file: Path) -> "_Part":
        """The part in a file, by what it has beside tensors."""
        moment = _Moment(values["state"].get("passes", 0), values.get("mark", ""))
        return cls(number, moment, values.get("hosts", []), values.get("blocks", 0), file)

    @property
    def parts(self) -> int:
        """Number of parts of the checkpoint."""
        return max(1, len(self.hosts))


class _Checkpoint(NamedTuple):
    """The files with parts of a checkpoint that this process has, and the numbers of blocks of all parts."""

    files: dict[int, Path]
    blocks: list[int]

    def loaders(self) -> dict[int, Callable[[], tuple[dict[str, Tensor], dict[str, Any]]]]:
        """How this process gets the parts that it has."""
        return {part: partial(load_state, file) for part, file in self.files.items()}


class CheckpointCallback:
    """A callback that saves a run, as often as that takes little time beside the passes; and its end, however it ends.

    Args:
        save: writes a checkpoint.
        patience: a checkpoint is written when the time since the last one is so many times what writing it took.
    """

    def __init__(self, save: Callable[[Progress[Any]], None], patience: float = PATIENCE) -> None:
        self._save, self._patience = save, patience
        self._unsaved: Progress[Any] | None = None
        self._saved_at, self._cost = time.perf_counter(), 0.0

    def __enter__(self) -> "CheckpointCallback":
        return self

    def __exit__(self, *stop: object) -> None:
        self._save_last()

    def __call__(self, progress: Progress[Any]) -> None:
        """Save a pass, with the metrics that earlier callbacks added, or remember it."""
        self._unsaved = replace(progress, history=History(progress.history))
        if time.perf_counter() - self._saved_at >= self._patience * self._cost:
            self._save_last()

    def _save_last(self) -> None:
        progress, self._unsaved = self._unsaved, None
        if progress is None:
            return
        started = time.perf_counter()
        self._save(progress)
        self._saved_at = time.perf_counter()
        self._cost = self._saved_at - started
