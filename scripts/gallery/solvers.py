"""A picture of solvers on the data of the package."""

from pathlib import Path

from structsmooth.plots import plot_comparison
from structsmooth.solvers import SOLVERS
from structsmooth.tasks import NER

_SOLVERS, _SENTENCES, _PASSES = ("proximal-bcfw", "proximal-sdca", "sgd"), 300, 12


def draw_all(folder: Path) -> None:
    """Draw the suboptimality and the gap of some solvers on named entities."""
    ner = NER(rich=False)
    sentences = ner.read(ner.default_files()["train"])[:_SENTENCES]
    problem = ner.fit(sentences).problem(sentences)
    runs = {}
    for name in _SOLVERS:
        runs[name] = [SOLVERS[name]().solve(problem, lam=10 / problem.n, passes=_PASSES).history]
    plot_comparison(runs, folder / "solvers.png", n=problem.n, title=f"ner, {_SENTENCES} sentences, λ = 10/n")
