"""The outputs of one example of a program problem, as a structure."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures import SpanningTree, Structure
from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder, cached_program
from structsmooth.structures.programs.program import program_of


class PartScores(DynamicProgram):
    """Derivations of a program, bound to scores [1, P] of the parts of one example.

    An output is the numbers of its parts within the example, in rising order, [1, m]; with -1 in front where it has
    fewer than m.

    Args:
        scores: [1, P].
        program: the program.
        places: the score of the program that each part is, int64 [P].
        root: the root node of the example.
        length: m.
    """

    potential_names = ("scores",)

    def __init__(self, scores: Tensor, program: Program, places: Tensor, root: int, length: int) -> None:
        self.scores, self.places, self.length = scores, places, length
        self._program, self._root = program, int((program.roots == root).argmax())
        super().__init__(validate_args=False)

    def program(self) -> Program:
        """The program of all examples."""
        return self._program

    def program_scores(self) -> Tensor:
        """Scores of the program: -inf for those that are no parts of the example."""
        forbidden = self.scores.new_full((len(self.scores), self._program.scores), -torch.inf)
        return forbidden.scatter(1, self.places.expand_as(self.scores), self.scores)

    def sizes(self) -> Tensor:
        """The number, [1], of the root of the example among the roots of the program."""
        return torch.full((len(self.scores),), self._root)

    def derivation(self, y: Tensor) -> Tensor:
        """The numbers of the parts of outputs among the program's scores; where there is no part, their count."""
        return torch.where(y >= 0, self.places[y.clamp_min(0)], self._program.scores)

    def outputs(self, used: Tensor) -> Tensor:
        """The parts of outputs, in rising order with -1 in front, given the program's scores that derivations use."""
        parts = torch.full((self._program.scores + 1,), -1)
        parts[self.places] = torch.arange(len(self.places))
        y = parts[used].sort(-1)[0]
        missing = self.length - y.shape[-1]
        return torch.nn.functional.pad(y, (missing, 0), value=-1) if missing > 0 else y[..., -self.length :]


