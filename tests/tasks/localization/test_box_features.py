"""Features of boxes from a tiny network, and their files."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from two_processes import ended, started

from structsmooth.tasks.localization.box_features import BoxFeatures, crop, load_features
from structsmooth.tasks.localization.images import ImageFile
from structsmooth.tasks.localization.proposals import Proposals, SelectiveSearch


class Tiny(nn.Module):
    """A convolution with fixed weights; counts its calls."""

    def __init__(self, seed: int = 0, shift: float = 0.0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.layer = nn.Conv2d(3, 4, 16, stride=16)
        self.register_buffer("shift", torch.tensor(shift), persistent=False)
        self.calls = 0

    def forward(self, crops):
        self.calls += 1
        return self.layer(crops) + self.shift


@pytest.fixture
def proposals(tmp_path) -> dict[ImageFile, Proposals]:
    found = {}
    for seed, count in enumerate((3, 40)):
        rng = np.random.default_rng(seed)
        stream = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (30, 50, 3)).astype(np.uint8)).save(stream, "PNG")
        path = tmp_path / f"{seed}.png"
        path.write_bytes(stream.getvalue())
        corners = rng.integers(0, 20, (count, 2))
        boxes = np.hstack([corners, corners + rng.integers(1, 10, (count, 2))])
        found[ImageFile(str(path))] = Proposals(torch.tensor(boxes, dtype=torch.float32), 50, 30)
    return found


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_files_hold_the_features_of_each_box(proposals, tmp_path, dtype):
    network = Tiny()
    paths, faults = BoxFeatures(network, tmp_path / "cache", dtype).run(proposals)
    assert not faults
    for file, path in paths.items():
        image = torch.tensor(np.asarray(Image.open(file.path))).permute(2, 0, 1) / 255
        with torch.no_grad():
            expected = torch.cat([network(crop(image, box[None])) for box in proposals[file].boxes])
        features = load_features(path)
        assert features.dtype == getattr(torch, dtype)
        assert features.shape == (len(proposals[file].boxes), 4, 4, 4)
        torch.testing.assert_close(features.float(), expected, atol=2e-3 if dtype == "float16" else 1e-5, rtol=0)


def test_files_are_used_again(proposals, tmp_path):
    first = BoxFeatures(Tiny(), tmp_path / "cache").run(proposals)[0]
    network = Tiny()
    assert BoxFeatures(network, tmp_path / "cache").run(proposals)[0] == first
    assert network.calls == 0
    others = [
        BoxFeatures(Tiny(seed=1), tmp_path / "cache"),
        BoxFeatures(Tiny(shift=1.0), tmp_path / "cache"),
        BoxFeatures(Tiny(), tmp_path / "cache", "float32"),
    ]
    fewer = {file: found._replace(boxes=found.boxes[:2]) for file, found in proposals.items()}
    runs = [other.run(proposals)[0] for other in others] + [BoxFeatures(network, tmp_path / "cache").run(fewer)[0]]
    assert len({path for run in [first, *runs] for path in run.values()}) == 2 * 5


def test_interrupted_run_goes_on(proposals, tmp_path):
    class Dies(Tiny):
        def forward(self, crops):
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().forward(crops)

    network, expected = Dies(), BoxFeatures(Tiny(), tmp_path / "whole").run(proposals)[0]
    features = BoxFeatures(network, tmp_path / "cache")
    with pytest.raises(KeyboardInterrupt):
        features.run(proposals)  # the second image takes two batches
    assert len(list(features.folder.iterdir())) == 1
    network.calls = -100
    paths, _ = features.run(proposals)
    assert network.calls == -98
    assert all(torch.equal(load_features(paths[file]), load_features(expected[file])) for file in proposals)


def test_crops_are_resized_means():
    image = torch.arange(12.0).view(1, 3, 4).repeat(3, 1, 1)
    same = crop(image, torch.tensor([[0.0, 0, 4, 3]]), 1)
    assert torch.allclose(same, image.mean((1, 2)).view(1, 3, 1, 1))
    corner = crop(image, torch.tensor([[2.0, 0, 4, 2]]), 2)
    torch.testing.assert_close(corner[0], image[:, :2, 2:])
    constant = crop(torch.full((3, 20, 30), 0.25), torch.tensor([[1.5, 2, 29, 4]]))
    torch.testing.assert_close(constant, torch.full((1, 3, 64, 64), 0.25))


def test_image_that_vanished_is_a_fault(proposals, tmp_path):
    gone = ImageFile(str(tmp_path / "gone.png"))
    paths, faults = BoxFeatures(Tiny(), tmp_path / "cache").run({gone: next(iter(proposals.values())), **proposals})
    assert paths.keys() == proposals.keys()
    assert str(gone) in str(faults)


def test_features_that_do_not_fit_are_refused(proposals, tmp_path):
    with pytest.raises(ValueError, match="float16 cannot hold; use float32"):
        BoxFeatures(Tiny(shift=1e6), tmp_path / "cache").run(proposals)
    assert len(BoxFeatures(Tiny(shift=1e6), tmp_path / "cache", "float32").run(proposals)[0]) == 2
    with pytest.raises(ValueError, match="dtype must be one of float16, float32, got 'int8'"):
        BoxFeatures(Tiny(), tmp_path / "cache", "int8")


def search_and_compute(folder: Path) -> None:
    """Boxes and features of the images of a folder; prints what this process did and knows."""
    network = Tiny()
    images = [ImageFile(str(path)) for path in sorted(folder.glob("*.png"))]
    found, faults = SelectiveSearch(folder / "cache", count=9, jobs=1).run(images)
    paths, _ = BoxFeatures(network, folder / "cache").run(found)
    complete = all(len(load_features(path)) == len(found[image].boxes) for image, path in paths.items())
    faulty = [image.path for image in images if str(image) in str(faults)]
    json.dump({"calls": network.calls, "images": len(paths), "complete": complete, "faulty": faulty}, sys.stdout)


def test_two_processes_share_the_images_out(proposals, tmp_path):
    first = tmp_path / "0.png"
    for name in ("2.png", "3.png"):
        pixels = np.asarray(Image.open(first)).copy()
        pixels[0] = int(name[0])  # other content, or it would be the same entry of the cache
        Image.fromarray(pixels).save(tmp_path / name)
    (tmp_path / "1.png").write_bytes(first.read_bytes()[:50])
    code = (
        f"import sys, pathlib; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_box_features\n"
        "from structsmooth import processes\n"
        "with processes.joined(): test_box_features.search_and_compute(pathlib.Path(sys.argv[1]))"
    )
    ends = ended(started(code, str(tmp_path)))
    assert [status for status, _, _ in ends] == [0, 0], ends
    known = {"images": 3, "complete": True, "faulty": [str(tmp_path / "1.png")]}
    assert [json.loads(output) for _, output, _ in ends] == [{"calls": 2, **known}, {"calls": 1, **known}]
