"""Segments of time series, such as the waves of an electrocardiogram."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from structsmooth import export
from structsmooth.calibration import tempered
from structsmooth.markup import Block, Markup, Matrix
from structsmooth.messages import tracked
from structsmooth.problems import DifferenceProblem, LinearModuleProblem, ModuleProblem, PartialLabels
from structsmooth.settings import PositiveInt
from structsmooth.structures import Structure
from structsmooth.tasks.base import FittedTask, Predictions, Split, Task, labelled
from structsmooth.tasks.probabilities import Parts as Probabilities
from structsmooth.tasks.probabilities import ProbabilisticTask
from structsmooth.tasks.segments.data import read_series, write_segments
from structsmooth.tasks.segments.decoding import Decoder, in_positions, in_samples, window_of
from structsmooth.tasks.segments.durations import Limits, Space, asked_positions, check_durations
from structsmooth.tasks.segments.exported import INPUTS, OUTPUTS, SegmentsProgram
from structsmooth.tasks.segments.grammar import Grammar, longest
from structsmooth.tasks.segments.picture import draw_series, series_markup
from structsmooth.tasks.segments.results import Measures, is_marked, segment_table, wrong_boundaries
from structsmooth.tasks.segments.score import Parts, SegmentScore, collate, collate_partial
from structsmooth.tasks.segments.series import Segment, Series, Stretch, known_segments, resampled

Model = Literal["chain", "semi-markov"]
Unmarked = Literal["left-out", "partial"]


@dataclass(frozen=True)
class FittedSegments(ProbabilisticTask):
    """A segmenter with what it knows of its training data.

    Args:
        task: the task.
        grammar: labels, and which segments follow each other.
        channels: number of channels of the signal.
        longest: positions of the longest segment that has a score.
        limits: positions of the shortest and of the longest segment of each label, in which predictions keep; none in
            models of version 0.3.
    """

    task: "Segments"
    grammar: Grammar
    channels: PositiveInt
    longest: PositiveInt
    limits: Limits | None = None

    example_type: ClassVar[type] = Series
    input_json: ClassVar[Mapping[str, str]] = {"series": "name"}
    output_json: ClassVar[tuple[str, Any]] = ("segments", tuple[Segment, ...])

    def problem(self, examples: Sequence[Series]) -> ModuleProblem | LinearModuleProblem | DifferenceProblem:
        """Structural hinge losses of the marked stretches of all series; the cost is the number of wrong positions.

        With partial labels, losses are those of whole series.
        """
        found, linear = [self._resampled(series) for series in examples], self.task.layers == 1
        if self.task.unmarked == "partial" and any(series.unmarked for series in found):
            marked = [series for series in found if series.marked]
            whole = [self._part(self.signal(series), (0, len(series.signal))) for series in marked]
            partial = list(zip(whole, map(self._known, marked), strict=True))
            of_linear = LinearModuleProblem.of_partial_labels
            return (of_linear if linear else ModuleProblem)(self.module(), partial, collate=collate_partial)
        data = list(self._labelled(found))
        if not data:
            raise ValueError("there are no marked stretches to train on")
        return (LinearModuleProblem if linear else ModuleProblem)(self.module(), data, collate=collate)

    def predict(self, weights: Tensor, examples: Sequence[Series], k: int = 1) -> Predictions:
        """The k best segmentations of each series with their scores, stretches without marks included."""
        module = self.module(weights)
        return [self._segmented(module, series, k) for series in tracked(examples, "predicting")]

    def known_outputs(self, weights: Tensor, examples: Sequence[Series]) -> Iterator[tuple[Structure, Tensor]]:
        """The sequences of states, or of segments, of marked stretches of series whose labels training data had."""
        module, longest = self.module(weights), self.longest if self.task.has_durations else None
        found = [self._resampled(series) for series in examples if not self.unseen_labels([series])]
        with torch.no_grad():
            for part, states in self._labelled(found):
                # A segment that is longer than all scored durations makes this no output.
                if longest is None or max(np.diff([*np.flatnonzero(states.numpy() >= 0), len(states)])) <= longest:
                    yield module(part), states[None]

    def distributions(self, weights: Tensor, examples: Sequence[Series]) -> Iterator[tuple[list[int], Structure]]:
        """The sequences of states, or of segments, of series; of windows side by side where series are longer."""
        module = self.module(weights)
        for number, series in enumerate(examples):
            decoder = self._decoder(module, series, lambda space: tempered(space, self.temperature))
            for begin in range(0, decoder.length, decoder.window):
                yield [number], decoder.space((begin, min(begin + decoder.window, decoder.length)), True)

    def part_probabilities(
        self, weights: Tensor, examples: Sequence[Series], outputs: Sequence[Sequence[Sequence[Segment]]]
    ) -> Probabilities:
        """The probabilities of segments with both of their ends, to the nearest position."""
        module, step, labels = self.module(weights), self.task.step, self.grammar.labels
        found = []
        for series, ranked in zip(examples, outputs, strict=True):
            decoder = self._decoder(module, series, lambda space: tempered(space, self.temperature))
            spans = [in_positions(segments, step, labels) for segments in ranked]
            probabilities = iter(decoder.probabilities([span for of_output in spans for span in of_output]))
            found.append([list(islice(probabilities, len(of_output))) for of_output in spans])
        return found

    def marginals(self, weights: Tensor, examples: Sequence[Series]) -> list[dict[str, list[float]]]:
        """For each label, the probability that each position, of ``step`` samples, is in a segment of it."""
        module, labels = self.module(weights), self.grammar.labels
        decoders = (self._decoder(module, one, lambda space: tempered(space, self.temperature)) for one in examples)
        return [dict(zip(labels, decoder.label_marginals().T.tolist(), strict=True)) for decoder in decoders]

    def right_parts(self, example: Series, output: Sequence[Segment]) -> list[bool | None]:
        """Which segments are right to the nearest position; unknown where nothing is marked."""
        step, length = self.task.step, len(example.signal)
        gold = {*in_samples(known_segments(self._resampled(example)), step, length)}
        return [
            segment in gold if segment in gold or is_marked(example, (segment.start + segment.stop) // 2) else None
            for segment in output
        ]

    def part_names(self, example: Series, output: Sequence[Segment]) -> list[str]:
        """Labels with the samples that segments have."""
        return [f"{label}, samples {start} to {stop - 1}" for start, stop, label in output]

    def exported(self, weights: Tensor) -> export.Exported:
        """All from samples to segments and their probabilities, as :class:`.SegmentsProgram` says.

        Raises:
            ValueError: the option ``window``: a program decodes series as wholes.
        """
        task, labels, step = self.task, self.grammar.labels, self.task.step
        if task.window is not None:
            raise ValueError(
                "window: exported programs decode series as wholes, and so find other segments than overlapping "
                "windows do: train without it, or cut series into pieces yourself"
            )
        limits = self.limits or Limits([1] * len(labels), [self.longest] * len(labels))
        margin, longest = task.layers * (task.width // 2), step * self._window
        module = SegmentsProgram(self.module(weights), limits, step, task.normalize, margin, self.temperature)
        samples = 6 * step + 1
        inputs = torch.arange(2.0 * samples * self.channels).view(2, samples, -1).sin(), torch.tensor([samples, 4])
        sizes: tuple[dict[int, str], ...] = ({0: "batch", 1: "samples"}, {0: "batch"}, {0: "batch"})
        says = {"labels": labels, "longest": longest, "calibrated": self.temperature is not None}
        return export.Exported(module, (*inputs, torch.tensor([True, False])), sizes, INPUTS, OUTPUTS, says)

    def measure(self, examples: Sequence[Series], outputs: Sequence[Sequence[Segment]]) -> tuple[dict[str, float], str]:
        """F1 of boundaries and of segments, and the share of samples with the right label."""
        measures = Measures.of(examples, outputs, self.task.tolerance)
        return measures.metrics(), measures.table()

    def unseen_labels(self, examples: Sequence[Series]) -> Mapping[str, int]:
        """How often each label occurs that training series did not have."""
        names = [s.label for series in examples for s in series.segments or () if s.label not in self.grammar.labels]
        return {name: names.count(name) for name in {*names}}

    def write(self, examples: Sequence[Series], predictions: Predictions, stream: TextIO) -> None:
        """A table of segments; see :func:`~structsmooth.tasks.segments.data.write_segments`."""
        rows = (
            (series.name, rank, segments)
            for series, ranked in zip(examples, predictions, strict=True)
            for rank, (_, segments) in enumerate(ranked, 1)
        )
        write_segments(rows, stream)

    def draw(self, examples: Sequence[Series], predictions: Predictions, folder: Path) -> None:
        """A PNG file of each series, by its number and name: the signal over bands of segments."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, (series, ranked) in enumerate(zip(examples, predictions, strict=True), 1):
            draw_series(series, ranked[0][1], self.grammar.labels, folder / f"{number:04}.png")

    def show_example(
        self,
        example: Series,
        ranked: Sequence[tuple[float, Sequence[Segment]]],
        probabilities: Sequence[float] | None = None,
    ) -> Markup:
        """The signal over bands of the segments that were found and, if they are known, of those that should be."""
        return series_markup(example, ranked, self.grammar.labels, probabilities)

    def mistake(self, example: Series, output: Sequence[Segment]) -> float:
        """The number of boundaries that are missed or wrong."""
        return wrong_boundaries(example, output, self.task.tolerance)

    def show_results(self, examples: Sequence[Series], outputs: Sequence[Sequence[Segment]]) -> list[Block]:
        """The metrics of each label."""
        return [segment_table(Measures.of(examples, outputs, self.task.tolerance))]

    def show_weights(self, weights: Tensor, examples: Sequence[Series]) -> list[Block]:
        """Scores of pairs of states, and of the durations of segments if the model has them."""
        module, names = self.module(weights), self.grammar.names()
        scores = (module.transition + module.transition_mask).detach().double()
        pairs = scores.where(scores.isfinite(), torch.nan).numpy()
        blocks: list[Block] = [Matrix("Scores of pairs of states", names, names, pairs, "state", "next state")]
        if module.longest is not None:
            sizes = [str(size * self.task.step) for size in range(1, module.longest + 1)]
            durations = module.durations.detach().double().numpy().T
            caption = "Scores of durations, in samples"
            blocks.append(Matrix(caption, self.grammar.labels, sizes, durations, "label", "duration"))
        return blocks

    @property
    def dim(self) -> int:
        """Weights of convolutions, pairs of states and durations."""
        task, states = self.task, self.grammar.size
        sizes = [self.channels, *[task.hidden] * (task.layers - 1), states]
        convolutions = sum((task.width * before + 1) * after for before, after in pairwise(sizes))
        return convolutions + states**2 + task.has_durations * self.longest * len(self.grammar.labels)

    def module(self, weights: Tensor | None = None) -> SegmentScore:
        """The score module with its first weights, or with those that are given."""
        task = self.task
        # The same first weights each time, and the caller's random numbers as they were.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(task.seed)
            sizes = (task.width, task.hidden, task.layers)
            module = SegmentScore(self.grammar, self.channels, *sizes, self.longest if task.has_durations else None)
        if weights is not None:
            nn.utils.vector_to_parameters(weights, module.parameters())
        return module

    def _resampled(self, series: Series) -> Series:
        if series.signal.shape[1] != self.channels:
            raise ValueError(
                f"series {series.name} must have {self.channels} channels, as in training, got {series.signal.shape[1]}"
            )
        return resampled(series, self.task.step)

    def signal(self, series: Series) -> NDArray[np.float32]:
        """The signal as scores see it, with zeros on both sides: float32 [T + margin, C]."""
        signal, margin = series.signal, self.task.layers * (self.task.width // 2)
        if self.task.normalize and len(signal):
            scale = np.maximum(signal.std(axis=0, dtype=np.float64).astype(np.float32), np.float32(1e-6))
            signal = ((signal - np.median(signal, axis=0)) / scale).astype(np.float32)
        return np.pad(signal, ((margin, margin), (0, 0)))

    def _part(self, signal: NDArray[np.float32], stretch: Stretch) -> Parts:
        """A stretch of a signal, with all that the score sees, as a batch of one."""
        margin = self.task.layers * (self.task.width // 2)
        seen = signal[stretch[0] : stretch[1] + 2 * margin]
        lengths, begins = torch.tensor([stretch[1] - stretch[0]]), torch.tensor([stretch[0] == 0])
        return torch.from_numpy(seen[None]), lengths, begins

    def _labelled(self, examples: Sequence[Series]) -> Iterator[tuple[Parts, Tensor]]:
        """The marked stretches of series of positions, and their states."""
        labels = self.grammar.starts if self.task.has_durations else self.grammar.states
        for series in examples:
            signal = self.signal(series)
            for stretch in series.marked:
                yield self._part(signal, stretch), torch.from_numpy(labels(series, stretch))

    def _known(self, series: Series) -> PartialLabels:
        """The states that each position may have, of a series with unmarked stretches."""
        allowed = torch.from_numpy(self.grammar.allowed(series))
        return PartialLabels(torch.zeros(len(allowed), dtype=torch.int64), allowed)

    def _segmented(self, module: SegmentScore, series: Series, k: int) -> list[tuple[float, tuple[Segment, ...]]]:
        """The k best segmentations of a series.

        Several sequences of states may be the same segments: they differ in what lies before the first one. There are
        at most L + 1 such sequences, so that k (L + 1) of them are k different segmentations, if there are so many.
        """
        decoder = self._decoder(module, series, lambda space: tempered(space, None))  # sums in float64
        if k == 1 or not decoder.length:
            ranked = [decoder.best()]
        else:
            values, outputs = decoder.space((0, decoder.length), True).topk(k * (len(self.grammar.labels) + 1))
            ranked = list(zip(values[0].tolist(), outputs[0].tolist(), strict=True))
        found: dict[tuple[Segment, ...], float] = {}
        for score, y in ranked:
            if score > -torch.inf and len(found) < k:
                spans = self.grammar.segments(y, not self.task.has_durations)
                found.setdefault(in_samples(spans, self.task.step, len(series.signal)), score)
        return [(score, segments) for segments, score in found.items()]

    def _decoder(self, module: SegmentScore, series: Series, changed: Callable[[Any], Any]) -> Decoder:
        """What finds segments in a series, by scores that are changed before limits are applied to them."""
        resampled, limits, has_durations = self._resampled(series), self.limits, self.task.has_durations
        signal, length = self.signal(resampled), len(resampled.signal)

        def space(stretch: Stretch, cut: bool) -> Space:
            with torch.no_grad():
                scored = changed(module(self._part(signal, stretch)))
                return scored if limits is None else limits.applied(scored, cut)

        return Decoder(space, self.grammar, not has_durations, length, self._window)

    @property
    def _window(self) -> int:
        """Positions that are decoded at once."""
        longest = self.longest if self.task.has_durations else max(self.limits.shortest) if self.limits else 1
        return self.task.window or window_of(longest, self.grammar.size)


@dataclass(frozen=True)
class Segments(Task):
    """Labelled segments of time series, by chains or semi-Markov models over convolutions of the signal.

    Stretches that nobody has marked are left out of the training, or train as partial labels. What is found there is
    not measured.

    Args:
        model: what segments are scored by: the states of neighbouring positions alone (chain), or also their duration
            (semi-markov). Segments of one label that touch are one in a chain.
        step: samples of which the mean is one position; boundaries are found with this precision.
        width: positions that a convolution covers, an odd number.
        layers: number of convolutions, with ReLU between them; with 1, scores are linear, and the training is convex.
        hidden: channels between convolutions.
        normalize: whether each channel of each series is centered at its median and divided by its standard deviation.
        unmarked: what becomes of stretches that nobody has marked: they are left out, or train by all segmentations
            that agree with what is marked (partial); with 1 layer, the solver convex-concave does so, too.
        any_order: whether segments may follow each other as they never do in the training data.
        min_duration: samples of the shortest segment that is found, unless an end of its series cuts it; those of the
            shortest of its label in the training data if not given. By label, as in helix=7,strand=3, it is one number
            for each of some labels.
        max_duration: samples of the longest segment that is found, likewise; for semi-markov alone.
        window: positions that are decoded at once; longer series are decoded in windows that overlap by a quarter, and
            whose segments fit together. As many as take little memory if not given.
        tolerance: greatest distance of a boundary from the true one that counts as right, in seconds or what other unit
            of time the rate has.
        rate: samples a second of files that do not say.
        seed: same seed, same first weights.
    """

    model: Model = "chain"
    step: PositiveInt = 1
    width: PositiveInt = 25
    layers: PositiveInt = 3
    hidden: PositiveInt = 16
    normalize: bool = True
    unmarked: Unmarked = "left-out"
    any_order: bool = False
    min_duration: PositiveInt | str | None = None
    max_duration: PositiveInt | str | None = None
    window: PositiveInt | None = None
    tolerance: float = 0.15
    rate: float = 1.0
    seed: int = field(default=0, metadata={"flag": None})

    summary: ClassVar[str] = "labelled segments of time series, such as heartbeats"
    files: ClassVar[str] = (
        "A .csv table with a line for each sample: columns of numbers, label, and series if there are several; or an "
        ".npz archive of signal, series_start, labels and segments. PATH#1-140 selects series."
    )
    # Recordings 1 to 140 and 161 to 200 of LUDB.
    data: ClassVar[Mapping[str, str]] = {"train": "ludb/ludb.npz#1-140", "test": "ludb/ludb.npz#161-200"}
    example: ClassVar[str] = "--train 'ludb.npz#1-140' --test 'ludb.npz#161-200' --step 5"
    headline: ClassVar[str] = "boundary_f1"
    lam: ClassVar[str] = "0.01/n"
    passes: ClassVar[int] = 30
    solver: ClassVar[str] = "adam"
    fitted_type: ClassVar[type[FittedTask]] = FittedSegments

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % 2 == 0:
            raise ValueError(f"width must be odd, so that a position is in the middle, got {self.width}")
        if self.max_duration is not None and not self.has_durations:
            raise ValueError("chains have no longest segment: leave max_duration out, or take the model semi-markov")
        check_durations(self.min_duration, self.max_duration)
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"rate must be positive, got {self.rate}")

    @property
    def has_durations(self) -> bool:
        """Whether durations of segments have scores."""
        return self.model == "semi-markov"

    def read(self, path: str | TextIO, split: Split = "train") -> list[Series]:
        """Series of a table or an archive; see :func:`~structsmooth.tasks.segments.data.read_series`."""
        return labelled(read_series(path, self.rate), split, known_segments)

    def texts(self, examples: Sequence[Series]) -> list[int] | None:
        """The numbers of recordings, if they are known."""
        numbers = [series.recording for series in examples if series.recording is not None]
        return numbers if len(numbers) == len(examples) else None

    def fit(self, examples: Sequence[Series]) -> FittedSegments:
        """The segmenter, with labels, their order and their durations."""
        series = [resampled(example, self.step) for example in examples]
        grammar = Grammar.of(series, self.any_order)
        asked = asked_positions(self.min_duration, self.max_duration, grammar.labels, self.step)
        limits = Limits.of(series, grammar.labels, *asked)
        scored = max(longest(series), *limits.longest)
        return FittedSegments(self, grammar, series[0].signal.shape[1], scored, limits)
