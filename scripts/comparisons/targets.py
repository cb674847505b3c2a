"""Soft labels and risk on named entities: a linear chain over hashed features, trained with each kind of target.

Three questions, each with the answers of several settings of the likelihood on the same sentences:

* labels: gold tags as they are, smoothed, and with minimum risk in the last third of the epochs;
* annotators: three of them, each of whom gives a share of the words a random tag: one alone, their majority, and the
  mean of their parts;
* teacher: a tagger with all features labels the sentences whose tags a smaller one, which knows shapes of words alone,
  does not know: without these sentences, with the teacher's best tags, with its marginals; and with the gold tags.

The table has F1 of entities on the test file and log-loss per token, mean ± standard deviation over seeds.
"""

import zlib
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scripts.shared.harness import bio, command, mean_and_spread, option
from scripts.shared.training import descend, padded
from structsmooth import LinearChain, MinimumRisk, StructuralHinge
from structsmooth.targets import soft_labels
from structsmooth.tasks import NER
from structsmooth.text.scores import entity_scores

_BUCKETS = 2**16
_BATCH = 32
_STEP = 0.03


def features(words: Sequence[str], all_of_them: bool) -> list[list[str]]:
    """Names of the features of each word: of its shape, and if wanted of itself and its neighbours."""
    around = ["", *words, ""]
    found = []
    for before, word, after in zip(around, around[1:], around[2:], strict=False):
        shape = "".join("X" if c.isupper() else "x" if c.islower() else "9" if c.isdigit() else c for c in word)
        names = [f"shape {shape[:6]}", f"end {word[-2:].lower()}", f"case {before[:1].isupper()} {after[:1].isupper()}"]
        if all_of_them:
            names += [f"word {word.lower()}", f"before {before.lower()}", f"after {after.lower()}"]
        found.append(names)
    return found


def encode(words: Sequence[str], all_of_them: bool) -> Tensor:
    """Features as numbers, [T, F]."""
    rows = features(words, all_of_them)
    return torch.tensor([[zlib.crc32(name.encode()) % _BUCKETS for name in row] for row in rows])


