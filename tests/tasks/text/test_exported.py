"""Taggers in Python and numpy alone: the file that is exported tags as the library does."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_tasks import entities as corpus

from structsmooth import __version__, train
from structsmooth.cli import main
from structsmooth.tasks import load_task
from structsmooth.text import standalone


def exported(folder: Path, task: str, **settings: object) -> tuple[object, standalone.Tagger]:
    """A trained tagger, and what the command makes of it."""
    (folder / "train.txt").write_text(corpus())
    model = train(load_task(task)(**settings), str(folder / "train.txt"), passes=3)
    model.save(folder / "model")
    assert main(["export", str(folder / "model"), "--format", "numpy", "--output", str(folder / "out")]) == 0
    return model, standalone.Tagger(folder / "out")


@pytest.mark.parametrize(
    "settings", [{"bits": 10}, {"bits": 0, "words_only": True}, {"bits": 10, "rich": False, "scheme": "BIOES"}]
)
def test_tags_are_those_of_the_library(tmp_path: Path, settings: dict[str, object]) -> None:
    model, tagger = exported(tmp_path, "ner", **settings)
    sentences = model.task.read(str(tmp_path / "train.txt"))
    tokens = [list(zip(s.words, *([] if settings.get("words_only") else s.columns), strict=True)) for s in sentences]
    # Others, of the same words in another order, and of words that training did not have.
    tokens += [own[::-1] for own in tokens] + [[(f"New{row[0]}", *row[1:]) for row in own] for own in tokens]
    tokens += [[]]
    assert [tagger.tag(own) for own in tokens] == model.predict(tokens)
    assert (tagger.model["tags"], tagger.model["structsmooth"]) == (model.task.tags, __version__)
    fitted = replace(model.task, temperature=settings.get("bits") and 0.7)
    fitted.write_standalone(model.weights, tmp_path / "heated")
    tagger, examples = standalone.Tagger(tmp_path / "heated"), fitted.examples(tokens)
    expected = fitted.tagger.marginals(fitted._sequences(examples), fitted.tempered(model.weights))
    for own, marginals in zip(tokens, expected, strict=True):
        np.testing.assert_allclose(tagger.probabilities(own), marginals, atol=1e-12)


def test_columns_that_the_model_reads_must_be_given(tmp_path: Path) -> None:
    _, tagger = exported(tmp_path, "ner", bits=10)
    with pytest.raises(ValueError, match="'Ada' has 1 columns, the model reads number 2"):
        tagger.tag("Ada sang")


def test_the_program_tags_text_without_this_library(tmp_path: Path) -> None:
    model, _ = exported(tmp_path, "ner", bits=10, words_only=True)
    line = "Ada met John Smith (of Acme Corp) in New York City."
    code = "import sys; sys.modules['torch'] = sys.modules['structsmooth'] = None; import runpy; "
    code += "runpy.run_path('out/tagger.py', run_name='__main__')"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, input=f"{line}\n", capture_output=True, text=True, check=True
    )
    words, tags = zip(*(row.split("\t") for row in found.stdout.splitlines() if row), strict=True)
    assert [list(tags)] == model.predict([line])
    assert "".join(words) == line.replace(" ", "")


def test_the_file_is_short_and_needs_numpy_alone() -> None:
    source = Path(standalone.__file__).read_text()
    assert len(source.splitlines()) <= 260
    assert "torch" not in source.replace("without torch", "")


def test_other_tasks_say_what_they_lack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported(tmp_path, "ner", bits=10)
    assert main(["export", str(tmp_path / "model"), "--format", "onnx", "--output", str(tmp_path / "x.onnx")]) == 2
    assert "NER has no scores from tensors: taggers export as --format numpy" in capsys.readouterr().err
