"""Trees of sentences as answers: files, JSON, pictures and pages; and the encoder in the folder of a model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, cast

from torch import Tensor

from structsmooth.encoders import CodedFeatures
from structsmooth.encoders.pretrained import OWN
from structsmooth.markup import Block, Markup, Matrix, Table
from structsmooth.tasks.base import Predictions
from structsmooth.tasks.parsing.data import Sentence, Tree, write_tree
from structsmooth.tasks.parsing.features import pair_weights
from structsmooth.tasks.parsing.picture import draw_tree, tree_markup
from structsmooth.tasks.parsing.results import Attachments, header, wrong_words
from structsmooth.tasks.probabilities import ProbabilisticTask


class TreeAnswers(ProbabilisticTask):
    """What a parser does with the trees that it finds.

    Attributes:
        tags: parts of speech.
        coded: codes of words, by an encoder, if there is one.
    """

    task: Any
    tags: list[str]
    coded: CodedFeatures | None

    def save_files(self, folder: Path) -> list[str]:
        """Copy the encoder, if the model is to have one of its own."""
        if self.coded is None or not self.task.embed_encoder:
            return []
        self.coded.frozen.copy_encoder(folder / OWN)
        return [OWN]

    def opened_in(self, folder: Path) -> "TreeAnswers":
        """The parser with the encoder in the folder, if it has one of its own."""
        if self.coded is None:
            return self
        frozen = self.coded.frozen.in_model(folder, self.task.embed_encoder)
        opened: TreeAnswers = replace(cast(Any, self), coded=replace(self.coded, frozen=frozen))
        return opened

    def write(self, examples: Sequence[Sentence], predictions: Predictions, stream: TextIO) -> None:
        """CoNLL-U: the sentences as they were read, with the best tree, and then with the next best ones.

        Where there are several, a comment says which of them a tree is, and its score.
        """
        for sentence, ranked in zip(examples, predictions, strict=True):
            for rank, (score, tree) in enumerate(ranked, 1):
                comments = [f"parse = {rank} of {len(ranked)}", f"score = {score:.6g}"] if len(ranked) > 1 else []
                write_tree(sentence, tree, comments, stream)

    def output_to_json(self, output: Tree) -> dict[str, Any]:
        """The ``heads`` of a tree, 0 for the root, its ``relations`` and, if asked for, ``probabilities`` of heads."""
        values = {"heads": list(output.heads), "relations": list(output.relations)}
        return values | ({"probabilities": list(output.probabilities)} if output.probabilities else {})

    def output_from_json(self, values: Mapping[str, Any]) -> Tree:
        """The inverse of :meth:`output_to_json`."""
        probabilities = tuple(map(float, values.get("probabilities", ())))
        return Tree(tuple(map(int, values["heads"])), tuple(map(str, values["relations"])), probabilities)

    def draw(self, examples: Sequence[Sentence], predictions: Predictions, folder: Path) -> None:
        """A PNG file of each sentence, by its number: arcs over words, and the right ones below where they differ."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, (sentence, ranked) in enumerate(zip(examples, predictions, strict=True), 1):
            draw_tree(sentence, ranked[0][1], self.task.labelled, folder / f"{number:04}.png")

    def show_example(
        self, example: Sentence, ranked: Sequence[tuple[float, Tree]], probabilities: Sequence[float] | None = None
    ) -> Markup:
        """The arcs of the tree over the words."""
        return tree_markup(example, ranked, self.task.labelled, self.task.subtypes, probabilities)

    def mistake(self, example: Sentence, output: Tree) -> float:
        """Number of words with a wrong head or relation."""
        return wrong_words(example, output, self.task.labelled, self.task.subtypes)

    def show_results(self, examples: Sequence[Sentence], outputs: Sequence[Tree]) -> list[Block]:
        """Attachment scores by relation."""
        labelled, scores = self.task.labelled, Attachments.of(examples, outputs, self.task.subtypes)
        return [Table("Words by their known relation", header(labelled), scores.rows(labelled))]

    def show_weights(self, weights: Tensor, examples: Sequence[Sentence]) -> list[Block]:
        """Scores of arcs between two parts of speech, whatever else holds of them."""
        values = pair_weights(weights, self.tags, self.task.bits, self.coded is not None)
        caption = "Scores of arcs by the parts of speech of head and modifier"
        return [Matrix(caption, ["root", *self.tags], self.tags, values, "head", "modifier")]
