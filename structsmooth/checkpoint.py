"""Files that survive crashes and never execute code: tensors as safetensors, the rest as JSON."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from structsmooth import sparse_vectors
from structsmooth.files import crc32, read_json, writing

_MODEL, _WEIGHTS = "model.json", "model.safetensors"
_AGAIN = "copy the folder again from where it was saved, or train anew"


def write_atomic(path: str | Path, data: bytes | str | Iterable[bytes]) -> None:
    """Write a file so that a crash leaves the old or the new one, never a part: write elsewhere, fsync, rename.

    Data may come in pieces, for files that are larger than memory.
    """
    if isinstance(data, (bytes, str)):
        data = [data.encode() if isinstance(data, str) else data]
    with _replacements(path) as (temporary,), writing(path), temporary.open("wb") as file:
        file.writelines(data)


def save_figure(path: str | Path, figure: Any, **options: Any) -> None:
    """Write a figure of matplotlib, in the format that the name ends in; ``options`` are those of ``savefig``."""
    picture = BytesIO()
    figure.savefig(picture, format=Path(path).suffix[1:] or "png", **options)
    write_atomic(path, picture.getvalue())


def save_state(path: str | Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Save tensors and JSON values in one safetensors file, atomically; of long vectors, what is not zero."""
    with _replacements(path) as (temporary,), writing(path):
        _save_tensors(temporary, tensors, values)


def _save_tensors(path: Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    save_file(_separate(_shortened(tensors)), path, {"json": json.dumps(values)})


def load_state(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and values saved by :func:`save_state`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that :func:`save_state` did not write, or a damaged one.
    """
    with _opened(path) as file:
        # In files tensors follow each other closely. Memory of torch is aligned, on which rounding of products depends.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
        return _restored(tensors), _values(file)


def load_values(path: str | Path) -> dict[str, Any]:
    """The values alone of what :func:`load_state` loads, with the same errors: tensors are not read."""
    with _opened(path) as file:
        return _values(file)


def save_model(path: str | Path, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Save a model in a folder, which is made if need be: what it is in ``model.json``, and its tensors beside it.

    The description gets a checksum of the tensors, and a digest of itself with that.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    with _replacements(folder / _WEIGHTS, folder / _MODEL) as (weights, model):
        with writing(folder / _WEIGHTS):
            _save_tensors(weights, tensors, {})
        described = description | {"checksum": file_checksum(weights)}
        with writing(folder / _MODEL):
            model.write_text(json.dumps(described | {"digest": _digest(described)}, indent=1), encoding="utf-8")


def load_model(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Description and tensors that :func:`save_model` saved, as they were then.

    Versions 0.2 and 0.3 wrote no digest, and 0.2 no checksum: what is not there is not compared.

    Raises:
        FileNotFoundError: no model in the folder.
        ValueError: a damaged file, or one that has changed since the model was saved.
    """
    description, file = load_description(path), Path(path) / _WEIGHTS
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    checksum = description.pop("checksum", None)
    if checksum is not None and checksum != file_checksum(file):
        raise ValueError(f"{file}: its bytes are not those that were saved: {_AGAIN}")
    return description, {name: _widened(tensor) for name, tensor in load_state(file)[0].items()}


def _widened(tensor: Tensor) -> Tensor:
    """A tensor in which other programs may have kept fewer bits than there is arithmetic for, with 32 of them."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor


def load_description(path: str | Path) -> dict[str, Any]:
    """The contents of ``model.json`` without the digest; errors as for :func:`load_model`."""
    file = Path(path) / _MODEL
    if not file.is_file():
        raise FileNotFoundError(f"{path}: no model.json; train a model with --out {path}")
    description: dict[str, Any] = read_json(file)
    if not isinstance(description, dict):
        raise ValueError(f"{file}: not the description of a model, but a {type(description).__name__}")
    if "digest" in description and description.pop("digest") != _digest(description):
        raise ValueError(f"{file}: it has changed since the model was saved: {_AGAIN}")
    return description


def _digest(values: dict[str, Any]) -> str:
    """SHA-256 of values, the same after they have been saved and loaded."""
    return sha256(json.dumps(values).encode()).hexdigest()


def file_checksum(path: str | Path) -> str:
    """CRC-32 of the bytes of a file, as eight hexadecimal digits."""
    return f"{crc32(path):08x}"


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a structsmooth file, or damaged ({error})") from error


def _values(file: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((file.metadata() or {})["json"])
    return values


@contextmanager
def _replacements(*paths: str | Path) -> Iterator[list[Path]]:
    """Where to write what shall take the places of files, of all of them or none, once all are complete and on disk."""
    # Folders, because safetensors has temporary files of its own, which a crash would leave behind under any name.
    folders = [Path(f"{path}.tmp") for path in paths]
    try:
        for path, folder in zip(paths, folders, strict=True):
            shutil.rmtree(folder, ignore_errors=True)
            with writing(path):
                folder.mkdir()
        yield [folder / "new" for folder in folders]
        for path, folder in zip(paths, folders, strict=True):
            (folder / "new").chmod(folder.stat().st_mode & 0o666)  # safetensors makes files private
            with writing(path), open(folder / "new", "rb+") as file:
                os.fsync(file.fileno())
        for path, folder in zip(paths, folders, strict=True):
            with writing(path):
                os.replace(folder / "new", path)
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def _shortened(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with values, places and size in the place of long vectors of which few numbers are not zero."""
    short: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        found = sparse_vectors.places(tensor) if _is_long(tensor) else None
        if found is None or 3 * len(found) > len(tensor):
            short[name] = tensor
            continue
        parts = tensor[found], found, torch.tensor([len(tensor)])
        short |= {name + ending: part for ending, part in zip(_SPARSE, parts, strict=True)}
    return short


def _is_long(tensor: Tensor) -> bool:
    return tensor.dim() == 1 and tensor.is_floating_point() and sparse_vectors.MANY <= len(tensor) < _LONGEST


def _restored(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`_shortened`."""
    for name in [name.removesuffix(_SPARSE[0]) for name in tensors if name.endswith(_SPARSE[0])]:
        values, places, size = (tensors.pop(name + ending) for ending in _SPARSE)
        if not _fit(values, places, size):
            raise ValueError(f"the values, places and size of {name} do not fit each other")
        tensors[name] = sparse_vectors.spread(values, places, int(size))
    return tensors


def _fit(values: Tensor, places: Tensor, size: Tensor) -> bool:
    """Whether values at places, which ascend, are a vector of a size."""
    if {places.dtype, size.dtype} != {torch.int64} or places.dim() != 1 or size.shape != (1,):
        return False
    bounds = torch.cat([torch.tensor([-1]), places, size])
    return values.shape == places.shape and 0 < int(size) < _LONGEST and bool((bounds[1:] > bounds[:-1]).all())


# What the name of a vector is followed by, for the values that are not zero, for their places, and for its size. Names
# of parameters of modules, such as that of a parameter "values", never have two dots in a row.
_SPARSE = ("..values", "..places", "..size")
# No vector is longer: a file of a few bytes may ask for much memory.
_LONGEST = 1 << 31


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
