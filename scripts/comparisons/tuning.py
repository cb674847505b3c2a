"""Solvers on the last layers of a pretrained encoder and its head, for tags or trees: AdamW beside prox-linear steps.

All begin with the same weights w_0, and learn by the hinge. Solvers minimize F(w), the mean hinge plus
(λ/2)‖w − w_0‖², without dropout. AdamW has dropout and no regularizer, and its steps fall in the epochs that it has:
for tags it is what --tune last:K does, by each loss that is asked for. A row has calls of the oracle for each training
sentence, CPU seconds of one thread without measuring, F of the weights, and the score of the best outputs for the test
file: F1 of entities, or of files with the suffix .conllu or .conllu.gz the labelled attachment score of trees that a
biaffine head scores. Solvers go on, and have a row at the first pass that has made so many calls; AdamW has a run of so
many epochs.
"""

import time
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pad_sequence

from scripts.comparisons.train_networks import Encoded, predicted
from scripts.shared.harness import command, cpu_clock, option, reading
from scripts.shared.training import Trees
from structsmooth import Hamming, ModuleProblem, ScoreModule, SpanningTree
from structsmooth.cli.flags import parse_solvers
from structsmooth.costs import Cost
from structsmooth.encoders import PretrainedEncoder
from structsmooth.encoders.tuning import LOSSES, Network, Tagged, Tuning, tune
from structsmooth.experiments import RunFolder
from structsmooth.settings import parse_lam
from structsmooth.solvers import Progress, Stop
from structsmooth.structures import Structure
from structsmooth.tasks import NER
from structsmooth.text.corpus import Corpus


class Case(ABC):
    """What is learned by some weights over an encoder, and how it is measured.

    Attributes:
        options: of the command.
        targets: known outputs of training sentences.
        cost: of mistakes in them.
    """

    options: Namespace
    targets: Sequence[Tensor]
    cost: Cost

    @abstractmethod
    def network(self) -> Any:
        """An encoder under a head, with first weights, of which the last layers and the head learn."""

    @abstractmethod
    def structure(self, network: Any, numbers: list[int]) -> Structure:
        """The outputs of some training sentences."""

    @abstractmethod
    def score(self, network: Any) -> float:
        """Of the best outputs of test sentences, in percent."""

    @abstractmethod
    def adamw(self, loss: Any, epochs: int) -> tuple[list[Tensor], float]:
        """What some epochs of AdamW learn, and CPU seconds without measuring."""

    def problem(self, network: nn.Module) -> ModuleProblem:
        """F without the regularizer, in v."""
        batch = self.options.batch

        def collate(examples: list[tuple[int, Tensor]]) -> tuple[list[int], Tensor]:
            numbers, outputs = zip(*examples, strict=True)
            return list(numbers), pad_sequence(list(outputs), batch_first=True)

        module = Displaced(Outputs(self, network))
        return ModuleProblem(module, list(enumerate(self.targets)), self.cost, batch, collate, chunk_size=batch)

    def copy_of(self, values: Sequence[Tensor]) -> Any:
        """A network with values of what learns."""
        network = self.network()
        with torch.no_grad():
            for parameter, value in zip(learned(network), values, strict=True):
                parameter.copy_(value)
        return network

    def row(self, name: str, calls: float, seconds: float, objective: float, network: nn.Module) -> list[str]:
        """A row of the table."""
        return [name, f"{calls:.0f}", f"{seconds:.0f}", f"{objective:.3f}", f"{self.score(network):.1f}"]


