"""Random damage to the folder of a model: to the text of ``model.json``, to a value in it, or to the weights."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = [0, -1, 3, 10**6, 10**18, 10**30, 0.5, -2.5, 1e308, float("nan"), float("inf")]
ODD = [None, True, False, *NUMBERS, "", "x", "\ud800", [], [0], ["x"], [[0, 1]], {}, {"x": 0}]


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in JSON; of long lists, those of the first and the last ones."""
    items = list(node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ())
    for key, value in items[:6] + items[6:][-2:] if isinstance(node, list) else items:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(description: Any, rng: np.random.Generator) -> Any:
    """JSON with one of its values changed, removed, doubled or added."""
    data = json.loads(json.dumps(description))
    options = list(places(data))
    *above, key = options[rng.integers(len(options))]
    node = data
    for step in above:
        node = node[step]
    old, way = node[key], rng.integers(8)
    if way == 0:
        del node[key]
    elif way == 1 and isinstance(node, list):
        node.insert(key, old)
    elif way == 1:
        node[f"{key}x"] = node.pop(key)
    elif way == 2 and isinstance(old, list):
        rng.shuffle(old)
    elif way in (2, 3) and isinstance(old, str):
        node[key] = old + "x" if way == 2 else old[:-1]
    elif way in (2, 3) and isinstance(old, bool):
        node[key] = not old
    elif way in (2, 3) and isinstance(old, int | float):
        node[key] = -3 * old if way == 2 else old + 1
    else:
        node[key] = ODD[rng.integers(len(ODD))]
    return data


def damage(folder: Path, rng: np.random.Generator, *, forged: bool) -> None:
    """Damage the folder: as an accident would, or ``forged``, without the digest and the checksum that show it."""
    file, weights = folder / "model.json", folder / "model.safetensors"
    description = json.loads(file.read_text())
    if forged:
        del description["digest"], description["checksum"]
        file.write_text(json.dumps(changed(description, rng)))
        return
    way = rng.integers(4)
    if way < 2:
        file.write_text(json.dumps(changed(description, rng)))
        return
    target = file if way == 2 else weights
    data = bytearray(target.read_bytes())
    at = int(rng.integers(len(data)))
    if rng.integers(4):
        data[at] ^= 1 << int(rng.integers(8))
    else:
        del data[at:]
    target.write_bytes(bytes(data))
