"""Alignment error rate, precision and recall of links between words."""

from collections.abc import Sequence

from structsmooth.tasks.alignment.data import Link, SentencePair
from structsmooth.tasks.base import known


def measures(pairs: Sequence[SentencePair], alignments: Sequence[Sequence[Link]]) -> dict[str, float]:
    """Alignment error rate ``aer``, ``precision`` and ``recall`` of alignments A, over all sentence pairs.

    Precision is |A ∩ P| / |A|, recall |A ∩ S| / |S|, and aer 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|), where S are the
    sure links and P the sure and possible ones. Shares of nothing are 0.

    Raises:
        ValueError: a pair without links.

    Reference:
        Och and Ney (2000).
    """
    counts = [0, 0, 0, 0]
    for pair, alignment in zip(pairs, alignments, strict=True):
        links, sure = set(alignment), known_links(pair)
        sizes = len(links), len(sure), len(links & sure), len(links & (sure | pair.possible))
        counts = [total + count for total, count in zip(counts, sizes, strict=True)]
    found, sure_links, right_sure, right = counts
    return {
        "aer": 1 - (right_sure + right) / (found + sure_links) if found + sure_links else 0.0,
        "precision": right / found if found else 0.0,
        "recall": right_sure / sure_links if sure_links else 0.0,
    }


def table(pairs: Sequence[SentencePair], alignments: Sequence[Sequence[Link]]) -> str:
    """The metrics, and the numbers of links."""
    lines = [f"{name:10} {value:8.2%}" for name, value in measures(pairs, alignments).items()]
    sure, possible = (sum(map(len, links)) for links in (map(known_links, pairs), (pair.possible for pair in pairs)))
    lines.append(f"links      {sum(map(len, alignments)):8}  (sure {sure}, possible {possible})")
    return "\n".join(lines)


def known_links(pair: SentencePair) -> frozenset[Link]:
    """The sure links of a pair that has some, or none of them."""
    return known(pair.sure, "these sentences have no links", ", as in la maison ||| the house ||| 0-0 1-1")
