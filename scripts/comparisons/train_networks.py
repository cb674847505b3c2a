"""Networks trained end to end with each loss: linear chains and trees beside a softmax for each word.

The network is a bidirectional LSTM over words and their shapes or, with --encoder, a pretrained encoder: a folder with
a model and a fast tokenizer of transformers, in which a word has the features of its first piece. Files with the suffix
.conllu or .conllu.gz are treebanks, and the outputs are dependency trees, measured by attachment scores; others have
columns of words and tags, and the outputs are entities, measured by F1. Data, network, optimizer (Adam, or AdamW for
encoders, step sizes falling linearly to zero), settings, first weights and the order of sentences of a seed are the
same for all methods:

    tags:   "token" scores every tag by itself; the other losses also learn transitions, and tag by the best sequence.
            "fixed" leaves an encoder as it is, and trains a chain over its features by a hinge, until the weights are
            known to be within one percent of the optimum.
    trees:  "token" scores the head of every word by itself, and the best spanning tree is taken; "crf",
            "softmax_margin" and "l2" are spanning trees; "projective-crf" and "projective-l2" are trees whose arcs do
            not cross.

The table has mean ± standard deviation over seeds of the measures on the test file after the last epoch, and CPU
seconds of training per run without evaluation.
"""

import json
import multiprocessing
import re
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scripts.shared.harness import RequestError, command, mean_and_spread, option, print_table, reading
from scripts.shared.training import Job, Tags, Trees, descend, losses, padded
from structsmooth import ProximalBCFW
from structsmooth.cli.flags import usable_device
from structsmooth.messages import tracked
from structsmooth.models import BiLSTMTagger, TaggingHead
from structsmooth.models.subwords import first_subwords
from structsmooth.problems import DenseChainProblem
from structsmooth.tasks import NER
from structsmooth.text.corpus import Sentence

# Sentences that are tagged or parsed at a time.
_BATCH = 64
# Words that the training data has fewer times are known by their shape alone.
_FREQUENT = 2
# Share of the words known by their shape alone in a training step, so that shapes of frequent words are learned.
_HIDDEN_WORDS = 0.3


class Vocabulary:
    """Ids of the words and word shapes of training sentences; 0 stands for those that are not there."""

    def __init__(self, sentences: Iterable[Sentence]) -> None:
        counts = Counter(word for sentence in sentences for word in sentence.words)
        frequent = [word for word, count in counts.items() if count >= _FREQUENT]
        shapes = dict.fromkeys(map(shape, counts))
        self._words = {word: i for i, word in enumerate(frequent, start=1)}
        self._shapes = {name: i for i, name in enumerate(shapes, start=1 + len(frequent))}
        self.size = 1 + len(frequent) + len(shapes)

    def encode(self, sentence: Sentence) -> Tensor:
        """Ids [T, 2]: of the words, which are those of their shapes where words are rare, and of their shapes."""
        shapes = [self._shapes.get(shape(word), 0) for word in sentence.words]
        words = [self._words.get(word, other) for word, other in zip(sentence.words, shapes, strict=True)]
        return torch.tensor([words, shapes]).T


@cache
def shape(word: str) -> str:
    """What rare words are known by: kinds of characters, no more than two of each in a row, and the last two.

    Example:
        >>> shape("Borrowers"), shape("10.25")
        ('Xxxrs', '99.9925')
    """
    kinds = re.sub("[A-Z]", "X", re.sub("[a-z]", "x", re.sub("[0-9]", "9", word)))
    return re.sub(r"(.)\1+", r"\1\1", kinds) + word[-2:]


class Recurrent(nn.Module):
    """A bidirectional LSTM over words, of which some are hidden in training, under a chain."""

    def __init__(self, job: Tags, options: Namespace, seed: int) -> None:
        super().__init__()
        self.vocabulary, self.options = Vocabulary(job.train), options
        self.generator = torch.Generator().manual_seed(seed)
        sizes = {"embedding": options.embedding, "hidden": options.hidden}
        self.tagger = BiLSTMTagger(self.vocabulary.size, len(job.tags), **sizes).to(options.device)

    def forward(self, sentences: Sequence[Sentence]) -> Any:
        """Chains over sentences."""
        ids = map(self.vocabulary.encode, sentences)
        words = [self._some_hidden(x) if self.training else x[:, 0] for x in ids]
        lengths = torch.tensor([len(x) for x in words])
        return self.tagger((padded(words).to(self.options.device), lengths.to(self.options.device)))

    def _some_hidden(self, ids: Tensor) -> Tensor:
        hidden = torch.rand(len(ids), generator=self.generator) < _HIDDEN_WORDS
        return torch.where(hidden, ids[:, 1], ids[:, 0])

    def epochs(self, job: Job, method: str) -> Iterator[float]:
        """Train; yields the mean loss of each epoch."""
        optimizer, count = torch.optim.Adam(self.parameters(), self.options.lr), self.options.epochs or 10
        return _epochs(self, optimizer, job, method, count, by_epoch=True, generator=self.generator)


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
            words = pieces.word_ids(b)
            first = first_subwords(words).nonzero().flatten().tolist()
            features[b, [words[place] for place in first]] = hidden[b, first]
        return features, lengths


