"""An experiment: a command, and what a paper says of its outcome."""

import json
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from scripts.reproduce.claim import Claim
from scripts.reproduce.claims import Runs, chosen
from scripts.reproduce.objectives import draw_objectives
from scripts.shared.harness import cpu_clock
from structsmooth.checkpoint import write_atomic
from structsmooth.cli import main
from structsmooth.cli.compare import load_runs
from structsmooth.cli.report import markdown_table
from structsmooth.history import History

SUMMARY = "summary.json"
# The folder of trials among those of whole runs.
QUICK = "quick"


@dataclass(frozen=True)
class Experiment(ABC):
    """A figure or table of a paper.

    Args:
        name: of the entry, such as ``osokin-3``.
        figure: what the paper calls it.
        about: one line on what is compared.
        needs: the folder of its data within the folder of data.
        claims: what the paper says.
        differs: what differs from the paper: data, budgets, settings.
        names: of solvers, as the page has them, by their labels.
    """

    name: str
    figure: str
    about: str
    needs: str
    claims: Sequence[Claim[Any]] = field(kw_only=True)
    differs: Sequence[str] = field(default=(), kw_only=True)
    names: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def evidence(self, data: str, out: Path, quick: bool) -> Any:
        """Make the runs that the claims are about, and draw their pictures.

        Raises:
            RuntimeError: a run failed or was interrupted.
        """

    @abstractmethod
    def command_line(self, out: Path, quick: bool) -> str:
        """What a reader types for the same runs, with ``DATA`` for the folder of data."""

    def run(self, data: str, out: Path, quick: bool) -> dict[str, Any]:
        """Make the runs, and write what is seen beside the pictures: ``summary.json`` and ``summary.md``.

        Raises:
            RuntimeError: a run failed or was interrupted.
        """
        started = time.process_time()
        with cpu_clock():
            evidence = self.evidence(data, out, quick)
        readings = [claim.read(evidence) for claim in self.claims]
        summary = {
            "name": self.name,
            "figure": self.figure,
            "about": self.about,
            "differs": list(self.differs),
            "names": dict(self.names),
            "command": self.command_line(Path(out.name), quick),
            "quick": quick,
            "seconds": max(time.process_time() - started, _seconds_before(out / SUMMARY)),
            "claims": [
                asdict(reading)
                | {"says": claim.says, "ours": claim.ours, "test": claim.test, "verdict": reading.verdict}
                for claim, reading in zip(self.claims, readings, strict=True)
            ],
        }
        write_atomic(out / SUMMARY, json.dumps(summary, indent=1, ensure_ascii=False))
        write_atomic(out / "summary.md", described(summary))
        return summary


@dataclass(frozen=True)
class Command(Experiment):
    """An experiment that one command makes.

    Args:
        command: arguments of ``structsmooth``, with ``{data}`` for the folder of data.
        quick: arguments that replace some of them, for a trial of at most two minutes.
    """

    command: str
    quick: str

    def arguments(self, data: str, out: Path, quick: bool) -> list[str]:
        """The command line; of an option that is given twice, the last value counts."""
        text = self.command + (f" {self.quick}" if quick else "")
        return [part.replace("{data}", data) for part in shlex.split(text)] + ["--out", str(out)]

    def command_line(self, out: Path, quick: bool) -> str:
        """The command itself."""
        return shlex.join(["structsmooth", *self.arguments("DATA", out, quick)])

    def evidence(self, data: str, out: Path, quick: bool) -> Any:
        """What the command leaves in ``out``: a command that was interrupted goes on."""
        with redirect_stdout(StringIO()):
            status = main(self.arguments(data, out, quick))
        if status:
            raise RuntimeError(f"{self.name}: structsmooth ended with status {status}; the same command goes on")
        if self.command.startswith("path"):
            return json.loads((out / "costs.json").read_text(encoding="utf-8"))
        return load_runs(out)


@dataclass(frozen=True)
class Comparisons(Experiment):
    """An experiment of several comparisons whose objectives have the same optimum, as with other oracles for it.

    Args:
        parts: commands, by what is appended to the labels of their solvers.
        metric: of test data, drawn beside the objectives.
    """

    parts: Mapping[str, Command]
    metric: str | None = None

    def command_line(self, out: Path, quick: bool) -> str:
        """The commands, one after the other."""
        return "; ".join(part.command_line(out / part.name, quick) for part in self.parts.values())

    def evidence(self, data: str, out: Path, quick: bool) -> Runs:
        """The runs of all commands, which are also drawn together, with the optimum."""
        found: dict[str, dict[str, Sequence[History]]] = {}
        for suffix, part in self.parts.items():
            for lam, of_lam in part.evidence(data, out / part.name, quick).items():
                found.setdefault(lam, {}).update({label + suffix: runs for label, runs in of_lam.items()})
        for lam, runs in found.items():
            draw_objectives(runs, out / f"lam-{lam}.png", self.metric, f"{self.figure}, λ = {lam}")
        return found


