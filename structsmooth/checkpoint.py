"""Files that survive crashes and never execute code: tensors as safetensors, the rest as JSON."""

import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

_BLOCK = 1 << 20


def write_atomic(path: str | Path, data: bytes | str | Iterable[bytes]) -> None:
    """Write a file so that a crash leaves the old or the new one, never a part: write elsewhere, fsync, rename.

    Data may come in pieces, for files that are larger than memory.
    """
    if isinstance(data, (bytes, str)):
        data = [data.encode() if isinstance(data, str) else data]
    with _replacement(path) as temporary, temporary.open("wb") as file:
        file.writelines(data)


def save_state(path: str | Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Save tensors and JSON values in one safetensors file, atomically."""
    metadata = {"json": json.dumps(values)}
    with _replacement(path) as temporary:
        save_file(_separate(tensors), temporary, metadata)


def load_state(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and values saved by :func:`save_state`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that :func:`save_state` did not write, or a damaged one.
    """
    with _opened(path) as file:
        # In files tensors follow each other closely. Memory of torch is aligned, on which rounding of products depends.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
        return tensors, _values(file)


def load_values(path: str | Path) -> dict[str, Any]:
    """The values alone of what :func:`load_state` loads, with the same errors: tensors are not read."""
    with _opened(path) as file:
        return _values(file)


def file_checksum(path: str | Path) -> str:
    """CRC-32 of the bytes of a file, as eight hexadecimal digits."""
    value = 0
    with open(path, "rb") as file:
        while piece := file.read(_BLOCK):
            value = zlib.crc32(piece, value)
    return f"{value:08x}"


def check_file(path: str | Path, checksum: str | None) -> None:
    """Refuse a file whose bytes have changed since its checksum was taken; ``None`` is one that was not.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another checksum.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if checksum is not None and (found := file_checksum(path)) != checksum:
        raise ValueError(
            f"{path}: its bytes are not those that were saved (checksum {found}, expected {checksum}): "
            "copy the folder again from where it was saved, or train anew"
        )


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a structsmooth file, or damaged ({error})") from error


def _values(file: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((file.metadata() or {})["json"])
    return values


@contextmanager
def _replacement(path: str | Path) -> Iterator[Path]:
    """Where to write what shall take the place of a file once it is complete and on disk."""
    # A folder, because safetensors has temporary files of its own, which a crash would leave behind under any name.
    folder = Path(f"{path}.tmp")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    temporary = folder / "new"
    try:
        yield temporary
        temporary.chmod(folder.stat().st_mode & 0o666)  # safetensors makes files private
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        shutil.rmtree(folder)


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, with copies of those that share memory with others, which safetensors refuses."""
    separate: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if memory in taken else tensor
        taken.add(memory)
    return separate
