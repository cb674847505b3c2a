"""Word alignment: links between the words of a sentence and those of its translation, as a matching."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.markup import Block, Markup, weight_table
from structsmooth.messages import tracked
from structsmooth.problems import LinearModuleProblem
from structsmooth.settings import Interval
from structsmooth.structures import Matching
from structsmooth.tasks.alignment.data import Link, SentencePair, read_pairs
from structsmooth.tasks.alignment.features import GROUPS, feature_names, pair_features
from structsmooth.tasks.alignment.lexicon import Lexicon
from structsmooth.tasks.alignment.picture import draw_alignment, pair_markup
from structsmooth.tasks.alignment.probabilities import link_probabilities
from structsmooth.tasks.alignment.results import known_links, measures, table
from structsmooth.tasks.alignment.score import AlignmentScore, batched, padded
from structsmooth.tasks.base import FittedTask, Predictions, Split, Task, labelled
from structsmooth.tasks.chains import write_scores

# Labels of an example, and part costs of pairs and of source words without a link.
_Labels = tuple[Tensor, tuple[Tensor, Tensor]]
# Sentence pairs of a batch of predictions.
_BATCH = 32


@dataclass(frozen=True)
class FittedAlignment(FittedTask):
    """An aligner with its lexicon."""

    task: "Alignment"
    lexicon: Lexicon

    example_type: ClassVar[type] = SentencePair
    input_json: ClassVar[Mapping[str, str]] = {"source": "source", "target": "target"}
    output_json: ClassVar[tuple[str, Any]] = ("links", list[Link])  # positions in source and target, from 0

    def problem(self, examples: Sequence[SentencePair]) -> LinearModuleProblem:
        """Structural hinge losses of the matchings; sentences without words are left out."""
        examples = [pair for pair in examples if pair.source and pair.target]
        if not examples:
            raise ValueError("there are no sentence pairs with words to train on")
        encoded = [self._encoded(pair) for pair in tracked(examples, "features")]
        data = [(x, self._labels(pair)) for x, pair in zip(encoded, examples, strict=True)]
        return LinearModuleProblem(AlignmentScore(encoded[0].shape[-1]), data, None, collate=_collate)

    def predict(self, weights: Tensor, examples: Sequence[SentencePair], k: int = 1) -> Predictions:
        """The k best alignments of each sentence pair with their scores: links in order.

        With a threshold there is one alignment: the links that are at least as probable, and the sum of their scores.
        """
        if self.task.threshold is not None:
            return [[self._probable(weights, pair, self.task.threshold)] for pair in tracked(examples, "predicting")]
        starts = tracked(range(0, len(examples), _BATCH), "predicting")
        return [ranked for at in starts for ranked in self._aligned(weights, examples[at : at + _BATCH], k)]

    def probabilities_to_json(
        self, weights: Tensor, examples: Sequence[SentencePair], predictions: Predictions
    ) -> Iterator[list[dict[str, Any]]]:
        """The probability of each link; see :func:`~structsmooth.tasks.alignment.probabilities.link_probabilities`."""
        for pair, ranked in zip(examples, predictions, strict=True):
            table = link_probabilities(self._scores(weights, pair))
            yield [{"probabilities": [float(table[link]) for link in links]} for _, links in ranked]

    def measure(
        self, examples: Sequence[SentencePair], outputs: Sequence[Sequence[Link]]
    ) -> tuple[dict[str, float], str]:
        """Alignment error rate, precision and recall."""
        return measures(examples, outputs), table(examples, outputs)

    def write(self, examples: Sequence[SentencePair], predictions: Predictions, stream: TextIO) -> None:
        """Links of each sentence pair, on a line in the format of Pharaoh or as lines of the NAACL 2003 shared task.

        Where there are several alignments, a comment line before them has their scores in the same order.
        """
        for number, ranked in enumerate(predictions, 1):
            write_scores(ranked, stream)
            for _, links in ranked:
                if self.task.link_format == "naacl":
                    stream.writelines(f"{number:04} {j + 1} {i + 1}\n" for i, j in links)
                else:
                    stream.write(" ".join(f"{i}-{j}" for i, j in links) + "\n")

    def draw(self, examples: Sequence[SentencePair], predictions: Predictions, folder: Path) -> None:
        """A PNG file of each sentence pair, by its number: a grid with the links found and those that should be."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, (pair, ranked) in enumerate(zip(examples, predictions, strict=True), 1):
            if pair.source and pair.target:
                draw_alignment(pair, ranked[0][1], folder / f"{number:04}.png")

    def show_example(self, example: SentencePair, ranked: Sequence[tuple[float, Sequence[Link]]]) -> Markup:
        """A grid of words with the links that are right, wrong or missed."""
        return pair_markup(example, ranked)

    def show_weights(self, weights: Tensor, examples: Sequence[SentencePair]) -> list[Block]:
        """Weights of the features of pairs of words, with their groups."""
        caption = "Weights of features of pairs of words: positive ones speak for a link"
        return [weight_table(caption, ("feature", "group"), feature_names(self.task.groups), weights.tolist())]

    @property
    def dim(self) -> int:
        """Weights of features of pairs of words."""
        return len(feature_names(self.task.groups))

    def _encoded(self, pair: SentencePair) -> Tensor:
        """Features [N, M, D] of all pairs of a source and a target word."""
        return torch.from_numpy(pair_features(self.lexicon, pair, self.task.groups))

    def _scores(self, weights: Tensor, pair: SentencePair) -> NDArray[np.float64]:
        """Scores [N, M] of links."""
        if not (pair.source and pair.target):
            return np.zeros((len(pair.source), len(pair.target)))
        return np.asarray((self._encoded(pair) @ weights.double()).numpy())

    def _probable(self, weights: Tensor, pair: SentencePair, threshold: float) -> tuple[float, tuple[Link, ...]]:
        """The links that are at least as probable as a threshold, and the sum of their scores."""
        scores = self._scores(weights, pair)
        links = tuple((int(i), int(j)) for i, j in np.argwhere(link_probabilities(scores) >= threshold))
        return float(sum(scores[link] for link in links)), links

    def _labels(self, pair: SentencePair) -> _Labels:
        """A matching of as many sure links as possible, and the costs of others.

        Among such matchings, it is one of the most probable by Model 1. A link that is not possible costs
        ``false_positive``, and a source word of the matching that has no sure link ``missed``.
        """
        sure, allowed = (_indicators(pair, links) for links in (known_links(pair), known_links(pair) | pair.possible))
        forward, backward = self.lexicon.posteriors(pair)
        # Below 1 for all links together, so that one link more counts more.
        near = torch.from_numpy(np.sqrt(forward * backward)) / (1 + min(sure.shape))
        alone = torch.zeros(1, len(pair.source), dtype=torch.float64)
        y = Matching(torch.where(sure, 1 + near, -torch.inf)[None], unmatched_rows=alone).max()[1][0]
        missed = self.task.missed * (y >= 0).double()
        pairs = self.task.false_positive * ~allowed + torch.where(sure, 0.0, missed.unsqueeze(1))
        return y, (pairs, missed)

    def _aligned(self, weights: Tensor, pairs: Sequence[SentencePair], k: int) -> Predictions:
        """The k best alignments of a batch; sentences without words have no links."""
        found: list[list[tuple[float, Any]]] = [[(0.0, ())] for _ in pairs]
        worded = [b for b, pair in enumerate(pairs) if pair.source and pair.target]
        if not worded:
            return found
        x = batched([self._encoded(pairs[b]) for b in worded])
        module = AlignmentScore(x[0].shape[-1])
        torch.nn.utils.vector_to_parameters(weights, module.parameters())
        with torch.no_grad():
            values, outputs = module(x).topk(k)
        for b, scores, ys in zip(worded, values.tolist(), outputs.tolist(), strict=True):
            ranked = zip(scores, (ys_k[: len(pairs[b].source)] for ys_k in ys), strict=True)
            found[b] = [(score, _links(y)) for score, y in ranked if score > -torch.inf]
        return found


