"""Where tasks find their data, and keep what they make of them: files, parts of files, and folders.

Files may be of any origin. Whatever is read as a whole comes in here, where one limit holds for what it may unpack to.
"""

import csv
import errno
import glob
import gzip
import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

DATA_VARIABLE = "STRUCTSMOOTH_DATA"
LIMIT_VARIABLE = "STRUCTSMOOTH_FILE_LIMIT"
# MiB that one file may unpack to.
_LIMIT = 512
_BLOCK = 1 << 20
_EMPTY_ARCHIVE = 300  # bytes that gzip makes of nothing, at most: a header with a name
# Bytes that a value of JSON, and a line of text, take in memory beside their characters.
_VALUE, _LINE = 64, 64

T = TypeVar("T")
File = Path | zipfile.Path
"""A file or folder, on disk or in a zip file."""


def size_limit() -> int:
    """Bytes that one file may unpack to: ``STRUCTSMOOTH_FILE_LIMIT`` MiB, or 512 MiB without it.

    Raises:
        ValueError: the variable is no positive number.
    """
    given = os.environ.get(LIMIT_VARIABLE, "") or str(_LIMIT)
    if not given.isascii() or not given.isdigit() or not 0 < int(given) < 1 << 40:
        raise ValueError(f"{LIMIT_VARIABLE} must be a positive whole number of MiB, got {given!r}")
    return int(given) << 20


class FileError(ValueError):
    """What is wrong with the content of a file, in a message that begins with the name of the file."""


