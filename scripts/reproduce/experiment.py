"""An experiment: a command, and what a paper says of its outcome."""

import json
import shlex
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from scripts.reproduce.claims import Claim
from structsmooth.checkpoint import write_atomic
from structsmooth.cli import main
from structsmooth.cli.compare import load_runs

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper.

    Args:
        name: of the entry, such as ``osokin-3``.
        figure: what the paper calls it.
        about: one line on what is compared, and on what differs from the paper.
        needs: the folder of its data within the folder of data.
        command: arguments of ``structsmooth``, with ``{data}`` for the folder of data.
        quick: arguments that replace some of them, for a trial of at most two minutes.
        claims: what the paper says.
    """

    name: str
    figure: str
    about: str
    needs: str
    command: str
    quick: str
    claims: Sequence[Claim[Any]]

    def arguments(self, data: str, out: Path, quick: bool) -> list[str]:
        """The command line; of an option that is given twice, the last value counts."""
        text = self.command + (f" {self.quick}" if quick else "")
        return [part.replace("{data}", data) for part in shlex.split(text)] + ["--out", str(out)]

    def run(self, data: str, out: Path, quick: bool) -> dict[str, Any]:
        """Run the command, and write what is seen beside the pictures: ``summary.json`` and ``summary.md``.

        Raises:
            RuntimeError: the command failed or was interrupted.
        """
        arguments = self.arguments(data, out, quick)
        started, printed = time.perf_counter(), StringIO()
        with redirect_stdout(printed):
            status = main(arguments)
        if status:
            raise RuntimeError(f"{self.name}: structsmooth ended with status {status}; the same command goes on")
        readings = [claim.read(self._evidence(out)) for claim in self.claims]
        summary = {
            "name": self.name,
            "figure": self.figure,
            "about": self.about,
            "command": shlex.join(["structsmooth", *self.arguments("DATA", Path(out.name), quick)]),
            "quick": quick,
            "seconds": max(time.perf_counter() - started, _seconds_before(out / SUMMARY)),
            "claims": [
                asdict(reading) | {"says": claim.says, "verdict": reading.verdict}
                for claim, reading in zip(self.claims, readings, strict=True)
            ],
        }
        write_atomic(out / SUMMARY, json.dumps(summary, indent=1, ensure_ascii=False))
        write_atomic(out / "summary.md", described(summary))
        return summary

    def _evidence(self, out: Path) -> Any:
        """What the command has left."""
        if self.command.startswith("path"):
            return json.loads((out / "costs.json").read_text(encoding="utf-8"))
        return load_runs(out)


def _seconds_before(summary: Path) -> float:
    """The time of an earlier run: a run that finds its passes in the folder takes none."""
    if not summary.exists():
        return 0.0
    seconds: float = json.loads(summary.read_text(encoding="utf-8"))["seconds"]
    return seconds


def described(summary: dict[str, Any]) -> str:
    """The section of an experiment on the page, in Markdown."""
    minutes = summary["seconds"] / 60
    lines = [
        f"### {summary['figure']}",
        "",
        summary["about"],
        "",
        "| the paper says | here | seen |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {claim['says']} | **{claim['verdict']}** | {claim['seen']} |" for claim in summary["claims"]]
    lines += ["", f"{minutes:.1f} minutes: `{summary['command']}`", ""]
    return "\n".join(lines)
