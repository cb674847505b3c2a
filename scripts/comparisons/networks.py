"""Solvers on two networks under a chain, each with as many oracle calls.

"words" tags words by a convolution over learned embeddings; "letters" recognizes the letters of handwritten words by a
small perceptron. Every run gets the same number of oracle calls for each training example, searches for step sizes
included; measured are the weights of the last pass within them. Each table has one measure, as median over seeds: the
objective on training examples, the share of right labels on test examples, and seconds without evaluation. Runs are
kept as they end: after a stop of any kind the same command goes on.

Solvers are written as for structsmooth compare. Step sizes of the default list are powers of ten, chosen by the
objective of each network with one seed: of 400 sentences, and of the words of fold 0 of the letters.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from scripts.shared.comparing import Measure, compare, comparison_options
from scripts.shared.harness import command, files, option
from structsmooth import LinearChain, ModuleProblem, ScoreModule
from structsmooth.problems import Problem
from structsmooth.tasks import NER, OCR
from structsmooth.tasks.ocr.letters import ALPHABET, PIXELS
from structsmooth.text.corpus import Sentence

Example = tuple[Tensor, Tensor]
"""Inputs of tokens, [T] or [T, F], and their labels [T]."""

_TUNED = {
    "words": {"constant": 0.1, "inverse-sqrt": 0.1, "inverse": 1, "adam": 0.001},
    "letters": {"constant": 0.1, "inverse-sqrt": 10, "inverse": 10, "adam": 0.001},
}
_MEASURES = {"objective": "{:.4f}", "accuracy": "{:.4f}", "seconds": "{:.0f}"}
# Words that the training data has fewer times share an embedding.
_FREQUENT = 2
_PADDING, _RARE = 0, 1


class NetworkTagger(ScoreModule):
    """A network scores the labels of every token, and transitions are learned.

    Args:
        network: maps inputs [B, T] or [B, T, F] to scores [B, T, S]; it must not carry padding into a sequence.
        states: number S of labels.
    """

    def __init__(self, network: nn.Module, states: int) -> None:
        super().__init__()
        self.network, self.transition = network, nn.Parameter(torch.zeros(states, states))

    def forward(self, x: tuple[Tensor, Tensor]) -> LinearChain:
        """Chains over inputs with their lengths [B]."""
        inputs, lengths = x
        return LinearChain(self.network(inputs), self.transition, lengths)


class Transposed(nn.Module):
    """A layer over sequences [B, channels, T], for inputs [B, T, channels]."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, [B, T, channels]."""
        output: Tensor = self.layer(x.transpose(1, 2)).transpose(1, 2)
        return output


def words(paths: Mapping[str, str]) -> tuple[list[Example], list[Example], Callable[[], NetworkTagger]]:
    """Tagged words of two column files, and their network."""
    training, testing = NER().read(paths["train"]), NER().read(paths["test"])
    counts = Counter(word for sentence in training for word in sentence.words)
    frequent = [word for word, count in counts.items() if count >= _FREQUENT]
    ids = {word: number for number, word in enumerate(frequent, start=_RARE + 1)}
    tags = sorted({tag for sentence in [*training, *testing] for tag in sentence.tags or ()})

    def encoded(sentences: Sequence[Sentence]) -> list[Example]:
        return [
            (
                torch.tensor([ids.get(word, _RARE) for word in sentence.words]),
                torch.tensor([tags.index(tag) for tag in sentence.tags or ()]),
            )
            for sentence in sentences
        ]

    def network() -> NetworkTagger:
        embedding = nn.Embedding(_RARE + 1 + len(ids), 32, padding_idx=_PADDING)
        nn.init.normal_(embedding.weight[_PADDING + 1 :], std=0.1)  # the regularizer would dwarf losses at 1
        convolution = Transposed(nn.Conv1d(32, 64, 3, padding=1))
        return NetworkTagger(nn.Sequential(embedding, convolution, nn.ELU(), nn.Linear(64, len(tags))), len(tags))

    return encoded(training), encoded(testing), network


def letters(paths: Mapping[str, str]) -> tuple[list[Example], list[Example], Callable[[], NetworkTagger]]:
    """Handwritten words of two archives, and their network."""

    def encoded(path: str) -> list[Example]:
        read = ((word.pixels, word.text or "") for word in OCR().read(path))
        return [(torch.from_numpy(x).float(), torch.tensor([ALPHABET.index(y) for y in text])) for x, text in read]

    def network() -> NetworkTagger:
        layers = nn.Sequential(nn.Linear(PIXELS, 64), nn.ELU(), nn.Linear(64, len(ALPHABET)))
        return NetworkTagger(layers, len(ALPHABET))

    return encoded(paths["train"]), encoded(paths["test"]), network


NETWORKS: Mapping[str, tuple[Any, Any]] = {"words": (NER, words), "letters": (OCR, letters)}


def collate(examples: list[Example]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Sequences of different lengths as one batch."""
    inputs, labels = zip(*examples, strict=True)
    lengths = torch.tensor([len(y) for y in labels])
    return (pad_sequence(list(inputs), batch_first=True), lengths), pad_sequence(list(labels), batch_first=True)


def accuracy(problem: ModuleProblem) -> float:
    """Share of right labels under the module's own parameters."""
    right = total = 0
    for batch in problem.chunks():
        x, y = problem.batch(batch)
        assert isinstance(y, Tensor)
        with torch.no_grad():
            chain = problem.module(x)
        right, total = right + int(((chain.max()[1] == y) & chain.mask).sum()), total + int(chain.mask.sum())
    return right / total


def default_solvers(tuned: Mapping[str, float]) -> list[str]:
    """Solvers to compare, given tuned step sizes of the baselines."""
    schedules = ("constant", "inverse-sqrt", "inverse")
    baselines = [f"sgd:schedule={name},learning_rate={tuned[name]},average=false" for name in schedules]
    return [
        "incremental-prox-linear",
        "prox-linear:inner=casimir-svrg:schedule=constant:k=10",
        *baselines,
        f"adam:learning_rate={tuned['adam']}",
    ]


def columns(options: Namespace) -> Iterator[tuple[str, Callable[[int], tuple[Problem, Measure]]]]:
    """The network with the initial weights of a seed, and the share of right labels on test examples."""
    task, read = NETWORKS[options.network]
    train, test, network = read(files(options, task))

    def prepared(seed: int) -> tuple[Problem, Measure]:
        torch.manual_seed(seed)
        problem = ModuleProblem(network(), train[: options.limit], batch_size=options.batch_size, collate=collate)

        def measure(w: Tensor) -> dict[str, float]:
            problem.load(w)
            return {"accuracy": accuracy(ModuleProblem(problem.module, test, collate=collate))}

        return problem, measure

    yield options.network, prepared


@command(
    option("network", None, choices=NETWORKS),
    *comparison_options("training examples", "runs/compare-networks"),
    option("--batch-size", 8, "examples per step"),
    threads=None,
)
def main(options: Namespace) -> None:
    """Compare solvers on one of the networks."""
    solvers, title = default_solvers(_TUNED[options.network]), "{} after {} oracle calls an example, λ = {}"
    compare(options, partial(columns, options), solvers, _MEASURES, title.format("{}", options.calls, options.lam))
