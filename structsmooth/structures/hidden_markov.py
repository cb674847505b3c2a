"""Hidden Markov models: linear chains whose unary scores are those of observations."""

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import widened
from structsmooth.structures.chain import LinearChain
from structsmooth.structures.chain.compaction import spread_nodes


class HiddenMarkov(LinearChain):
    """State sequences of hidden Markov models, scored together with what was observed: log p(x, y).

    score(y) = start[y_1] + Σ_t transition[y_t, y_{t+1}] + Σ_t emission[b, t, y_t], where ``logsumexp`` is the
    log-likelihood log p(x) of the observations, ``marginals`` the posteriors of Baum and Welch, ``max`` Viterbi's path
    and ``sample`` draws from p(y | x). It is a :class:`~structsmooth.LinearChain` whose unary scores are those of
    emissions and of the start; nothing requires that probabilities sum to one. :class:`~structsmooth.models.HMM` has
    the parameters, and :class:`~structsmooth.estimators.GaussianHMM` is an estimator.

    Args:
        start: log-probabilities [S] or [B, S] of the first state, floating point.
        transition: log-probabilities [S, S], [B, S, S] or [B, T-1, S, S]; entry [..., i, j] is for y_t = i and
            y_{t+1} = j.
        emission: log-probabilities [B, T, S] of each observation in each state, 0 where it is missing; or, with
            ``observations``, those [S, V] of V symbols.
        observations: symbols, integers [B, T] from 0 to V - 1; -1 where one is missing. Anything at padding.
        lengths: sequence lengths [B], integers from 0 to T; all T if not given.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
        backend: as for :class:`~structsmooth.LinearChain`.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Rabiner (1989), "A tutorial on hidden Markov models and selected applications in speech recognition".

    Example:
        The second day was not observed:

        >>> start, transition = torch.tensor([0.5, 0.5]).log(), torch.tensor([[0.7, 0.3], [0.3, 0.7]]).log()
        >>> umbrella = torch.tensor([[0.1, 0.9], [0.8, 0.2]]).log()  # in two states of the weather
        >>> model = HiddenMarkov(start, transition, umbrella, torch.tensor([[1, -1, 1]]))
        >>> model.logsumexp().exp(), model.marginals()[0][0, :, 0]
        (tensor([0.3221]), tensor([0.8466, 0.7391, 0.8466]))
    """

    def __init__(
        self,
        start: Tensor,
        transition: Tensor,
        emission: Tensor,
        observations: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        if observations is None:
            checks.require_scores("emission", emission)
            if emission.dim() != 3 or 0 in emission.shape[1:]:
                raise ValueError(f"emission must have shape [B, T, S] with T, S >= 1, got {tuple(emission.shape)}")
        else:
            emission = emitted(emission, observations, lengths)
        super().__init__(emission, transition, lengths, start=start, validate_args=validate_args, backend=backend)

    def filtered_marginals(self) -> Tensor:
        """Probabilities [B, T, S] of the state of each position given the observations up to it; differentiable.

        They are zero from where on no state is possible, and at padding.
        """
        filtered = self.oracles.filtered(*self._arguments())
        return filtered if self._order is None else spread_nodes(filtered, self._order, self.mask)


def emitted(table: Tensor, observations: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Scores [B, T, S] of observed symbols [B, T], from those [S, V] of all symbols; 0 where none was observed.

    Raises:
        TypeError: tensors of the wrong dtype.
        ValueError: tensors of the wrong shape, or symbols beyond V - 1 within the lengths.
    """
    checks.require_scores("emission", table)
    checks.require_integers("observations", observations)
    if table.dim() != 2 or 0 in table.shape:
        raise ValueError(f"emission must have shape [S, V] with observations, S, V >= 1, got {tuple(table.shape)}")
    if observations.dim() != 2:
        raise ValueError(f"observations must have shape [B, T], got {tuple(observations.shape)}")
    checks.require_device("observations", observations, "emission", table)
    symbols, scores = table.shape[1], widened(table)
    seen = observations.long()
    if lengths is not None:
        lengths = checks.lengths_or_all(lengths, "observations", observations)
        seen = torch.where(checks.length_mask(lengths, seen.shape[1]), seen, -1)
    if checks.can_read_values() and seen.numel():
        least, largest = map(int, seen.aminmax())
        if not -1 <= least <= largest < symbols:
            raise ValueError(f"observations must be from -1 to {symbols - 1}, got {least} to {largest}")
        if least >= 0:  # the usual case, without a second pass over all scores
            return scores.mT[seen]
    return torch.where((seen >= 0).unsqueeze(2), scores.mT[seen.clamp(0, symbols - 1)], 0.0)
