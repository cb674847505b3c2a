"""Time series that are made up: bumps and dips over noise, in turns."""

import csv
from pathlib import Path

import numpy as np

from structsmooth.tasks.segments.series import Segment, Series

SHAPES = {"bump": (8, 2.0), "dip": (5, -2.0)}


def series(count: int = 6, length: int = 60, noise: float = 0.3, seed: int = 0) -> list[Series]:
    """A dip follows every bump; nothing is marked in the last ten samples of every second series."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        signal, segments = rng.normal(0, noise, (length, 2)), []
        at = int(rng.integers(3, 8))
        while at + 20 < length:
            for label, (size, height) in SHAPES.items():
                stop = at + size + int(rng.integers(-1, 2))
                signal[at:stop, 0] += height
                segments.append(Segment(at, stop, label))
                at = stop + int(rng.integers(2, 7))
        unmarked = ((length - 10, length),) if number % 2 else ()
        known = tuple(s for s in segments if not unmarked or s.stop <= unmarked[0][0])
        found.append(Series(f"s{number}", signal.astype(np.float32), 1.0, known, unmarked))
    return found


def arrays(examples: list[Series]) -> dict[str, np.ndarray]:
    """The archive of some series."""
    labels = [*SHAPES]
    rows = [(i, s.start, s.stop, labels.index(s.label)) for i, own in enumerate(examples) for s in own.segments or ()]
    stretches = [(i, *stretch) for i, own in enumerate(examples) for stretch in own.unmarked]
    return {
        "signal": np.concatenate([own.signal for own in examples]),
        "series_start": np.cumsum([0, *(len(own.signal) for own in examples)]),
        "segments": np.array(rows, dtype=np.int64).reshape(-1, 4),
        "unmarked": np.array(stretches, dtype=np.int64).reshape(-1, 3),
        "labels": np.array(labels),
        "names": np.array([own.name for own in examples]),
    }


def save(folder: Path, name: str = "signals.npz", **changed: object) -> str:
    """The path of an archive; arrays that are ``None`` are left out."""
    given = arrays(series()) | changed
    np.savez(folder / name, **{key: array for key, array in given.items() if array is not None})
    return str(folder / name)


def table(examples: list[Series], path: Path, labelled: bool = True) -> str:
    """The path of a table with a line for each sample."""
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["series", "a", "b", *(["label"] if labelled else [])])
        for own in examples:
            labels = [""] * len(own.signal)
            for start, stop, label in [*(own.segments or ()), *((*stretch, "?") for stretch in own.unmarked)]:
                labels[start:stop] = [label] * (stop - start)
            for values, label in zip(own.signal.tolist(), labels, strict=True):
                writer.writerow([own.name, *map(repr, values), *([label] if labelled else [])])
    return str(path)
