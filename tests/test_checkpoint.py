"""Files of tensors and values: they survive kill -9 and execute nothing."""

import errno
import json
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from structsmooth import sparse_vectors
from structsmooth.checkpoint import load_model, load_state, save_model, save_state, write_atomic

TENSORS = {
    "double": torch.linspace(-1, 1, 7, dtype=torch.float64) / 3,
    "empty": torch.zeros(0),
    "scalar": torch.tensor(3),
    "half": torch.ones(2, dtype=torch.bfloat16),
    "flags": torch.tensor([True, False]),
    "transposed": torch.arange(6).view(2, 3).T,
    "trained": torch.ones(2, requires_grad=True),
}
VALUES = {"passes": 3, "best": math.inf, "name": "é", "nothing": None, "nested": {"list": [0.1, 1e-300]}}


def test_round_trip(tmp_path: Path) -> None:
    for path in (tmp_path / "state", str(tmp_path / "state")):
        save_state(path, TENSORS, VALUES)
        tensors, values = load_state(path)
        assert values == VALUES
        assert tensors.keys() == TENSORS.keys()
        for name, tensor in TENSORS.items():
            assert tensors[name].dtype == tensor.dtype
            assert torch.equal(tensors[name], tensor)
    assert os.listdir(tmp_path) == ["state"]


def test_tensors_that_share_memory(tmp_path: Path) -> None:
    tensor = torch.arange(4.0)
    save_state(tmp_path / "state", {"all": tensor, "again": tensor, "part": tensor[1:3]}, {})
    tensors, _ = load_state(tmp_path / "state")
    assert torch.equal(tensors["again"], tensor)
    assert torch.equal(tensors["part"], tensor[1:3])


def test_files_are_as_readable_as_others(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    save_state(tmp_path / "state", TENSORS, VALUES)
    write_atomic(tmp_path / "text", "")
    modes = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    assert modes["state"] == modes["text"] == modes["other"]


def good() -> bytes:
    return save({"a": torch.ones(100)}, metadata={"json": json.dumps(VALUES)})


def test_long_vectors_are_saved_as_what_is_not_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_vectors, "MANY", 100)
    few, many = torch.zeros(5000, dtype=torch.float64), torch.ones(5000)
    few[[3, 4999]] = torch.tensor([0.1, math.nan], dtype=torch.float64)
    save_state(tmp_path / "state", {"few": few, "many": many}, VALUES)
    assert (tmp_path / "state").stat().st_size < 22_000
    tensors, values = load_state(tmp_path / "state")
    assert values == VALUES
    assert torch.equal(tensors["many"], many)
    torch.testing.assert_close(tensors["few"], few, rtol=0, atol=0, equal_nan=True)
    ones, place, size = torch.ones(2), torch.tensor([3, 4]), torch.tensor([5000])
    for spoiled in (
        (ones, torch.tensor([3, 5000]), size),
        (ones, torch.tensor([-1, 3]), size),
        (ones, torch.tensor([3, 3]), size),
        (ones, torch.tensor([4, 3]), size),
        (ones, torch.tensor([3]), size),
        (ones, torch.tensor([3.0, 4.0]), size),
        (ones[0], place[0], size),
        (torch.ones(1, 2), place.view(1, 2), size),
        (ones, place, torch.tensor([1 << 40])),
        (ones, place, torch.tensor([5000, 5000])),
        (ones, place, size[:0]),
        (ones, place, torch.tensor([math.inf])),
        (ones, place, torch.tensor([5000 + 0j])),
        (ones[:0], place[:0], torch.tensor([0])),
    ):
        names = ("w..values", "w..places", "w..size")
        (tmp_path / "state").write_bytes(save(dict(zip(names, spoiled, strict=True)), metadata={"json": "{}"}))
        with pytest.raises(ValueError, match="the values, places and size of w do not fit each other"):
            load_state(tmp_path / "state")


def test_parameters_may_be_called_values(tmp_path: Path) -> None:
    named = {f"key.{name}": torch.ones(2) for name in ("values", "places", "size")}
    save_state(tmp_path / "state", named, VALUES)
    assert load_state(tmp_path / "state")[0].keys() == named.keys()


def test_forked_processes_do_not_write_into_vectors_of_each_other() -> None:
    vector = sparse_vectors.spread(torch.ones(1), torch.tensor([3]), 10)
    values = vector.numpy()
    if not (child := os.fork()):
        values[5] = 1.0
        os._exit(0)
    os.waitpid(child, 0)
    assert vector.nonzero().tolist() == [[3]]


