"""A picture of a result of each task, as the pages of ``structsmooth show`` have it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from scripts.gallery import data
from structsmooth.files import DATA_VARIABLE
from structsmooth.history import History
from structsmooth.markup import Markup, element
from structsmooth.report import write_report
from structsmooth.solvers import Progress
from structsmooth.tasks import load_task
from structsmooth.tasks.trained import TrainedModel, train

_WIDTH, _HEIGHT, _SCALE, _COLOURS = 760, 2000, 1.25, 160
_ALTERNATIVES = 3
# Of the report, in pixels of the page.
_REPORT_WIDTH, _REPORT_HEIGHT = 1000, 1960


@dataclass(frozen=True)
class Shown:
    """A task with small data.

    Attributes:
        write: writes data into a folder, for a seed: their path; the data of the package if not given.
        settings: of the task.
        run: settings of its training.
    """

    write: Callable[[Path, int], str] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)


TASKS = {
    "ner": Shown(run={"passes": 8}),
    "chunking": Shown(data.chunks, run={"passes": 10}),
    "ocr": Shown(data.letters, run={"lam": "1/n"}),
    "segmentation": Shown(data.blobs, {"colours": 12, "textures": 24}),
    "scenes": Shown(data.houses, {"side": 12, "colours": 12, "textures": 16}),
    "multilabel": Shown(data.weather, {"scaling": "standard"}),
    "alignment": Shown(data.translations),
    "localization": Shown(data.balls, {"proposals": 150, "jobs": 1, "head": "linear"}, {"passes": 10}),
    "parsing": Shown(data.clauses, {"bits": 16}),
    "segments": Shown(data.beats, {"tolerance": 0.03}),
    "pose": Shown(data.figures, {"cell": 6, "window": 3, "torso": "neck,hip"}, {"lam": "1/n"}),
}
"""The tasks that are shown, by name."""


def draw_all(folder: Path) -> None:
    """Draw a result of every task, and the upper part of a report, into a folder."""
    for name, shown in TASKS.items():
        if name == "localization" and DATA_VARIABLE not in os.environ:
            print("localization is left out: give --data with the weights of its network", file=sys.stderr)
            continue
        with TemporaryDirectory() as temporary:
            model, examples = _trained(name, shown, Path(temporary))
            _save(_rendered(_page(_result(model, examples)), _WIDTH), folder / f"task_{name}.png")
    _save(_report(), folder / "report.png")


def _trained(name: str, shown: Shown, folder: Path) -> tuple[TrainedModel, Sequence[Any]]:
    """A model, and other examples than those of its training."""
    settings = {"features_cache": str(folder / "cache")} if name == "localization" else {}
    task = load_task(name)(**shown.settings, **settings)
    if shown.write is None:
        paths = task.default_files()
    else:
        paths = {}
        for seed, split in enumerate(("train", "test")):
            (folder / split).mkdir()
            paths[split] = shown.write(folder / split, seed)
    model = train(task, task.read(paths["train"], "train"), **shown.run)
    return model, model.task.read(paths["test"], "test")


def _result(model: TrainedModel, examples: Sequence[Any]) -> Markup:
    """An example of middling cost among those that are wrong, if there are any."""
    outputs = model.predict(examples)
    costs = [model.task.mistake(example, output) for example, output in zip(examples, outputs, strict=True)]
    wrong = sorted((i for i, cost in enumerate(costs) if cost > 0), key=costs.__getitem__)
    chosen = [examples[wrong[len(wrong) // 2] if wrong else 0]]
    return model.task.show_example(chosen[0], model.alternatives(chosen, _ALTERNATIVES)[0])


def _page(content: Markup) -> str:
    """A page with nothing but an example."""
    style = Markup(files("structsmooth.report").joinpath("page.css").read_text(encoding="utf-8"))
    head = element("head", element("meta", charset="utf-8"), element("style", style))
    return "<!DOCTYPE html>" + element(
        "html", head, element("body", element("article", content), style="padding: 0 1rem")
    )


def _report() -> Image.Image:
    """The upper part of the report on a tagger of named entities."""
    ner, history = load_task("ner")(), History()
    paths = ner.default_files()
    examples = ner.read(paths["train"])
    held_out = ner.read(paths["test"], "test")

    def keep(progress: Progress[Any]) -> None:
        fitted = ner.fit(examples)
        outputs = [ranked[0][1] for ranked in fitted.predict(progress.state.weights, held_out)]
        progress.row.metrics.update(fitted.measure(held_out, outputs)[0])
        history.append(progress.row)

    model = train(ner, examples, passes=8, callbacks=[keep])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        write_report(model, path, history=history, examples=held_out, count=0)
        image = _rendered(path.read_text(encoding="utf-8"), _REPORT_WIDTH)
    return image.crop((0, 0, image.width, round(_REPORT_HEIGHT * _SCALE)))


def _rendered(page: str, width: int) -> Image.Image:
    """A page as Chromium draws it, without the empty space below.

    Raises:
        FileNotFoundError: Chromium is not installed.
    """
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise FileNotFoundError("pictures of tasks need Chromium: apt-get install chromium, or --only structures")
    with TemporaryDirectory() as folder:
        source, picture = Path(folder) / "page.html", Path(folder) / "page.png"
        source.write_text(page, encoding="utf-8")
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", f"--force-device-scale-factor={_SCALE}"]
        command += ["--blink-settings=preferredColorScheme=1", "--virtual-time-budget=5000"]
        command += [f"--window-size={width},{_HEIGHT}", f"--screenshot={picture}", source.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        image = Image.open(picture).convert("RGB")
    inked = (np.asarray(image) != 255).any((1, 2)).nonzero()[0]
    return image.crop((0, 0, image.width, int(inked[-1]) + 20))


def _save(image: Image.Image, path: Path) -> None:
    """Save a picture with few colours."""
    image.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
