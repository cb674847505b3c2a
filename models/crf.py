"""The layer on top of an encoder that people know as a CRF: scores of neighbouring, first and last tags."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from structsmooth.losses import Reduction, StructuralHinge
from structsmooth.scores import ScoreModule, TransitionMask
from structsmooth.structures import LinearChain


class CRF(ScoreModule):
    """Scores of neighbouring tags, of the first and of the last tag, for the emissions of any encoder.

    Args:
        tags: number S of tags, or their names, which :meth:`decode` then returns.
        constraints: which tags may follow each other, begin and end, as ``transition_mask(tags, "BIO")`` gives them.
        objective: makes the loss for a reduction: ``StructuralHinge.crf``, the negative log-likelihood, or another one,
            such as ``StructuralHinge``.
        scale: factor of the three scores; the larger it is, the faster an optimizer with one step size moves them.

    Example:
        >>> import torch
        >>> crf = CRF(3)
        >>> emissions, mask = torch.randn(2, 4, 3), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
        >>> loss = crf.loss(emissions, torch.tensor([[0, 1, 2, 0], [1, 1, 0, 0]]), mask)
        >>> [len(path) for path in crf.decode(emissions, mask)]
        [4, 2]
    """

    def __init__(
        self,
        tags: int | Sequence[str],
        constraints: TransitionMask | None = None,
        *,
        objective: Callable[[Reduction], nn.Module] = StructuralHinge.crf,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.names = None if isinstance(tags, int) else list(tags)
        states = tags if isinstance(tags, int) else len(tags)
        if states < 1:
            raise ValueError(f"tags must be at least 1, got {states}")
        if constraints is not None and constraints.start.shape != (states,):
            raise ValueError(f"constraints must be of {states} tags, got {len(constraints.start)}")
        self.objective, self.scale = objective, scale
        self.start, self.stop = (nn.Parameter(torch.empty(states).uniform_(-0.1, 0.1)) for _ in range(2))
        self.transition = nn.Parameter(torch.empty(states, states).uniform_(-0.1, 0.1))
        for name in TransitionMask._fields:
            allowed = None if constraints is None else getattr(constraints, name)
            self.register_buffer(f"{name}_constraints", allowed, persistent=False)

    if TYPE_CHECKING:

        def __call__(self, emissions: Tensor, mask: Tensor | None = None) -> LinearChain:
            """As :meth:`forward`."""

    def forward(self, emissions: Tensor, mask: Tensor | None = None) -> LinearChain:
        """Chain over the tags of emissions [B, T, S] where the mask [B, T], of booleans or 0 and 1, is true."""
        transition, start, stop = map(self._constrained, TransitionMask._fields)
        return LinearChain(emissions, transition, mask=mask, start=start, stop=stop)

    def _constrained(self, name: str) -> Tensor:
        scores: Tensor = getattr(self, name)
        scores = scores if self.scale == 1 else self.scale * scores
        allowed: Tensor | None = getattr(self, f"{name}_constraints")
        return scores if allowed is None else scores + allowed

    def loss(
        self, emissions: Tensor, y: Tensor, mask: Tensor | None = None, *, reduction: Reduction = "mean"
    ) -> Tensor:
        """The loss of tags y [B, T], which may be anything where the mask is false: [] or, unreduced, [B]."""
        loss: Tensor = self.objective(reduction)(self(emissions, mask), y)
        return loss

    def log_prob(self, emissions: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """The logarithm of the probability of tags y [B, T]: [B]."""
        return self(emissions, mask).log_prob(y)

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor | None = None) -> list[list[int]] | list[list[str]]:
        """The best tags of each sequence: numbers, or names if the layer has them."""
        best = self(emissions, mask).max()[1].tolist()
        inside = [[True] * len(path) for path in best] if mask is None else mask.bool().tolist()
        paths = [[tag for tag, used in zip(*both, strict=True) if used] for both in zip(best, inside, strict=True)]
        return paths if self.names is None else [[self.names[tag] for tag in path] for path in paths]
