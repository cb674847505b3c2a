"""The outputs of one example of a program problem, as a structure."""

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
    field_names = ("places", "length", "_program", "_root")

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


class SpanningScores(Structure):
    """Spanning trees of a sentence of n words and, if there are more scores [1, P] than arcs, a choice of each word.

    The first n² scores are those of arcs, in the order of ``arcs_of``. Those of what each word chooses among follow, of
    as many alternatives for every word. Outputs are those of :class:`PartScores`.
    """

    potential_names = ("scores",)
    field_names = ("words", "single_root")

    def __init__(self, scores: Tensor, words: int, single_root: bool) -> None:
        self.scores, self.words, self.single_root = scores, words, single_root
        super().__init__(validate_args=False)

    def _tree(self) -> SpanningTree:
        m, place = torch.arange(self.words)[:, None], torch.arange(self.words)
        heads = place + (place > m)
        square = self.scores.new_zeros(len(self.scores), self.words, self.words + 1)
        index = heads.expand(len(self.scores), -1, -1)
        scores = self.scores[:, : self.words**2].view(-1, self.words, self.words)
        arcs = square.scatter(2, index, scores).transpose(1, 2)
        return SpanningTree(arcs[:, 1:], arcs[:, 0], single_root=self.single_root, validate_args=False)

    def _choices(self) -> PartScores | None:
        alternatives = self.scores.shape[1] // self.words - self.words
        if not alternatives:
            return None
        program, scores = free_choices(self.words, alternatives), self.scores[:, self.words**2 :]
        return PartScores(scores, program, torch.arange(scores.shape[1]), program.nodes - 1, self.words)

    def score(self, y: Tensor) -> Tensor:
        """Scores of outputs."""
        return self.scores.gather(1, y).sum(1)

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Which parts outputs have."""
        return (torch.zeros_like(self.scores).scatter(1, y, 1.0),)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """The k best trees, or the best sums of entries of the lists of trees and of choices."""
        values, heads = self._tree().topk(k)
        m, choices = torch.arange(self.words), self._choices()
        y = m * self.words + heads - (heads > m).long()
        if choices is not None:
            others, chosen = choices.topk(k)
            values, order = (values[:, :, None] + others[:, None]).flatten(1).sort(dim=1, descending=True, stable=True)
            values, order = values[:, :k], order[:, :k]
            y = torch.cat([y[0, order // k], chosen[0, order % k] + self.words**2], 2)
        return values, torch.where((values > -torch.inf).unsqueeze(2), y, 0)

    def logsumexp(self) -> Tensor:
        """Log-partition function: the sum of those of trees and of choices."""
        log_z, choices = self._tree().logsumexp(), self._choices()
        return log_z if choices is None else log_z + choices.logsumexp()

    def marginals(self) -> tuple[Tensor, ...]:
        """Probabilities of arcs and of what words choose."""
        (arcs, root), choices = self._tree().marginals(), self._choices()
        whole = torch.cat([root.unsqueeze(1), arcs], 1).transpose(1, 2)
        arcs = whole[:, ~torch.eye(self.words, self.words + 1).roll(1, 1).bool()]
        return (arcs if choices is None else torch.cat([arcs, *choices.marginals()], 1),)


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
