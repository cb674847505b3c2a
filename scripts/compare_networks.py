"""Solvers on two networks under a chain, each with as many oracle calls.

"words" tags words by a convolution over learned embeddings; "letters" recognizes the letters of handwritten words by a
small perceptron. Every run gets the same number of oracle calls for each training example, searches for step sizes
included; measured are the weights of the last pass within them. Each table has one measure, as median over seeds: the
objective on training examples, the share of right labels on test examples, and seconds without evaluation. Runs are
kept as they end: after a stop of any kind the same command goes on.

Solvers are written as for structsmooth compare. Step sizes of the default list are powers of ten, chosen by the
objective of each network with one seed: of 400 sentences, and of the words of fold 0 of the letters.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from scripts.compare_localization import add_comparison_flags, check_settings, run, start, table
from structsmooth import History, LinearChain, ModuleProblem, ScoreModule
from structsmooth.checkpoint import write_atomic
from structsmooth.cli.flags import parse_solvers
from structsmooth.solvers.checks import parse_lam
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


# With the inner solver of the paper.
_PROX_LINEAR = "prox-linear:inner=casimir-svrg:schedule=constant:k=10"


def words(train: str | None, test: str | None) -> tuple[list[Example], list[Example], Callable[[], NetworkTagger]]:
    """Tagged words of two column files, those of the library if none are given, and their network."""
    files = NER.default_files()
    training, testing = NER().read(train or files["train"]), NER().read(test or files["test"])
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


def letters(train: str | None, test: str | None) -> tuple[list[Example], list[Example], Callable[[], NetworkTagger]]:
    """Handwritten words of two archives, or of folds of the data folder's, and their network."""
    files = OCR.default_files() if train is None or test is None else {"train": train, "test": test}

    def encoded(path: str) -> list[Example]:
        read = ((word.pixels, word.text or "") for word in OCR().read(path))
        return [(torch.from_numpy(x).float(), torch.tensor([ALPHABET.index(y) for y in text])) for x, text in read]

    def network() -> NetworkTagger:
        layers = nn.Sequential(nn.Linear(PIXELS, 64), nn.ELU(), nn.Linear(64, len(ALPHABET)))
        return NetworkTagger(layers, len(ALPHABET))

    return encoded(files["train"]), encoded(files["test"]), network


NETWORKS = {"words": words, "letters": letters}


def collate(examples: list[Example]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Sequences of different lengths as one batch."""
    inputs, labels = zip(*examples, strict=True)
    lengths = torch.tensor([len(own) for own in labels])
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


def compare(options: Namespace) -> None:
    """Make the runs that are missing, and print the tables."""
    solvers = parse_solvers(options.solvers or default_solvers(_TUNED[options.network]))
    train, test, network = NETWORKS[options.network](options.train, options.test)
    check_settings(options)
    reached: dict[tuple[str, str], list[History]] = {}
    for seed, (name, solver) in product(options.seeds, solvers.items()):
        torch.manual_seed(seed)
        problem = ModuleProblem(network(), train[: options.limit], batch_size=options.batch_size, collate=collate)
        path = Path(options.out, f"{options.network}-{name}-{options.calls}calls-{seed}.jsonl")
        if not path.exists():
            budget = run(solver, problem, parse_lam(options.lam, problem.n), options.calls, seed)
            problem.load(budget.weights)
            budget.history[-1].metrics["accuracy"] = accuracy(ModuleProblem(problem.module, test, collate=collate))
            write_atomic(path, budget.history.to_json_lines())
        reached.setdefault((name, options.network), []).append(History.load(path))
    for measure, layout in _MEASURES.items():
        print(f"\n{measure} after {options.calls} oracle calls an example, λ = {options.lam}\n")
        print(table(reached, list(solvers), [options.network], measure, layout), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare solvers on one of the networks."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--train", metavar="FILE", help="as of structsmooth train ner, or ocr")
    parser.add_argument("--test", metavar="FILE", help="likewise; both or none")
    add_comparison_flags(parser, "training examples", "runs/compare-networks")
    parser.add_argument("--batch-size", type=int, default=8, help="examples per step (default: 8)")
    start(parser, compare, arguments)


if __name__ == "__main__":
    main()
