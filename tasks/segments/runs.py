"""Chains whose runs of equal states have a least length."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.programs import DynamicProgram, Program, ProgramBuilder, cached_program

Span = tuple[int, int, int]
"""Where a run begins, where the next one begins, and its state."""


class Runs(DynamicProgram):
    """Labellings of a chain in which each run of a state s has at least ``least[s]`` positions; scores are the chain's.

    A run that the end of the sequence cuts may be shorter, and so may one that the beginning cuts. An output is an
    int64 tensor [B, T]. Complexity per example: O(T S² + S Σ least), and top-K up to K times that.

    Args:
        unary: scores [B, T, S] of each state at each position.
        transition: scores [S, S]; entry [i, j] is for state i before state j, also within runs.
        least: the least number of positions of a run of each state, S numbers of 1 or more.
        cut: whether the beginning may cut a run; else the first one begins there.
    """

    labels_are_classes = True
    potential_names = ("unary", "transition")
    field_names = ("least", "cut")
    potential_dims = {"transition": 3}  # noqa: RUF012 - never changed

    def __init__(self, unary: Tensor, transition: Tensor, least: tuple[int, ...], cut: bool = True) -> None:
        self.unary, self.transition, self.least, self.cut = unary, transition, least, cut
        super().__init__(validate_args=False)

    def program(self) -> Program:
        """The program of :func:`runs`."""
        return runs(self.unary.shape[1], self.least, self.cut)

    def program_scores(self) -> Tensor:
        """Scores of the shortest run from each position on, of going on at each position, and of transitions."""
        stay = self.transition.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
        goes_on = pad(self.unary[:, 1:] + stay, (0, 0, 1, 0))  # nothing goes on at the first position
        begins = torch.stack([self._shortest(s, length, goes_on) for s, length in enumerate(self.least)], 2)
        if self.cut:
            begins = torch.cat([self.unary[:, :1], begins[:, 1:]], 1)
        pairs = self.transition.expand(len(self.unary), *self.transition.shape[-2:])
        return torch.cat([scores.flatten(1) for scores in (begins, goes_on, pairs)], 1)

    def _shortest(self, state: int, length: int, goes_on: Tensor) -> Tensor:
        """Scores [B, T] of runs of some length from each position on, which the end may cut."""
        first = self.unary[:, :, state]
        if length == 1:
            return first
        return first + pad(goes_on[:, 1:, state], (0, length - 1)).unfold(1, length - 1, 1).sum(2)

    def derivation(self, y: Tensor) -> Tensor:
        """The shortest run where one begins, going on where it is longer, and transitions: [B, 2 T - 1]."""
        _, steps, states = self.unary.shape
        t, begins = torch.arange(steps, device=y.device), pad(y[:, 1:] != y[:, :-1], (1, 0), value=True)
        start = torch.where(begins, t, 0).cummax(1).values
        least = torch.where((start == 0) & self.cut, 1, torch.tensor(self.least, device=y.device)[y])
        none, places = self.program().scores, t * states + y
        of_runs = torch.where(begins, places, torch.where(t - start >= least, steps * states + places, none))
        pairs = 2 * steps * states + y[:, :-1] * states + y[:, 1:]
        return torch.cat([of_runs, torch.where(begins[:, 1:], pairs, none)], 1)

    def outputs(self, used: Tensor) -> Tensor:
        """States [B, K, T]: those of the runs, from where they begin on."""
        _, steps, states = self.unary.shape
        position = torch.where(used < steps * states, used // states, steps)
        y = torch.full((*used.shape[:2], steps + 1), -1, device=used.device)
        y = y.scatter(2, position, used % states)[..., :steps]
        t = torch.arange(steps, device=used.device)
        return y.gather(2, torch.where(y >= 0, t, 0).cummax(2).values).clamp_min(0)

    def max_marginals(self) -> Tensor:
        """There are none: raises ``NotImplementedError``."""
        raise NotImplementedError("Runs has no max-marginals; use max() or topk()")

    def run_probabilities(self, spans: list[Span]) -> list[float]:
        """The exact probabilities that the output of the first example has these runs, no longer and no shorter.

        Whether a run goes on behind its least length depends on nothing before, so that probabilities multiply.
        """
        steps, states = self.unary.shape[1:]
        found = self.sums()[1][0].numpy(force=True)
        begins, goes_on = found[: 2 * steps * states].reshape(2, steps, states)
        # reached[t]: probabilities that a run that may end at t reaches t.
        reached, first = np.zeros((steps + 1, states)), int(self.cut)
        reached[2:] = goes_on[1:]
        reached[first] += begins[0] * first
        for s, length in enumerate(self.least):
            reached[first + length :, s] += begins[first : max(steps - length + 1, first), s]
        stays = np.divide(goes_on, reached[:-1], out=np.zeros_like(goes_on), where=reached[:-1] > 0)
        return [self._run_probability(span, begins, stays) for span in spans]

    def _run_probability(self, span: Span, begins: NDArray[np.float64], stays: NDArray[np.float64]) -> float:
        start, stop, state = span
        free = start + (1 if start == 0 and self.cut else self.least[state])
        if stop < min(free, len(begins)):
            return 0.0
        goes_on = begins[start, state] * stays[free:stop, state].prod()
        ends = 1 - stays[stop, state] if stop < len(begins) else 1.0
        return float(np.clip(goes_on * ends, 0, 1))


@cached_program
def runs(steps: int, least: tuple[int, ...], cut: bool) -> Program:
    """Scores of the shortest runs (start, state), of going on (position, state), and of transitions (state, state).

    A node says that a run that may end before t reaches t, or that one begins at t. The root is the end.
    """
    states = len(least)
    builder = ProgramBuilder(scores=2 * steps * states + states**2)

    def reaches(t: NDArray[np.int64], s: NDArray[np.int64]) -> NDArray[np.int64]:
        return (t - 1) * 2 * states + s

    t, s, end = np.arange(steps)[:, None], np.arange(states), 2 * steps * states
    lengths = np.where((t == 0) & cut, 1, np.array(least))
    tails = np.where(t == 0, -1, reaches(t, s) + states)
    builder.add(np.where(t + lengths <= steps, reaches(t + lengths, s), end), tails, index=t * states + s)
    builder.add(reaches(t + 1, s), reaches(t, s), index=(steps + t) * states + s, where=t > 0)
    t, s, before = np.ogrid[1:steps, :states, :states]
    pairs = 2 * steps * states + before * states + s
    builder.add(reaches(t, s) + states, reaches(t, before), index=pairs, where=before != s)
    builder.add(end, reaches(np.array(steps), np.arange(states)))
    return builder.build(end)
