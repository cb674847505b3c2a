"""The outputs of one example of a program problem, as a structure."""

import numpy as np
import torch
from torch import Tensor

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
        """The root of the example among those of the program."""
        return torch.full((len(self.scores),), self._root)

    def derivation(self, y: Tensor) -> Tensor:
        """The scores of the program of the parts of outputs."""
        return torch.where(y >= 0, self.places[y.clamp_min(0)], self._program.scores)

    def outputs(self, used: Tensor) -> Tensor:
        """The parts of outputs."""
        parts = torch.full((self._program.scores + 1,), -1)
        parts[self.places] = torch.arange(len(self.places))
        y = parts[used].sort(-1)[0]
        missing = self.length - y.shape[-1]
        return torch.nn.functional.pad(y, (missing, 0), value=-1) if missing > 0 else y[..., -self.length :]


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
