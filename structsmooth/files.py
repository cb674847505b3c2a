"""Where tasks find their data, and keep what they make of them: files, parts of files, and folders."""

import os
import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DATA_VARIABLE = "STRUCTSMOOTH_DATA"


def split_part(path: str) -> tuple[Path, str | None]:
    """The file or folder of ``PATH#PART`` and its part; ``None`` without a part, or if a file has that whole name.

    Example:
        >>> split_part("pictures.zip#train")
        (PosixPath('pictures.zip'), 'train')
    """
    if Path(path).exists() or "#" not in path:
        return Path(path), None
    name, _, part = path.rpartition("#")
    return Path(name), part


def select(path: str) -> tuple[Path, range | None]:
    """The file or folder of ``PATH#3`` or ``PATH#1-9``, and the numbers asked for, both ends included.

    The task decides what the numbers count, such as folds or images.

    Raises:
        ValueError: something else after the ``#``.

    Example:
        >>> select("letters.npz#1-9")
        (PosixPath('letters.npz'), range(1, 10))
    """
    source, part = split_part(path)
    return source, None if part is None else numbers(part, path, "#")


def numbers(text: str, path: str, mark: str) -> range:
    """The numbers of ``3`` or ``1-9``, both ends included.

    Args:
        text: what is behind the mark.
        path: for error messages, which has both.
        mark: such as ``"#"``.

    Raises:
        ValueError: something else.
    """
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        raise ValueError(f"{path}: expected a number or first-last after the {mark}, got {text!r}")
    return range(first, last + 1)


def data_file(task: str, name: str) -> str:
    """The path of data of a task that do not come with the package, in the folder that ``STRUCTSMOOTH_DATA`` names.

    The name may end in a part, as in :func:`split_part`.

    Raises:
        ValueError: the variable is not set, with what to do.
        FileNotFoundError: no such file in the folder.
    """
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        source = split_part(name)[0]
        raise ValueError(
            f"{task} comes without data: give --train, or set {DATA_VARIABLE} to a folder that has {source}"
        )
    path = os.path.join(folder, name)
    if not (source := split_part(path)[0]).exists():
        raise FileNotFoundError(f"{source} not found: {DATA_VARIABLE} must name a folder that has it")
    return path


def checksum(path: str) -> int:
    """A number that changes with the data: CRC-32 of a file, or of the names and sizes of all files in a folder."""
    source, part = split_part(path)
    if not source.is_dir():
        return zlib.crc32(repr(part).encode(), zlib.crc32(source.read_bytes()))
    files = sorted((str(file.relative_to(source)), file.stat().st_size) for file in source.rglob("*") if file.is_file())
    return zlib.crc32(repr((files, part)).encode())


def keep(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` make a file of a cache that runs share: two runs may make the same file at the same time."""
    own = path.with_name(f"{os.getpid()}-{path.name}")
    write(own)
    os.replace(own, path)


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file in UTF-8, without their ends and without a byte order mark.

    Raises:
        ValueError: a folder, or a file that is no text, with its path.
        OSError: a file that cannot be read, or does not exist.
    """
    expect_file(path)
    try:
        with open(path, encoding="utf-8-sig") as lines:
            return [line.rstrip("\n") for line in lines]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text in UTF-8 ({error.reason} at byte {error.start})") from None


def expect_file(path: str | os.PathLike[str]) -> None:
    """Refuse what is not there, and a folder where a file is expected.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a folder.
    """
    if os.path.isdir(path):
        raise ValueError(f"{path}: expected a file, got a folder")
    if not os.path.exists(path):
        where = "" if os.path.isabs(path) else f" in {os.getcwd()}"
        raise FileNotFoundError(f"{path}: no such file{where}; check the path")


def load_arrays(path: str) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file of any origin; it cannot run code.

    Raises:
        ValueError: not such a file, with its path.
        FileNotFoundError: no such file.
    """
    expect_file(path)
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("not a zip archive")
            with np.load(file, allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: expected an archive of arrays (.npz): {error}") from error
