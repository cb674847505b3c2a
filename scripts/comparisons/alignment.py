"""Word alignment beside baselines, by the protocol of Taskar, Lacoste-Julien and Klein (2005).

The data are sentence pairs as for ``structsmooth train alignment``. In each draw, the aligner is trained on 100 random
pairs, and everything is measured on the others. Words are counted, and Model 1 is trained, on the pairs of
``--corpus``, whose links are not used. Rows are means over the draws. The last table is the time of the max oracle.
"""

import random
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from scripts.shared.harness import command, option, print_table, timings
from structsmooth import Matching, ProximalBCFW
from structsmooth.tasks import Alignment
from structsmooth.tasks.alignment import FittedAlignment
from structsmooth.tasks.alignment.data import Link, SentencePair, read_pairs
from structsmooth.tasks.alignment.features import GROUPS
from structsmooth.tasks.alignment.lexicon import Lexicon
from structsmooth.tasks.alignment.results import measures

Links = set[Link]
_COLUMNS = ("precision", "recall", "aer")
_LENGTHS = (5, 10, 20, 30, 50, 80)


def viterbi(lexicon: Lexicon, pair: SentencePair) -> tuple[Links, Links]:
    """Best links of Model 1 in both directions: one for each source word, and one for each target word, or none."""
    forward, backward = lexicon.posteriors(pair)
    return _best(forward), {(i, j) for j, i in _best(backward.T)}


def _best(posteriors: NDArray[np.float64]) -> Links:
    best = posteriors.argmax(1)
    return {(i, int(j)) for i, j in enumerate(best) if posteriors[i, j] > max(0.0, 1 - posteriors[i].sum())}


def grown(one: Links, other: Links) -> Links:
    """The intersection and those links of the union that are beside a link and link a word without one (grow-diag)."""
    links, candidates = one & other, one | other
    while True:
        rows, columns = ({link[side] for link in links} for side in (0, 1))
        for i, j in sorted(candidates - links):
            beside = any((i + a, j + b) in links for a, b in product((-1, 0, 1), repeat=2))
            if beside and (i not in rows or j not in columns):
                links.add((i, j))
                break
        else:
            return links


def competitive(lexicon: Lexicon, pair: SentencePair, least: float) -> Links:
    """Links of the largest Dice coefficients, one after the other, of words that have none yet (Melamed 2000)."""
    dice = lexicon.dice(pair)
    links: list[Link] = []
    for i, j in sorted(product(*map(range, dice.shape)), key=lambda link: -dice[link]):
        if dice[i, j] >= least and all(i != a and j != b for a, b in links):
            links.append((i, j))
    return set(links)


def baselines(lexicon: Lexicon, train: Sequence[SentencePair]) -> dict[str, Callable[[SentencePair], Links]]:
    """Alignments without a trained score; the least Dice coefficient is chosen on the training pairs."""

    def error(least: float) -> float:
        return measures(train, [tuple(competitive(lexicon, pair, least)) for pair in train])["aer"]

    least = min((0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5), key=error)
    return {
        "Dice, competitive linking": lambda pair: competitive(lexicon, pair, least),
        "Model 1, source given target": lambda pair: viterbi(lexicon, pair)[0],
        "Model 1, target given source": lambda pair: viterbi(lexicon, pair)[1],
        "Model 1, intersection": lambda pair: set.intersection(*viterbi(lexicon, pair)),
        "Model 1, union": lambda pair: set.union(*viterbi(lexicon, pair)),
        "Model 1, grow-diag": lambda pair: grown(*viterbi(lexicon, pair)),
    }


def trained(
    fitted: FittedAlignment, train: Sequence[SentencePair], lam: float, passes: int
) -> Callable[..., list[Links]]:
    """Alignments by a trained score."""
    problem = fitted.problem(train)
    result = ProximalBCFW().solve(problem, lam=lam / problem.n, passes=passes)
    last = result.history[-1]
    print(f"  objective {last.objective:.4f}, gap {last.gap:.4f}, {last.seconds:.1f} s", flush=True)
    return lambda pairs: [set(ranked[0][1]) for ranked in fitted.predict(result.weights, pairs)]


def oracle_milliseconds(length: int, repeats: int = 50) -> float:
    """CPU time of the max oracle for two sentences of that length."""
    scores = torch.randn(1, length, length, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matching = Matching(scores, unmatched_rows=torch.zeros(1, length, dtype=torch.float64), validate_args=False)
    return 1000 * min(timings(matching.max, repeats, time.process_time))


@command(
    option("data", None, "sentence pairs with links, such as hansards#test"),
    option("--corpus", None, "sentence pairs to count, such as hansards#train+trial+test"),
    option("--pairs", 100, "for training"),
    option("--draws", 5),
    option("--lam", float(Alignment.lam.removesuffix("/n")), "λn of the aligner"),
    option("--passes", Alignment.passes),
    option("--missed", Alignment.missed, "cost of a missed sure link"),
    option("--ablations", False, "also leave out each group of features"),
    threads=None,
)
def main(options: Namespace) -> None:
    """Print both tables."""
    pairs = read_pairs(options.data)
    whole = Alignment(missed=options.missed)
    lexicon = Lexicon.of(read_pairs(options.corpus or options.data))
    rows: dict[str, list[dict[str, float]]] = {}
    for draw in range(options.draws):
        order = random.Random(draw).sample(pairs, len(pairs))
        train, test = order[: options.pairs], order[options.pairs :]

        def add(name: str, alignments: Iterable[Links], test: Sequence[SentencePair] = test) -> None:
            rows.setdefault(name, []).append(measures(test, [tuple(links) for links in alignments]))

        for name, align in baselines(lexicon, train).items():
            add(name, map(align, test))
        for group in ("", *(GROUPS if options.ablations else ())):
            name = f"matching without {group}" if group else "matching, all features"
            print(f"draw {draw}: {name}", flush=True)
            fitted = FittedAlignment(replace(whole, leave_out=group), lexicon)
            add(name, trained(fitted, train, options.lam, options.passes)(test))
    print()
    means = {name: [np.mean([row[column] for row in table]) for column in _COLUMNS] for name, table in rows.items()}
    print_table(["alignment", *_COLUMNS], ([name, *(f"{100 * m:.1f} %" for m in row)] for name, row in means.items()))
    print()
    times = ([str(length), f"{oracle_milliseconds(length):.2f}"] for length in _LENGTHS)
    print_table(["words of both sentences", "max oracle, ms"], times, text_columns=0)
