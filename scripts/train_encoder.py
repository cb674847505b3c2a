"""A pretrained encoder under structured heads, fine-tuned with each loss beside its rival without structure.

The encoder is a folder with a model and a fast tokenizer of transformers. Files with the suffix .conllu or .conllu.gz
are treebanks, and the outputs are dependency trees, measured by attachment scores; others have columns of words and
tags, and the outputs are entities, measured by F1. A word has the features of its first piece. Encoder, data, optimizer
(AdamW, step sizes falling linearly to zero), seeds and the order of sentences are the same for all methods:

    tags:   "softmax" scores every tag by itself; "crf", "softmax-margin" and "hinge" are a chain. "fixed" leaves the
            encoder as it is, and trains a chain over its features by a hinge, until the weights are known to be within
            one percent of the optimum.
    trees:  "softmax" scores the head of every word by itself, and the best spanning tree is taken; "crf",
            "softmax-margin" and "hinge" are spanning trees; "projective-crf" and "projective-hinge" are trees whose
            arcs do not cross.

The table has mean and standard deviation over seeds on the test file, and CPU seconds of training per run.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from scripts.harness import RequestError, bio, command, mean_and_spread, option, print_table, progress, reading
from structsmooth import (
    L2,
    DenseChainProblem,
    LinearChain,
    ProjectiveTree,
    ProximalBCFW,
    SpanningTree,
    StructuralHinge,
)
from structsmooth.models import BiaffineParser, TaggingHead
from structsmooth.tasks import NER
from structsmooth.tasks.parsing.data import projectivized, read_trees
from structsmooth.text.scores import entity_scores

_LOSSES = {
    "crf": StructuralHinge.crf(),
    "softmax-margin": StructuralHinge.softmax_margin(),
    "hinge": StructuralHinge(L2(1.0, 5)),
}
# Sentences that are tagged or parsed at a time.
_BATCH = 32


class Words(nn.Module):
    """Features of words by a pretrained encoder: those of their first pieces.

    Args:
        folder: of the encoder and its tokenizer.
    """

    def __init__(self, folder: str) -> None:
        from transformers import AutoModel, AutoTokenizer, logging  # slow to load

        super().__init__()
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self.encoder: Any = AutoModel.from_pretrained(folder, local_files_only=True)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.size = int(self.encoder.config.hidden_size)

    def forward(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Features [B, T, D] and lengths [B]; zeros for words behind the longest input of the encoder."""
        settings = {"is_split_into_words": True, "truncation": True, "padding": True, "return_tensors": "pt"}
        pieces = self.tokenizer([list(words) for words in sentences], **settings)
        hidden = self.encoder(**{name: pieces[name] for name in ("input_ids", "attention_mask")}).last_hidden_state
        lengths = torch.tensor([len(words) for words in sentences])
        features = hidden.new_zeros(len(sentences), int(lengths.max()), self.size)
        for b in range(len(sentences)):
            first = _first_pieces(pieces.word_ids(b))
            features[b, list(first)] = hidden[b, list(first.values())]
        return features, lengths


def _first_pieces(words: Sequence[int | None]) -> dict[int, int]:
    """The place of the first piece of each word."""
    first: dict[int, int] = {}
    for place, word in enumerate(words):
        if word is not None:
            first.setdefault(word, place)
    return first


class Job(ABC):
    """What is learned from some sentences, and how it is measured."""

    methods: ClassVar[tuple[str, ...]]
    train: list[Any]
    test: list[Any]

    @abstractmethod
    def head(self, features: int, method: str) -> TaggingHead | BiaffineParser:
        """A head over words."""

    @abstractmethod
    def loss(self, method: str, structure: Any, batch: Sequence[Any]) -> Tensor:
        """Mean loss of a batch."""

    @abstractmethod
    def outputs(self, method: str, structure: Any) -> list[Any]:
        """The predicted output of each sentence of a batch."""

    @abstractmethod
    def measures(self, outputs: Sequence[Any]) -> dict[str, float]:
        """Measures on the test sentences, in percent."""


@dataclass
class Tags(Job):
    """Entities, as tags in the scheme BIO."""

    train: list[Any]
    test: list[Any]
    tags: list[str]

    methods = ("softmax", "crf", "softmax-margin", "hinge", "fixed")

    @classmethod
    def read(cls, train: str, test: str, count: int | None) -> Tags:
        """Two column files, of which the first ``count`` sentences are trained on."""
        training, testing = list(NER().read(train))[:count], list(NER().read(test))
        return cls(training, testing, sorted({"O"}.union(*map(bio, training))))

    def head(self, features: int, method: str) -> TaggingHead:
        """A linear layer under a chain."""
        return TaggingHead(features, len(self.tags))

    def loss(self, method: str, structure: LinearChain, batch: Sequence[Any]) -> Tensor:
        """Mean loss of a batch."""
        y = pad_sequence([torch.tensor([self.tags.index(tag) for tag in bio(s)]) for s in batch], batch_first=True)
        if method != "softmax":
            return _LOSSES[method](structure, y)
        losses = cross_entropy(structure.unary.transpose(1, 2), y, reduction="none")
        return torch.where(structure.mask, losses, 0.0).sum(1).mean()

    def outputs(self, method: str, structure: LinearChain) -> list[Any]:
        """The best tag of each word, or the best sequence."""
        y = structure.unary.argmax(2) if method == "softmax" else structure.max()[1]
        rows = zip(y.tolist(), structure.lengths.tolist(), strict=True)
        return [[self.tags[label] for label in row[:length]] for row, length in rows]

    def measures(self, outputs: Sequence[Any]) -> dict[str, float]:
        """Entity F1."""
        return {"F1": 100 * entity_scores([bio(sentence) for sentence in self.test], list(outputs)).f1}


