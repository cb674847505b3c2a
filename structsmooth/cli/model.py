"""A model directory: weights, task, history, pictures, and the checkpoint a run resumes from."""

from pathlib import Path
from typing import Any

from structsmooth import processes
from structsmooth.checkpoint import load_state, load_values, save_state, write_atomic
from structsmooth.history import History, Row
from structsmooth.plots import plot_history
from structsmooth.solvers import Progress, Solver, State
from structsmooth.tasks.trained import TrainedModel, describe

# What a run that was killed may leave.
_BEFORE_THE_FIRST_CHECKPOINT = {"history.jsonl", "checkpoint.safetensors", "checkpoint.parts"}


class ModelDirectory:
    """The files of one training run, in a directory made when something is saved; loading executes no code."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

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

    def save_checkpoint(self, progress: Progress[Any], settings: dict[str, Any]) -> None:
        """Save a run after a pass, so that it can go on from there.

        The first of several processes saves its state; the others too, if the states are parts of a whole.
        """
        if progress.state.partitioned and processes.count() > 1:
            self._save_part(progress.state)
        if processes.rank() > 0:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        tensors, numbers = progress.state.split()
        rows = [row.as_dict() for row in progress.history]
        # First, so that it is complete wherever the checkpoint is of a complete run.
        write_atomic(self.path / "history.jsonl", progress.history.to_json_lines())
        save_state(self._checkpoint, tensors, {"settings": settings, "state": numbers, "history": rows})

    def load_checkpoint(self, solver: Solver[Any], settings: dict[str, Any]) -> tuple[State, History] | None:
        """State and history of the run to resume; ``None`` if there is no checkpoint.

        Raises:
            ValueError: the checkpoint is of a run with other settings, or parts of it are of another run.
        """
        if not self._checkpoint.exists():
            return None
        tensors, values = load_state(self._checkpoint)
        self._check(values, settings)
        history = History(Row.from_dict(row) for row in values["history"])
        state = solver.state_type.joined(tensors, values["state"])
        if state.partitioned and processes.rank() > 0:
            state = self._load_part(solver, state.passes)
        return state, history

    def load_history(self) -> tuple[dict[str, Any], History]:
        """Settings and history of the run.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: it is damaged.
        """
        values = load_values(self._checkpoint)
        return values["settings"], History(Row.from_dict(row) for row in values["history"])

    def check_settings(self, settings: dict[str, Any]) -> None:
        """Raise the errors of :meth:`load_checkpoint`, without reading the state."""
        if self._checkpoint.exists():
            self._check(load_values(self._checkpoint), settings)

    def save_model(self, model: TrainedModel, history: History) -> list[str]:
        """Save a trained model, its history and pictures of both: what was saved."""
        model.save(self.path)
        write_atomic(self.path / "history.jsonl", history.to_json_lines())
        about = model.description
        title = f"{about['task']}: {about['settings']['solver']}, λ = {about['lam']:.3g}"
        metric = model.task.task.headline
        label = f"{model.watched} {metric.replace('_', ' ').upper()}"
        plot_history(history, self.path / "curves.png", metric, title, label)
        return ["model", "history.jsonl", "curves.png", *model.task.draw_model(model.weights, self.path)]

    def _holds_run(self) -> bool:
        """Whether a run wrote a model or a checkpoint here."""
        try:
            if (self.path / "model.json").exists():
                return bool(describe(self.path))
            return {"settings", "state", "history"} <= load_values(self._checkpoint).keys()
        except (FileNotFoundError, ValueError):
            return False

    def _check(self, values: dict[str, Any], settings: dict[str, Any]) -> None:
        if not {"settings", "state", "history"} <= values.keys():
            raise ValueError(f"{self._checkpoint}: not the checkpoint of a run")
        for name in ["solver", *settings]:
            saved, given = values["settings"].get(name), settings.get(name)
            if saved != given:
                raise ValueError(
                    f"{self._checkpoint} is of a run with {name} = {saved!r}, not {given!r}: "
                    "resume with the same options, or start anew in another --out"
                )

    def _save_part(self, state: State) -> None:
        """Save the states of all processes but the first; done when all have."""
        if processes.rank() > 0:
            path = self._part(state.passes)
            path.parent.mkdir(parents=True, exist_ok=True)
            tensors, numbers = state.split()
            save_state(path, tensors, {"state": numbers})
        processes.wait()

    def _load_part(self, solver: Solver[Any], passes: int) -> State:
        tensors, values = load_state(path := self._part(passes))
        state = solver.state_type.joined(tensors, values["state"])
        if state.passes != passes:
            raise ValueError(f"{path} is of pass {state.passes}, and the checkpoint of pass {passes}: start anew")
        return state

    def _part(self, passes: int) -> Path:
        """Where this process saves its state: not where the state of one pass before is, which the checkpoint needs."""
        return self.path / "checkpoint.parts" / f"{processes.rank()}-{passes % 2}.safetensors"

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"
