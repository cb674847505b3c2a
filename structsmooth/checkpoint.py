"""Files that survive crashes and never execute code: tensors as safetensors, the rest as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor


def write_atomic(path: str | Path, data: bytes | str) -> None:
    """Write a file so that a crash leaves the old or the new one, never a part: temporary file, fsync, rename."""
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def save_state(path: str | Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Save tensors and JSON values in one safetensors file, atomically."""
    # Copies, because safetensors refuses tensors that share memory.
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    write_atomic(path, save(copies, metadata={"json": json.dumps(values)}))


def load_state(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and values saved by :func:`save_state`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that :func:`save_state` did not write, or a damaged one.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            values = json.loads((file.metadata() or {})["json"])
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a structsmooth file, or damaged ({error})") from error
    return tensors, values