@dataclass
class Trees(Job):
    """Dependency trees with labels of arcs."""

    train: list[Any]
    test: list[Any]
    relations: list[str]

    methods = ("softmax", "crf", "softmax-margin", "hinge", "projective-crf", "projective-hinge")

    @classmethod
    def read(cls, train: str, test: str, count: int | None) -> Trees:
        """Two treebanks, of which the first ``count`` trees are trained on."""
        training, testing = read_trees(train)[:count], read_trees(test)
        return cls(training, testing, sorted({relation for s in training for relation in _relations(s)}))

    def head(self, features: int, method: str) -> BiaffineParser:
        """Biaffine scores of arcs and labels."""
        return BiaffineParser(features, len(self.relations), projective=method.startswith("projective"))

    def loss(self, method: str, structure: Any, batch: Sequence[Any]) -> Tensor:
        """Mean loss of a batch; arcs that cross are lifted where no tree may have them."""
        lifted = projectivized if isinstance(structure, ProjectiveTree) else tuple
        heads = _padded([lifted(s.tree.heads) for s in batch])
        relations = _padded([[self.relations.index(r) for r in _relations(s)] for s in batch])
        y = structure.encoded(heads, relations)
        if method != "softmax":
            return _LOSSES[method.removeprefix("projective-")](structure, y)
        losses = cross_entropy(_scores_of_classes(structure).transpose(1, 2), y, reduction="none")
        return torch.where(structure.mask, losses, 0.0).sum(1).mean()

    def outputs(self, method: str, structure: Any) -> list[Any]:
        """Heads and relations of the best tree, which has one root."""
        y = structure.max()[1]
        heads, labels, lengths = (
            structure.heads(y).tolist(),
            structure.relations(y).tolist(),
            structure.lengths.tolist(),
        )
        names = [[self.relations[label] for label in row] for row in labels]
        return [(h[:n], r[:n]) for h, r, n in zip(heads, names, lengths, strict=True)]

    def measures(self, outputs: Sequence[Any]) -> dict[str, float]:
        """Unlabelled and labelled attachment scores; children of the root are right by their head alone."""
        right, labelled, words = 0, 0, 0
        for sentence, (heads, relations) in zip(self.test, outputs, strict=True):
            for own, other, head, relation in zip(
                heads, relations, sentence.tree.heads, _relations(sentence), strict=True
            ):
                words, right = words + 1, right + (own == head)
                labelled += own == head and (head == 0 or other == relation)
        return {"UAS": 100 * right / words, "LAS": 100 * labelled / words}


def _relations(sentence: Any) -> list[str]:
    """Relations without their subtypes."""
    return [relation.partition(":")[0] for relation in sentence.tree.relations]


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def _scores_of_classes(structure: SpanningTree) -> Tensor:
    """Scores [B, n, 1 + n L] of the heads of each word with their labels, the root first."""
    assert structure.labels is not None
    batch, n, _, labels = structure.labels.shape
    itself = torch.eye(n, dtype=torch.bool)
    length = structure.lengths[:, None, None]
    inside = torch.arange(n)[None, :, None] < length
    arcs = torch.where(inside & ~itself, structure.arcs, -1e9).unsqueeze(3) + structure.labels
    per_word = arcs.permute(0, 2, 1, 3).reshape(batch, n, n * labels)
    return torch.cat([structure.root.unsqueeze(2), per_word], 2)


def run(job: Job, method: str, seed: int, options: Namespace) -> dict[str, float]:
    """Train encoder and head, or the head alone; CPU seconds, and measures on the test sentences."""
    torch.manual_seed(seed)
    words = Words(options.encoder)
    head = job.head(words.size, method)
    started = time.process_time()
    if isinstance(head, TaggingHead) and method == "fixed":
        _fit_head(job, words.eval(), head, seed)
    else:
        _fine_tune(job, method, words.train(), head, options)
    seconds = time.process_time() - started
    return {"CPU seconds": seconds, **job.measures(list(_predicted(job, method, words.eval(), head)))}


