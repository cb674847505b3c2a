"""The gallery: what its pictures show is what the structures say, and the page has all of them."""

import re
from pathlib import Path

import pytest
from source_tree import ROOT

from scripts.gallery import data, structures, tasks
from structsmooth.tasks import load_task
from structsmooth.tasks.localization.annotations import read_annotations

PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
MOST_BYTES = 200_000


def test_the_page_has_every_picture():
    names = {*structures.STRUCTURES, *(f"task_{name}" for name in tasks.TASKS), "solvers"}
    assert {*re.findall(r"\(gallery/(\w+)\.png\)", PAGE)} == names
    names |= {"report", "front"}  # the guide to tasks and the first page have them
    files = {path.stem: path.stat().st_size for path in (ROOT / "docs" / "gallery").iterdir()}
    assert files.keys() == names
    assert max(files.values()) <= MOST_BYTES


@pytest.mark.parametrize("name", structures.STRUCTURES)
def test_structures_have_panels(name):
    figure = structures.STRUCTURES[name]()
    titled = [panel for panel in figure.axes if panel.get_title()]
    assert len(titled) >= 2
    assert all(panel.has_data() or panel.patches for panel in titled)


def test_springs_pull_the_hand_to_its_body():
    left = structures.deformable_tree().axes[0]
    alone, best = (line.get_xydata()[0] for line in left.lines)
    assert alone.tolist() == pytest.approx([33, 33], abs=3)
    assert best.tolist() == pytest.approx([9, 21], abs=3)


@pytest.mark.parametrize(
    "name", [name for name, shown in tasks.TASKS.items() if shown.write and name != "localization"]
)
def test_generated_data_are_what_tasks_read(name, tmp_path):
    shown = tasks.TASKS[name]
    examples = load_task(name)(**shown.settings).read(shown.write(tmp_path, 0), "train")
    assert len(examples) >= 10


def test_generated_boxes_can_be_read_without_the_network_of_the_task(tmp_path):
    images, faults = read_annotations(data.balls(tmp_path, 0))
    assert not faults
    assert [len(image.objects) for image in images] == [1] * 8


def test_data_depend_on_their_seed(tmp_path):
    first, other, again = (Path(data.chunks(tmp_path, seed)).read_text() for seed in (0, 1, 0))
    assert first == again != other
