"""Numbers that do not fit into memory: written once, and mapped into memory from then on."""

import io
import mmap
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from structsmooth.checkpoint import write_atomic
from structsmooth.files import keep, writing

_BLOCK = 1 << 20
N = TypeVar("N", np.int32, np.float32)


def mapped(path: Path, shape: tuple[int, ...], dtype: type[N], parts: Iterable[NDArray[N]]) -> NDArray[N]:
    """The ``.npy`` file of an array, mapped into memory; it is first written from its parts if need be.

    A file beside it has the checksum: what is not as it was written is written anew. Processes may share a folder.

    Raises:
        OSError: a folder that cannot be made or written into.
    """
    checksum = path.with_suffix(".crc32")
    if not _intact(path, checksum):
        path.parent.mkdir(parents=True, exist_ok=True)
        running = _Checksum()
        keep(path, lambda file: write_atomic(file, running.of(_pieces(shape, dtype, parts))))
        keep(checksum, lambda file: write_atomic(file, f"{running.value:08x}"))
    return _read(path, shape, dtype)


def unnamed(shape: tuple[int, ...], dtype: type[N], parts: Iterable[NDArray[N]]) -> NDArray[N]:
    """An array in a file without a name, mapped into memory; the file goes with the array."""
    with TemporaryFile() as file, writing(Path(gettempdir())):
        for part in parts:
            file.write(part.tobytes())
        file.flush()
        return np.memmap(file, dtype, "c", shape=shape)


def _read(path: Path, shape: tuple[int, ...], dtype: type[N]) -> NDArray[N]:
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        # Copy on write: torch asks for memory that may be written.
        pages, begin = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), file.tell()
    # Steps take examples in random order. Pages around them, read ahead, would drive others out if memory is short.
    if hasattr(mmap, "MADV_RANDOM"):
        pages.madvise(mmap.MADV_RANDOM)
    return np.ndarray(shape, dtype, pages, begin)


def _pieces(shape: tuple[int, ...], dtype: type[N], parts: Iterable[NDArray[N]]) -> Iterator[bytes]:
    header = io.BytesIO()
    layout = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, layout)
    yield header.getvalue()
    for part in parts:
        yield part.tobytes()


class _Checksum:
    """The CRC-32 checksum of pieces of bytes that pass through it on their way to a file."""

    def __init__(self) -> None:
        self.value = 0

    def of(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.value = zlib.crc32(piece, self.value)
            yield piece


def _intact(path: Path, checksum: Path) -> bool:
    """Whether a file is as it was written."""
    if not (path.is_file() and checksum.is_file()):
        return False
    value = 0
    with path.open("rb") as file:
        while piece := file.read(_BLOCK):
            value = zlib.crc32(piece, value)
    return checksum.read_bytes() == f"{value:08x}".encode()
