"""Solvers on the last layers of a pretrained encoder and its head: AdamW beside prox-linear steps.

All begin with the same weights w_0, and learn under a chain by the hinge. Solvers minimize F(w), the mean hinge plus
(λ/2)‖w − w_0‖², without dropout. AdamW is what --tune last:K does, by each loss that is asked for: with dropout, with
steps that rise and fall in the epochs that it has, and without the regularizer. A row has calls of the oracle for each
training sentence, CPU seconds of one thread without measuring, F of the weights, and F1 of the best tags of the test
file. Solvers go on, and have a row at the first pass that has made so many calls; AdamW has a run of so many epochs.
"""

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pad_sequence

from scripts.shared.harness import command, cpu_clock, option
from structsmooth import LinearChain, ModuleProblem, ScoreModule
from structsmooth.cli.flags import parse_solvers
from structsmooth.encoders import PretrainedEncoder
from structsmooth.encoders.tuning import LOSSES, Network, Tagged, Tuning, tune
from structsmooth.experiments import RunFolder
from structsmooth.settings import parse_lam
from structsmooth.solvers import Progress, Stop
from structsmooth.tasks import NER
from structsmooth.text.corpus import Corpus


class Chains(nn.Module):
    """The chains of sentences, by their numbers."""

    def __init__(self, network: Network, tagged: Tagged) -> None:
        super().__init__()
        self.network, self.tagged = network, tagged

    def forward(self, numbers: list[int]) -> LinearChain:
        """The chains of some sentences."""
        return self.network.chain(self.tagged, numbers)


class Displaced(ScoreModule):
    """Chains under the weights w_0 + v, for weights v that are zero at first."""

    def __init__(self, chains: Chains) -> None:
        super().__init__()
        self.first = {name: p.detach() for name, p in chains.named_parameters() if p.requires_grad}
        self.displacements = nn.ParameterList(map(torch.zeros_like, self.first.values()))
        self.chains = chains.requires_grad_(False)

    def forward(self, numbers: list[int]) -> LinearChain:
        """The chains of some sentences."""
        pairs = zip(self.first.items(), self.displacements, strict=True)
        chain: LinearChain = functional_call(self.chains, {name: p + v for (name, p), v in pairs}, (numbers,))
        return chain


class Case(NamedTuple):
    """What is learned, and how it is measured."""

    fitted: Any
    train: Corpus
    test: Corpus
    options: Namespace

    def network(self, loss: Any = "hinge", epochs: int = 1) -> tuple[PretrainedEncoder, Tuning, Network]:
        """An encoder with the first weights of its head, and how AdamW tunes it."""
        encoder, options = PretrainedEncoder.own(self.options.encoder), self.options
        cast(Any, encoder.network).set_attn_implementation("eager")  # which has second derivatives
        how = Tuning(options.last, epochs, options.batch, options.step, "fp32", options.seed, loss)
        torch.manual_seed(options.seed)
        return encoder, how, Network(encoder, self.fitted.tagger.tags, how, self.fitted.task.cost).eval()

    def problem(self, network: Network) -> ModuleProblem:
        """F without the regularizer, in v."""
        tagged = self.tagged(network, self.train)
        data = list(enumerate(tagged.states))
        batch = self.options.batch

        def collate(examples: list[tuple[int, Tensor]]) -> tuple[list[int], Tensor]:
            numbers, states = zip(*examples, strict=True)
            return list(numbers), pad_sequence(list(states), batch_first=True)

        module = Displaced(Chains(network, tagged))
        return ModuleProblem(module, data, self.fitted.task.cost, batch, collate, chunk_size=batch)

    def tagged(self, network: Network, sentences: Corpus) -> Tagged:
        """Sentences as the network reads them."""
        return Tagged.of(network.encoder, sentences, self.fitted.states(sentences), 0)

    def f1(self, network: Network) -> float:
        """F1 of the best tags of test sentences, in percent."""
        found = network.predicted(self.tagged(network, self.test))
        return 100 * float(self.fitted.measure(self.test, found)[0]["f1"])

    def row(self, name: str, calls: float, seconds: float, objective: float, network: Network) -> list[str]:
        """A row of the table."""
        return [name, f"{calls:.0f}", f"{seconds:.0f}", f"{objective:.3f}", f"{self.f1(network):.1f}"]


