"""Selective search on small pictures, and its cache."""

import io
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from structsmooth.tasks.localization import proposals
from structsmooth.tasks.localization.images import ImageFile
from structsmooth.tasks.localization.proposals import SelectiveSearch, interrupts_held, selective_search


def picture(seed: int = 0, width: int = 60, height: int = 40) -> np.ndarray:
    """Noise with a bright rectangle from (20, 10) to (45, 30), in pixels of a 60 × 40 image."""
    pixels = np.random.default_rng(seed).integers(0, 60, (height, width, 3)).astype(np.uint8)
    pixels[height // 4 : height * 3 // 4, width // 3 : width * 3 // 4] = (250, 200, 30)
    return pixels


def save(path, pixels) -> ImageFile:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    path.write_bytes(stream.getvalue())
    return ImageFile(str(path))


@pytest.fixture
def images(tmp_path) -> list[ImageFile]:
    return [save(tmp_path / f"{seed}.png", picture(seed)) for seed in range(3)]


def test_finds_the_object_in_every_run():
    boxes = selective_search(picture())
    best = np.abs(boxes - [20, 10, 45, 30]).max(1).min()
    assert best <= 1
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] <= [60, 40]).all()
    assert (boxes[:, :2] < boxes[:, 2:]).all()
    for _ in range(3):
        assert np.array_equal(selective_search(picture()), boxes)
    assert np.array_equal(selective_search(picture(), count=2), boxes[:2])


def test_quality_searches_more():
    noise = np.random.default_rng(0).integers(0, 255, (40, 60, 3)).astype(np.uint8)
    assert len(selective_search(noise, mode="quality")) > len(selective_search(noise))


def test_large_images_are_shrunk_and_their_boxes_are_not():
    large = picture().repeat(20, 0).repeat(20, 1)
    boxes = selective_search(large)
    assert boxes[:, 2].max() > 1000
    assert np.abs(boxes - np.array([400, 200, 900, 600])).max(1).min() <= 8


def test_cache_answers_instead_of_the_search(images, tmp_path, monkeypatch):
    search = SelectiveSearch(tmp_path / "cache", jobs=1)
    found, faults = search.run(images)
    assert not faults
    assert [len(found[image].boxes) > 0 for image in images] == [True] * 3
    assert {(p.width, p.height) for p in found.values()} == {(60, 40)}
    monkeypatch.setattr(proposals, "selective_search", None)
    again, _ = search.run(images)
    assert all(torch.equal(again[image].boxes, found[image].boxes) for image in images)
    with pytest.raises(TypeError):
        SelectiveSearch(tmp_path / "cache", count=7, jobs=1).run(images)  # other settings, other files
    save(tmp_path / "0.png", picture(9))
    with pytest.raises(TypeError):
        search.run(images)  # other content too


def test_killed_search_goes_on(images, tmp_path, monkeypatch):
    expected, _ = SelectiveSearch(tmp_path / "whole", jobs=1).run(images)
    calls = []

    def dies(image, count, mode):
        calls.append(image)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return selective_search(image, count, mode)

    monkeypatch.setattr(proposals, "selective_search", dies)
    search = SelectiveSearch(tmp_path / "cache", jobs=1)
    with pytest.raises(KeyboardInterrupt):
        search.run(images)
    found, _ = search.run(images)
    assert len(calls) == 4  # one of three was kept
    assert all(torch.equal(found[image].boxes, expected[image].boxes) for image in images)


def test_processes_find_the_same(images, tmp_path):
    corrupt = tmp_path / "corrupt.png"
    corrupt.write_bytes(b"no image")
    one, one_faults = SelectiveSearch(tmp_path / "one", jobs=1).run([*images, ImageFile(str(corrupt))])
    two, two_faults = SelectiveSearch(tmp_path / "two", jobs=2).run([*images, ImageFile(str(corrupt))])
    assert one.keys() == two.keys() == {*images}
    assert all(torch.equal(one[image].boxes, two[image].boxes) for image in images)
    assert str(one_faults) == str(two_faults)
    assert str(corrupt) in str(one_faults)


def test_faults(images, tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    bad = [ImageFile(str(tmp_path / name)) for name in ("empty.png", "nosuch.png")]
    for _ in range(2):
        found, faults = SelectiveSearch(tmp_path / "cache", jobs=1).run([bad[0], *images, bad[1]])
        assert [*found] == images
        assert sorted(name for names in faults.names.values() for name in names) == [str(image) for image in bad]
        assert any("unreadable file (No such file" in reason for reason in faults.names)


def test_tiny_images_give_few_boxes_or_faults(tmp_path):
    image = save(tmp_path / "tiny.png", np.zeros((1, 1, 3), np.uint8))
    found, faults = SelectiveSearch(tmp_path / "cache", jobs=1).run([image])
    assert len(found) + len(faults.names) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
        ({"mode": "slow"}, "mode must be one of fast, quality, got 'slow'"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        SelectiveSearch("cache", **settings)


def test_opencv_is_asked_for(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    with pytest.raises(ImportError, match=r"pip install structsmooth\[images\]"):
        SelectiveSearch("cache").run([])


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no masks of signals here")
def test_processes_that_start_while_interrupts_are_held_never_see_them():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('alive')"
    with interrupts_held():
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "alive\n"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
