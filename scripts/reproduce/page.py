"""The page of the documentation that says what holds."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.reproduce.experiment import SUMMARY, Experiment, described
from structsmooth.checkpoint import write_atomic

_HEAD = """# What the papers say, and what is seen here

Each section is an experiment of one of the papers: what the paper says of it, what was measured, and a command.
Costs of two solvers are compared at the best value that both reach with every seed, as a multiple: below 1, the solver
that should need less does so. The time of each experiment is that of one thread, in part beside other work.
`python -m scripts.reproduce NAME` runs one, and `--page docs/reproduction.md` renews its section.
"""
_PLURAL = {"holds": "hold", "holds in part": "hold in part", "does not hold here": "do not hold here"}


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
            summary = out / experiment.name / SUMMARY
            if summary.exists():
                sections.append(described(json.loads(summary.read_text(encoding="utf-8"))))
            else:
                not_run = f"### {experiment.figure}\n\nNot run: `python -m scripts.reproduce {experiment.name}`\n"
                sections.append(kept.get(experiment.figure, not_run))
    verdicts = Counter(re.findall(r"\| \*\*([^*|]+)\*\* \|", "".join(sections)))
    total = ", ".join(f"{verdicts[verdict]} {plural}" for verdict, plural in _PLURAL.items())
    write_atomic(path, "\n".join([_HEAD, f"Of {verdicts.total()} claims, {total}.\n", *sections]))


def _sections(page: str) -> dict[str, str]:
    """The sections of a page by the figures that they are about."""
    parts = re.split(r"^(?=##)", page, flags=re.M)
    return {part.partition("\n")[0].removeprefix("### "): part.strip() + "\n" for part in parts}
