"""Entity F1 of a BiLSTM tagger trained end to end with each loss: linear chains beside per-token cross-entropy.

Data, network, optimizer (Adam, step size falling linearly to zero) and settings are the same for all losses, and so
are the first weights and the order of sentences of a seed. Cross-entropy ("token") scores every label by itself; the
others also learn transitions, and tag by the best sequence. The table has mean ± standard deviation over seeds of
entity F1 on the test file after the last epoch, and CPU seconds of training per run without evaluation.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import time
from argparse import ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from scripts.harness import bio, command, mean_and_spread, option, picture, print_table, progress, reading
from structsmooth import L2, Entropy, LinearChain, StructuralHinge
from structsmooth.models import BiLSTMTagger
from structsmooth.tasks import NER
from structsmooth.text.corpus import Sentence
from structsmooth.text.scores import entity_scores

Loss = Callable[[LinearChain, Tensor], Tensor]

# Sentences that are padded to one batch to be tagged.
_TEST_BATCH = 64
# Words that the training data has fewer times are known by their shape alone.
_FREQUENT = 2
# Share of the words known by their shape alone in a training step, so that shapes of frequent words are learned.
_HIDDEN_WORDS = 0.3


def token_cross_entropy(chain: LinearChain, y: Tensor) -> Tensor:
    """Mean over the batch of −Σ_t log softmax(unary[t])[y_t]."""
    losses = cross_entropy(chain.unary.transpose(1, 2), y, reduction="none")
    return torch.where(chain.mask, losses, 0.0).sum(1).mean()


def make_losses(mu: float, k: int) -> dict[str, Loss]:
    """Every loss by its name on the command line."""
    return {
        "token": token_cross_entropy,
        "hinge": StructuralHinge(),
        "l2": StructuralHinge(L2(mu, k)),
        "entropy": StructuralHinge(Entropy(mu)),
        "crf": StructuralHinge.crf(),
        "softmax_margin": StructuralHinge.softmax_margin(),
        "perceptron": StructuralHinge.perceptron(),
        "top_k": StructuralHinge.top_k(mu, k),
    }


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


def shape(word: str) -> str:
    """What rare words are known by: kinds of characters, no more than two of each in a row, and the last two.

    Example:
        >>> shape("Borrowers"), shape("10.25")
        ('Xxxrs', '99.9925')
    """
    kinds = re.sub("[A-Z]", "X", re.sub("[a-z]", "x", re.sub("[0-9]", "9", word)))
    return re.sub(r"(.)\1+", r"\1\1", kinds) + word[-2:]


@dataclass(frozen=True)
class Data:
    """Encoded sentences, their labels and what the labels stand for."""

    vocabulary: int
    tags: list[str]
    train: list[tuple[Tensor, Tensor]]
    test: list[tuple[Tensor, list[str]]]

    @classmethod
    def read(cls, train: str, test: str) -> Data:
        """Two column files; their tags are converted to the scheme BIO."""
        training, testing = (NER().read(path) for path in (train, test))
        vocabulary = Vocabulary(training)
        tagged = [bio(sentence) for sentence in training]
        tags = sorted({"O"}.union(*tagged))
        labels = [torch.tensor([tags.index(tag) for tag in names]) for names in tagged]
        return cls(
            vocabulary.size,
            tags,
            list(zip(map(vocabulary.encode, training), labels, strict=True)),
            [(vocabulary.encode(sentence), bio(sentence)) for sentence in testing],
        )


class Run(NamedTuple):
    """One training: a loss and a seed."""

    loss: str
    seed: int


class Epoch(NamedTuple):
    """State of a run after an epoch: mean of its losses, CPU seconds of training so far, entity F1 on the test file."""

    loss: str
    seed: int
    epoch: int
    objective: float
    seconds: float
    f1: float


def train(data: Data, options: Namespace, run: Run) -> list[Epoch]:
    """The history of one run; the same options and seed give the same history, seconds aside."""
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    random = torch.Generator().manual_seed(run.seed)
    sizes = {"embedding": options.embedding, "hidden": options.hidden}
    tagger = BiLSTMTagger(data.vocabulary, len(data.tags), **sizes).to(options.device)
    loss = make_losses(options.mu, options.k)[run.loss]
    optimizer = torch.optim.Adam(tagger.parameters(), lr=options.lr)
    fall = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=options.epochs)
    history: list[Epoch] = []
    seconds = 0.0
    for epoch in range(1, options.epochs + 1):
        started = time.process_time()
        objective = _train_epoch(tagger, loss, optimizer, data.train, options, random)
        fall.step()
        seconds += time.process_time() - started
        history.append(Epoch(*run, epoch, objective, seconds, test_f1(tagger, data, options.device)))
    return history


def _train_epoch(
    tagger: BiLSTMTagger,
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    examples: Sequence[tuple[Tensor, Tensor]],
    options: Namespace,
    random: torch.Generator,
) -> float:
    """Mean loss of the sentences, each as it was before the step on it."""
    tagger.train()
    total = 0.0
    for batch in torch.randperm(len(examples), generator=random).split(options.batch):
        ids, y = zip(*(examples[i] for i in batch.tolist()), strict=True)
        chosen = [torch.where(torch.rand(len(x), generator=random) < _HIDDEN_WORDS, x[:, 1], x[:, 0]) for x in ids]
        optimizer.zero_grad()
        labels = pad_sequence(list(y), batch_first=True).to(options.device)
        value = loss(tagger(_padded(chosen, options.device)), labels)
        value.backward()
        optimizer.step()
        total += value.item() * len(batch)
    return total / len(examples)


@torch.no_grad()
def test_f1(tagger: BiLSTMTagger, data: Data, device: str) -> float:
    """Entity F1 of the best sequences of the test sentences."""
    tagger.eval()
    predicted = []
    for begin in range(0, len(data.test), _TEST_BATCH):
        words = [ids[:, 0] for ids, _ in data.test[begin : begin + _TEST_BATCH]]
        _, y = tagger(_padded(words, device)).max()
        predicted += [[data.tags[j] for j in row[: len(x)]] for x, row in zip(words, y.tolist(), strict=True)]
    return entity_scores([tags for _, tags in data.test], predicted).f1


def _padded(ids: Sequence[Tensor], device: str) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(x) for x in ids])
    return pad_sequence(list(ids), batch_first=True).to(device), lengths.to(device)


def rows(histories: Sequence[Sequence[Epoch]]) -> Iterator[list[str]]:
    """One for each loss, the best first; differences are to per-token cross-entropy, if it ran."""
    last = [history[-1] for history in histories]
    results = {name: list(group) for name, group in groupby(last, key=lambda epoch: epoch.loss)}
    means = {name: mean(epoch.f1 for epoch in epochs) for name, epochs in results.items()}
    for name in sorted(results, key=lambda name: -means[name]):
        scores = [100 * epoch.f1 for epoch in results[name]]
        beside = f"{100 * (means[name] - means['token']):+.1f}" if "token" in means and name != "token" else ""
        yield [name, mean_and_spread(scores, 1), beside, f"{mean(epoch.seconds for epoch in results[name]):.0f}"]


def _with_progress(run: Callable[[Run], list[Epoch]], runs: Sequence[Run], workers: int) -> list[list[Epoch]]:
    if workers == 1:
        return list(progress(map(run, runs), "runs", len(runs)))
    # Compiled kernels and threads of torch do not survive a fork.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(progress(pool.map(run, runs), "runs", len(runs)))


def _write(folder: Path, table: str, histories: Sequence[Sequence[Epoch]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(table + "\n", encoding="utf-8")
    rows = (json.dumps(epoch._asdict()) + "\n" for history in histories for epoch in history)
    (folder / "histories.jsonl").write_text("".join(rows), encoding="utf-8")
    _draw(histories, folder / "f1.png")


def _draw(histories: Sequence[Sequence[Epoch]], path: Path) -> None:
    """Mean F1 over seeds against epochs, a line per loss."""
    with picture(path, (7, 4.5)) as (panel,):
        for loss, group in groupby(histories, key=lambda history: history[0].loss):
            scores = [mean(epoch.f1 for epoch in epochs) for epochs in zip(*group, strict=True)]
            panel.plot(range(1, len(scores) + 1), scores, label=loss, linestyle="--" if loss == "token" else "-")
        panel.set(xlabel="epoch", ylabel="entity F1 on the test file, mean over seeds")


def _positive(text: str) -> float:
    if not 0 < (value := float(text)) < float("inf"):
        raise ArgumentTypeError(f"must be a positive number, got {text}")
    return value


def _device(text: str) -> str:
    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError) as error:
        raise ArgumentTypeError(f"{text}: {str(error).splitlines()[0]}") from error
    return text


@command(
    option("--loss", list(make_losses(1.0, 1)), choices=list(make_losses(1.0, 1)), metavar="LOSS"),
    option("--train", NER.default_files()["train"], "sentences in CoNLL columns", metavar="FILE"),
    option("--test", NER.default_files()["test"], "sentences in CoNLL columns", metavar="FILE"),
    option("--seeds", 3, "runs of each loss, with seeds from 0", least=1),
    option("--epochs", 10, "passes over the sentences", least=1),
    option("--batch", 16, "sentences per step", least=1),
    option("--embedding", 64, "size of a word's embedding", least=1),
    option("--hidden", 64, "size of the LSTM's state in each direction", least=1),
    option("--k", 5, "outputs of the top-K oracle, for l2 and top_k", least=1),
    option("--workers", 1, "runs at the same time, one thread each", least=1),
    option("--lr", 0.01, "step size of Adam in the first epoch", type=_positive),
    option("--mu", 1.0, "level of smoothing, for l2, entropy and top_k", type=_positive),
    option("--device", "cpu", "where to train, such as cuda", type=_device),
    option("--out", None, "write table.md, histories.jsonl and f1.png", metavar="DIR"),
)
def main(options: Namespace) -> None:
    """Train with every loss and seed, print the table and write the files."""
    with reading():
        data = Data.read(options.train, options.test)
    runs = [Run(*pair) for pair in product(dict.fromkeys(options.loss), range(options.seeds))]
    histories = _with_progress(partial(train, data, options), runs, options.workers)
    print(f"{len(data.train)} sentences to train, {len(data.test)} to test, {options.epochs} epochs\n")
    table = print_table(["loss", "test F1", "beside token", "CPU seconds"], rows(histories))
    if options.out:
        _write(Path(options.out), table, histories)
        print(f"\ntable, histories and plot: {options.out}")


if __name__ == "__main__":
    raise SystemExit(main())
