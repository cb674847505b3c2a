"""The page of the documentation that says what holds."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.reproduce.experiment import QUICK, SUMMARY, Experiment, described
from structsmooth.checkpoint import write_atomic

_HEAD = """# What the papers say, and what is seen here

Each section is an experiment of one of the papers: what is compared, and what differs from the paper; what the paper
says of it, how that is tested and where the test cuts, and what was measured; and a command, which has the seeds and
the passes. Values are medians over the seeds. Costs of two solvers are compared at the best value that both reach with
every seed, below the start of both, as a multiple: below 1, the solver that should need less does so. A test with one
side, which a solver passes that is far better, too, is called so. Verdicts of a trial (`--quick`: fewer examples,
passes and seeds) stand beside those of the whole run where there are both, and do not count. Times are those of one
thread, without what others do on the machine. `python -m scripts.reproduce NAME` runs one, and `--page
docs/reproduction.md` renews its section.
"""
_PLURAL = {"holds": "hold", "holds in part": "hold in part", "does not hold here": "do not hold here"}
_VERDICT = re.compile(r"^\| (Not of the paper: )?.*\| \*\*([^*|]+)\*\* \|", re.MULTILINE)


def write_page(path: Path, out: Path, papers: Mapping[str | None, Sequence[Experiment]]) -> None:
    """Renew the sections of the experiments that were run; those of others stay, or say that they were not run.

    Args:
        path: the page, in Markdown.
        out: folder of the experiments' folders.
        papers: experiments by the title of their paper.
    """
    kept = _sections(path.read_text(encoding="utf-8")) if path.exists() else {}
    sections = []
    for title, experiments in papers.items():
        sections.append(f"## {(title or '').rstrip('.')}\n")
        for experiment in experiments:
            if summary := _summary(out / experiment.name):
                sections.append(described(summary, _summary(out / QUICK / experiment.name)))
            else:
                not_run = f"### {experiment.figure}\n\nNot run: `python -m scripts.reproduce {experiment.name}`\n"
                sections.append(kept.get(experiment.figure, not_run))
    found = _VERDICT.findall("".join(sections))
    counts = [Counter(verdict for prefix, verdict in found if bool(prefix) == ours) for ours in (False, True)]
    kinds = zip(counts, ("claims of the papers", "claims that are not of the papers"), strict=True)
    totals = [f"Of {verdicts.total()} {kind}, {_listed(verdicts)}." for verdicts, kind in kinds if verdicts]
    write_atomic(path, "\n".join([_HEAD, " ".join(totals) + "\n", *sections]))


def _listed(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{verdicts.get(verdict, 0)} {plural}" for verdict, plural in _PLURAL.items())


def _summary(folder: Path) -> dict[str, Any] | None:
    """What a run has left, if there was one."""
    path = folder / SUMMARY
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def _sections(page: str) -> dict[str, str]:
    """The sections of a page by the figures that they are about."""
    parts = re.split(r"^(?=##)", page, flags=re.M)
    return {part.partition("\n")[0].removeprefix("### "): part.strip() + "\n" for part in parts}
