"""What commands say while they work, and the records they leave of each pass."""

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from structsmooth.cli import main
from structsmooth.cli.report import progress_bar
from structsmooth.history import History, Row

TRAIN = ["train", "ner", "--train", "train.txt", "--bits", "8", "--no-rich", "--out", "model", "--passes", "3"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, blank_pictures) -> Path:
    (tmp_path / "train.txt").write_text("Ada B-PER\nsang O\n\nshe O\nsang O\n")
    (tmp_path / "words.txt").write_text("Ada\nslept\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def messages(capsys) -> list[str]:
    """Lines on standard error since the last call, without those on compilation."""
    lines = capsys.readouterr().err.splitlines()
    return [line.removeprefix("structsmooth: ") for line in lines if "compiling inner loops" not in line]


def test_off_a_terminal_each_stage_is_a_line(capsys):
    assert main([*TRAIN, "--gap-tolerance", "0"]) == 0
    *stages, training, estimate, measuring, saving = messages(capsys)
    assert stages == [
        "reading train.txt ...",
        "train.txt: read as 2 columns, words in 1, tags in 2",
        "train.txt: 2 sentences, 4 words, scheme BIO: PER 1",
        "finding the features and labels of 2 examples ...",
        "encoding 2 examples ...",
    ]
    assert training == "training, up to 3 passes ..."
    assert estimate.startswith("a pass takes ")
    assert (measuring, saving) == ("measuring ...", "saving the model and its curves ...")
    assert main(["predict", "model", "words.txt"]) == 0
    assert messages(capsys) == [
        "reading words.txt ...",
        "words.txt: read as a word in each line",
        "predicting 1 example ...",
    ]
    assert main(["evaluate", "model", "train.txt"]) == 0
    assert messages(capsys) == [
        "reading train.txt ...",
        "train.txt: read as 2 columns, words in 1, tags in 2",
        "predicting 2 examples ...",
    ]
    assert main(["certify", "model", "--passes", "1"]) == 0
    assert messages(capsys)[0] == "reading train.txt ..."


def test_the_estimate_is_of_the_passes_after_the_first(capsys, monkeypatch):
    times = iter([100.0, 103.0])  # after the first pass and the second one
    monkeypatch.setattr("structsmooth.solvers.progress.clock.seconds", lambda: next(times))
    with progress_bar(passes=6, headline="f1", done=2) as draw:
        for made in (2, 3, 4, 5):
            draw(SimpleNamespace(row=Row(made, 0, 0.0, 1.0)))
    assert messages(capsys) == ["training, up to 6 passes ...", "a pass takes 3 s, and all that are left up to 6 s ..."]


def test_one_pass_has_no_estimate(capsys):
    assert main([*TRAIN[:-1], "1", "--gap-tolerance", "0"]) == 0
    assert not any("a pass takes" in line for line in messages(capsys))


@pytest.mark.parametrize(
    ("files", "label"), [([], "f1"), (["--test"], "test f1"), (["--test", "--dev"], "dev f1")], ids=["", "test", "dev"]
)
def test_metrics_say_of_which_data_they_are(files, label, capsys):
    data = [argument for flag in files for argument in (flag, "train.txt")]
    assert main([*TRAIN, *data, "--verbose"]) == 0
    captured = capsys.readouterr()
    header = next(line for line in captured.out.splitlines() if "oracle calls" in line)
    assert " ".join(header.split()).endswith(f"gap {label}")
    if data:
        assert f"  {label} 0." in captured.err
        assert main(["show", "model", "train.txt"]) == 0
        page = Path("model/report.html").read_text()
        assert f"f1 on {label.split()[0]} data" in page
        for name in ("these examples", *(flag.removeprefix("--") for flag in files)):
            assert f"<dt>F1, {name}</dt><dd>" in page


def test_quiet_commands_say_nothing(capsys, monkeypatch):
    assert main([*TRAIN, "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "saved in model" in captured.out
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    assert main(["evaluate", "model", "train.txt", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_verbose_commands_tell_passes_and_times(capsys):
    assert main([*TRAIN, "--gap-tolerance", "0", "--verbose"]) == 0
    lines = messages(capsys)
    assert [line.partition(":")[0] for line in lines if ", pass " in line] == [
        f"training, pass {number} of 3" for number in range(4)
    ]
    assert any(line.startswith("reading train.txt: ") and line.endswith(" s") for line in lines)


def test_quiet_and_verbose_exclude_each_other(capsys):
    with pytest.raises(SystemExit):
        main([*TRAIN, "--quiet", "--verbose"])
    assert "not allowed with argument --quiet" in capsys.readouterr().err


def test_messages_and_logs_are_no_settings(capsys):
    assert main(TRAIN) == 0
    assert main([*TRAIN, "--resume", "--quiet", "--csv", "passes.csv"]) == 0


def test_records_of_passes_are_those_of_the_history(capsys):
    logs = ["--log-json", "passes.jsonl", "--csv", "tables/passes.csv", "--gap-tolerance", "0"]
    assert main([*TRAIN, *logs]) == 0
    assert main([*TRAIN[:-1], "5", *logs, "--resume"]) == 0
    history = History.load("model/history.jsonl")
    assert len(history) == 6
    assert History.load("passes.jsonl") == history
    with open("tables/passes.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(row["objective"]) for row in table] == history.column("objective")
    assert [float(row["gap"]) for row in table] == history.column("gap")


def test_records_on_standard_error(capsys):
    assert main([*TRAIN, "--quiet", "--log-json", "-"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [row["passes"] for row in rows] == History.load("model/history.jsonl").column("passes")


def test_tensorboard_receives_the_history(capsys):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert main([*TRAIN, "--tensorboard", "events"]) == 0
    events = accumulator.EventAccumulator("events").Reload().Scalars("objective")
    history = History.load("model/history.jsonl")
    assert [event.step for event in events] == history.column("passes")
    assert [event.value for event in events] == pytest.approx(history.column("objective"))


def test_without_tensorboard_the_error_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main([*TRAIN, "--tensorboard", "events"]) == 2
    assert "pip install 'structsmooth[tensorboard]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "task", "advice"),
    [
        ("tags.txt", "runs VBZ\n", "ner", "(for others: --scheme plain, or SequenceTagger)"),
        ("table.csv", "height,tall\n1.9,1\n", "multilabel", "in CSV as columns named label:NAME"),
        ("table.csv", "height;label:tall\n1.9;1\n", "multilabel", "features are numbers, and commas separate them"),
        ("pairs.txt", "la maison ||| the house\n", "alignment", "as in la maison ||| the house ||| 0-0 1-1"),
    ],
)
def test_files_of_first_users_are_refused_with_advice(name, text, task, advice, capsys):
    Path(name).write_text(text)
    assert main(["train", task, "--train", name, "--quiet"]) == 2
    assert capsys.readouterr().err.endswith(f"{advice}\n")


def test_a_sentence_on_one_line_is_tagged(capsys):
    assert main([*TRAIN, "--quiet"]) == 0
    Path("sentence.txt").write_text("she sang to Ada\n")
    capsys.readouterr()
    assert main(["predict", "model", "sentence.txt", "--quiet"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line] == ["she", "sang", "to", "Ada"]


@pytest.mark.parametrize("command", [["train", "ner", "--train"], ["predict", "model"], ["evaluate", "model"]])
def test_missing_files_have_no_numbers(command, capsys):
    assert main([*TRAIN, "--quiet"]) == 0
    assert main([*command, "nowhere.txt", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("structsmooth: error: nowhere.txt: no such file in ")
    assert "Errno" not in error


def test_errors_of_the_system_are_sentences(capsys):
    assert main([*TRAIN, "--quiet", "--csv", "train.txt/passes.csv"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("structsmooth: error: train.txt")
    assert "Errno" not in error
