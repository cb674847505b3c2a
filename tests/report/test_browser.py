"""A page in a browser: its figures are drawn, in light and dark, and nothing is loaded or goes wrong."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from structsmooth.history import History, Row
from structsmooth.markup import Matrix
from structsmooth.plots.panels import COLOURS
from structsmooth.report import write_report
from structsmooth.tasks import FittedTask, Task
from structsmooth.tasks.trained import TrainedModel

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAPER = {"light": (255, 255, 255), "dark": (20, 23, 28)}
SCHEMES = ("dark", "light")  # as Chromium counts them


class Empty(Task):
    """A task whose page has figures."""

    summary, headline = "nothing", "right"

    def read(self, path, split="train"):
        raise AssertionError

    def fit(self, examples):
        return FittedEmpty(self)


class FittedEmpty(FittedTask):
    def problem(self, examples):
        raise AssertionError

    def predict(self, weights, examples, k=1):
        raise AssertionError

    def measure(self, examples, outputs):
        raise AssertionError

    def write(self, examples, predictions, stream):
        raise AssertionError

    def show_weights(self, weights, examples):
        return [
            Matrix("Scores", ["a", "</script>"], ["c", "d"], np.array([[1.0, -1.0], [0.5, np.nan]]), "row", "column")
        ]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "page.html"
    about = {"task": "empty", "settings": {}, "n": 2, "lam": 0.1, "message": "", "metrics": {}}
    history = History([Row(0, 0, 0.0, 2.0, 0.5, 1.5), Row(1, 9, 0.1, 1.0, 0.75, 0.25)])
    write_report(TrainedModel(Empty().fit([]), torch.ones(1), about), path, history=history)
    return path


def near(pixels: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    return np.abs(pixels.astype(int) - np.array(colour)).max(-1) <= 2


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [400, 1200])
def test_a_page_is_drawn(page, tmp_path, width, scheme):
    command = [
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--blink-settings=preferredColorScheme={SCHEMES.index(scheme)}",
        f"--window-size={width},1600",
        "--virtual-time-budget=4000",
        f"--screenshot={tmp_path / 'page.png'}",
        page.as_uri(),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    # All else is what Chromium says of machines without a display.
    said = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    assert [line for line in said if "[bokeh" not in line] == []  # errors, and what the policy of the page refused
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("RGB"))
    assert near(pixels[-1, -1], PAPER[scheme])
    curve = tuple(bytes.fromhex(COLOURS[0][1:]))
    assert near(pixels, curve).sum() > 50
