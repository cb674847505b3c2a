"""From the samples of series to their segments and how probable these are, as a module of tensors of any sizes."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from structsmooth.calibration import tempered
from structsmooth.structures import LinearChain, SemiMarkov
from structsmooth.tasks.segments.durations import Limits
from structsmooth.tasks.segments.score import SegmentScore

Chain = LinearChain | SemiMarkov
INPUTS = ("signal", "lengths", "begins")
OUTPUTS = ("score", "label", "start", "probability")


class SegmentsProgram(nn.Module):
    """All that prediction does with whole series, for a batch of them.

    Args:
        score: of the positions.
        limits: of durations, if there are any.
        step: samples of a position.
        normalize: whether signals are centered and scaled.
        margin: positions that the score sees on each side of a position.
        temperature: of the probabilities.
    """

    def __init__(
        self, score: SegmentScore, limits: Limits, step: int, normalize: bool, margin: int, temperature: float | None
    ) -> None:
        super().__init__()
        self.score, self.limits = score.requires_grad_(False), limits
        for parameter in score.parameters():
            parameter.data = parameter.data.clone()  # parts of one vector of weights would be saved whole each
        self.step, self.normalize, self.margin, self.temperature = step, normalize, margin, temperature

    def forward(self, signal: Tensor, lengths: Tensor, begins: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The best segmentations.

        Args:
            signal: samples [B, N, C], of which those behind the length of a series may have any values.
            lengths: of the series, in samples, from 1 to N: int64 [B].
            begins: whether this is a series from its first sample on, or a later piece of one: bool [B].

        Returns:
            Scores [B]; the number of the label of the segment that a sample is in, -1 for none, int64 [B, N]; whether a
            segment starts at a sample, bool [B, N]; and where one starts the probability of the segment with both of
            its ends, else 0, [B, N].
        """
        positions, sizes = means(signal.to(torch.float32), lengths, self.step)
        inside = (torch.arange(positions.shape[1], device=signal.device) < sizes[:, None]).unsqueeze(2)
        if self.normalize:
            positions = normalized(positions, inside, sizes)
        seen = pad(torch.where(inside, positions, 0.0), (0, 0, self.margin, self.margin))
        found = cast(Chain, self.score((seen, sizes, begins)))
        space = self._space(cast(Chain, tempered(found, None)))
        score, y = space.max()
        states, starts = found.unary.shape[2], (y >= 0) & inside.squeeze(2)
        begun = starts & (y < states)
        state = _of_parts(torch.where(starts, y % states, 0), starts)
        probability = _probabilities(self._space(cast(Chain, tempered(found, self.temperature))), y, states)
        named = (state < len(self.limits.shortest)) & inside.squeeze(2)
        start = begun & named
        label, probability = torch.where(named, state, -1), torch.where(start, probability, 0.0)
        samples = torch.arange(signal.shape[1], device=signal.device)
        is_sample, at = samples < lengths[:, None], samples // self.step
        label = torch.where(is_sample, label.index_select(1, at), -1)
        start = start.index_select(1, at) & (samples % self.step == 0)
        return score, label, start, torch.where(start, probability.index_select(1, at), 0.0)

    def _space(self, space: Chain) -> SemiMarkov:
        states = space.unary.shape[2]
        if isinstance(space, LinearChain):
            return as_segments(space, self.limits.least(states))
        return self.limits.of_segments(space, cut=True)


