"""Pictures of signals over bands of segments."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from structsmooth.checkpoint import save_figure
from structsmooth.markup import Markup, differences, element, joined
from structsmooth.tasks.segments.series import Segment, Series

# Width and heights in pixels of a drawing: of the signal of a channel, and of a row of bands.
_WIDTH, _SIGNAL, _BAND = 720, 110, 14
# Opacity of a band of probability 0.
_FAINTEST = 0.15
_GOLDEN = 137.508  # degrees: successive hues are far from each other


def draw_series(series: Series, found: Sequence[Segment], labels: Sequence[str], path: Path) -> None:
    """Save the signal of a series over the segments that were found and, below, those that are known."""
    from matplotlib.colors import hsv_to_rgb  # slow to load, and not needed without a picture
    from matplotlib.figure import Figure

    channels, rows = series.signal.shape[1], _rows(series, found)
    heights = [3] * channels + [0.4 * len(rows)]
    figure = Figure(figsize=(12, 1 + 1.6 * channels + 0.4 * len(rows)), layout="constrained")
    *panels, below = figure.subplots(channels + 1, 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    names = [*labels, *sorted({s.label for _, segments in rows for s in segments} - {*labels})]
    colours = {name: hsv_to_rgb((_hue(number) / 360, 0.6, 0.85)) for number, name in enumerate(names)}
    times = np.arange(len(series.signal)) / series.rate
    for panel, channel in zip(panels, series.signal.T, strict=True):
        panel.plot(times, channel, color="0.2", linewidth=0.8)
        for start, stop, label in found:
            panel.axvspan(start / series.rate, stop / series.rate, color=colours[label], alpha=0.35, linewidth=0)
    for number, (_, segments) in enumerate(rows):
        for start, stop, label in segments:
            span = [(start / series.rate, (stop - start) / series.rate)]
            below.broken_barh(span, (number + 0.1, 0.8), facecolors=[colours[label]])
        for start, stop in series.unmarked if number else ():
            below.broken_barh([(start / series.rate, (stop - start) / series.rate)], (number + 0.1, 0.8), color="0.9")
    below.set(ylim=(len(rows), 0), xlim=(0, len(times) / series.rate), xlabel="time" if series.rate != 1 else "sample")
    below.set_yticks([number + 0.5 for number in range(len(rows))], [name for name, _ in rows])
    for name, colour in colours.items():
        below.bar(0, 0, color=colour, label=name)
    panels[0].set_title(series.name)
    panels[0].legend(*below.get_legend_handles_labels(), loc="upper right", ncols=len(names))
    save_figure(path, figure, dpi=100)


def series_markup(
    series: Series,
    ranked: Sequence[tuple[float, Sequence[Segment]]],
    labels: Sequence[str],
    probabilities: Sequence[float] | None = None,
) -> Markup:
    """The signal over bands of the segments that were found and, if they are known, of the right ones; alternatives.

    Bands of what was found fade as probabilities fall, if these are given.
    """
    best = ranked[0][1]
    sure = [1.0] * len(best) if probabilities is None else probabilities
    rows = _rows(series, best)
    names = [*labels, *sorted({s.label for _, segments in rows for s in segments} - {*labels})]
    numbers = {name: number for number, name in enumerate(names)}
    channels = series.signal.shape[1]
    bottom, scale = channels * _SIGNAL, _WIDTH / len(series.signal)
    drawn = [_band(s, numbers[s.label], 0, bottom, scale, opacity=0.25) for s in best]
    for number, (_, segments) in enumerate(rows):
        y = bottom + number * (_BAND + 4) + 4
        opacities = [1.0] * len(segments) if number else [_FAINTEST + (1 - _FAINTEST) * p for p in sure]
        bands = zip(segments, opacities, strict=True)
        drawn += [_band(s, numbers[s.label], y, _BAND, scale, opacity) for s, opacity in bands]
        for start, stop in series.unmarked if number else ():
            drawn.append(_rectangle(start * scale, y, (stop - start) * scale, _BAND, "currentColor", 0.12))
    for number, channel in enumerate(series.signal.T):
        points = " ".join(f"{x:.1f},{number * _SIGNAL + y:.1f}" for x, y in _outline(channel))
        drawn.append(element("polyline", points=points, fill="none", stroke="currentColor", stroke_width="1"))
    height = bottom + len(rows) * (_BAND + 4) + 4
    what = f"the signal of {series.name} over its segments"
    image = element("svg", *drawn, viewBox=f"0 0 {_WIDTH} {height}", width=_WIDTH, role="img", aria_label=what)
    below = ", below them the known ones; grey where nothing is marked" if len(rows) > 1 else ""
    patches = [element("span", class_="swatch", style=f"background: {_colour(i)}") for i in numbers.values()]
    legend = [element("span", *pair, class_="chip plain") for pair in zip(patches, numbers, strict=True)]
    title = element("p", f"{series.name}: segments found{below}", class_="note")
    chart = element("div", image, class_="scroll")
    return joined([title, chart, element("p", *legend, class_="chips"), differences(ranked, _text)])


def _rows(series: Series, found: Sequence[Segment]) -> list[tuple[str, Sequence[Segment]]]:
    rows: list[tuple[str, Sequence[Segment]]] = [("found", found)]
    return rows if series.segments is None else [*rows, ("known", series.segments)]


def _outline(channel: NDArray[np.float32]) -> list[tuple[float, float]]:
    """Points of a line: of many samples, the least and the greatest for each pixel."""
    low, high = float(channel.min()), float(channel.max())
    heights = _SIGNAL - 6 - (channel - low) / max(high - low, 1e-12) * (_SIGNAL - 12)
    if len(channel) <= 2 * _WIDTH:
        return [((t + 0.5) * _WIDTH / len(channel), float(y)) for t, y in enumerate(heights)]
    pieces = np.array_split(heights, _WIDTH)
    return [(x + 0.5, float(y)) for x, piece in enumerate(pieces) for y in (piece.min(), piece.max())]


def _band(segment: Segment, number: int, y: float, height: float, scale: float, opacity: float = 1.0) -> Markup:
    width = (segment.stop - segment.start) * scale
    title = element("title", _text(segment))
    return _rectangle(segment.start * scale, y, width, height, _colour(number), opacity, title)


def _rectangle(x: float, y: float, width: float, height: float, fill: str, opacity: float, *content: str) -> Markup:
    places = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    return element("rect", *content, fill=fill, opacity=opacity, **places)


def _colour(number: int) -> str:
    return f"hsl({_hue(number):.0f} 60% 55%)"


def _hue(number: int) -> float:
    return (210 + number * _GOLDEN) % 360


def _text(segment: Segment) -> str:
    return f"{segment.label} {segment.start} to {segment.stop}"
