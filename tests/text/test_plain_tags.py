"""Plain tags, such as parts of speech, from the column file to the page: taken as they are, measured by tokens."""

import json
from pathlib import Path

import pytest

from structsmooth import CasimirSVRG
from structsmooth.cli import main
from structsmooth.tasks import NER, Chunking
from structsmooth.text.scores import TagScores

PARTS = "the DT\ndog NN\nsleeps VBZ\n\na DT\nbird NN\nsings VBZ\n. .\n\nAda NNP\nsings VBZ\n. .\n\n" * 3


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "parts.txt").write_text(PARTS)
    return str(tmp_path / "parts.txt")


@pytest.mark.parametrize("task", [NER(bits=0, scheme="plain"), Chunking(scheme="plain")], ids=["ner", "chunking"])
def test_tags_are_taken_as_they_are(path: str, task: NER | Chunking) -> None:
    sentences = task.read(path)
    fitted = task.fit(sentences)
    assert fitted.tags == [".", "DT", "NN", "NNP", "VBZ"]
    weights = CasimirSVRG().solve(fitted.problem(sentences), lam=1e-3, passes=20).weights
    found = [ranked[0][1] for ranked in fitted.predict(weights, sentences)]
    assert found == [sentence.tags for sentence in sentences]
    assert fitted.measure(sentences, found)[0] == {"accuracy": 1.0, "macro_f1": 1.0}
    again = type(task).from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again.predict(weights, sentences) == fitted.predict(weights, sentences)


def test_prefixes_mean_nothing(tmp_path: Path) -> None:
    file = tmp_path / "tags.txt"
    file.write_text("sings I-B\nAda B-A\n\n" * 5)  # of different types, which no scheme has in this order
    task = NER(bits=0, scheme="plain")
    sentences = task.read(str(file))
    fitted = task.fit(sentences)
    assert fitted.tags == ["B-A", "I-B"]
    weights = CasimirSVRG().solve(fitted.problem(sentences), lam=1e-3, passes=10).weights
    assert fitted.predict(weights, sentences)[0][0][1] == ["I-B", "B-A"]


def test_scores_are_of_tokens() -> None:
    scores = TagScores.of([["A", "A", "B"], ["C"]], [["A", "B", "B"], ["A"]])
    assert scores.accuracy == 2 / 4
    assert scores.macro_f1 == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)  # of A, B and C
    assert "accuracy   50.00 %" in str(scores)


def test_commands(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, untagged = str(tmp_path / "model"), tmp_path / "new.txt"
    untagged.write_text("the\nbird\nsleeps\n.\n")
    options = ["--scheme", "plain", "--passes", "20", "--lam", "0.01", "--bits", "0"]
    assert main(["train", "ner", "--train", path, "--test", path, "--out", out, *options]) == 0
    assert "accuracy  100.00 %" in capsys.readouterr().out
    assert json.loads((tmp_path / "model" / "model.json").read_text())["metrics"]["test"]["accuracy"] == 1.0
    assert main(["predict", out, str(untagged)]) == 0
    assert capsys.readouterr().out == "the DT\nbird NN\nsleeps VBZ\n. .\n\n"
    assert main(["show", out, path]) == 0
    assert "Tokens by tag" in (tmp_path / "model" / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PARTS, r"parts\.txt:8: bad tag '\.'"),
        ("the DT\ndog NN\n", r"parts\.txt: no tags of entities: \['DT', 'NN'\] have no"),
    ],
)
def test_the_message_about_other_tags_names_the_scheme(path: str, text: str, message: str) -> None:
    Path(path).write_text(text)
    with pytest.raises(ValueError, match=f"{message}.*--scheme plain"):
        NER().read(path)
