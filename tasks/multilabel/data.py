"""Examples with several labels each: archives of arrays, tables in CSV, and text in the format of SVMlight."""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import check_size, csv_rows, load_arrays, numbers, read_lines, split_part

# What the names of the columns of labels begin with.
_LABEL = "label:"
# Bytes of memory that a number with its value takes while it is read, and an example beside its arrays.
_PAIR, _EXAMPLE = 256, 512


@dataclass(frozen=True)
class Example:
    """Features of an example, and its labels.

    Attributes:
        indices: numbers of the features that are given, from 0: int64 [F].
        values: their values, float64 [F]; others are zero.
        labels: names of the labels that it has; ``None`` if they are to be predicted.
    """

    indices: NDArray[np.int64]
    values: NDArray[np.float64]
    labels: frozenset[str] | None = None


def read_examples(path: str | TextIO) -> list[Example]:
    """Examples of an ``.npz`` file, or one part of it (``yeast.npz#train``), of a ``.csv`` file, or of other text.

    An archive has features X [n, D], or X_indices and X_indptr for binary ones in compressed rows; labels Y [n, L] of 0
    and 1, which may be absent; and ``label_names`` [L], which may be too. A part is behind the letter, as in
    ``X_train`` and ``X_train_indices``, and ``yeast.npz#train:1-1000`` has its first thousand rows. In CSV, a header
    names the columns: ``label:beach`` has 0 or 1 for the label beach, and all other columns are features. Other text,
    and standard input, is in the format of SVMlight: a line is ``beach,urban 3:0.5 7:1``, labels, then numbers of
    features from 1 with values.

    Raises:
        ValueError: something else, with the path and the line or array.
        OSError: a file that cannot be read.
    """
    if not isinstance(path, str):
        return read_svmlight(path, "standard input")
    file, part = split_part(path)
    if file.suffix == ".npz":
        return _Archive(str(file), part).examples()
    if part is not None:
        raise ValueError(f"{path}: only .npz files have parts")
    read = read_csv if file.suffix == ".csv" else read_svmlight
    return read(read_lines(file), str(file))


def read_csv(lines: Iterable[str], name: str) -> list[Example]:
    """Examples of the lines of a table; ``name`` is for error messages."""
    rows = csv_rows(lines, name)
    header = [cell.strip() for cell in next(rows, (1, []))[1]]
    columns = [i for i, title in enumerate(header) if not title.startswith(_LABEL)]
    # Labels repeat in all examples: one string for each.
    titles = {i: sys.intern(title.removeprefix(_LABEL)) for i, title in enumerate(header) if title.startswith(_LABEL)}
    if not columns or len(set(titles.values())) < len(titles) or "" in titles.values():
        raise ValueError(f"{name}:1: the header must name a feature at least, and labels as in label:NAME, each once")
    examples, indices = [], np.arange(len(columns))
    for line, row in rows:
        place = f"{name}:{line}"
        if len(row) != len(header):
            raise ValueError(f"{place}: expected {len(header)} cells, got {len(row)}")
        try:
            values = np.array([float(row[i]) for i in columns])
        except ValueError as error:
            raise ValueError(f"{place}: {error}; features are numbers, and commas separate them") from None
        present = {label: row[i].strip() for i, label in titles.items()}
        if not np.isfinite(values).all() or not set(present.values()) <= {"0", "1"}:
            raise ValueError(f"{place}: features must be finite numbers, and labels 0 or 1")
        labels = frozenset(label for label, cell in present.items() if cell == "1") if titles else None
        examples.append(Example(indices, values, labels))
    if not examples:
        raise ValueError(f"{name}: no examples")
    return examples


