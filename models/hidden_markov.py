"""Hidden Markov models with their parameters: gradients, expectation maximization and training by best paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from structsmooth.models.emissions import Emissions, Sums, set_shares
from structsmooth.scores import ScoreModule
from structsmooth.structures import HiddenMarkov, checks


class HMM(ScoreModule):
    """A hidden Markov model: the structure over the states of sequences of observations, and its training.

    The log-likelihood of sequences is ``model(x).logsumexp()``, which gradients maximize as any other layer's;
    :meth:`em_step` is a step of Baum and Welch, which never lowers it.

    Args:
        emissions: of the S states: :class:`CategoricalEmissions`, :class:`GaussianEmissions` or others.

    Attributes:
        start: log-probabilities [S] of first states, up to a constant.
        transition: log-probabilities [S, S] of each state after each other one, up to a constant for each row.

    Reference:
        Baum, Petrie, Soules and Weiss (1970), "A maximization technique occurring in the statistical analysis of
        probabilistic functions of Markov chains"; Juang and Rabiner (1990), on training by best paths.

    Example:
        >>> from structsmooth.models import CategoricalEmissions
        >>> symbols = torch.tensor([[0, 0, 0, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, -1, 0, 1, 1]])
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch...>
        >>> model = HMM(CategoricalEmissions(2, 2))
        >>> likelihoods = [model.em_step([(symbols, torch.tensor([9, 9]))]) for _ in range(20)]
        >>> all(after > before for before, after in zip(likelihoods, likelihoods[1:]))
        True
        >>> model(symbols).max()[1][0].diff().nonzero().flatten().tolist()  # changes after the third and the sixth
        [2, 5]
    """

    def __init__(self, emissions: Emissions) -> None:
        super().__init__()
        self.emissions, states = emissions, emissions.states
        dtype = next((p.dtype for p in emissions.parameters()), torch.float64)
        self.start = nn.Parameter(torch.zeros(states, dtype=dtype))
        self.transition = nn.Parameter(torch.zeros(states, states, dtype=dtype))

    if TYPE_CHECKING:

        def __call__(self, x: Tensor | tuple[Tensor, Tensor]) -> HiddenMarkov:
            """As :meth:`forward`."""

    def forward(self, x: Tensor | tuple[Tensor, Tensor]) -> HiddenMarkov:
        """The structure over the states of observations ``x`` [B, T, ...], alone or with lengths [B]."""
        x, lengths = x if isinstance(x, tuple) else (x, None)
        start, transition = self.start.log_softmax(0), self.transition.log_softmax(1)
        return HiddenMarkov(start, transition, self.emissions(x), lengths=lengths)

    def em_step(self, batches: Sequence[tuple[Tensor, Tensor]], *, viterbi: bool = False) -> float:
        """Estimate parameters from expected states, and return the log-likelihood before the step.

        Parameters that do not require gradients stay as they are.

        Args:
            batches: observations [B, T, ...] with their lengths [B]; all of the data.
            viterbi: take the best path of each sequence for its states: then the value is the sum of their scores,
                which never falls.

        Raises:
            ValueError: no batch, or sequences that the model makes impossible, by their numbers among those of all.
        """
        if not batches:
            raise ValueError("batches must not be empty")
        value, known = 0.0, 0
        totals: tuple[Tensor, Tensor, Sums] | None = None
        for x, lengths in batches:
            with torch.no_grad():
                inputs = self.start.log_softmax(0), self.transition.log_softmax(1), self.emissions(x)
            start, transition, scores = (tensor.requires_grad_() for tensor in inputs)
            with torch.enable_grad():
                structure = HiddenMarkov(start, transition, scores, lengths=lengths)
                best = structure.max()[0] if viterbi else structure.logsumexp()
                with checks.numbered(torch.arange(known, known + len(lengths))):
                    checks.require_feasible(structure, best)
                counts = torch.autograd.grad(best.sum(), (start, transition, scores))
            with torch.no_grad():
                first, pairs, sums = counts[0], counts[1], self.emissions.sums(x, counts[2])
                if totals is not None:
                    first, pairs = totals[0] + first, totals[1] + pairs
                    sums = self.emissions.merge(totals[2], sums)
                totals = first, pairs, sums
            value, known = value + float(best.detach().sum()), known + len(lengths)
        assert totals is not None
        set_shares(self.start, totals[0])
        set_shares(self.transition, totals[1])
        self.emissions.estimate(totals[2])
        return value