def check_size(name: object, size: int, whole: bool = True) -> None:
    """Raise a :class:`FileError`, which says how to raise it, for more bytes than :func:`size_limit`.

    Args:
        name: of the file, or what of it takes so many bytes.
        size: bytes of memory.
        whole: whether this is all; else it is what has been read so far.
    """
    if size > (limit := size_limit()):
        needed, most = -(-size // (1 << 20)), limit >> 20
        takes, remedy = (f"{needed:,}", f"={needed}") if whole else (f"more than {most:,}", " to a larger number")
        raise FileError(
            f"{name}: takes {takes} MiB in memory, and the limit is {most:,} MiB: "
            f"if you trust the file, set {LIMIT_VARIABLE}{remedy}"
        )


@contextmanager
def decoding(name: object, kind: str) -> Iterator[None]:
    """A block that decodes a file of any origin: whatever a decoder raises becomes an error with the file's name.

    Raises:
        FileError: the file is not of its kind, damaged, or too large.
        OSError: it cannot be read, as the operating system says.
    """
    try:
        yield
    except Exception as error:
        known = isinstance(error, (FileError, ImportError))
        if known or (isinstance(error, OSError) and error.filename is not None):
            raise
        said = str(error).splitlines()
        raise FileError(f"{name}: expected {kind}: {said[0] if said else type(error).__name__}") from error


@contextmanager
def naming(path: str) -> Iterator[None]:
    """A block that reads a file: errors in what it has name it, also those of libraries.

    Raises:
        ValueError: what the block raises.
    """
    try:
        yield
    except ValueError as error:
        if split_part(path)[0].name in str(error):
            raise
        raise FileError(f"{path}: {error}") from error


@contextmanager
def writing(name: object) -> Iterator[None]:
    """A block that writes a file: errors of the operating system, whatever library meets them, name the file.

    Raises:
        OSError: what the block raises, such as that the disk is full.
    """
    try:
        yield
    except BrokenPipeError:  # whoever reads has seen enough: no fault of the file
        raise
    except Exception as error:
        known = getattr(error, "filename", None)
        if known is not None and not str(known).startswith(str(name)):
            raise
        number = getattr(error, "errno", None) or _number_told(error)
        if number is None and not isinstance(error, OSError):
            raise
        raise OSError(number, os.strerror(number) if number else str(error), str(name)) from error


def _number_told(error: Exception) -> int | None:
    """The number of an error of the operating system that a library in Rust only tells."""
    told = re.search(r"\(os error (\d+)\)", str(error))
    return int(told[1]) if told else None


def read_stream(stream: IO[bytes], name: object) -> bytes:
    """What is left of a stream, a block at a time: one without end, or whose size is a lie, takes no more memory.

    Raises:
        FileError: more bytes than :func:`size_limit`.
    """
    whole = BytesIO()
    while block := stream.read(_BLOCK):
        whole.write(block)
        check_size(name, whole.tell(), whole=False)
    return whole.getvalue()


def read_bytes(file: File) -> bytes:
    """The content of a file, or of a member of a zip file.

    Raises:
        FileNotFoundError: no such file on disk.
        ValueError: a folder, a member that is missing, damaged or encrypted, or too many bytes.
        OSError: a file that cannot be read.
    """
    if isinstance(file, Path):
        expect_file(file)
        check_size(file, file.stat().st_size)
        with open(file, "rb") as stream:
            return read_stream(stream, file)
    with decoding(file, "a member of the archive that can be read"):
        check_size(file, file.root.getinfo(file.at).file_size)
        with file.root.open(file.at) as stream:
            return read_stream(stream, file)


def read_text(file: File) -> str:
    """A text in UTF-8, without a byte order mark, on disk or in a zip file; errors as for :func:`read_bytes`."""
    try:
        return read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: expected text in UTF-8 ({error.reason} at byte {error.start})") from None


def read_json(file: File) -> Any:
    """The value in a file of JSON; errors as for :func:`read_bytes`."""
    text = read_text(file)
    check_size(file, len(text) + _VALUE * sum(map(text.count, ",:[{")))
    with decoding(file, "JSON"):
        return json.loads(text)


def csv_rows(lines: Iterable[str], name: object) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row of a table in CSV that is not empty, with the number of its line.

    Raises:
        ValueError: what is no CSV, such as a cell of more than 128 KiB, with the name of the file and the line.
    """
    reader = csv.reader(_bounded_rows(lines, name))
    try:
        for row in filter(None, reader):
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{name}:{reader.line_num}: {error}") from error


def _bounded_rows(lines: Iterable[str], name: object) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        check_size(f"{name}:{number}", len(line) + _VALUE * line.count(","))
        yield line


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


def numbered(path: str, items: Sequence[T], part: range | None, name: str) -> Sequence[T]:
    """The items that ``PATH#1-200`` asks for, counted from 1; all without a part. The name is what they are.

    Raises:
        ValueError: fewer items than are asked for.
    """
    if part is None:
        return items
    if part.start < 1 or part.stop > len(items) + 1:
        raise ValueError(f"{path}: there are {len(items)} {name}, counted from 1")
    return items[part.start - 1 : part.stop - 1]


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


def shards(path: str) -> list[str]:
    """The files that a pattern such as ``shards/*.conll.gz`` stands for, sorted by name; a path that is none, alone.

    Files without a byte, which programs write that have nothing for a part, are left out, also where gzip compressed
    the nothing.

    Raises:
        FileNotFoundError: no file matches the pattern, or all that do are empty.
    """
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    if not (found := sorted(glob.glob(path))):
        raise FileNotFoundError(errno.ENOENT, "no file matches the pattern", path)
    if not (filled := [file for file in found if not _is_empty(file)]):
        raise FileNotFoundError(errno.ENOENT, f"all {len(found)} files that match the pattern are empty", path)
    return filled


def _is_empty(path: str) -> bool:
    size = os.path.getsize(path)
    if not 0 < size <= _EMPTY_ARCHIVE or os.path.isdir(path):
        return size == 0
    try:
        return not gzip.decompress(Path(path).read_bytes())
    except (EOFError, OSError, zlib.error):  # no archive, or damaged, which its reader says
        return False


def checksum(path: str) -> int:
    """A number that changes with the data: CRC-32 of a file, or of the names and contents of all files in a folder."""
    if (parts := shards(path)) != [path]:
        return checksum_of_parts([checksum(file) for file in parts])
    source, part = split_part(path)
    if not source.is_dir():
        expect_file(source)
        return zlib.crc32(repr(part).encode(), crc32(source))
    files = sorted((str(file.relative_to(source)), crc32(file)) for file in source.rglob("*") if file.is_file())
    return zlib.crc32(repr((files, part)).encode())


def checksum_of_parts(checksums: list[int]) -> int:
    """The checksum of the files of a pattern, from those of all of them in order."""
    return zlib.crc32(repr(checksums).encode())


def crc32(path: str | Path) -> int:
    """CRC-32 of the bytes of a file."""
    value = 0
    with open(path, "rb") as file:
        while piece := file.read(_BLOCK):
            value = zlib.crc32(piece, value)
    return value


def keep(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` make a file of a cache that runs share: two runs may make the same file at the same time."""
    temporary = path.with_name(f"{os.getpid()}-{path.name}")
    with writing(path):
        write(temporary)
        os.replace(temporary, path)


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file, without their ends; errors as for :func:`read_text`."""
    text = read_text(Path(path)).replace("\r\n", "\n").replace("\r", "\n")
    check_size(path, len(text) + _LINE * text.count("\n"))
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


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
        ValueError: not such a file, with its path, or arrays of more than :func:`size_limit` bytes.
        FileNotFoundError: no such file.
    """
    expect_file(path)
    with decoding(path, "an archive of arrays (.npz)"), zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
        check_size(path, sum(member.file_size for member in members))
        return {
            member.filename.removesuffix(".npy"): _array(archive.open(member), member.file_size) for member in members
        }


def load_array(path: str | Path) -> NDArray[Any]:
    """The array of an ``.npy`` file of any origin; errors as for :func:`load_arrays`."""
    expect_file(path)
    check_size(path, size := os.path.getsize(path))
    with decoding(path, "an array (.npy)"):
        return _array(open(path, "rb"), size)


def _array(stream: IO[bytes], size: int) -> NDArray[Any]:
    """The array of a stream of so many bytes, of which it must have as many as its header says."""
    with stream:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        if math.prod(shape) * max(dtype.itemsize, 1) > size:
            raise ValueError(f"its header says {dtype} {shape}, which is more than there is")
        stream.seek(0)
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
