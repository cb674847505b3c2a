"""Arrays that are kept in files: what is written once is read, and what is damaged is written anew."""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_tasks import CHUNKS, entities

from structsmooth.problems import SparseChainProblem
from structsmooth.tasks import NER, Chunking
from structsmooth.tasks.text.tagging import Tagging
from structsmooth.text.mapped import mapped

WHOLE = np.arange(-3, 7, dtype=np.int32)


def parts() -> Iterator[NDArray[np.int32]]:
    yield from np.split(WHOLE, [0, 4, 9])


def never() -> Iterator[NDArray[np.int32]]:
    pytest.fail("made again")
    yield WHOLE


def test_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.npy"
    first = mapped(path, (len(WHOLE),), np.int32, parts())
    again = mapped(path, (len(WHOLE),), np.int32, never())
    assert isinstance(memoryview(again.base).obj, mmap.mmap)
    np.testing.assert_array_equal(first, WHOLE)
    np.testing.assert_array_equal(again, WHOLE)
    np.testing.assert_array_equal(np.load(path), WHOLE)
    assert sorted(file.name for file in path.parent.iterdir()) == ["a.crc32", "a.npy"]


def test_an_empty_array(tmp_path: Path) -> None:
    assert (
        len(mapped(tmp_path / "a.npy", (0,), np.int32, iter([])))
        == len(mapped(tmp_path / "a.npy", (0,), np.int32, never()))
        == 0
    )


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def replace(path: Path) -> None:
    np.save(path, WHOLE[::-1])


def forget_checksum(path: Path) -> None:
    path.with_suffix(".crc32").unlink()


def forget_array(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [truncate, flip, replace, forget_checksum, forget_array])
def test_what_is_damaged_or_foreign_is_written_anew(damage: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    mapped(path, (len(WHOLE),), np.int32, parts())
    damage(path)
    np.testing.assert_array_equal(mapped(path, (len(WHOLE),), np.int32, parts()), WHOLE)
    np.testing.assert_array_equal(mapped(path, (len(WHOLE),), np.int32, never()), WHOLE)


def test_an_interrupted_write_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted() -> Iterator[NDArray[np.int32]]:
        yield WHOLE[:4]
        raise KeyboardInterrupt

    path = tmp_path / "a.npy"
    with pytest.raises(KeyboardInterrupt):
        mapped(path, (len(WHOLE),), np.int32, interrupted())
    assert not list(tmp_path.iterdir())
    np.testing.assert_array_equal(mapped(path, (len(WHOLE),), np.int32, parts()), WHOLE)


def problem(folder: Path, task: Tagging, text: str) -> SparseChainProblem:
    (folder / "train.txt").write_text(text)
    examples = task.read(str(folder / "train.txt"))
    return task.fit(examples).problem(examples)


def arrays(problem: SparseChainProblem) -> list[torch.Tensor]:
    s = problem.sequences
    return [s.attributes, s.token_offsets, s.offsets, problem.labels]


@pytest.mark.parametrize("bits", [0, 10])
def test_a_cached_problem_is_the_same(bits: int, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    plain = arrays(problem(tmp_path, NER(bits=bits), entities()))
    for _ in range(2):
        cached = arrays(problem(tmp_path, NER(bits=bits, attributes_cache=cache), entities()))
        assert all(map(torch.equal, cached, plain))


def test_other_data_and_other_settings_are_kept_apart(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    texts, others = [CHUNKS, CHUNKS.replace("cat", "dog")], [{}, {"bits": 5}, {"bits": 6}]
    for kept, (text, settings) in enumerate(((text, settings) for text in texts for settings in others), start=1):
        task = Chunking(**settings, attributes_cache=str(cache))
        expected = arrays(problem(tmp_path, Chunking(**settings), text))
        assert all(map(torch.equal, arrays(problem(tmp_path, task, text)), expected))
        # The dictionary numbers attributes as they come, whatever their names are.
        assert len(list(cache.glob("*.npy"))) == kept - (kept > 3)