def _fine_tune(job: Job, method: str, words: Words, head: nn.Module, options: Namespace) -> None:
    steps = options.epochs * -(-len(job.train) // options.batch)
    optimizer = torch.optim.AdamW(_groups(words, head, options))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for _ in range(options.epochs):
        for chosen in torch.randperm(len(job.train)).split(options.batch):
            batch = [job.train[i] for i in chosen.tolist()]
            optimizer.zero_grad()
            job.loss(method, head(words([sentence.words for sentence in batch])), batch).backward()
            nn.utils.clip_grad_norm_([*words.parameters(), *head.parameters()], 5.0)
            optimizer.step()
            schedule.step()


@torch.no_grad()
def _fit_head(job: Any, words: Words, head: TaggingHead, seed: int) -> None:
    """A chain over fixed features, the last of which is constant and has the biases."""
    batches = [
        words([sentence.words for sentence in job.train[i : i + _BATCH]]) for i in range(0, len(job.train), _BATCH)
    ]
    rows = torch.cat(
        [row[:length] for features, lengths in batches for row, length in zip(features, lengths, strict=True)]
    )
    labels = torch.tensor([job.tags.index(tag) for sentence in job.train for tag in bio(sentence)])
    lengths = torch.cat([lengths for _, lengths in batches])
    problem = DenseChainProblem(torch.cat([rows, torch.ones(len(rows), 1)], 1), labels, lengths, len(job.tags))
    result = ProximalBCFW(gap_tolerance=0.01).solve(problem, lam="1/n", passes=1000, seed=seed)
    sizes = [words.size, 1, len(job.tags), 1, 1]
    weight, bias, transition, start, stop = result.weights.view(-1, len(job.tags)).split(sizes)
    head.linear.weight.copy_(weight.T)
    for parameter, values in (
        (head.linear.bias, bias),
        (head.transition, transition),
        (head.start, start),
        (head.stop, stop),
    ):
        parameter.copy_(values.view(parameter.shape))


def _groups(words: Words, head: nn.Module, options: Namespace) -> list[dict[str, Any]]:
    """Parameters with their step sizes: transitions learn from few numbers, and take the longest steps."""
    transitions = head.transitions() if isinstance(head, TaggingHead) else []
    apart = {id(parameter) for parameter in transitions}
    others = [parameter for parameter in head.parameters() if id(parameter) not in apart]
    rates = {"encoder_rate": words.encoder.parameters(), "head_rate": others, "transition_rate": transitions}
    return [{"params": list(group), "lr": getattr(options, name)} for name, group in rates.items() if group]


@torch.no_grad()
def _predicted(job: Job, method: str, words: Words, head: nn.Module) -> Iterator[Any]:
    for begin in range(0, len(job.test), _BATCH):
        batch = job.test[begin : begin + _BATCH]
        yield from job.outputs(method, head(words([sentence.words for sentence in batch])))


def cells(runs: list[dict[str, float]]) -> list[str]:
    """Seconds and measures of the runs of a method."""
    columns = {name: [measured[name] for measured in runs] for name in runs[0]}
    return [f"{mean(own):.0f}" if name == "CPU seconds" else mean_and_spread(own, 1) for name, own in columns.items()]


@command(
    option("--encoder", None, "a model and tokenizer of transformers", required=True, metavar="DIR"),
    option("--train", None, "a treebank, or columns", required=True, metavar="FILE"),
    option("--test", None, "a treebank, or columns", required=True, metavar="FILE"),
    option("--methods", None, "some of the above (default: all)", nargs="+", metavar="METHOD"),
    option("--sentences", None, "train on the first N sentences (default: all)", type=int, metavar="N"),
    option("--seeds", 3, "runs of each method"),
    option("--epochs", 3, "passes over the sentences"),
    option("--batch", 16, "sentences per step"),
    *(
        option(f"--{name}-rate", rate, "first step size", metavar="N")
        for name, rate in (("encoder", 2e-4), ("head", 2e-3), ("transition", 2e-2))
    ),
    option("--out", None, "write the measures of all runs as JSON", metavar="FILE"),
)
def main(options: Namespace) -> None:
    """Train by every method with every seed, and print the table."""
    kind: Any = Trees if options.train.removesuffix(".gz").endswith(".conllu") else Tags
    with reading():
        job = kind.read(options.train, options.test, options.sentences)
    methods = options.methods or job.methods
    if unknown := [method for method in methods if method not in job.methods]:
        raise RequestError(f"--methods must be of {', '.join(job.methods)}, got {', '.join(unknown)}")
    results: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
    for seed, method in progress(list(product(range(options.seeds), methods)), "runs"):
        results[method].append(run(job, method, seed, options))
        if options.out:
            Path(options.out).parent.mkdir(parents=True, exist_ok=True)
            Path(options.out).write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(f"{len(job.train)} sentences to train, {len(job.test)} to test, {options.epochs} epochs\n")
    rows = ([method, *cells(runs)] for method, runs in results.items())
    print_table(["method", *next(iter(results.values()))[0]], rows)


if __name__ == "__main__":
    raise SystemExit(main())
