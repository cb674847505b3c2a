"""Tagged sentences, and what taggers learned, in reports."""

from collections.abc import Mapping, Sequence
from itertools import chain

from torch import Tensor

from structsmooth.markup import Block, Markup, Table, alternatives, confusion, element, hue, joined
from structsmooth.metrics import MatchCounts
from structsmooth.text.overlaps import OverlapScores
from structsmooth.text.schemes import entities
from structsmooth.text.scores import TagScores, entity_scores

# Attributes of a tag that are shown, and differences between two taggings that are spelled out.
_ATTRIBUTES, _DIFFERENCES = 8, 4

Tags = Sequence[str]


def sentence_markup(
    words: Sequence[str],
    gold: Tags | None,
    ranked: Sequence[tuple[float, Tags]],
    known: Tags,
    sure: Sequence[float] | None = None,
) -> Markup:
    """Words with their predicted tags, the right tags where these are wrong, and alternatives.

    Args:
        words: of the sentence.
        gold: the right tags; ``None`` if they are not known.
        ranked: taggings with their scores, best first.
        known: all tags; their order decides on colours.
        sure: how probable what is found at each word is: colours fade as it falls.
    """
    found = ranked[0][1]
    types = sorted({_type(tag) for tag in known} - {""})
    unknown: Sequence[float | None] = [None] * len(words)
    columns = zip(words, found, gold or found, unknown if sure is None else sure, strict=True)
    tokens = [_token(*column, types) for column in columns]

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


def tag_results(gold: Sequence[Tags], found: Sequence[Tags], plain: bool) -> list[Block]:
    """Scores of each type of entity, or of each plain tag, and which tags are taken for which."""
    if plain:
        of_tags = TagScores.of(gold, found)
        table = scores_table("Tokens by tag", "tag", of_tags.by_tag, of_tags.overall)
    else:
        of_types = entity_scores(gold, found)
        table = scores_table("Entities by type", "type", of_types.by_type, of_types.overall)
    flat = map(chain.from_iterable, (gold, found))
    return [table, confusion("Tokens by gold and predicted tag", *flat)]


def overlap_tables(scores: OverlapScores) -> list[Block]:
    """The four measures of entities that are found in part, and which types are taken for which."""
    measures = scores.measures()
    rows = [
        (name, f"{c.precision:.1%}", f"{c.recall:.1%}", f"{c.f1:.1%}", f"{c.correct:g}") for name, c in measures.items()
    ]
    table = Table("Entities that are found in part", ("measure", "precision", "recall", "F1", "correct"), rows)
    types = [(right, guess, f"{count:,}") for (right, guess), count in scores.confusions().most_common()]
    return [table, *([Table("Types that differ", ("gold", "found", "entities"), types)] if types else [])]


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


def _token(word: str, tag: str, right: str, probability: float | None, types: Sequence[str]) -> Markup:
    kind = _type(tag)
    parts = [element("span", word)]
    if tag != "O" or right != "O":
        parts.append(element("span", tag, class_="tag"))
    if tag != right:
        parts.append(element("span", f"gold {right}", class_="gold"))
    style = hue(types.index(kind), probability) if kind else None
    title = f"probability {probability:.3f}" if kind and probability is not None else None
    return element("span", *parts, class_="token" if tag == right else "token wrong", style=style, title=title)


def _type(tag: str) -> str:
    """The type of entity, nothing for O, and a tag itself that has no type."""
    try:
        found = entities([tag])
    except ValueError:  # a plain tag
        return tag
    return found[0].type or tag if found else ""