def solved(case: Case, name: str, solver: Any) -> list[list[str]]:
    """A row for each number of calls."""
    _, _, network = case.network()
    problem, found = case.problem(network), list[list[str]]()
    first = cast(Displaced, problem.module).first.values()
    lam = parse_lam(case.options.lam, problem.n)
    left = sorted(case.options.calls)

    def measure(progress: Progress[Any]) -> None:
        calls = progress.row.oracle_calls / problem.n
        if calls < left[0]:
            return
        while left and calls >= left[0]:
            left.pop(0)
        pairs = zip(first, displacements(problem, progress.state.weights), strict=True)
        moved = copy_of(case, [p + v for p, v in pairs])
        found.append(case.row(name, calls, progress.row.seconds, progress.row.objective, moved))
        if not left:
            raise Stop

    with cpu_clock():
        solver.solve(problem, lam=lam, passes=max(left), seed=case.options.seed, callbacks=[measure])
    return found


def displacements(problem: ModuleProblem, v: Tensor) -> Iterator[Tensor]:
    """The parameters of a problem that weights [dim] stand for."""
    sizes = [p.numel() for p in problem.parameters.values()]
    shapes = (p.shape for p in problem.parameters.values())
    return (piece.view(shape) for piece, shape in zip(v.split(sizes), shapes, strict=True))


def copy_of(case: Case, values: list[Tensor]) -> Network:
    """A network with values of what is trained."""
    _, _, network = case.network()
    with torch.no_grad():
        for parameter, value in zip((p for p in network.parameters() if p.requires_grad), values, strict=True):
            parameter.copy_(value)
    return network


def tuned(case: Case, loss: Any, epochs: int) -> list[str]:
    """AdamW, for so many epochs."""
    encoder, how, network = case.network(loss, epochs)
    first = [p.detach().clone() for p in network.parameters() if p.requires_grad]
    reached, seconds = list[Tensor](), list[float]()

    def measure(trained: Network) -> tuple[float, dict[str, float]]:
        seconds.append(time.process_time())
        reached[:] = [p.detach().clone() for p in trained.parameters() if p.requires_grad]
        return float(len(seconds)), {}

    started = time.process_time()
    with TemporaryDirectory() as folder:
        tagged = case.tagged(network, case.train)
        cost = case.fitted.task.cost
        tune(encoder, case.fitted.tagger.tags, tagged, how, RunFolder(Path(folder)), cost=cost, measure=measure)
    spent = seconds[-1] - started
    trained = copy_of(case, reached)
    problem = case.problem(case.network()[2])
    v = torch.cat([(new - old).flatten() for new, old in zip(reached, first, strict=True)])
    objective = problem.loss(v) + parse_lam(case.options.lam, problem.n) / 2 * float(v.square().sum())
    return case.row(f"AdamW, {loss}", epochs, spent, objective, trained)


def rows(options: Namespace) -> Iterator[list[str]]:
    """Those of solvers, and of AdamW."""
    task = NER(words_only=True)
    train, test = Corpus.of(task.read(options.train)), Corpus.of(task.read(options.test, "test"))
    train, test = (
        data.part(range(min(n, len(data)))) for data, n in ((train, options.sentences), (test, options.measured))
    )
    case = Case(task.fit(train), train, test, options)
    for loss in options.losses:
        for epochs in options.calls:
            yield tuned(case, loss, epochs)
    for name, solver in parse_solvers(options.solvers).items():
        yield from solved(case, name, solver)


@command(
    option("--encoder", None, "a model and tokenizer of transformers", required=True, metavar="DIR"),
    option("--train", NER.default_files()["train"], "columns", metavar="FILE"),
    option("--test", NER.default_files()["test"], "columns", metavar="FILE"),
    option("--sentences", 300, "first sentences to train on", least=1),
    option("--measured", 1000, "first sentences of the test file to measure on", least=1),
    option("--last", 1, "layers that learn", least=1),
    option("--calls", [5, 15, 45], "of the oracle for each sentence", least=1),
    option("--lam", "1/n", "λ, a number or c/n", metavar="C"),
    option("--losses", ["crf", "hinge"], "of AdamW", choices=LOSSES),
    option(
        "--solvers",
        ["incremental-prox-linear", "prox-linear:inner=bcfw", "prox-linear"],
        "as structsmooth compare takes them",
    ),
    option("--batch", 16, "sentences of a step", least=1),
    option("--step", 2e-4, "largest step size of AdamW in the encoder", least=0, above=True),
    option("--seed", 0, "of first weights and orders", least=0),
    table=("solver", "calls", "seconds", "F", "F1"),
)
def main(options: Namespace) -> Iterator[list[str]]:
    """Print the table."""
    return rows(options)


if __name__ == "__main__":
    raise SystemExit(main())