def learned(network: nn.Module) -> list[nn.Parameter]:
    """The parameters that learn."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


class Outputs(nn.Module):
    """The outputs of training sentences, by their numbers."""

    def __init__(self, case: Case, network: nn.Module) -> None:
        super().__init__()
        self.case, self.network = case, network

    def forward(self, numbers: list[int]) -> Structure:
        """The outputs of some sentences."""
        return self.case.structure(self.network, numbers)


class Displaced(ScoreModule):
    """Outputs under the weights w_0 + v, for weights v that are zero at first."""

    def __init__(self, outputs: Outputs) -> None:
        super().__init__()
        self.first = {name: p.detach() for name, p in outputs.named_parameters() if p.requires_grad}
        self.displacements = nn.ParameterList(map(torch.zeros_like, self.first.values()))
        self.outputs = outputs.requires_grad_(False)

    def forward(self, numbers: list[int]) -> Structure:
        """The outputs of some sentences."""
        pairs = zip(self.first.items(), self.displacements, strict=True)
        moved = {name: p + v for (name, p), v in pairs}
        structure: Structure = functional_call(self.outputs, moved, (numbers,))
        return structure


class TagCase(Case):
    """Chains of tags: what ``--tune`` learns."""

    def __init__(self, options: Namespace) -> None:
        task = NER(words_only=True)
        train, self.test = Corpus.of(task.read(options.train)), Corpus.of(task.read(options.test, "test"))
        self.train = train.part(range(min(options.sentences, len(train))))
        self.test = self.test.part(range(min(options.measured, len(self.test))))
        self.options, self.fitted = options, cast(Any, task.fit(self.train))
        self.cost = self.fitted.task.cost
        self.read = self.tagged(self.network(), self.train)
        self.targets = self.read.states

    def settings(self, loss: Any = "hinge", epochs: int = 1) -> Tuning:
        """How AdamW tunes."""
        options = self.options
        return Tuning(options.last, epochs, options.batch, options.step, "fp32", options.seed, loss)

    def network(self) -> Network:
        """The network that ``--tune`` makes."""
        encoder = PretrainedEncoder.own(self.options.encoder)
        cast(Any, encoder.network).set_attn_implementation("eager")  # which has second derivatives
        torch.manual_seed(self.options.seed)
        return Network(encoder, self.fitted.tagger.tags, self.settings(), self.cost).eval()

    def structure(self, network: Network, numbers: list[int]) -> Structure:
        """Their chains."""
        return network.chain(self.read, numbers)

    def tagged(self, network: Network, sentences: Corpus) -> Tagged:
        """Sentences as the network reads them."""
        return Tagged.of(network.encoder, sentences, self.fitted.states(sentences), 0)

    def score(self, network: Network) -> float:
        """F1 of entities."""
        found = network.predicted(self.tagged(network, self.test))
        return 100 * float(self.fitted.measure(self.test, found)[0]["f1"])

    def adamw(self, loss: Any, epochs: int) -> tuple[list[Tensor], float]:
        """By the function behind ``--tune``."""
        reached, seconds = list[Tensor](), list[float]()

        def measure(trained: Network) -> tuple[float, dict[str, float]]:
            seconds.append(time.process_time())
            reached[:] = [p.detach().clone() for p in learned(trained)]
            return float(len(seconds)), {}

        encoder, tags, how = self.network().encoder, self.fitted.tagger.tags, self.settings(loss, epochs)
        started = time.process_time()
        with TemporaryDirectory() as folder:
            tune(encoder, tags, self.read, how, RunFolder(Path(folder)), cost=self.cost, measure=measure)
        return reached, seconds[-1] - started


class TreeCase(Case):
    """Dependency trees with relations, whose arcs may cross, under a biaffine head."""

    def __init__(self, options: Namespace) -> None:
        self.job = Trees.read(options.train, options.test, options.sentences)
        self.job.test = self.job.test[: options.measured]
        # Step sizes of --tune; trees have no pairs of tags.
        rates = {"encoder_rate": options.step, "head_rate": 10 * options.step, "transition_rate": 0.0}
        self.options, self.cost = Namespace(**vars(options), **rates, mu=1.0, k=5), Hamming()
        coding = SpanningTree(torch.zeros(1, 1, 1), torch.zeros(1, 1), torch.zeros(1, 1, 1, len(self.job.relations)))
        self.targets = [coding.encoded(heads, names) for heads, names in map(self.job.numbers, self.job.train)]

    def network(self) -> Encoded:
        """An encoder under a biaffine head."""
        torch.manual_seed(self.options.seed)
        network = Encoded(self.job, self.options, "hinge", self.options.seed)
        body = network.words.encoder
        body.set_attn_implementation("eager")  # which has second derivatives
        body.requires_grad_(False)
        PretrainedEncoder(network.words.tokenizer, body, "").layers[-self.options.last :].requires_grad_(True)
        return network.eval()

    def structure(self, network: Encoded, numbers: list[int]) -> Structure:
        """Their trees."""
        trees: Structure = network([self.job.train[i] for i in numbers])
        return trees

    def score(self, network: Encoded) -> float:
        """The labelled attachment score."""
        return self.job.measures(list(predicted(network.eval(), self.job, "hinge")))["LAS"]

    def adamw(self, loss: Any, epochs: int) -> tuple[list[Tensor], float]:
        """With dropout, and steps that fall linearly."""
        network = self.network().train()
        network.options = Namespace(**vars(self.options) | {"epochs": epochs})
        started = time.process_time()
        for _ in network.epochs(self.job, loss.replace("-", "_")):
            pass
        return [p.detach() for p in learned(network)], time.process_time() - started


def solved(case: Case, name: str, solver: Any) -> list[list[str]]:
    """A row for each number of calls."""
    problem, found = case.problem(case.network()), list[list[str]]()
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
        moved = case.copy_of([p + v for p, v in pairs])
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


def tuned(case: Case, loss: Any, epochs: int) -> list[str]:
    """AdamW, for so many epochs."""
    reached, seconds = case.adamw(loss, epochs)
    network = case.network()
    problem, first = case.problem(network), [p.detach() for p in learned(case.network())]
    v = torch.cat([(new - old).flatten() for new, old in zip(reached, first, strict=True)])
    objective = problem.loss(v) + parse_lam(case.options.lam, problem.n) / 2 * float(v.square().sum())
    return case.row(f"AdamW, {loss}", epochs, seconds, objective, case.copy_of(reached))


@command(
    option("--encoder", None, "a model and tokenizer of transformers", required=True, metavar="DIR"),
    option("--train", NER.default_files()["train"], "columns, or a treebank", metavar="FILE"),
    option("--test", NER.default_files()["test"], "columns, or a treebank", metavar="FILE"),
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
    table=("solver", "calls", "seconds", "F", "score"),
)
def main(options: Namespace) -> Iterator[list[str]]:
    """Rows of AdamW, and of solvers."""
    is_treebank = options.train.removesuffix(".gz").endswith(".conllu")
    with reading():
        case: Case = TreeCase(options) if is_treebank else TagCase(options)
    for loss in options.losses:
        for epochs in options.calls:
            yield tuned(case, loss, epochs)
    for name, solver in parse_solvers(options.solvers).items():
        yield from solved(case, name, solver)
