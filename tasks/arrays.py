"""Archives of arrays of any origin, whose arrays are checked where they are asked for."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import load_arrays


class Archive:
    """The arrays of an ``.npz`` file by name; errors are ``ValueError`` and begin with its path."""

    def __init__(self, path: str) -> None:
        self.path, self.arrays = path, load_arrays(path)

    def integers(self, key: str, shape: tuple[int, ...], most: int | None = None) -> NDArray[Any]:
        """An array of integers, from 0 to ``most`` if that is given; a size of -1 may be any."""
        array = self.array(key, shape)
        if array.dtype.kind not in "iub":
            raise ValueError(f"{self.path}: {key} must be integers, got {array.dtype}")
        if most is not None and array.size and not 0 <= array.min() <= array.max() <= most:
            raise ValueError(f"{self.path}: {key} must be from 0 to {most}, got {array.min()} to {array.max()}")
        return array

    def numbers(self, key: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """An array of finite numbers; a size of -1 may be any."""
        array = self.array(key, shape)
        if array.dtype.kind not in "iufb" or not np.isfinite(array).all():
            raise ValueError(f"{self.path}: {key} must be finite numbers")
        return array.astype(np.float32)

    def array(self, key: str, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """The array of this name, of any shape if none is given."""
        if key not in self.arrays:
            raise ValueError(f"{self.path}: no array {key}")
        found = self.arrays[key].shape
        wanted = found if shape is None else shape
        if len(found) != len(wanted) or any(n not in (-1, size) for n, size in zip(wanted, found, strict=True)):
            raise ValueError(f"{self.path}: {key} must have shape {shape}, got {found}")
        return self.arrays[key]
