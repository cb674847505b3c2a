"""Segmentations of sequences: semi-Markov models, with scores for positions, durations and neighbouring segments."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures import checks
from structsmooth.structures.base import PartCosts, check_k, widened
from structsmooth.structures.chain.compaction import check_ends, with_ends
from structsmooth.structures.checks import check_lengths, length_mask
from structsmooth.structures.forbidden import Index, part_in_words
from structsmooth.structures.operators import with_gradients_of_scores
from structsmooth.structures.programs import DynamicProgram, Program, scanned
from structsmooth.structures.programs.scanned import Sums
from structsmooth.structures.scans import Tensors, scan
from structsmooth.structures.segments import operators
from structsmooth.structures.segments.program import scores_of_segments, segmentations


class SemiMarkov(DynamicProgram):
    """All ways to cut sequences into labelled segments of at most K positions.

    score(y) is a sum over the segments: the unary scores of their label at all of their positions, the score of their
    duration and, if there are any, of the segment itself; and over neighbouring segments, the transition between their
    labels. An output is an int64 tensor [B, T]: the label where a segment starts, and -1 where it goes on. Neighbours
    may have the same label, unless ``transition`` forbids it. Labels at padding are ignored in arguments and 0 in
    results. Complexity per example: max and exp oracle O(T S (S + K)), top-K up to K times that.

    Backends, forbidden (-inf) scores and infeasible examples are as in :class:`~structsmooth.programs.DynamicProgram`.

    Args:
        unary: scores [B, T, S] of each label at each position, floating point.
        transition: scores [S, S], [B, S, S] or [B, T-1, S, S]; entry [..., i, j] is for a segment of label i before one
            of label j, and [:, t] for a boundary before position t + 1.
        durations: scores [K, S] or [B, K, S]; entry [..., k, j] is for k + 1 positions of label j.
        segments: scores [B, T, K, S]; entry [b, t, k, j] is for a segment of k + 1 positions from t on, of label j.
            Those of segments that end behind the sequence are ignored.
        lengths: sequence lengths [B], integers from 0 to T; all T if not given.
        start: scores [S] or [B, S] of the first label of a sequence, which are added to its unary scores.
        stop: scores [S] or [B, S] of the last label.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Sarawagi and Cohen (2004).

    Example:
        >>> unary = torch.tensor([[[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]]])
        >>> durations = torch.tensor([[0.0, 0.0], [1.0, 0.0]])  # label 0 tends to last two positions
        >>> SemiMarkov(unary, torch.zeros(2, 2), durations).max()
        (tensor([7.]), tensor([[ 0, -1,  1]]))
    """

    oracles = replace(DynamicProgram.oracles, export=scanned)
    labels_are_classes = True
    potential_names: tuple[str, ...] = ("unary", "transition", "durations")
    potential_dims = {"transition": 3, "durations": 3}  # noqa: RUF012 - never changed
    row_names = ("lengths",)
    field_names = ("potential_names", "segments")
    segments: Tensor | None = None

    def __init__(
        self,
        unary: Tensor,
        transition: Tensor,
        durations: Tensor,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        start: Tensor | None = None,
        stop: Tensor | None = None,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.unary, self.transition, self.durations = unary, transition, durations
        if segments is not None:
            self.segments = segments
            self.potential_names = (*self.potential_names, "segments")
        self.check_shapes()
        self.lengths = checks.lengths_or_all(lengths, "unary", unary)
        super().__init__(validate_args, backend)
        if self.validate_args:
            check_lengths(self.lengths, unary.shape[1], least=0)
        if start is not None or stop is not None:
            check_ends(unary, self.validate_args, start=start, stop=stop)
            self.unary = with_ends(unary, self.mask, start, stop)

    def check_shapes(self) -> None:
        """Raise unless scores have the shapes of the arguments of the same names."""
        checks.require_chain(self.unary, self.transition)
        for name, scores in self.named_potentials()[2:]:
            checks.require_scores(name, scores)
            checks.require_device(name, scores, "unary", self.unary)
        batch, steps, states = self.unary.shape
        longest = self.durations.shape[-2] if self.durations.dim() > 1 else 0
        if not longest or not checks.has_shape(self.durations, (longest, states), (batch, longest, states)):
            raise ValueError(
                "durations must have shape [K, S] or [B, K, S] with K >= 1 and B, S = "
                f"{batch}, {states}, got {tuple(self.durations.shape)}"
            )
        if self.segments is not None:
            checks.require_shape("segments", self.segments, "[B, T, K, S]", (batch, steps, longest, states))

    def used_scores(self, name: str) -> Tensor:
        """Scores, zero beyond the sequences."""
        return self._masked()[name]

    @property
    def mask(self) -> Tensor:
        """[B, T], true inside the sequences."""
        return length_mask(self.lengths, self.unary.shape[1])

    def _masked(self) -> dict[str, Tensor]:
        """Potentials by name, in the dtype of sums, zero where they do not matter."""
        scores, inside = {name: widened(p) for name, p in self.named_potentials()}, self.mask
        scores["unary"] = torch.where(inside.unsqueeze(-1), scores["unary"], 0.0)
        if self.transition.dim() == 4:
            scores["transition"] = torch.where(inside[:, 1:, None, None], scores["transition"], 0.0)
        if self.segments is not None:
            ends = torch.arange(self.unary.shape[1], device=inside.device)[:, None]
            ends = ends + torch.arange(1, 1 + self.durations.shape[-2], device=inside.device)
            whole = (ends <= self.lengths[:, None, None]).unsqueeze(-1)
            scores["segments"] = torch.where(whole, scores["segments"], 0.0)
        return scores

    def program(self) -> Program:
        """The program of :func:`segmentations`."""
        _, steps, states = self.unary.shape
        return segmentations(steps, self.durations.shape[-2], states, self.transition.dim() == 4)

    def program_scores(self) -> Tensor:
        """Scores of all segments, [B, T K S], and of transitions."""
        unary, pairs, durations, segments, _ = self._arrays()
        listed = scores_of_segments(unary, durations, segments)
        return torch.cat([listed.flatten(1), pairs.flatten(1).expand(listed.shape[0], -1)], 1)

    def _arrays(self) -> tuple[Tensor, ...]:
        """Scores and lengths as :mod:`.operators` take them."""
        scores = self._masked()
        unary, transition, durations = scores["unary"], scores["transition"], scores["durations"]
        pairs = transition if transition.dim() == 4 else transition.unsqueeze(-3)
        return (
            unary,
            pairs if pairs.dim() == 4 else pairs.unsqueeze(0),
            durations if durations.dim() == 3 else durations.unsqueeze(0),
            scores.get("segments", unary.new_zeros(unary.shape[0], 0, 0, 0)),
            self.lengths,
        )

    def score(self, y: Tensor) -> Tensor:
        """Scores of outputs ``y``: [B], differentiable."""
        return self._score(self.checked_labels(y), *self._arrays()[:4])

    def _score(self, y: Tensor, unary: Tensor, pairs: Tensor, durations: Tensor, segments: Tensor) -> Tensor:
        starts, labels, lasting = self._starts(y), self.as_classes(y)[0], self._durations_at(y) - 1
        example = torch.arange(y.shape[0], device=y.device).unsqueeze(1)
        t, state = torch.arange(y.shape[1], device=y.device), y.clamp_min(0)
        lasting = torch.where(starts, lasting, 0)
        each = durations[example if durations.shape[0] > 1 else 0, lasting, state]
        if segments.shape[1]:
            each = each + segments[example, t, lasting, state]
        first, boundary = example if pairs.shape[0] > 1 else 0, t[:-1] if self.transition.dim() == 4 else 0
        between = pairs[first, boundary, labels[:, :-1], state[:, 1:]]
        of_labels = torch.where(self.mask, unary.gather(2, labels.unsqueeze(2)).squeeze(2), 0.0)
        neighbours = torch.where(starts[:, 1:], between, 0.0)
        total: Tensor = of_labels.sum(1) + torch.where(starts, each, 0.0).sum(1) + neighbours.sum(1)
        return total

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle, as for all programs; the best output takes memory for labels at positions alone."""
        if check_k(k) > 1 or not self.is_compiled:
            return super().topk(k)
        arrays = self._arrays()
        values, y = operators.best(*arrays)
        values = with_gradients_of_scores(values, lambda *scores: self._score(y, *scores), *arrays[:4])
        return values.unsqueeze(1), y.unsqueeze(1)

    def logsumexp(self) -> Tensor:
        """Log-partition function [B]; twice differentiable."""
        return cast(Tensor, operators.log_partition(*self._arrays())[0]) if self.is_compiled else super().logsumexp()

    def marginals(self) -> tuple[Tensor, ...]:
        """Probabilities of labels at positions, and expected numbers of transitions and durations, as :meth:`parts`."""
        if not self.is_compiled:
            return super().marginals()
        arrays = self._arrays()
        sums = (found.detach() for found in operators.log_partition(*arrays)[1:])
        parts: tuple[Tensor, ...] = operators.marginals(*arrays, *sums)
        nodes, pairs, durations, segments = parts
        if self.transition.dim() < 4:
            pairs = pairs.squeeze(1)
        return (nodes, pairs, durations, segments)[: len(self.potential_names)]

    def sweep(self, sums: Sums, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum [B] over all segmentations, and its derivatives by the scores [B, P], by a scan over positions."""
        batch, steps, states = self.unary.shape
        longest, per_boundary = self.durations.shape[-2], self.transition.dim() == 4
        segments, pairs = scores.split([steps * longest * states, scores.shape[1] - steps * longest * states], 1)
        ending = _by_end(segments.view(batch, steps, longest, states))
        pairs = pairs.unflatten(1, (-1, states, states))
        pairs = pad(pairs, (0, 0, 0, 0, 0, 1)) if per_boundary else pairs.expand(-1, steps, -1, -1)

        def forward(state: Tensors, inputs: Tensors) -> tuple[Tensors, Tensors]:
            """State: values [B, K, S] of segments that begin here, one position before, and so on."""
            (begun,), (scores, pairs) = state, inputs
            ended = sums.total(begun + scores, 1)
            begins = sums.total(ended.unsqueeze(2) + pairs, 1)
            return (torch.cat([begins.unsqueeze(1), begun[:, :-1]], 1),), (begun, ended)

        first = torch.where(torch.arange(longest, device=scores.device) == 0, 0.0, -torch.inf).to(scores.dtype)
        start = first[:, None].expand(batch, longest, states)
        _, (begun, ended) = scan(forward, (start,), (ending, pairs))
        last = (self.lengths - 1).clamp_min(0)
        final = ended.gather(1, last.view(-1, 1, 1).expand(-1, 1, states)).squeeze(1)

        def backward(state: Tensors, inputs: Tensors) -> tuple[Tensors, Tensors]:
            """State: derivatives [B, K, S] by what begins one position later, here, and so on."""
            (owed,), (of_segments, of_pairs, at_end) = state, inputs
            used_pairs = of_pairs * owed[:, :1]
            used = of_segments * (at_end + used_pairs.sum(2)).unsqueeze(1)
            return (pad(owed[:, 1:], (0, 0, 0, 1)) + used,), (used, used_pairs)

        is_last = (torch.arange(steps, device=scores.device) == last[:, None]) & self.mask
        at_end = torch.where(is_last.unsqueeze(2), sums.shares(final, 1).unsqueeze(1), 0.0)
        shares = sums.shares(begun + ending, 2), sums.shares(ended.unsqueeze(3) + pairs, 2), at_end
        _, (used, used_pairs) = scan(backward, (torch.zeros_like(start),), shares, reverse=True)
        used_pairs = used_pairs[:, :-1] if per_boundary else used_pairs.sum(1)
        uses = torch.cat([_by_start(used).flatten(1), used_pairs.flatten(1)], 1)
        return torch.where(self.lengths > 0, sums.total(final, 1), 0.0), uses

    def outputs_of_uses(self, uses: Tensor) -> Tensor:
        """Labels where segments start, -1 where they go on and 0 at padding."""
        shape = (*self.unary.shape[:2], *self.durations.shape[-2:])
        starts = uses[:, : shape[1] * shape[2] * shape[3]].view(shape).sum(2)
        return torch.where(self.mask, torch.where(starts.sum(2) > 0, starts.argmax(2), -1), 0)

    def sizes(self) -> Tensor:
        """The root of the program for the length of each sequence: int64 [B]."""
        return self.lengths

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels as int64, with 0 at padding."""
        checks.require_outputs(y, "[B, T]", "unary", self.unary)
        y = torch.where(self.mask, y, 0).to(torch.int64)
        if self.validate_args and y.numel():
            states, longest = self.unary.shape[-1], self.durations.shape[-2]
            if int(y.min()) < -1 or int(y.max()) >= states or int(y[:, 0].min()) < 0:
                raise ValueError(
                    f"y must hold labels from 0 to {states - 1} where segments start, the first position among them, "
                    "and -1 where they go on"
                )
            if int(torch.where(self._starts(y), self._durations_at(y), 0).max()) > longest:
                raise ValueError(f"y must have segments of at most K = {longest} positions")
        return y

    def _starts(self, y: Tensor) -> Tensor:
        return (y >= 0) & self.mask

    def _durations_at(self, y: Tensor) -> Tensor:
        """Number of positions [B, T] up to the next segment."""
        t = torch.arange(y.shape[1], device=y.device)
        # The next start at or behind each position: the least from the right.
        following = torch.where(self._starts(y), t, self.lengths[:, None]).flip(1).cummin(1).values.flip(1)
        return torch.cat([following[:, 1:], self.lengths[:, None]], 1) - t

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """The label of the segment that each position belongs to, [B, T], and the number of labels."""
        t = torch.arange(y.shape[1], device=y.device)
        # The last start at or before each position.
        return y.gather(1, torch.where(self._starts(y), t, 0).cummax(1).values), self.unary.shape[-1]

    def derivation(self, y: Tensor) -> Tensor:
        """The scores that outputs ``y`` use: of their segments, and of transitions before all but the first."""
        _, steps, states = self.unary.shape
        longest = self.durations.shape[-2]
        t, starts, labels = torch.arange(steps, device=y.device), self._starts(y), self.as_classes(y)[0]
        segments = (t * longest + self._durations_at(y) - 1) * states + y
        pairs = steps * states * longest + labels[:, :-1] * states + y[:, 1:]
        pairs = pairs + t[:-1] * states**2 if self.transition.dim() == 4 else pairs
        # One behind the last score: none.
        none = (steps * longest + (steps - 1 if self.transition.dim() == 4 else 1) * states) * states
        return torch.cat([torch.where(starts, segments, none), torch.where(starts[:, 1:], pairs, none)], 1)

    def segment_probabilities(self, y: Tensor) -> Tensor:
        """The probability [B, T] of each segment of outputs ``y``, with its label and both of its ends; differentiable.

        It stands where the segment starts; elsewhere is 0.

        Example:
            >>> model = SemiMarkov(torch.zeros(1, 3, 1), torch.zeros(1, 1), torch.zeros(3, 1))
            >>> model.segment_probabilities(torch.tensor([[0, -1, 0]]))  # one of four ways to cut three positions
            tensor([[0.2500, 0.0000, 0.5000]])
        """
        used = self.derivation(self.checked_labels(y))[:, : self.unary.shape[1]]
        return pad(self.sums()[1], (0, 1)).gather(1, used).to(self.value_dtype)

    def indicators_of_segments(self, y: Tensor) -> Tensor:
        """The segments of outputs ``y``, as the scores ``segments``: int64 [B, T, K, S]."""
        shape = (*self.unary.shape[:2], *self.durations.shape[-2:])
        used = self.derivation(self.checked_labels(y))[:, : shape[1]]
        count = shape[1] * shape[2] * shape[3]
        places = used.new_zeros(used.shape[0], count + 1).scatter(1, used.clamp_max(count), 1)
        return places[:, :count].view(shape)

    def cost_augmented(self, y: Tensor, cost: PartCosts | Tensor | tuple[Tensor, ...]) -> "SemiMarkov":
        """As in :class:`~structsmooth.Structure`; costs of segments make ``segments`` a potential."""
        if self.segments is None and callable(cost):
            costs = cost(self, y)
            if isinstance(costs, tuple) and len(costs) == 1 + len(self.potential_names):
                return self._with_segments().cost_augmented(y, costs)
        return super().cost_augmented(y, cost)

    def _with_segments(self) -> "SemiMarkov":
        """The structure with scores of segments of 0 where it has none, for costs to be added to."""
        zeros = self.unary.new_zeros(1, 1, 1, 1).expand(*self.unary.shape[:2], *self.durations.shape[-2:])
        scores = self.unary, self.transition, self.durations, zeros
        return SemiMarkov(*scores, self.lengths, validate_args=self.validate_args, backend=self.backend)

    def outputs(self, used: Tensor) -> Tensor:
        """Labels where segments start, -1 where they go on and 0 at padding."""
        _, steps, states = self.unary.shape
        longest = self.durations.shape[-2]
        is_segment = used < steps * states * longest
        position = torch.where(is_segment, used // (longest * states), steps)
        y = torch.full((*used.shape[:2], steps + 1), -1, device=used.device)
        y = y.scatter(2, position, used % states)[..., :steps]
        return torch.where(self.mask.unsqueeze(1), y, 0)

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """The largest score [B, T, S] of a segmentation in which each position has each label; zero on padding."""
        batch, steps, states = self.unary.shape
        longest = self.durations.shape[-2]
        segments = values[:, : steps * longest * states].view(batch, steps, longest, states)
        # Of segments that start at t and have more than k positions, the best.
        longer = segments.flip(2).cummax(2).values.flip(2)
        best = longer[:, :, 0]
        for k in range(1, longest):
            # A segment that started k positions before and still lasts has the label here, too.
            best = torch.maximum(best, pad(longer[:, :, k], (0, 0, k, 0), value=-torch.inf)[:, :steps])
        return torch.where(self.mask.unsqueeze(-1), best, 0.0)


@part_in_words.register
def _(structure: SemiMarkov, name: str, index: Index, y: list[int]) -> str:
    *place, label = index
    if name == "unary":
        return f"label {label} at position {place[0]}"
    begins = [t for t, own in enumerate(y) if own >= 0]
    segments = list(zip(begins, [*begins[1:], len(y)], strict=True))
    if name == "transition":
        found = [end for t, end in segments[:-1] if (y[t], y[end]) == (place[-1], label)]
        found = [place[0] + 1] if len(place) > 1 else found
        return f"label {label} after label {place[-1]}" + "".join(f", at position {t}," for t in found[:1])
    found = (
        [t for t, end in segments if (y[t], end - t) == (label, place[-1] + 1)] if name == "durations" else place[:1]
    )
    what = f"a segment of {place[-1] + 1} positions with label {label}"
    return what + "".join(f", from position {t} to {t + place[-1]}," for t in found[:1])


def _by_end(segments: Tensor) -> Tensor:
    """Scores [B, T, K, S] of segments by their last positions, from those by their first ones."""
    steps, longest = segments.shape[1:3]
    padded = pad(segments, (0, 0, 0, 0, longest - 1, 0), value=-torch.inf)
    # Position t of layer k has the segment of k + 1 positions that starts at t - k: -inf before the sequence.
    return torch.stack([padded[:, longest - 1 - k :, k][:, :steps] for k in range(longest)], 2)


def _by_start(segments: Tensor) -> Tensor:
    """Uses [B, T, K, S] of segments by their first positions, from those by their last ones."""
    steps, longest = segments.shape[1:3]
    padded = pad(segments, (0, 0, 0, 0, 0, longest - 1))
    return torch.stack([padded[:, k:, k][:, :steps] for k in range(longest)], 2)