@dataclass(frozen=True)
class Tuned(Experiment):
    """An experiment whose solvers have the best setting of a grid, chosen for each λ by runs with the first seed.

    The runs are found by the names of the solvers, and those of the grids by their own labels.

    Args:
        command: arguments of ``structsmooth compare``, with ``{data}`` for the folder of data, without λ and solvers.
        quick: arguments that replace some of them, for a trial of at most two minutes.
        lams: λ, numbers or text such as ``"1/n"``.
        grids: settings by the name of their solver.
        metric: of held-out data, for the choice; without one, the objective decides.
    """

    command: str
    quick: str
    lams: Sequence[str]
    grids: Mapping[str, Sequence[str]]
    metric: str | None = None

    def command_line(self, out: Path, quick: bool) -> str:
        """The entry."""
        return _entry(self.name, quick)

    def evidence(self, data: str, out: Path, quick: bool) -> Runs:
        """The runs of the grids, and those of the best settings with all seeds: the first is that of the grid."""
        found = {}
        for spec in self.lams[:1] if quick else self.lams:
            folder = out / f"lam-{spec.replace('/', '-')}"
            settings = [label for grid in self.grids.values() for label in grid]
            (lam, runs), *_ = self._runs(spec, settings, "--seeds 0", data, folder, quick).items()
            tried = {label: runs[label][:1] for label in settings}
            best = {
                name: chosen({label: tried[label] for label in grid}, self.metric) for name, grid in self.grids.items()
            }
            runs = self._runs(spec, list(best.values()), "", data, folder, quick)[lam]
            found[lam] = {**tried, **{name: runs[label] for name, label in best.items()}}
        return found

    def _runs(self, lam: str, labels: Sequence[str], seeds: str, data: str, folder: Path, quick: bool) -> Runs:
        command = f"{self.command} --lams {lam} --solvers {' '.join(labels)} {seeds}"
        part = Command(self.name, self.figure, self.about, self.needs, command, self.quick, claims=[])
        runs: Runs = part.evidence(data, folder, quick)
        return runs


@dataclass(frozen=True)
class Study(Experiment):
    """An experiment that takes more than one command.

    Args:
        study: makes the runs from the folder of data, draws them in a folder, and returns numbers by name; with
            ``True``, a trial of at most two minutes.
    """

    study: Callable[[Path, Path, bool], Mapping[str, Sequence[float]]]

    def command_line(self, out: Path, quick: bool) -> str:
        """The entry."""
        return _entry(self.name, quick)

    def evidence(self, data: str, out: Path, quick: bool) -> Mapping[str, Sequence[float]]:
        """The numbers, which are also kept in ``numbers.json``."""
        out.mkdir(parents=True, exist_ok=True)
        numbers = self.study(Path(data), out, quick)
        write_atomic(out / "numbers.json", json.dumps(numbers, indent=1))
        return numbers


def _entry(name: str, quick: bool) -> str:
    return f"python -m scripts reproduce {name}" + " --quick" * quick


def _seconds_before(summary: Path) -> float:
    """The time of an earlier run: a run that finds its passes in the folder takes none."""
    if not summary.exists():
        return 0.0
    seconds: float = json.loads(summary.read_text(encoding="utf-8"))["seconds"]
    return seconds


def described(summary: dict[str, Any]) -> str:
    """What was seen in an experiment, in Markdown."""
    differs = ["Differs from the paper: " + "; ".join(summary["differs"]) + "."] if summary["differs"] else []
    header = ["the paper says", "it holds if", "here", "seen"]
    rows = [
        [
            ("Not of the paper: " if claim["ours"] else "") + claim["says"],
            claim["test"],
            f"**{claim['verdict']}**",
            claim["seen"],
        ]
        for claim in summary["claims"]
    ]
    table, legend = named(markdown_table(header, rows, len(header)), summary["names"])
    taken = f"{summary['seconds'] / 60:.1f} minutes: `{summary['command']}`"
    text = " ".join([summary["about"], *differs])
    return "\n\n".join([f"### {summary['figure']}", text, *[legend] * bool(legend), table, taken]) + "\n"


def named(text: str, names: Mapping[str, str]) -> tuple[str, str]:
    """A text with names in place of labels of solvers, and a sentence that says which they are."""
    used = {label: name for label, name in names.items() if f"`{label}`" in text}
    for label, name in used.items():
        text = text.replace(f"`{label}`", f"*{name}*")
    listed = "; ".join(f"*{name}* is `{label}`" for label, name in used.items())
    return text, f"{listed}." * bool(listed)
