"""Pages about trained models: every task's examples, and what readers and browsers need."""

from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
import small_tasks
import torch
from small_tasks import CASES, Case

from structsmooth.cli import main
from structsmooth.history import History, Row
from structsmooth.report import sections, write_report
from structsmooth.tasks import FittedTask, Task
from structsmooth.tasks.trained import TrainedModel

VOID = {"br", "img", "input", "link", "meta"}


class Page(HTMLParser):
    """A page as lists of what it has; refuses elements that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("script", "style"):
            self.texts.append(data)

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag in tags]


def untrained(case: Case, folder: Path) -> tuple[TrainedModel, list]:
    """A model with random weights, which are wrong about some examples, and its data."""
    task = case.task(folder)
    examples = task.read(case.write(folder, True))
    fitted = task.fit(examples)
    problem = fitted.problem(examples)
    random = torch.rand(problem.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 0.5
    weights = problem.within_bounds(random)
    about = {"task": case.name, "settings": {"solver": "bcfw"}, "n": len(examples), "lam": 0.1, "message": "stopped"}
    return TrainedModel(fitted, weights, about | {"metrics": {}}), examples


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def made(request, tmp_path_factory) -> Iterator[tuple[Case, str]]:
    """Each task with its page."""
    with pytest.MonkeyPatch.context() as patch:
        small_tasks.small_networks(patch)
        folder = tmp_path_factory.mktemp(request.param.name)
        model, examples = untrained(request.param, folder)
        history = History([Row(0, 0, 0.0, 2.0, 0.5, 1.5), Row(1, 9, 0.1, 1.0, 0.75, 0.25)])
        how = {"count": 2, "source": "data <1>", "errors": True}
        write_report(model, folder / "page.html", history=history, examples=examples, **how)
        yield request.param, (folder / "page.html").read_text(encoding="utf-8")


@pytest.fixture
def page(made) -> Page:
    return Page(made[1])


def test_has_all_sections(made, page):
    wanted = ["Training", "Results", "Errors", "Most wrong", "Most uncertain"]
    assert [text for text in page.texts if text in wanted] == wanted
    mistakes = {attributes["id"] for attributes in page.all("h3") if "id" in attributes}
    assert len(page.all("article")) == 4 + len(mistakes)
    assert {str(attributes["href"])[1:] for attributes in page.all("a")} == mistakes
    assert bool(mistakes) == (made[0].name in ("ner", "chunking", "parsing", "segments"))
    assert {"Objective 1, at least 0.75 for any weights: at most 0.25 above the optimum.", "data <1>"} <= {*page.texts}
    assert len(made[1].encode()) < 5e6


def test_tasks_with_probabilities_say_how_sure_they_are(made, page):
    probable = made[0].name in ("ner", "chunking", "parsing", "segments")
    assert probable == ("How sure" in page.texts) == ("expected calibration error" in page.texts)
    assert probable == any(text.startswith("A hinge has trained these scores") for text in page.texts)
    assert probable == ("probability 0." in made[1] or "probability 1." in made[1] or made[0].name == "segments")


def test_loads_nothing(page):
    sources = [
        value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href")
    ]
    assert all(value.startswith(("data:", "#mistake-")) for value in sources)
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")


def test_can_be_read_by_all(page):
    assert page.all("html")[0]["lang"] == "en"
    levels = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(attributes.get("scope") in ("row", "col") for attributes in page.all("th"))
    assert all(attributes.get("alt") for attributes in page.all("img"))
    plots = [attributes for attributes in page.all("div") if attributes.get("class") == "plot"]
    assert plots
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in plots)


def test_draws_examples_of_its_kind(made):
    case, text = made
    shown = text.partition("<article>")[2].partition("</article>")[0]
    drawn = {
        "ner": 'class="token',
        "chunking": 'class="token',
        "ocr": 'class="letters"',
        "multilabel": 'class="chips"',
        "alignment": 'class="grid"',
        "segments": "<polyline",
        "parsing": "<path",
    }
    assert drawn.get(case.name, "data:image/") in shown
    assert 'class="alternatives"' in shown


def test_learned_weights_are_shown(made, page):
    assert ("What the model has learned" in page.texts) == (made[0].name != "localization")


def test_metrics_are_those_of_the_task(made, page, tmp_path):
    assert any(text.replace(" ", "_") == made[0].task(tmp_path).headline for text in page.texts)


def scripts(text: str) -> list[str]:
    """What browsers would run."""
    return [piece.partition("</script>")[0] for piece in text.split("<script>")[1:]]


def test_words_of_data_are_no_markup(tmp_path):
    evil = "<script>alert(1)</script>"
    (tmp_path / "train.txt").write_text(f"{evil} NNP B-<b>\nran VBD O\n\nAda NNP B-<b>\n{evil} NNP O\n")
    ner = small_tasks.NER.task(tmp_path)
    examples = ner.read(str(tmp_path / "train.txt"))
    fitted = ner.fit(examples)
    about = {"task": evil, "settings": {evil: evil}, "n": 2, "lam": 0.1, "message": evil, "metrics": {}}
    model = TrainedModel(fitted, torch.ones(fitted.problem(examples).dim, dtype=torch.float64), about)
    write_report(model, tmp_path / "page.html", examples=examples, source=evil)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert "alert(1)" not in "".join(scripts(text))
    assert page.texts.count(evil) > 5
    assert not page.all("b")


def test_the_command_writes_the_page(tmp_path, monkeypatch, capsys, blank_pictures):
    monkeypatch.chdir(tmp_path)
    data = small_tasks.CHUNKING.write(tmp_path, True)
    assert main(["train", "chunking", "--train", data, "--bits", "0", "--passes", "2", "--out", "model"]) == 0
    capsys.readouterr()
    assert main(["show", "model", data, "--examples", "1"]) == 0
    assert capsys.readouterr().out.startswith("saved model/report.html (")
    page = Page(Path("model/report.html").read_text(encoding="utf-8"))
    assert "Attributes with the largest weights" in page.texts
    assert main(["show", "model", "--output", "bare.html"]) == 0
    assert "Results" not in Page(Path("bare.html").read_text(encoding="utf-8")).texts
    assert main(["show", "model", "--examples", "-1"]) == 2
    assert "--examples must be at least 0" in capsys.readouterr().err


def test_margins_are_explained_and_alternatives_have_positions(tmp_path):
    (tmp_path / "train.txt").write_text("Ada NNP B-PER\nor CC O\nAda NNP B-PER\n\nran VBD O\n")
    ner = small_tasks.NER.task(tmp_path)
    examples = ner.read(str(tmp_path / "train.txt"))
    fitted = ner.fit(examples)
    about = {"task": "ner", "settings": {}, "n": 2, "lam": 0.1, "message": "", "metrics": {}}
    model = TrainedModel(fitted, torch.zeros(fitted.problem(examples).dim, dtype=torch.float64), about)
    write_report(model, tmp_path / "page.html", examples=examples)
    texts = " ".join(Page((tmp_path / "page.html").read_text(encoding="utf-8")).texts)
    assert "; the score of the right output is 3 lower than it should be" in texts
    assert "the two best outputs have equal scores" in texts
    assert "Ada (word 1) → " in texts
    assert "Ada (word 3) → " in texts
    # Of eight taggings of the first sentence and two of the second, five at most: the best one, and four others.
    ranks = sections.uncertain(model, examples, 2)
    assert [found.count("<li>") for found in ranks.split("<article>")[1:]] == [4, 1]


def test_rounding_is_no_violation():
    assert sections.violated(1.776e-15) == "; the right output scores as high as it should"


def test_metrics_and_signs_are_explained(made):
    case, page = made
    texts = " ".join(Page(page).texts)
    meanings = {"parsing": "las: labelled", "alignment": "aer: alignment", "segmentation": "iou: intersection"}
    assert meanings.get(case.name, "") in texts
    assert case.name not in ("alignment", "multilabel") or "✓ right, ✗ wrong, ○ missed" in texts


def test_a_page_without_examples_says_what_adds_them(tmp_path):
    model, examples = untrained(small_tasks.OCR, tmp_path)
    for shown, said in (((), True), (examples, False)):
        write_report(model, tmp_path / "page.html", examples=shown, count=1)
        text = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert ("<code>structsmooth show DIR FILE</code>" in text) == said


def test_unlabelled_examples_are_refused(tmp_path):
    model, _ = untrained(small_tasks.OCR, tmp_path)
    unlabelled = model.task.read(small_tasks.OCR.write(tmp_path, False))
    with pytest.raises(ValueError, match="these words have no labels"):
        write_report(model, tmp_path / "page.html", examples=unlabelled)
    assert not (tmp_path / "page.html").exists()


class OwnTask(Task):
    """Numbers and their signs, with nothing but what every task must have."""

    summary, headline = "signs", "right"

    def read(self, path, split="train"):
        raise AssertionError

    def fit(self, examples):
        return FittedOwnTask(self)


class FittedOwnTask(FittedTask):
    def problem(self, examples):
        raise ValueError("no problem")

    def predict(self, weights, examples, k=1):
        return [[(float(weights), "<+>"), (-float(weights), "<->")][:k] for _ in examples]

    def measure(self, examples, outputs):
        right = sum((x > 0) == (y == "<+>") for x, y in zip(examples, outputs, strict=True)) / len(examples)
        return {"right": right}, ""

    def write(self, examples, predictions, stream):
        raise AssertionError


def page_of_own_task(folder: Path, examples: list[float]) -> Page:
    about = {"task": "own", "settings": {}, "n": 2, "lam": 0.1, "message": "stopped", "metrics": {}}
    write_report(TrainedModel(OwnTask().fit([]), torch.ones(1), about), folder / "page.html", examples=examples)
    return Page((folder / "page.html").read_text(encoding="utf-8"))


def test_a_task_of_ones_own_is_shown_as_text(tmp_path):
    page = page_of_own_task(tmp_path, [1.0, -2.0])
    assert {"stopped", "0.5000", "cost 1", "<+>", " <->"} <= {*page.texts}
    assert len(page.all("article")) == 3


def test_uncertain_examples_are_sought_among_the_first_of_many(tmp_path):
    def said(page: Page) -> bool:
        return any("among the first 1,000 examples" in text for text in page.texts)

    assert said(page_of_own_task(tmp_path, 1001 * [1.0]))
    assert not said(page_of_own_task(tmp_path, 1000 * [1.0]))
