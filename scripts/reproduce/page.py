"""The page of the documentation that says what holds."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.reproduce.experiment import SUMMARY, Experiment, described
from structsmooth.checkpoint import write_atomic

_HEAD = """# What the papers say, and what is seen here

Each section is an experiment of one of the papers: what the paper says of it, what was measured, and a command.
Costs of two solvers are compared at the best value that both reach with every seed, as a multiple: below 1, the solver
that should need less does so. The time of each experiment is that of one thread. `python -m scripts.reproduce NAME`
runs one, and writes this page with `--page`.
"""


def write_page(path: Path, out: Path, papers: Mapping[str | None, Sequence[Experiment]]) -> None:
    """Collect the summaries of experiments that were run; the others are named.

    Args:
        path: the page, in Markdown.
        out: folder of the experiments' folders.
        papers: experiments by the title of their paper.
    """
    sections, verdicts = [], Counter[str]()
    for title, experiments in papers.items():
        sections.append(f"## {(title or '').rstrip('.')}\n")
        for experiment in experiments:
            summary = out / experiment.name / SUMMARY
            if not summary.exists():
                sections.append(
                    f"### {experiment.figure}\n\nNot run: `python -m scripts.reproduce {experiment.name}`\n"
                )
                continue
            values = json.loads(summary.read_text(encoding="utf-8"))
            verdicts.update(claim["verdict"] for claim in values["claims"])
            sections.append(described(values))
    total = ", ".join(f"{verdicts[verdict]} {_PLURAL[verdict]}" for verdict in _PLURAL)
    write_atomic(path, "\n".join([_HEAD, f"Of {verdicts.total()} claims, {total}.\n", *sections]))


_PLURAL = {"holds": "hold", "holds in part": "hold in part", "does not hold here": "do not hold here"}
