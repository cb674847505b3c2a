"""The page of the documentation that says what holds, and why the rest may not."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.reproduce.experiment import SUMMARY, Experiment, named
from structsmooth.checkpoint import write_atomic

_HEAD = """# What the papers say, and what is seen here

Claims of four papers were held against runs. Each has a test: costs of two solvers are compared at the best value that
both reach with every seed, as a multiple; below 1, the solver that should need less does so. Brackets have what was
seen, over all λ: medians over seeds, and times of one thread.

[reproduction.json](reproduction.json) has all tests with their limits, what differs from the paper, all numbers, and
commands. `python -m scripts reproduce NAME` makes one again, and `--page docs/reproduction.md` renews this page.
"""
_PLURAL = {"holds": "hold", "holds in part": "hold in part", "does not hold here": "do not hold here"}
_UNKNOWN = {"title": "No cause is known", "text": "", "claims": []}


def write_page(path: Path, out: Path, papers: Mapping[str | None, Sequence[Experiment]]) -> None:
    """Renew the results of the experiments that were run, in a file of JSON beside the page, and the page.

    Args:
        path: the page, in Markdown.
        out: folder of the experiments' folders.
        papers: experiments by the title of their paper.
    """
    data = path.with_suffix(".json")
    kept = {result["name"]: result for result in _loaded(data) or ()}
    order = [experiment.name for experiments in papers.values() for experiment in experiments]
    results = {name: _loaded(out / name / SUMMARY) or kept.get(name) for name in order}
    found = {name: result for name, result in results.items() if result}
    write_atomic(data, json.dumps([*found.values()], indent=1, ensure_ascii=False) + "\n")
    write_atomic(path, "\n".join([_HEAD, *_totals(found), *_by_cause(found), *_holding(found, papers)]))


def _loaded(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _claims(results: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """All claims, each after its experiment."""
    yield from ((result, claim) for result in results.values() for claim in result["claims"])


def _totals(results: Mapping[str, Any]) -> Iterator[str]:
    for ours, kind in ((False, "claims of the papers"), (True, "claims that are not of the papers")):
        verdicts = Counter(claim["verdict"] for _, claim in _claims(results) if claim["ours"] == ours)
        if verdicts:
            listed = ", ".join(f"{verdicts[verdict]} {plural}" for verdict, plural in _PLURAL.items())
            yield f"Of {verdicts.total()} {kind}, {listed}.\n"


def _by_cause(results: Mapping[str, Any]) -> Iterator[str]:
    """What does not hold, or holds in part, by what may be the cause: nothing is left out."""
    yield "## What does not hold, by cause\n"
    yield "Causes are what differs the most from the paper; none of them is proved.\n"
    causes = _loaded(Path(__file__).with_name("causes.json"))
    whys = {
        (why["experiment"], why["says"]): (cause["title"], why["why"]) for cause in causes for why in cause["claims"]
    }
    for cause in [*causes, _UNKNOWN]:
        lines: dict[str, list[str]] = {}
        for result, claim in _claims(results):
            title, why = whys.get((result["name"], claim["says"]), (_UNKNOWN["title"], ""))
            if not claim["ours"] and claim["verdict"] != "holds" and title == cause["title"]:
                part = "In part: " * (claim["verdict"] == "holds in part")
                lines.setdefault(_title(result), []).append(f"{part}{claim['says']} *{why}* {_seen(result, claim)}")
        if lines:
            yield f"### {cause['title']} ({sum(map(len, lines.values()))})\n\n{cause['text']}\n"
            yield "\n".join("\n    * ".join([f"* **{figure}.**", *items]) for figure, items in lines.items()) + "\n"


def _title(result: Mapping[str, Any]) -> str:
    """The paper, by its first author, and the figure."""
    return f"{result['name'].partition('-')[0].title()}, {result['figure']}"


def _seen(result: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    """The numbers: of several λ the smallest and the largest, without the values at which costs are compared."""
    compared = r" \((to [\d.e+-]+|the grid [^)]*)\)|to [\d.e+-]+; (?=they end)"
    text = re.sub(compared, "", named(claim["seen"], result["names"])[0])
    text = re.sub(r"(\*[^*]+\*) at λ = (\S+); \1 at λ =", r"\1 at λ = \2 and", text)
    if len(re.findall("at λ = ", text)) == 1:
        text = re.sub(r" at λ = [\d.e+-]+", "", text)
    found = [re.fullmatch(r"([\d.e+-]+) (times the [a-z ]+) at λ = [\d.e-]+", part) for part in text.split("; ")]
    multiples = [match for match in found if match]
    if len(multiples) == len(found) and len({match[2] for match in multiples}) == 1:
        ends = sorted((match[1] for match in multiples), key=float)
        text = f"{' to '.join(dict.fromkeys((ends[0], ends[-1])))} {multiples[0][2]}"
    return f"({text})"


def _holding(results: Mapping[str, Any], papers: Mapping[str | None, Sequence[Experiment]]) -> Iterator[str]:
    """What holds by paper, what is not of the papers, and what was not run."""
    yield "## What holds\n"
    for title, experiments in papers.items():
        yield f"### {(title or '').rstrip('.')}\n"
        figures: dict[str, list[str]] = {}
        for experiment in experiments:
            result = results.get(experiment.name, {"claims": []})
            says = [claim["says"] for claim in result["claims"] if claim["verdict"] == "holds" and not claim["ours"]]
            if experiment.name not in results:
                figures[f"Not run: `python -m scripts reproduce {experiment.name}`."] = [experiment.figure]
            elif says:
                figures.setdefault(" ".join(says), []).append(experiment.figure)
        yield from (f"* **{'; '.join(names)}.** {says}" for says, names in figures.items())
        yield ""
    yield "## Not of the papers\n\nWhat is not marked holds.\n"
    ours: dict[str, list[str]] = {}
    for result, claim in _claims(results):
        if claim["ours"]:
            seen = "" if claim["verdict"] == "holds" else f" *This {claim['verdict']}.* {_seen(result, claim)}"
            ours.setdefault(_title(result), []).append(f"{claim['says']}{seen}")
    yield from (f"* **{title}.** {' '.join(says)}" for title, says in ours.items())
    yield ""