def read_svmlight(lines: Iterable[str], name: str) -> list[Example]:
    """Examples of lines in the format of SVMlight; ``name`` is for error messages."""
    examples, size = [], 0
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].rstrip()
        if not text:
            continue
        check_size(f"{name}:{number}", _PAIR * text.count(":"))
        labels, *pairs = re.split(r"\s+", text)
        if ":" in labels:
            raise ValueError(f"{name}:{number}: a line begins with labels, or with a space where there are none")
        try:
            found = [(int(index), float(value)) for index, value in (pair.split(":") for pair in pairs)]
            indices = np.array([index for index, _ in found], dtype=np.int64) - 1
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{name}:{number}: expected index:value, {error}") from None
        values = np.array([value for _, value in found], dtype=np.float64)
        if len(indices) and (indices.min() < 0 or (np.diff(indices) <= 0).any() or not np.isfinite(values).all()):
            raise ValueError(f"{name}:{number}: indices must rise from 1, and values must be finite")
        given = frozenset(map(sys.intern, labels.split(","))) if labels else None
        examples.append(Example(indices, values, None if given == frozenset({"?"}) else given))
        size += _EXAMPLE + indices.nbytes + values.nbytes
        check_size(name, size, whole=False)
    if not examples:
        raise ValueError(f"{name}: no examples")
    return examples


class _Archive:
    """The arrays of a file of any origin, checked where they are asked for."""

    def __init__(self, path: str, part: str | None) -> None:
        # As in train:1-1000.
        name, colon, wanted = (part or "").partition(":")
        self._path, self._suffix = path, f"_{name}" if name else ""
        self._wanted = numbers(wanted, f"{path}#{part}", colon) if colon else None
        self._arrays = load_arrays(path)

    def examples(self) -> list[Example]:
        rows = self._rows()
        labels = self._labels(len(rows))
        found = [Example(*row, names) for row, names in zip(rows, labels, strict=True)]
        return found if self._wanted is None else self._some(found, self._wanted)

    def _some(self, examples: list[Example], wanted: range) -> list[Example]:
        """The rows with some numbers, of which the first is 1."""
        if not 1 <= wanted[0] <= wanted[-1] <= len(examples):
            raise ValueError(f"{self._path}: no rows {wanted[0]}-{wanted[-1]}, there are {len(examples)}")
        return examples[wanted[0] - 1 : wanted[-1]]

    def _rows(self) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        x = f"X{self._suffix}"
        if x in self._arrays:
            table = self._table(x)
            everything = np.arange(table.shape[1])
            return [(everything, row) for row in table.astype(np.float64)]
        if f"{x}_indptr" not in self._arrays:
            parts = sorted(key[2:] for key in self._arrays if re.fullmatch(r"X_[a-z]+", key))
            hint = f"; it has the parts {', '.join(parts)}: give one as {self._path}#{parts[0]}" if parts else ""
            raise ValueError(f"{self._path}: no array {x}{hint}")
        indices, starts = (self._arrays[f"{x}_{name}"].astype(np.int64) for name in ("indices", "indptr"))
        rises = starts.ndim == indices.ndim == 1 and len(starts) > 1 and starts[0] == 0 and starts[-1] == len(indices)
        if not rises or (np.diff(starts) < 0).any() or (len(indices) and indices.min() < 0):
            raise ValueError(f"{self._path}: {x}_indices and {x}_indptr must be compressed rows")
        return [(row, np.ones(len(row))) for row in np.split(indices, starts[1:-1])]

    def _labels(self, count: int) -> Sequence[frozenset[str] | None]:
        y = f"Y{self._suffix}"
        if y not in self._arrays:
            return [None] * count
        table = self._table(y)
        if len(table) != count or not np.isin(table, (0, 1)).all():
            raise ValueError(f"{self._path}: {y} must be {count} rows of 0 and 1, got {table.shape}")
        names = self._arrays.get("label_names", np.arange(table.shape[1]).astype(str))
        if names.shape != table.shape[1:] or len(set(names.tolist())) < len(names):
            raise ValueError(f"{self._path}: label_names must be {table.shape[1]} different names")
        known = [sys.intern(str(name)) for name in names.tolist()]
        return [frozenset(known[i] for i in row.nonzero()[0].tolist()) for row in table]

    def _table(self, key: str) -> NDArray[Any]:
        array = self._arrays[key]
        if array.ndim != 2 or array.dtype.kind not in "iufb" or not np.isfinite(array).all() or not array.size:
            raise ValueError(f"{self._path}: {key} must be a table of finite numbers, got {array.dtype} {array.shape}")
        return array
