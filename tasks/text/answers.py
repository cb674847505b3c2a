"""Predicted tags in the form in which sentences came: columns, CoNLL-U, or spans of texts."""

from collections.abc import Callable, Sequence
from typing import TextIO

from structsmooth.tasks.base import Predictions
from structsmooth.tasks.chains import write_scores
from structsmooth.text.corpus import Sentence
from structsmooth.text.layouts import separator_of, write_conll
from structsmooth.text.probabilities import ProbableEntity
from structsmooth.text.texts import TextCorpus
from structsmooth.text.universal import Treebank, write_column

Spans = Callable[[Sequence[Sequence[str]]], Sequence[Sequence[ProbableEntity]]]
"""What gives the entities of a tagging of each sentence, with their probabilities."""


def write_columns(
    examples: Sequence[Sentence],
    predictions: Predictions,
    tags: Sequence[str],
    stream: TextIO,
    split: Callable[[list[str]], Sequence[list[str]]] = lambda tags: [tags],
) -> None:
    """Write the columns that were read, and behind them a column for each alternative, the best one first.

    Where there are several, a comment line before the sentence has their scores in the same order. A sentence with
    fewer possible taggings gets fewer columns. ``tags`` are all that may be predicted; ``split`` makes several columns
    of a tagging.
    """
    separator = "\t" if any(" " in tag for tag in tags) else separator_of(examples)
    for sentence, ranked in zip(examples, predictions, strict=True):
        write_scores(ranked, stream)
        *others, last = [column for _, tagging in ranked for column in split(tagging)]
        gold = [] if sentence.tags is None else [sentence.tags]
        write_conll([Sentence(sentence.words, [*sentence.columns, *gold, *others])], [last], stream, separator)


def written_as_read(
    examples: Sequence[Sentence], predictions: Predictions, stream: TextIO, column: str | None, spans: Spans | None
) -> bool:
    """Write predictions in the form of a file of texts or a treebank: whether the sentences came from such a file.

    Text becomes CoNLL-U if training files had a column of it. Plain tags have no ``spans``, the entities of taggings.

    Raises:
        ValueError: alternatives for texts with spans, or tags that are no entities.
    """
    best, alternatives = [ranked[0][1] for ranked in predictions], any(len(ranked) > 1 for ranked in predictions)
    if isinstance(examples, TextCorpus) and examples.kind != "text":
        if spans is None:
            raise ValueError("texts get spans of entities, and these tags are none: give --json")
        if alternatives:
            raise ValueError("texts get the spans of the best output alone: for others, give --json")
        examples.write_spans(spans(best), stream)
        return True
    is_text = isinstance(examples, TextCorpus) and column is None
    if alternatives or is_text or not isinstance(examples, Treebank | TextCorpus):
        return False
    column = column or ("misc:Tag" if spans is None else "misc:NER")
    write_column(examples.universal_lines(), column, best, stream)
    return True