class BothOutputs(Structure):
    """Pairs of outputs of two structures over the parts of one example: the first ones of it, and the others.

    Outputs are those of :class:`PartScores`.

    Args:
        scores: [1, P].
        first: the first structure as a function of its scores [1, P'], and the other one of the others.
        count: P'.
    """

    potential_names = ("scores",)

    def __init__(
        self, scores: Tensor, first: Callable[[Tensor], Structure], second: Callable[[Tensor], Structure], count: int
    ) -> None:
        self.scores, self.first, self.second, self.count = scores, first, second, count
        super().__init__(validate_args=False)

    def _both(self) -> tuple[Structure, Structure]:
        return self.first(self.scores[:, : self.count]), self.second(self.scores[:, self.count :])

    def score(self, y: Tensor) -> Tensor:
        """Scores of outputs."""
        return torch.where(y >= 0, self.scores.gather(1, y.clamp_min(0)), 0.0).sum(1)

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """How often outputs have each part."""
        count = self.scores.shape[1]
        ones = self.scores.new_ones(y.shape)
        sums = self.scores.new_zeros(len(y), count + 1).scatter_add(1, torch.where(y >= 0, y, count), ones)
        return (sums[:, :count],)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """The best sums of entries of two lists."""
        (values, y), (others, other_y) = (structure.topk(k) for structure in self._both())
        sums, order = (values[:, :, None] + others[:, None]).flatten(1).sort(dim=1, descending=True, stable=True)
        order = order[:, :k]
        pairs = [y[0, order // k], torch.where(other_y >= 0, other_y + self.count, -1)[0, order % k]]
        found = torch.cat(pairs, 2)
        return sums[:, :k], torch.where((sums[:, :k] > -torch.inf).unsqueeze(2), found, 0)

    def logsumexp(self) -> Tensor:
        """The log-partition function: the sum of those of both structures."""
        first, second = (structure.logsumexp() for structure in self._both())
        return first + second

    def marginals(self) -> tuple[Tensor, ...]:
        """Probabilities of the parts of the program and of those beside it."""
        return (torch.cat([structure.marginals()[0] for structure in self._both()], 1),)


class ArcScores(Structure):
    """Spanning trees of a sentence of n words, bound to scores [1, n²] of its arcs, in the order of ``arcs_of``.

    Outputs are those of :class:`PartScores`.
    """

    potential_names = ("scores",)

    def __init__(self, scores: Tensor, words: int, single_root: bool) -> None:
        self.scores, self.words, self.single_root = scores, words, single_root
        super().__init__(validate_args=False)

    def _tree(self) -> SpanningTree:
        m, place = torch.arange(self.words)[:, None], torch.arange(self.words)
        heads = place + (place > m)
        square = self.scores.new_zeros(len(self.scores), self.words, self.words + 1)
        index = heads.expand(len(self.scores), -1, -1)
        arcs = square.scatter(2, index, self.scores.view(-1, self.words, self.words)).transpose(1, 2)
        return SpanningTree(arcs[:, 1:], arcs[:, 0], single_root=self.single_root, validate_args=False)

    def score(self, y: Tensor) -> Tensor:
        """Scores of outputs."""
        place = y % self.words
        return self._tree().score(place + (place > torch.arange(self.words)))

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Which arcs outputs have."""
        return (torch.zeros_like(self.scores).scatter(1, y, 1.0),)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """The k best trees."""
        values, heads = self._tree().topk(k)
        m = torch.arange(self.words)
        y = m * self.words + heads - (heads > m).long()
        return values, torch.where((values > -torch.inf).unsqueeze(2), y, 0)

    def logsumexp(self) -> Tensor:
        """Log-partition function."""
        return self._tree().logsumexp()

    def marginals(self) -> tuple[Tensor, ...]:
        """Probabilities of arcs."""
        arcs, root = self._tree().marginals()
        whole = torch.cat([root.unsqueeze(1), arcs], 1).transpose(1, 2)
        return (whole[:, ~torch.eye(self.words, self.words + 1).roll(1, 1).bool()],)


def spanning_scores(scores: Tensor, words: int, single_root: bool) -> Structure:
    """Spanning trees, and choices of each word if there are more scores [1, P] than arcs."""
    arcs = partial(ArcScores, words=words, single_root=single_root)
    labels = scores.shape[1] // words - words
    if not labels:
        return arcs(scores)
    program = free_choices(words, labels)
    places = torch.arange(words * labels)
    choices = partial(PartScores, program=program, places=places, root=program.nodes - 1, length=words)
    return BothOutputs(scores, arcs, choices, words * words)


@cached_program
def free_choices(choices: int, alternatives: int) -> Program:
    """A program whose derivations make independent choices, each among its own ``alternatives`` scores."""
    c, a = np.ogrid[:choices, :alternatives]
    builder = ProgramBuilder(choices * alternatives)
    builder.add(c, c - 1, index=c * alternatives + a)
    return builder.build()


@cached_program
def with_choices(handle: int, root: int, choices: int, alternatives: int) -> Program:
    """A program whose derivations have one from a root of another, and choose one of more scores so many times."""
    program = program_of(handle)
    rows, left, right, index = program.arrays
    edges, nodes, scores = rows[root + 1], program.nodes, program.scores
    head, choice = np.repeat(np.arange(root + 1), np.diff(rows[: root + 2])), np.arange(choices)
    node = root + 1 + 2 * choice  # of each choice; the next one is for all up to it
    builder = ProgramBuilder(scores + choices * alternatives)
    first, second = (np.where(tail == nodes, -1, tail)[:edges] for tail in (left, right))
    builder.add(head, first, second, np.where(index == scores, -1, index)[:edges])
    builder.add(node[:, None], index=scores + alternatives * choice[:, None] + np.arange(alternatives))
    builder.add(node + 1, np.append(root, node[:-1] + 1), node)
    return builder.build()