@dataclass(frozen=True)
class Alignment(Task):
    """Word alignment: a matching of the words of two sentences, in which words may stay without a link.

    Args:
        corpus: more sentence pairs, with or without links, for the counts of words and for Model 1; any data as for
            training, such as hansards#train.
        false_positive: cost of a link that is not even possible.
        missed: cost of a source word without any of its sure links.
        leave_out: groups of features to leave out, separated by commas, of dice, model1, position, spelling, frequency
            and neighbours.
        link_format: of predictions: pharaoh for a line of links for each sentence pair, source first, from 0; naacl
            for a line for each link, with the numbers of the sentence pair, target and source, from 1.
        threshold: probability from which on a link is predicted, even if its words have others; if not given, the best
            matching is, in which a word has at most one link.

    Reference:
        Taskar, Lacoste-Julien and Klein (2005), "A Discriminative Matching Approach to Word Alignment".
    """

    corpus: str | None = None
    false_positive: float = 1.0
    missed: float = 3.0
    leave_out: str = ""
    link_format: Literal["pharaoh", "naacl"] = "pharaoh"
    threshold: Annotated[float, Interval(above=True, most=1)] | None = None

    summary: ClassVar[str] = "links between the words of a sentence and its translation"
    files: ClassVar[str] = (
        "A line for each pair of sentences, as in la maison ||| the house ||| 0-0 1-1, or with tabs, links from 0; or "
        "FOLDER#NAME for sentences in NAME.f and NAME.e and links in NAME.align. No links to predict."
    )
    # The first 100 and the other test pairs of the Hansards.
    data: ClassVar[Mapping[str, str]] = {"train": "hansards#test:1-100", "test": "hansards#test:101-447"}
    example: ClassVar[str] = "--train 'hansards#test' --corpus 'hansards#train'"
    headline: ClassVar[str] = "aer"
    headline_is_error: ClassVar[bool] = True
    solver: ClassVar[str] = "proximal-bcfw"
    fitted_type: ClassVar[type[FittedTask]] = FittedAlignment

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := set(self._left_out) - set(GROUPS):
            raise ValueError(f"leave_out must be of {', '.join(GROUPS)}, got {', '.join(sorted(unknown))}")

    @property
    def groups(self) -> list[str]:
        """The names of the groups of features that are not left out."""
        return [group for group in GROUPS if group not in self._left_out]

    @property
    def _left_out(self) -> list[str]:
        return [group for group in self.leave_out.split(",") if group]

    def read(self, path: str | TextIO, split: Split = "train") -> list[SentencePair]:
        """Sentence pairs; see :func:`~structsmooth.tasks.alignment.data.read_pairs`."""
        return labelled(read_pairs(path), split, known_links)

    def fit(self, examples: Sequence[SentencePair]) -> FittedAlignment:
        """The aligner, with the words of the examples and of the corpus."""
        more = read_pairs(self.corpus) if self.corpus else []
        return FittedAlignment(self, Lexicon.of([*examples, *more]))


def _collate(examples: list[tuple[Tensor, _Labels]]) -> Any:
    """A batch of features and sizes, labels, and part costs."""
    x, labels = zip(*examples, strict=True)
    y, costs = zip(*labels, strict=True)
    return batched(list(x)), (padded(list(y)), tuple(padded(list(planes)) for planes in zip(*costs, strict=True)))


def _indicators(pair: SentencePair, links: frozenset[Link]) -> Tensor:
    """A table [N, M] of the words of a pair that is true at the links."""
    indicators = torch.zeros(len(pair.source), len(pair.target), dtype=torch.bool)
    for i, j in links:
        indicators[i, j] = True
    return indicators


def _links(y: Sequence[int]) -> tuple[Link, ...]:
    return tuple((i, j) for i, j in enumerate(y) if j >= 0)