def means(signal: Tensor, lengths: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Means [B, T, C] of ``step`` samples, the last of fewer, and numbers of positions [B]."""
    if step == 1:
        return signal, lengths
    samples = torch.arange(signal.shape[1], device=signal.device)
    known = torch.where((samples < lengths[:, None]).unsqueeze(2), signal.double(), 0.0)
    count = (signal.shape[1] + step - 1) // step
    parts = pad(known, (0, 0, 0, count * step - signal.shape[1])).unflatten(1, (count, step))
    sizes = (lengths[:, None] - step * torch.arange(count, device=signal.device)).clamp(1, step)
    return (parts.sum(2) / sizes.unsqueeze(2)).float(), (lengths + step - 1) // step


def normalized(signal: Tensor, inside: Tensor, lengths: Tensor) -> Tensor:
    """Signals [B, T, C] less their medians, over their standard deviations, by the positions inside [B, T, 1]."""
    ranked = torch.where(inside, signal, torch.inf).topk(signal.shape[1], 1, largest=False).values
    middle = torch.stack([(lengths - 1) // 2, lengths // 2], 1).unsqueeze(2).expand(-1, -1, signal.shape[2])
    median = ranked.gather(1, middle).sum(1, keepdim=True) / 2
    wide, count = torch.where(inside, signal, 0.0).double(), lengths.view(-1, 1, 1)
    centered = torch.where(inside, wide - wide.sum(1, keepdim=True) / count, 0.0)
    scale = (centered.square().sum(1, keepdim=True) / count).sqrt().float().clamp_min(1e-6)
    return (signal - median) / scale


def as_segments(chain: LinearChain, least: tuple[int, ...]) -> SemiMarkov:
    """The labellings of :class:`~structsmooth.tasks.segments.runs.Runs` for S states as segmentations with 2 S labels.

    A run of state s is a segment of label s with the least number of positions, or fewer where an end cuts it, and a
    segment of label S + s for each position on which it goes on.
    """
    steps, states = chain.unary.shape[1:]
    size = torch.arange(1, max(least) + 1, device=chain.unary.device)[:, None]
    same = torch.eye(states, dtype=torch.bool, device=size.device)
    stay = torch.where(same, chain.transition, 0.0).sum(0)  # ONNX multiplies by 0 to take a diagonal
    changes, goes_on = chain.transition.masked_fill(same, -torch.inf), chain.transition.masked_fill(~same, -torch.inf)
    transition = torch.cat([changes, goes_on], 1).repeat(2, 1)
    durations = torch.cat([(size - 1) * stay, torch.where(size == 1, 0.0, -torch.inf) + 0 * stay], 1)
    t, wanted = torch.arange(steps, device=size.device)[:, None, None], torch.tensor(least, device=size.device)
    cut = (size < wanted) & (t + size == chain.lengths[:, None, None, None])
    begins = ((size == 1) & (t == 0)) | ((size == wanted) | cut) & (t > 0)
    allowed = torch.cat([begins, ((size == 1) & (t > 0)).expand(begins.shape)], 3)
    segments = torch.where(allowed, 0.0, -torch.inf).to(chain.unary)
    unary = torch.cat([chain.unary, chain.unary], 2)
    return SemiMarkov(unary, transition, durations, segments, chain.lengths, validate_args=False)


def _probabilities(space: SemiMarkov, y: Tensor, states: int) -> Tensor:
    """The probabilities [B, T] of segments of outputs, or of runs if labels from ``states`` on go on with one.

    Whether a run goes on behind its least length depends on nothing before, so that probabilities multiply.
    """
    (_, steps, labels), longest, inside = space.unary.shape, space.durations.shape[-2], space.mask
    starts, goes_on = (y >= 0) & inside, (y >= states) & inside
    uses, t = space.sums()[1], torch.arange(steps, device=y.device)
    durations = _of_parts(inside.long(), starts)
    begun = uses.gather(1, torch.where(starts, (t * longest + durations - 1) * labels + y, 0))
    if labels == states:
        return begun
    used = uses[:, : steps * longest * labels].unflatten(1, (steps, longest, labels))
    ended = torch.stack([pad(used[:, :, k], (0, 0, k, 0))[:, :steps] for k in range(longest)]).sum(0)
    free = ended[..., :states] + ended[..., states:]  # ends a segment of this state, and so may go on
    state = _of_parts(torch.where(starts, y % states, 0), starts).unsqueeze(2)
    later = pad(used[:, 1:, 0, states:], (0, 0, 0, 1)).gather(2, state).squeeze(2)
    stays = (later / free.gather(2, state).squeeze(2).clamp_min(_TINY)).clamp(0, 1)
    following, is_last = pad(y[:, 1:], (0, 1)), ~pad(inside[:, 1:], (0, 1))
    ends = (following >= 0) & (following < states)
    chances = torch.where(is_last, 1.0, torch.where(ends, 1 - stays, torch.where(following < 0, 1.0, stays)))
    begins = starts & ~goes_on
    chances = torch.where(begins, begun * chances, chances).clamp(_TINY, 1)
    return _of_parts(torch.where(inside, chances.log(), 0.0), begins).exp()


_TINY = 1e-300


def _of_parts(values: Tensor, starts: Tensor) -> Tensor:
    """The sum of the values [B, T] from each start to before the next, at all of these positions."""
    part = (starts.long().cumsum(1) - 1).clamp_min(0)
    return torch.zeros_like(values).scatter_add(1, part, values).gather(1, part)