class Encoded(nn.Module):
    """A pretrained encoder under a head."""

    def __init__(self, job: Job, options: Namespace, method: str, seed: int) -> None:
        super().__init__()
        self.words, self.options, self.seed = Words(options.encoder), options, seed
        self.head: Any = job.head(self.words.size, method)

    def forward(self, sentences: Sequence[Any]) -> Any:
        """Chains or trees over sentences."""
        return self.head(self.words([sentence.words for sentence in sentences]))

    def epochs(self, job: Job, method: str) -> Iterator[float]:
        """Fine-tune encoder and head, or fit the head alone; yields the mean loss of each epoch."""
        if method == "fixed":
            return self._fit_head(job)
        optimizer = torch.optim.AdamW(self._groups())
        optimizer.register_step_pre_hook(self._clip)
        return _epochs(self, optimizer, job, method, self.options.epochs or 3)

    def _clip(self, *_: object) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), 5.0)

    @torch.no_grad()
    def _fit_head(self, job: Any) -> Iterator[float]:
        """A chain over fixed features, the last of which is constant and has the biases."""
        self.eval()
        batches = [
            self.words([sentence.words for sentence in job.train[i : i + _BATCH]])
            for i in range(0, len(job.train), _BATCH)
        ]
        rows = torch.cat([row[:length] for pair in batches for row, length in zip(*pair, strict=True)])
        labels = torch.tensor([job.tags.index(tag) for sentence in job.train for tag in sentence.tags])
        lengths = torch.cat([lengths for _, lengths in batches])
        problem = DenseChainProblem(torch.cat([rows, torch.ones(len(rows), 1)], 1), labels, lengths, len(job.tags))
        result = ProximalBCFW(gap_tolerance=0.01).solve(problem, lam="1/n", passes=1000, seed=self.seed)
        weight, *others = result.weights.view(-1, len(job.tags)).split([self.words.size, 1, len(job.tags), 1, 1])
        self.head.linear.weight.copy_(weight.T)
        for parameter, values in zip([self.head.linear.bias, *self.head.transitions()], others, strict=True):
            parameter.copy_(values.view(parameter.shape))
        yield result.row.objective

    def _groups(self) -> list[dict[str, Any]]:
        """Parameters with their step sizes: transitions learn from few numbers, and take the longest steps."""
        transitions = self.head.transitions() if isinstance(self.head, TaggingHead) else []
        apart = set(map(id, transitions))
        others = [parameter for parameter in self.head.parameters() if id(parameter) not in apart]
        rates = {"encoder_rate": self.words.encoder.parameters(), "head_rate": others, "transition_rate": transitions}
        groups = [{"params": list(group), "lr": getattr(self.options, name)} for name, group in rates.items()]
        return [group for group in groups if group["params"]]


def _epochs(
    network: Recurrent | Encoded, optimizer: torch.optim.Optimizer, job: Job, method: str, count: int, **settings: Any
) -> Iterator[float]:
    """Mean losses of so many epochs of training, see :func:`descend`."""
    options = network.options
    known = losses(options.mu, options.k)

    def loss(indices: Tensor, done: float) -> Tensor:
        batch = [job.train[i] for i in indices.tolist()]
        return job.loss(method, network(batch), batch, known)

    return descend(optimizer, loss, len(job.train), batch=options.batch, epochs=count, **settings)


class Epoch(NamedTuple):
    """State of a run after an epoch: mean of its losses, CPU seconds of training so far, measures on the test file."""

    method: str
    seed: int
    epoch: int
    objective: float
    seconds: float
    measures: dict[str, float]