class Tagger(nn.Module):
    """Linear scores of hashed features, and of pairs of tags."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.weights = nn.EmbeddingBag(_BUCKETS, tags, mode="sum")
        self.transition = nn.Parameter(torch.zeros(tags, tags))
        nn.init.zeros_(self.weights.weight)

    def forward(self, sentences: Sequence[Tensor]) -> LinearChain:
        """Chains of sentences [T, F]."""
        x = padded(sentences)
        scores = self.weights(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return LinearChain(scores, self.transition, torch.tensor([len(words) for words in sentences]))


@dataclass(frozen=True)
class Data:
    """Sentences by their features, all and few, and by their tags."""

    tags: list[str]
    full: list[Tensor]
    small: list[Tensor]
    y: list[Tensor]
    test_full: list[Tensor]
    test_small: list[Tensor]
    test_y: list[Tensor]

    @classmethod
    def read(cls, train: str, test: str) -> "Data":
        """Two column files."""
        files = [NER().read(path) for path in (train, test)]
        named = [[bio(s) for s in sentences] for sentences in files]
        tags = sorted({"O"}.union(*named[0], *named[1]))
        encoded = [[[encode(s.words, full) for s in sentences] for full in (True, False)] for sentences in files]
        y = [[torch.tensor([tags.index(tag) for tag in row]) for row in sentences] for sentences in named]
        (full, small), (test_full, test_small) = encoded
        return cls(tags, full, small, y[0], test_full, test_small, y[1])


# From chains, and the numbers of their sentences, to a loss; the share of the training that is over comes last.
Loss = Callable[[LinearChain, Tensor, float], Tensor]


def fit(data: Data, sentences: list[Tensor], loss: Loss, chosen: Tensor, epochs: int, seed: int) -> Tagger:
    """A tagger by Adam, with a step size that falls linearly to zero."""
    tagger = Tagger(len(data.tags))

    def loss_of(indices: Tensor, done: float) -> Tensor:
        rows = chosen[indices]
        return loss(tagger([sentences[int(i)] for i in rows]), rows, done)

    optimizer = torch.optim.Adam(tagger.parameters(), _STEP)
    epochs = epochs * len(data.y) // len(chosen)  # as many steps as with all sentences
    generator = torch.Generator().manual_seed(seed)
    list(descend(optimizer, loss_of, len(chosen), batch=_BATCH, epochs=epochs, last=0.01, generator=generator))
    return tagger


def labels_of(y: Sequence[Tensor], rows: Tensor) -> Tensor:
    """Labels of some sentences, [B, T]."""
    return padded([y[int(i)] for i in rows])


def measure(data: Data, tagger: Tagger, sentences: list[Tensor]) -> tuple[float, float]:
    """F1 of entities in percent, and log-loss per token."""
    with torch.no_grad():
        chains = tagger(sentences)
        best = chains.max()[1]
        loss = StructuralHinge.crf("token")(chains, padded(data.test_y))
    named = [
        [[data.tags[int(j)] for j in found[: len(gold)]] for found, gold in zip(ys, data.test_y, strict=True)]
        for ys in (data.test_y, best)
    ]
    return 100 * entity_scores(*named).f1, float(loss)


def answers(data: Data, options: Any, seed: int) -> dict[str, tuple[float, float]]:
    """F1 and log-loss of every setting."""
    generator = torch.Generator().manual_seed(seed)
    crf, risk = StructuralHinge.crf(), MinimumRisk()
    everything = torch.arange(len(data.y))
    order = torch.randperm(len(data.y), generator=generator)
    few, many = order[: int(options.labelled * len(order))], order[int(options.labelled * len(order)) :]

    def gold(chain: LinearChain, rows: Tensor, done: float) -> Tensor:
        return crf(chain, labels_of(data.y, rows))

    def smoothed(epsilon: float) -> Loss:
        return lambda chain, rows, done: crf(
            chain, soft_labels(chain, labels_of(data.y, rows).unsqueeze(1), smoothing=epsilon)
        )

    def then_risk(chain: LinearChain, rows: Tensor, done: float) -> Tensor:
        return gold(chain, rows, done) if done < 2 / 3 else risk(chain, labels_of(data.y, rows))

    def careless(y: Tensor) -> Tensor:
        wrong = torch.rand(len(y), generator=generator) < options.noise
        return torch.where(wrong, torch.randint(len(data.tags), y.shape, generator=generator), y)

    annotations = [[careless(y) for y in data.y] for _ in range(3)]
    votes = [torch.stack(three).mode(0).values for three in zip(*annotations, strict=True)]

    def mean_of_annotators(chain: LinearChain, rows: Tensor, done: float) -> Tensor:
        return crf(chain, soft_labels(chain, torch.stack([labels_of(y, rows) for y in annotations], 1)))

    def labelled(y: Sequence[Tensor]) -> Loss:
        return lambda chain, rows, done: crf(chain, labels_of(y, rows))

    run = partial(fit, data, epochs=options.epochs, seed=seed)
    teacher = run(data.full, gold, everything)
    with torch.no_grad():
        taught = [teacher([x]) for x in data.full]
        best = [chain.max()[1][0] for chain in taught]
    known = set(few.tolist())
    mixed = [y if i in known else guess for i, (y, guess) in enumerate(zip(data.y, best, strict=True))]

    def distilled(chain: LinearChain, rows: Tensor, done: float) -> Tensor:
        with torch.no_grad():
            statistics = teacher([data.full[int(i)] for i in rows]).marginals()
        is_gold = torch.tensor([int(i) in known for i in rows])
        parts = chain.detach().parts(labels_of(data.y, rows))
        pairs = zip(parts, statistics, strict=True)
        return crf(chain, tuple(torch.where(is_gold.view(-1, *[1] * (p.dim() - 1)), p, m) for p, m in pairs))

    full, small = data.full, data.small
    found = {
        "labels: gold": (teacher, True),
        "labels: smoothed by 0.02": (run(full, smoothed(0.02), everything), True),
        "labels: smoothed by 0.1": (run(full, smoothed(0.1), everything), True),
        "labels: gold, then minimum risk": (run(full, then_risk, everything), True),
        "annotators: one": (run(full, labelled(annotations[0]), everything), True),
        "annotators: majority": (run(full, labelled(votes), everything), True),
        "annotators: mean": (run(full, mean_of_annotators, everything), True),
        "teacher: none": (run(small, gold, few), False),
        "teacher: best tags": (run(small, labelled(mixed), torch.cat([few, many])), False),
        "teacher: marginals": (run(small, distilled, torch.cat([few, many])), False),
        "teacher: gold instead": (run(small, gold, everything), False),
    }
    return {
        name: measure(data, tagger, data.test_full if is_full else data.test_small)
        for name, (tagger, is_full) in found.items()
    }


@command(
    option("--train", NER.default_files()["train"], "sentences in CoNLL columns"),
    option("--test", NER.default_files()["test"], "sentences in CoNLL columns"),
    option("--epochs", 12, "passes over the sentences"),
    option("--noise", 0.2, "share of random tags of an annotator"),
    option("--labelled", 0.1, "share of the sentences with tags"),
    option("--seeds", 3, "number of seeds"),
    threads=None,
    table=["targets", "F1, %", "log-loss per token"],
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each setting."""
    data = Data.read(options.train, options.test)
    runs = [answers(data, options, seed) for seed in range(options.seeds)]
    measured = {name: zip(*(run[name] for run in runs), strict=True) for name in runs[0]}
    for name, (f1, loss) in measured.items():
        yield [name, mean_and_spread(f1, 1), mean_and_spread(loss, 3)]
