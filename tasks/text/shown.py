"""Tagged sentences, and what taggers learned, in reports."""

from collections.abc import Mapping, Sequence
from itertools import chain

from torch import Tensor

from structsmooth.markup import Markup, Matrix, Table, alternatives, confusion, element, hue, joined
from structsmooth.metrics import MatchCounts
from structsmooth.text.schemes import entities

# Attributes of a tag that are shown, and differences between two taggings that are spelled out.
_ATTRIBUTES, _DIFFERENCES = 8, 4

Tags = Sequence[str]


def sentence_markup(
    words: Sequence[str], gold: Tags | None, ranked: Sequence[tuple[float, Tags]], known: Tags
) -> Markup:
    """Words with their predicted tags, the right tags where these are wrong, and alternatives.

    Args:
        words: of the sentence.
        gold: the right tags; ``None`` if they are not known.
        ranked: taggings with their scores, best first.
        known: all tags; their order decides on colours.
    """
    found = ranked[0][1]
    types = sorted({_type(tag) for tag in known} - {""})
    tokens = [_token(word, tag, right, types) for word, tag, right in zip(words, found, gold or found, strict=True)]

    def describe(tags: Tags) -> str:
        numbered = enumerate(zip(words, tags, found, strict=True), 1)
        changed = [f"{w} (word {number}) → {t}" for number, (w, t, best) in numbered if t != best]
        return ", ".join(changed[:_DIFFERENCES]) + (" …" if len(changed) > _DIFFERENCES else "")

    spaced = joined(piece for token in tokens for piece in (token, " "))
    return joined([element("p", spaced, class_="tokens"), alternatives(ranked, describe)])


def scores_table(title: str, kind: str, scores: Mapping[str, MatchCounts], overall: MatchCounts) -> Table:
    """Precision, recall and F1 of each kind of entity or token."""
    rows = [
        (name, f"{c.precision:.1%}", f"{c.recall:.1%}", f"{c.f1:.1%}", f"{c.gold:,}", f"{c.predicted:,}")
        for name, c in [*scores.items(), ("all", overall)]
    ]
    return Table(title, (kind, "precision", "recall", "F1", "gold", "predicted"), rows)


def tag_confusion(gold: Sequence[Tags], found: Sequence[Tags]) -> Matrix:
    """How many tokens of each tag got which tag."""
    return confusion("Tokens by gold and predicted tag", chain.from_iterable(gold), chain.from_iterable(found))


def weightiest_attributes(rows: Tensor, names: Mapping[int, str], tags: Tags) -> list[Table]:
    """The attributes that speak most for each tag, if any can be named.

    Args:
        rows: weights of attributes [F, S].
        names: of attributes, by number.
        tags: the S tags.
    """
    if not names:
        return []
    numbers = list(names)
    table = []
    for tag, weights in zip(tags, rows[numbers].T, strict=True):
        values, places = weights.topk(min(_ATTRIBUTES, len(numbers)))
        spelled = [
            element("span", element("code", names[numbers[i]]), f" {value:.3g}", class_="chip plain")
            for value, i in zip(values.tolist(), places.tolist(), strict=True)
            if value > 0
        ]
        table.append((tag, element("span", *spelled, class_="chips")))
    return [Table("Attributes with the largest weights", ("tag", "attributes"), table)]


def _token(word: str, tag: str, right: str, types: Sequence[str]) -> Markup:
    kind = _type(tag)
    parts = [element("span", word)]
    if tag != "O" or right != "O":
        parts.append(element("span", tag, class_="tag"))
    if tag != right:
        parts.append(element("span", f"gold {right}", class_="gold"))
    style = hue(types.index(kind)) if kind else None
    return element("span", *parts, class_="token" if tag == right else "token wrong", style=style)


def _type(tag: str) -> str:
    """The type of entity, nothing for O, and a tag itself that has no type."""
    try:
        found = entities([tag])
    except ValueError:  # a plain tag
        return tag
    return found[0].type or tag if found else ""