def train(job: Any, options: Namespace, method: str, seed: int) -> list[Epoch]:
    """The history of one run; the same options and seed give the same history, seconds aside."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    network = Encoded(job, options, method, seed) if options.encoder else Recurrent(job, options, seed)
    epochs, history, seconds = network.epochs(job, method), list[Epoch](), 0.0
    while True:
        network.train()
        started = time.process_time()
        objective = next(epochs, None)
        seconds += time.process_time() - started
        if objective is None:
            return history
        outputs = list(predicted(network.eval(), job, method))
        history.append(Epoch(method, seed, len(history) + 1, objective, seconds, job.measures(outputs)))


@torch.no_grad()
def predicted(network: nn.Module, job: Job, method: str) -> Iterator[Any]:
    """The best outputs of the test sentences."""
    for begin in range(0, len(job.test), _BATCH):
        yield from job.outputs(method, network(job.test[begin : begin + _BATCH]))


def rows(histories: Sequence[Sequence[Epoch]]) -> Iterator[list[str]]:
    """One for each method, the best first; differences are to the loss of each token, if it ran."""
    last: dict[str, list[Epoch]] = {}
    for history in histories:
        last.setdefault(history[-1].method, []).append(history[-1])
    measure, *others = histories[0][-1].measures
    means = {method: mean(epoch.measures[measure] for epoch in epochs) for method, epochs in last.items()}
    for method in sorted(last, key=lambda method: -means[method]):
        scores, *more = [[epoch.measures[name] for epoch in last[method]] for name in (measure, *others)]
        beside = f"{means[method] - means['token']:+.1f}" if "token" in means and method != "token" else ""
        cells = [mean_and_spread(scores, 1), beside, *(mean_and_spread(values, 1) for values in more)]
        yield [method, *cells, f"{mean(epoch.seconds for epoch in last[method]):.0f}"]


def _with_progress(run: partial[list[Epoch]], runs: Sequence[tuple[str, int]], workers: int) -> list[list[Epoch]]:
    if workers == 1:
        return [run(*pair) for pair in tracked(runs, "runs")]
    # Compiled kernels and threads of torch do not survive a fork.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(tracked(pool.map(run, *zip(*runs, strict=True)), "runs", len(runs)))


def _write(folder: Path, table: str, histories: Sequence[Sequence[Epoch]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(table + "\n", encoding="utf-8")
    lines = (json.dumps(epoch._asdict()) + "\n" for history in histories for epoch in history)
    (folder / "histories.jsonl").write_text("".join(lines), encoding="utf-8")


def job_of(options: Namespace) -> Job:
    """What is learned from the files, with the methods that can be asked for."""
    kind: Any = Trees if options.train.removesuffix(".gz").endswith(".conllu") else Tags
    if kind is Trees and options.encoder is None:
        raise RequestError("trees need --encoder")
    with reading():
        job: Job = kind.read(options.train, options.test, options.sentences)
    known = (*job.methods, "fixed") if kind is Tags and options.encoder else job.methods
    options.methods = list(dict.fromkeys(options.methods or known))
    if unknown := [method for method in options.methods if method not in known]:
        raise RequestError(f"--methods must be of {', '.join(known)}, got {', '.join(unknown)}")
    return job


@command(
    option("--encoder", None, "a model and tokenizer of transformers (default: an LSTM)", metavar="DIR"),
    option("--train", NER.default_files()["train"], "a treebank, or columns", metavar="FILE"),
    option("--test", NER.default_files()["test"], "a treebank, or columns", metavar="FILE"),
    option("--methods", None, "losses, and others of the above (default: all)", nargs="+", metavar="METHOD"),
    option("--sentences", None, "train on the first N sentences (default: all)", type=int, metavar="N"),
    option("--seeds", 3, "runs of each method, with seeds from 0", least=1),
    option("--epochs", None, "passes over the sentences (default: 10, or 3 with an encoder)", type=int, least=1),
    option("--batch", 16, "sentences per step", least=1),
    option("--embedding", 64, "size of a word's embedding, for the LSTM", least=1),
    option("--hidden", 64, "size of the LSTM's state in each direction", least=1),
    option("--k", 5, "outputs of the top-K oracle, for l2 and top_k", least=1),
    option("--mu", 1.0, "level of smoothing, for l2, entropy and top_k", least=0, above=True),
    *(
        option(f"--{name}", rate, f"first step size {where}", least=0, above=True, metavar="N")
        for name, rate, where in (
            ("lr", 0.01, "of the LSTM"),
            ("encoder-rate", 2e-4, "of the encoder"),
            ("head-rate", 2e-3, "of its head"),
            ("transition-rate", 2e-2, "of the scores of pairs of tags"),
        )
    ),
    option("--workers", 1, "runs at the same time, one thread each", least=1),
    option("--device", "cpu", "where to train the LSTM, such as cuda", type=usable_device),
    option("--out", None, "write table.md and histories.jsonl", metavar="DIR"),
)
def main(options: Namespace) -> None:
    """Train by every method with every seed, print the table and write the files."""
    job = job_of(options)
    runs = list(product(options.methods, range(options.seeds)))
    histories = _with_progress(partial(train, job, options), runs, options.workers)
    print(f"{len(job.train)} sentences to train, {len(job.test)} to test, {len(histories[0])} epochs\n")
    measure, *others = histories[0][-1].measures
    table = print_table(["method", measure, "beside token", *others, "CPU seconds"], rows(histories))
    if options.out:
        _write(Path(options.out), table, histories)
        print(f"\ntable and histories: {options.out}")
