"""Chunks together with parts of speech: a chain over pairs of both tags, such as NN|B-NP."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

from torch import Tensor

from structsmooth.markup import Block
from structsmooth.plain import from_plain
from structsmooth.tasks.base import Predictions, Split
from structsmooth.tasks.text.answers import write_columns
from structsmooth.tasks.text.shown import overlap_tables, tag_results
from structsmooth.tasks.text.tagging import FittedTagging
from structsmooth.text.corpus import Corpus, Sentence, Token
from structsmooth.text.overlaps import OverlapScores
from structsmooth.text.schemes import entities
from structsmooth.text.scores import TagScores, entity_scores
from structsmooth.text.universal import Treebank

_SEPARATOR = "|"
_Sides = tuple[list[list[str]], list[list[str]]]


def together(corpus: Corpus, name: str) -> Corpus:
    """Sentences whose tags are pairs of a part of speech and a chunk.

    Raises:
        ValueError: no column of parts of speech, or a chunk that has the separator.
    """

    def paired(token: Token) -> Token:
        if not token.columns or token.tag is None or _SEPARATOR in token.tag:
            raise ValueError(
                f"{name}: joint needs columns of words, parts of speech and chunks, the latter without "
                f"{_SEPARATOR!r}, got {' '.join([token.word, *token.columns, token.tag or ''])}"
            )
        return token._replace(tag=f"{token.pos}{_SEPARATOR}{token.tag}")

    return replace(corpus, distinct=list(map(paired, corpus.distinct)))


def apart(tags: Iterable[str]) -> tuple[list[str], list[str]]:
    """Parts of speech and chunks of pairs of both."""
    pairs = [tag.rpartition(_SEPARATOR)[::2] for tag in tags]
    return [part for part, _ in pairs], [chunk for _, chunk in pairs]


@dataclass(frozen=True)
class FittedChunking(FittedTagging):
    """A tagger of chunks, or of chunks and parts of speech: then all that is told is told of both."""

    task: Any  # a Chunking, whose module imports this one

    def read(self, path: str | TextIO, split: Split = "predict") -> Corpus:
        """As for chunks alone; in files to predict, chunks are the tags."""
        if self.task.joint and split == "predict":
            return self.inputs.read(path, apart(self.tags)[1], self.task.reading)
        return super().read(path, split)

    def measure(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> tuple[dict[str, float], str]:
        """Of chunks as in :class:`FittedTagging`, and of parts of speech the accuracy and the macro F1."""
        if not self.task.joint:
            return super().measure(examples, outputs)
        parts, chunks = self._both(examples, outputs)
        of_parts, of_chunks = TagScores.of(*parts), entity_scores(*chunks)
        metrics = of_chunks.as_dict() | {f"pos_{name}": value for name, value in of_parts.as_dict().items()}
        return metrics, f"parts of speech\n{of_parts}\n\nchunks\n{of_chunks}"

    def measure_overlaps(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> OverlapScores:
        """The four measures of chunks; see :meth:`TaggingDistribution.measure_overlaps`."""
        if not self.task.joint:
            return super().measure_overlaps(examples, outputs)
        return OverlapScores.of(*(map(entities, side) for side in self._both(examples, outputs)[1]))

    def show_results(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> list[Block]:
        """Scores of parts of speech and of chunks, and which are taken for which."""
        if not self.task.joint:
            return super().show_results(examples, outputs)
        parts, chunks = self._both(examples, outputs)
        blocks = [("parts of speech", one) for one in tag_results(*parts, plain=True)]
        blocks += [("chunks", one) for one in tag_results(*chunks, plain=False)]
        return [replace(block, caption=f"{block.caption}: {kind}") for kind, block in blocks]

    def show_errors(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> list[Block]:
        """How far chunks are found, and which types are taken for which."""
        if not self.task.joint:
            return super().show_errors(examples, outputs)
        return overlap_tables(self.measure_overlaps(examples, outputs))

    def _both(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> tuple[_Sides, _Sides]:
        """Right tags and those of outputs: of parts of speech, and of chunks."""
        gold, found = ([apart(tags) for tags in side] for side in self._sides(examples, outputs))
        parts, chunks = (([pair[k] for pair in gold], [pair[k] for pair in found]) for k in (0, 1))
        return parts, chunks

    def write(self, examples: Sequence[Sentence], predictions: Predictions, stream: TextIO) -> None:
        """Column file, with two columns for each alternative: parts of speech and chunks."""
        split = apart if self.task.joint else lambda tags: [tags]
        write_columns(examples, predictions, self.tags, stream, split)

    def write_answers(
        self, weights: Tensor, examples: Sequence[Sentence], predictions: Predictions, stream: TextIO
    ) -> None:
        """As for chunks alone; of CoNLL-U, in which no column has both, the words with both columns."""
        if self.task.joint and isinstance(examples, Treebank):
            self.write(examples, predictions, stream)
        else:
            super().write_answers(weights, examples, predictions, stream)

    def output_to_json(self, output: list[str]) -> dict[str, Any]:
        """Chunks as ``tags``, and parts of speech as ``pos``."""
        if not self.task.joint:
            return super().output_to_json(output)
        return dict(zip(("pos", "tags"), apart(output), strict=True))

    def output_from_json(self, values: Mapping[str, Any]) -> list[str]:
        """The inverse of :meth:`output_to_json`."""
        chunks: list[str] = super().output_from_json(values)
        if not self.task.joint:
            return chunks
        parts = from_plain(list[str], values["pos"], "pos")
        return [_SEPARATOR.join(pair) for pair in zip(parts, chunks, strict=True)]