class Exploit:
    """Unpickling it raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('executed')",)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(good()[:5], id="cut in the length"),
        pytest.param(good()[:60], id="cut in the header"),
        pytest.param(good()[:-1], id="cut in the tensors"),
        pytest.param(good() + b"0", id="longer"),
        pytest.param(b"\xff" * 100, id="noise"),
        pytest.param(b"passes,objective\n" * 10, id="text"),
        pytest.param(pickle.dumps(Exploit()), id="pickle"),
        pytest.param(save({"a": torch.ones(2)}), id="no metadata"),
        pytest.param(save({"a": torch.ones(2)}, metadata={"format": "pt"}), id="other metadata"),
        pytest.param(save({"a": torch.ones(2)}, metadata={"json": "{"}), id="bad json"),
    ],
)
def test_refuses_damaged_and_foreign_files(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=re.escape(f"{path}: not a structsmooth file, or damaged")):
        load_state(path)


def test_executes_nothing(tmp_path: Path) -> None:
    torch.save(Exploit(), tmp_path / "state")
    with pytest.raises(ValueError, match="not a structsmooth file"):
        load_state(tmp_path / "state")


@pytest.mark.parametrize("name", ["none", "folder"])
def test_missing_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / name))):
        load_state(tmp_path / name)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    path = tmp_path / "file"
    write_atomic(path, "old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomic(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    write_atomic(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_model_is_saved_whole_or_not_at_all(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, steps = {"weights": torch.ones(3)}, [getattr(os, step)] * (step == "fsync")  # of the weights; model.json fails

    def fail(*given: Any) -> None:
        if not steps:
            raise OSError(errno.ENOSPC, "No space left on device")
        steps.pop()(*given)

    save_model(tmp_path / "model", {"name": "old"}, old)
    monkeypatch.setattr(os, step, fail)
    name = "json" if step == "fsync" else "safetensors"
    with pytest.raises(OSError, match=rf"No space left on device: '.*model\.{name}'"):
        save_model(tmp_path / "model", {"name": "new"}, {"weights": torch.zeros(3)})
    monkeypatch.undo()
    description, tensors = load_model(tmp_path / "model")
    assert (description["name"], tensors["weights"].tolist()) == ("old", [1.0, 1.0, 1.0])
    assert sorted(os.listdir(tmp_path / "model")) == ["model.json", "model.safetensors"]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_weights_of_half_precision_are_widened(kind: torch.dtype, tmp_path: Path) -> None:
    weights = torch.tensor([0.5, -1.25, 0.0])
    save_model(tmp_path, {}, {"weights": weights.to(kind), "numbers": torch.tensor([1])})
    tensors = load_model(tmp_path)[1]
    torch.testing.assert_close(tensors, {"weights": weights, "numbers": torch.tensor([1])}, rtol=0, atol=0)


def test_what_cannot_be_saved_leaves_the_old_file(tmp_path: Path) -> None:
    save_state(tmp_path / "state", {}, {"old": 1})
    with pytest.raises(TypeError, match="not JSON serializable"):
        save_state(tmp_path / "state", {}, {"new": object()})
    assert load_state(tmp_path / "state") == ({}, {"old": 1})


SIZE = 1_000_000
# Every line read forks a child that saves ever new states; prints the child's id, and waits for its end.
WRITER = f"""
import itertools, os, sys
import torch
from structsmooth.checkpoint import save_state
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        for i in itertools.count():
            save_state(sys.argv[1], {{"i": torch.full(({SIZE},), i)}}, {{"i": i}})
    print(child, flush=True)
    os.waitpid(child, 0)
"""


def write_is_under_way(folder: Path) -> bool:
    """Whether a file is still shorter than a whole one."""
    with suppress(FileNotFoundError):  # renamed meanwhile
        return any(path.stat().st_size < 8 * SIZE for path in folder.iterdir())
    return False


def test_kill_during_a_write_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        for delay in (0, 0.01, 0.02, 0.04, 0.08):
            print(file=writer.stdin, flush=True)
            child = int(writer.stdout.readline())
            while not path.exists():
                time.sleep(0.001)
            time.sleep(delay)
            patience = time.monotonic() + 1
            while not write_is_under_way(tmp_path) and time.monotonic() < patience:
                pass
            os.kill(child, signal.SIGKILL)
            tensors, values = load_state(path)
            assert torch.equal(tensors["i"], torch.full((SIZE,), values["i"]))
        writer.stdin.close()
        assert writer.wait() == 0
    save_state(path, {}, {})
    assert os.listdir(tmp_path) == ["state"]  # nothing of the killed writes


def test_loaded_tensors_are_aligned_as_new_ones_are(tmp_path):
    """Products of vectors are rounded by where they lie, and a run that goes on must not notice that it stopped."""
    save_state(tmp_path / "state", {name: torch.ones(3) for name in "abc"}, {})
    tensors, _ = load_state(tmp_path / "state")
    assert {tensor.data_ptr() % 64 for tensor in tensors.values()} == {torch.ones(3).clone().data_ptr() % 64}
