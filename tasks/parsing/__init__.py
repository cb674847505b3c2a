"""Dependency parsing: the head of each word of a sentence and its relation to it, as a tree."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, TextIO

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from structsmooth.encoders import CodedFeatures, PretrainedEncoder
from structsmooth.experiments import Experiment
from structsmooth.messages import note, stage, tracked
from structsmooth.problems import DifferenceProblem, ProgramParts, ProgramProblem
from structsmooth.settings import Interval, PositiveInt
from structsmooth.solvers import SOLVERS
from structsmooth.structures import ProjectiveTree, SiblingTree, SpanningTree
from structsmooth.tasks.base import FittedTask, LastResultCache, Predictions, Split, Task, labelled
from structsmooth.tasks.parsing.answers import TreeAnswers
from structsmooth.tasks.parsing.data import (
    Sentence,
    Tree,
    known_tree,
    projectivized,
    read_trees,
    sentence_of,
)
from structsmooth.tasks.parsing.features import PartOfSpeech, Tokens, part_features, relation_features
from structsmooth.tasks.parsing.parts import Pruner, TreeParts, likely_arcs
from structsmooth.tasks.parsing.problems import TreeLabels, tree_problem
from structsmooth.tasks.parsing.results import Attachments, may_have, relations_by_head, shortened
from structsmooth.tasks.probabilities import Parts

# Sentences of a batch, and of one of trees that may cross; scores of siblings of a batch.
_BATCH, _ALIKE, _MOST_SIBLINGS = 128, 16, 1 << 22

Trees = ProjectiveTree | SiblingTree | SpanningTree


@dataclass(frozen=True)
class FittedParsing(TreeAnswers):
    """A parser with the relations and parts of speech of its training data.

    Args:
        task: the task.
        relations: that words may have to their heads; none if they are not learned.
        tags: parts of speech.
        single_root: whether exactly one word of a sentence has the root as its head, as in all training data.
        pruner: leaves few arcs to a parser of order 2; none for order 1.
        of_root: relations of words whose head is the root; in models of version 0.3, ``root`` alone, if there is one.
        of_words: relations of words whose head is a word; likewise all others.
        coded: codes of words, by an encoder, if there is one.
    """

    task: "Parsing"
    relations: list[str]
    tags: list[str]
    single_root: bool
    pruner: Pruner | None = None
    of_root: list[str] = field(default_factory=list)
    of_words: list[str] = field(default_factory=list)
    coded: CodedFeatures | None = None

    input_json: ClassVar[Mapping[str, str]] = {"words": "words"}

    def __post_init__(self) -> None:
        sizes = () if self.pruner is None else (len(self.pruner.weights),)
        # One pruner for order 2, none for order 1.
        if sizes != (self.dim,) * (self.task.order - 1):
            raise ValueError(f"order {self.task.order} needs {self.task.order - 1} pruner of {self.dim} weights")

    @property
    def dim(self) -> int:
        """The number of weights: one for each bucket of hashed features."""
        return 1 << self.task.bits

    def examples(self, inputs: Sequence[Any]) -> Sequence[Sentence]:
        """Sentences, also from lists of pairs of a word and its part of speech.

        Raises:
            ValueError: a sentence of something else than pairs.
        """
        return [one if isinstance(one, Sentence) else sentence_of(one) for one in inputs]

    def problem(self, examples: Sequence[Sentence]) -> ProgramProblem | DifferenceProblem:
        """Structural hinge losses of trees; the cost is the number of wrong heads and, if learned, wrong relations.

        If heads are unknown, losses are those of partial labels.
        """
        trees = [known_tree(sentence) for sentence in examples]
        heads = [projectivized(tree.heads) if self.task.projective else tree.heads for tree in tracked(trees, "trees")]
        tokens, labels, subtypes = self._tokens(examples), len(self.relations), self.task.subtypes
        some: Sequence[Sequence[int]]
        if self.pruner is None:
            rows, some = TreeParts.arcs(tokens.lengths), [range(len(tree)) for tree in heads]
            kind = ProgramParts.projective_trees if self.task.projective else ProgramParts.spanning_trees
            parts = kind(tokens.lengths, self.single_root, labels)
        else:
            started = time.perf_counter()
            rows, some = self._left(tokens, examples, heads)
            parts = rows.of_program(self.single_root, labels)
            # Each of n words has n possible heads: the others and the root.
            share = int(rows.is_arc.sum()) / int(tokens.lengths.square().sum())
            note(f"pruning leaves {share:.1%} of all arcs, and takes {time.perf_counter() - started:.1f} s")
        gold = [tree._replace(relations=tuple(shortened(name, subtypes) for name in tree.relations)) for tree in trees]
        return tree_problem(tokens, rows, parts, TreeLabels(gold, heads, some), self.task.bits, self.relations)

    def predict(self, weights: Tensor, examples: Sequence[Sentence], k: int = 1) -> Predictions:
        """The k best trees of each sentence with the scores of their arcs, and the best relations to heads."""
        if self.coded is not None:
            self.coded.of([sentence.words for sentence in examples])  # the encoder reads all of them together
        found: list[list[tuple[float, Any]]] = [[(0.0, Tree((), ()))] for _ in examples]  # of sentences without words
        for numbers in tracked(self._alike(examples), "parsing"):
            for i, ranked in zip(numbers, self._parsed(weights, [examples[i] for i in numbers], k), strict=True):
                found[i] = ranked
        if not self.task.probabilities:
            return found
        probabilities = self.part_probabilities(weights, examples, [[tree for _, tree in ranked] for ranked in found])
        return [
            [
                (score, tree._replace(probabilities=tuple(arcs)))
                for (score, tree), arcs in zip(ranked, parts, strict=True)
            ]
            for ranked, parts in zip(found, probabilities, strict=True)
        ]

    def known_outputs(self, weights: Tensor, examples: Sequence[Sentence]) -> Iterator[tuple[Trees, Tensor]]:
        """The trees of sentences whose known tree is one of them, and its heads."""
        task = self.task
        known = [one for one in examples if known_tree(one).is_output(task.projective, self.single_root)]
        for numbers in self._alike(known):
            batch = [known[i] for i in numbers]
            heads = [torch.tensor(known_tree(sentence).heads) for sentence in batch]
            yield self._trees(weights, batch)[0], pad_sequence(heads, batch_first=True)

    def distributions(self, weights: Tensor, examples: Sequence[Sentence]) -> Iterator[tuple[list[int], Trees]]:
        """The trees of sentences with words."""
        for numbers in self._alike(examples):
            yield numbers, self._trees(self.tempered(weights), [examples[i] for i in numbers])[0]

    def part_probabilities(
        self, weights: Tensor, examples: Sequence[Sentence], outputs: Sequence[Sequence[Tree]]
    ) -> Parts:
        """The probabilities of the arcs to all words, whatever their relations."""
        found: list[list[list[float]]] = [[[] for _ in ranked] for ranked in outputs]
        for numbers, trees in self.distributions(weights, examples):
            arcs, root, *_ = trees.marginals()
            # Row 0 of the table is the root's, row h that of word h, counted from 1.
            for i, marginals in zip(numbers, torch.cat([root.unsqueeze(1), arcs], 1), strict=True):
                found[i] = [marginals[list(tree.heads), range(len(tree.heads))].tolist() for tree in outputs[i]]
        return found

    def right_parts(self, example: Sentence, output: Tree) -> list[bool | None]:
        """Which words have the right head; unknown where the treebank does not say."""
        pairs = zip(known_tree(example).heads, output.heads, strict=True)
        return [None if gold < 0 else gold == head for gold, head in pairs]

    def measure(self, examples: Sequence[Sentence], outputs: Sequence[Tree]) -> tuple[dict[str, float], str]:
        """Unlabelled and labelled attachment scores of all words, punctuation included, and both by relation."""
        scores = Attachments.of(examples, outputs, self.task.subtypes)
        metrics, table = scores.as_dict(self.task.labelled), scores.table(self.task.labelled)
        if self.pruner is None:
            return metrics, table
        share = self._heads_kept(examples)
        return metrics | {"heads_kept": share}, f"{'heads_kept':12} {share:8.2%}\n{table}"

    def unseen_labels(self, examples: Sequence[Sentence]) -> Mapping[str, int]:
        """How many words have each relation that training examples did not have."""
        if not self.task.labelled:
            return {}
        words = Attachments.of(examples, [known_tree(one) for one in examples], self.task.subtypes).words
        return {name: count for name, count in words.items() if name not in self.relations}

    def _parsed(self, weights: Tensor, sentences: Sequence[Sentence], k: int) -> Predictions:
        """The k best trees of some sentences."""
        structure, tokens = self._trees(weights, sentences)
        values, y = structure.topk(k)
        ranks = [
            self._related(
                weights, tokens, torch.cat([row[:n] for row, n in zip(y[:, rank], tokens.lengths, strict=True)])
            )
            for rank in range(k)
        ]
        found: list[list[tuple[float, Any]]] = []
        begins = (tokens.lengths.cumsum(0) - tokens.lengths).tolist()
        for b, (begin, ranked) in enumerate(zip(begins, values.tolist(), strict=True)):
            end = begin + len(sentences[b])
            trees = [Tree(tuple(heads[begin:end]), tuple(names[begin:end])) for heads, names in ranks]
            found.append([(score, tree) for score, tree in zip(ranked, trees, strict=True) if score > -torch.inf])
        return found

    def _tokens(self, sentences: Sequence[Sentence]) -> Tokens:
        codes = None if self.coded is None else self.coded.of([sentence.words for sentence in sentences])
        return Tokens.of(sentences, self.task.pos, codes)

    def _trees(self, weights: Tensor, sentences: Sequence[Sentence]) -> tuple[Trees, Tokens]:
        """The trees of some sentences, and their words."""
        tokens = self._tokens(sentences)
        parts = TreeParts.arcs(tokens.lengths) if self.pruner is None else self._left(tokens, sentences)[0]
        scores = part_features(tokens, parts, self.task.bits).scores(weights)
        (arcs, root), lengths, single_root = parts.arc_table(scores), tokens.lengths, self.single_root
        if self.pruner is not None:
            siblings = parts.sibling_table(scores)
            return SiblingTree(arcs, siblings, root, lengths, single_root=single_root), tokens
        kind = ProjectiveTree if self.task.projective else SpanningTree
        return kind(arcs, root, lengths=lengths, single_root=single_root), tokens

    @cached_property
    def _heads_kept(self) -> LastResultCache[float]:
        """The share of words whose known head pruning leaves."""

        def share(sentences: Sequence[Sentence]) -> float:
            kept = [
                bool(arcs[head, m])
                for numbers, every, _ in self._kept(sentences)
                for i, arcs in zip(numbers, every, strict=True)
                for m, head in enumerate(known_tree(sentences[i]).heads)
                if head >= 0
            ]
            return sum(kept) / max(len(kept), 1)

        return LastResultCache(share)

    def _left(
        self, tokens: Tokens, sentences: Sequence[Sentence], heads: Sequence[Sequence[int]] | None = None
    ) -> tuple[TreeParts, Sequence[Sequence[int]]]:
        """The parts that pruning leaves, and trees that have no others."""
        some: list[Sequence[int]] = [()] * len(sentences)
        left = []
        for numbers, arcs, y in self._kept(sentences, heads):
            left.append((torch.tensor(numbers), arcs))
            for i, tree in zip(numbers, y.tolist(), strict=True):
                some[i] = tree[: len(sentences[i])]
        return TreeParts.with_siblings(tokens.lengths, left), some

    def _kept(
        self, sentences: Sequence[Sentence], heads: Sequence[Sequence[int]] | None = None
    ) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Numbers of sentences, in batches, with what :func:`likely_arcs` finds of them."""
        assert self.pruner is not None
        first = FittedParsing(self.task.first_order, [], self.tags, self.single_root, coded=self.coded)
        weights = torch.from_numpy(self.pruner.weights).double()
        for numbers in tracked(first._alike(sentences), "pruning"):
            trees, _ = first._trees(weights, [sentences[i] for i in numbers])
            assert not isinstance(trees, SiblingTree)
            known = None if heads is None else [torch.tensor(heads[i]) for i in numbers]
            yield numbers, *likely_arcs(trees, self.task.prune, known)

    def _alike(self, sentences: Sequence[Sentence]) -> list[list[int]]:
        """Numbers of sentences with words in batches of similar length, whose cube trees or scores of siblings take."""
        found: list[list[int]] = []
        for i in sorted((i for i, one in enumerate(sentences) if len(one)), key=lambda i: len(sentences[i])):
            size = _BATCH if self.task.projective else _ALIKE
            if self.pruner is not None:
                size = min(size, _MOST_SIBLINGS // len(sentences[i]) ** 3)
            if not found or len(found[-1]) >= size:
                found.append([])
            found[-1].append(i)
        return found

    def _related(self, weights: Tensor, tokens: Tokens, heads: Tensor) -> tuple[list[int], list[str]]:
        """Heads of all words, and the best relations to them."""
        if not self.relations:
            return heads.tolist(), ["_"] * len(heads)
        features = relation_features(tokens, heads, self.task.bits, self.relations)
        scores = features.scores(weights).view(-1, len(self.relations))
        kept = may_have(self.relations, self.of_root, self.of_words)
        best = torch.where(kept[(heads == 0).long()], scores, -torch.inf).argmax(1)
        return heads.tolist(), [self.relations[number] for number in best.tolist()]


@dataclass(frozen=True)
class Parsing(Task):
    """Dependency parsing: a tree over the words of a sentence, from words and parts of speech.

    Args:
        labelled: whether relations of words to their heads are learned and found, too.
        projective: whether arcs must not cross: of the trees that training searches, and of those that are predicted.
        subtypes: whether relations include what follows a colon, as in nsubj:pass.
        pos: column of CoNLL-U with the parts of speech.
        bits: features are hashed to 2**bits buckets.
        order: 1 for scores of arcs, or 2 for those of neighbouring modifiers of a head, too, among the arcs that a
            first-order parser leaves, which is trained first. Arcs do not cross then.
        prune: the probability under the first-order parser from which on it leaves an arc, if the order is 2; 0 leaves
            all. Arcs of its best tree always stay.
        unknown: what stands in the place of unknown heads in training files, such as _. Their sentences train by the
            trees that agree with the known heads, by the solver convex-concave.
        probabilities: whether predictions have the probability of each head, its marginal under the distribution of
            trees whose scores are those of the model.
        encoder: a pretrained encoder of transformers, a folder or a name: similar features of its layers are a code,
            which words have beside their part of speech.
        layers: of the encoder, counted from 1, with 0 for its embeddings; the middle one by default.
        codes: number of codes.
        embed_encoder: put a copy of the encoder into the folder of the model, so that no other folder is needed.

    Reference:
        McDonald, Crammer and Pereira (2005), "Online Large-Margin Training of Dependency Parsers"; McDonald and Pereira
        (2006), "Online Learning of Approximate Dependency Parsing Algorithms", for order 2.
    """

    labelled: bool = True
    projective: bool = True
    subtypes: bool = False
    pos: PartOfSpeech = "upos"
    bits: Annotated[int, Interval(1, 30)] = 22
    order: Annotated[int, Interval(1, 2)] = 1
    prune: Annotated[float, Interval(0, 1)] = 0.01
    unknown: str | None = field(default=None, metadata={"metavar": "HEAD"})
    probabilities: bool = False
    encoder: str | None = field(default=None, metadata={"metavar": "DIR"})
    layers: list[int] | None = None
    codes: PositiveInt = field(default=64, metadata={"needs": "encoder"})
    embed_encoder: bool = False

    summary: ClassVar[str] = "dependency trees of sentences with parts of speech"
    files: ClassVar[str] = (
        "CoNLL-U, as treebanks of Universal Dependencies have it, plain or compressed by gzip: ten columns between "
        "tabs for each word, a blank line after each sentence. Heads and relations may be _ in files to predict."
    )
    # UD English EWT.
    data: ClassVar[Mapping[str, str]] = {split: f"ud_english_ewt/{split}.conllu.gz" for split in ("train", "test")}
    example: ClassVar[str] = "--train en_ewt-ud-train.conllu --test en_ewt-ud-test.conllu"
    lam: ClassVar[str] = "10/n"
    passes: ClassVar[int] = 8
    solver: ClassVar[str] = "proximal-bcfw"
    partial_option: ClassVar[str] = "unknown"
    cpu_alone: ClassVar[bool] = True
    fitted_type: ClassVar[type[FittedTask]] = FittedParsing

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order == 2 and not self.projective:
            raise ValueError("order 2 finds projective trees: leave out --no-projective, or take order 1")
        if self.encoder is None and (self.layers is not None or self.embed_encoder):
            raise ValueError("layers and embed_encoder are about an encoder: give encoder")

    @property
    def headline(self) -> str:  # type: ignore[override]
        """The labelled attachment score, or the unlabelled one."""
        return "las" if self.labelled else "uas"

    def read(self, path: str | TextIO, split: Split = "train") -> list[Sentence]:
        """Sentences of a treebank; see :func:`~structsmooth.tasks.parsing.data.read_trees`."""
        sentences = read_trees(path, split != "predict", self.unknown if split == "train" else None)
        return labelled(sentences, split, known_tree)

    def fit(self, examples: Sequence[Sentence]) -> FittedParsing:
        """The parser with the relations and parts of speech of the examples, and the codes of their words."""
        coded = None
        if self.encoder is not None:
            middle = PretrainedEncoder.open(self.encoder).depth // 2
            layers = [middle] if self.layers is None else self.layers
            coded = CodedFeatures.fit(self.encoder, layers, [sentence.words for sentence in examples], self.codes)
        return self._fitted(examples, coded)

    def _fitted(self, examples: Sequence[Sentence], coded: CodedFeatures | None) -> FittedParsing:
        trees = [sentence.tree for sentence in examples if sentence.tree is not None]
        of_root, of_words = relations_by_head(trees, self.subtypes) if self.labelled else ([], [])
        tags = {tag for sentence in examples for tag in getattr(sentence, self.pos)}
        single = all(tree.has_single_root for tree in trees)
        pruner = None if self.order == 1 else self._pruner(examples, coded)
        relations = sorted({*of_root, *of_words})
        return FittedParsing(self, relations, sorted(tags), single, pruner, of_root, of_words, coded)

    @property
    def first_order(self) -> "Parsing":
        """The task of the parser that prunes: without relations."""
        return replace(self, order=1, labelled=False)

    def _pruner(self, examples: Sequence[Sentence], coded: CodedFeatures | None) -> Pruner:
        """A first-order parser, trained as by default."""
        solver, started = SOLVERS[self.preferred_solver](), time.perf_counter()
        with stage("training the first-order parser that prunes"):
            problem = self.first_order._fitted(examples, coded).problem(examples)
            result = Experiment(solver, self.lam, self.passes).run(problem, whole=True)
        note(f"the first-order parser took {time.perf_counter() - started:.1f} s")
        return Pruner(result.weights.numpy().astype(np.float32))
