"""What every task promises, on small data."""

import io
import json
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import small_tasks
import torch
from flag_help import help_of
from small_tasks import CASES, Case, Trained

import structsmooth.tasks
from structsmooth.cli import main
from structsmooth.cli.flags import add_flags, from_flags
from structsmooth.files import DATA_VARIABLE, split_part
from structsmooth.tasks import FittedTask, Task, load_task
from structsmooth.tasks.json_lines import read_json_lines, write_json_lines

SPLITS = ("train", "dev", "test")


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def trained(request, tmp_path_factory) -> Iterator[Trained]:
    """Each task, trained once."""
    with pytest.MonkeyPatch.context() as patch:
        small_tasks.small_networks(patch)
        yield small_tasks.trained(request.param, tmp_path_factory.mktemp(request.param.name))


@pytest.fixture
def case(trained) -> Case:
    return trained.case


def keys(case, outputs):
    return [case.key(output) for output in outputs]


def ranked_keys(case, predictions):
    return [[(score, case.key(output)) for score, output in ranked] for ranked in predictions]


class TestTask:
    def test_has_a_name_and_is_exported(self, case):
        task_type = load_task(case.name)
        assert issubclass(task_type, Task)
        assert getattr(structsmooth.tasks, task_type.__name__) is task_type
        assert task_type.__name__ in structsmooth.tasks.__all__

    def test_help_says_what_files_look_like(self, case, capsys):
        with pytest.raises(SystemExit):
            main(["train", case.name, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert f"files of {case.name}: {case.task_type.files}" in text
        assert len(case.task_type.files) > 50

    def test_numbers_of_numpy_are_numbers(self, case):
        task_type = load_task(case.name)
        own = {f.name: f.default for f in fields(task_type) if type(f.default) in (int, float)}
        task = task_type(**{name: np.array(value)[()] for name, value in own.items()})
        assert task == task_type()
        assert all(type(getattr(task, name)) is type(value) for name, value in own.items())

    def test_reading_changes_nothing(self, trained):
        before = replace(trained.task)
        again = trained.task.read(trained.path)
        assert trained.task == before == trained.case.task(trained.folder)
        assert keys(trained.case, map(trained.case.gold, again)) == keys(
            trained.case, map(trained.case.gold, trained.examples)
        )

    def test_fitting_changes_nothing(self, trained):
        assert trained.task == trained.case.task(trained.folder)
        assert type(trained.fitted) is type(trained.task).fitted_type
        assert isinstance(trained.fitted, FittedTask)
        assert type(trained.fitted.task) is type(trained.task)

    def test_fitting_the_fitted_task_gives_the_same(self, trained):
        assert trained.fitted.task.fit(trained.examples).to_dict() == trained.fitted.to_dict()

    def test_refuses_malformed_files_by_place(self, trained, tmp_path):
        path, place = trained.case.spoil(tmp_path)
        for split in SPLITS:
            for reader in (trained.task, trained.fitted):
                with pytest.raises(ValueError, match=Path(path).name + place):
                    reader.read(path, split)

    def test_missing_files_are_named(self, trained, tmp_path):
        for reader in (trained.task, trained.fitted):
            with pytest.raises(FileNotFoundError, match="nowhere"):
                reader.read(str(tmp_path / "nowhere.npz"), "test")

    def test_only_examples_to_predict_may_lack_labels(self, trained, tmp_path):
        path = trained.case.write(tmp_path, False)
        examples = trained.fitted.read(path)
        predicted = trained.outputs(examples)
        assert len(predicted) == len(examples)
        for use in (
            lambda: trained.fitted.read(path, "dev"),
            lambda: trained.fitted.read(path, "test"),
            lambda: trained.task.fit(examples).problem(examples),
            lambda: trained.fitted.measure(examples, predicted),
        ):
            with pytest.raises(ValueError, match=trained.case.unlabelled):
                use()

    def test_fields_are_flags(self, case, tmp_path):
        parser = ArgumentParser()
        add_flags(parser, "things", case.task_type)
        options = parser.parse_args([])
        own = {f.name for f in fields(case.task_type) if f.metadata.get("flag", f.name) is not None}
        assert vars(options).keys() == own
        assert from_flags(case.task_type, options) == case.task_type()
        for settings in ({}, *case.variants):
            given = parser.parse_args(case.flags(tmp_path, **settings))
            assert from_flags(case.task_type, given) == case.task(tmp_path, **settings)
        texts = help_of(parser, "things")
        assert len(texts) == len(own)
        assert all(len(text) > 15 and "None" not in text for text in texts.values())

    def test_default_files(self, case, tmp_path, monkeypatch):
        if not case.default_data:  # they are in the package
            assert all(Path(path).is_file() for path in case.task_type.default_files().values())
            return
        monkeypatch.delenv(DATA_VARIABLE, raising=False)
        with pytest.raises(ValueError, match=f"{case.name} comes without data: give --train"):
            case.task_type.default_files()
        for name in case.default_data:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
        files = case.task_type.default_files()
        assert [*files] == ["train", "test"]
        assert {split_part(path)[0] for path in files.values()} == {tmp_path / name for name in case.default_data}
        assert files["train"] != files["test"]


class TestFittedTask:
    def test_learns(self, trained):
        metrics, table = trained.fitted.measure(trained.examples, trained.outputs())
        assert all(metrics[name] >= least for name, least in trained.case.reached.items()), metrics
        assert trained.task.headline in metrics
        assert table.strip()
        rows = trained.result.history
        assert rows[-1].objective < 0.5 * rows[0].objective
        assert 0 <= rows[-1].gap < 0.1 * rows[0].gap

    def test_measures_labels_as_perfect(self, trained):
        metrics, _ = trained.fitted.measure(trained.examples, [*map(trained.case.gold, trained.examples)])
        best = 0.0 if trained.task.headline_is_error else 1.0
        assert metrics[trained.task.headline] == pytest.approx(best)

    def test_alternatives_are_sorted_and_distinct(self, trained):
        best = ranked_keys(trained.case, trained.fitted.predict(trained.weights, trained.examples))
        for (first,), ranked in zip(
            best,
            ranked_keys(trained.case, trained.fitted.predict(trained.weights, trained.examples, 4)),
            strict=True,
        ):
            scores = [score for score, _ in ranked]
            assert scores == sorted(scores, reverse=True)
            assert len(ranked) == len({output for _, output in ranked}) == 4
            assert ranked[0] == (pytest.approx(first[0]), first[1])

    def test_json_round_trip_predicts_the_same(self, trained):
        for settings in ({}, *trained.case.variants):
            fitted = trained.case.task(trained.folder, **settings).fit(trained.examples)
            copy = load_task(trained.case.name).from_dict(json.loads(json.dumps(fitted.to_dict())))
            assert type(copy) is type(fitted)
            assert copy.to_dict() == fitted.to_dict()
            assert copy.task == fitted.task
            dim = fitted.problem(trained.examples).dim
            weights = torch.rand(dim, dtype=trained.weights.dtype, generator=torch.Generator().manual_seed(0))
            expected = ranked_keys(trained.case, fitted.predict(weights, trained.examples, 3))
            examples = copy.read(trained.path, "train")
            assert ranked_keys(trained.case, copy.predict(weights, examples, 3)) == expected

    def test_the_problem_can_be_built_again(self, trained):
        again = trained.fitted.problem(trained.fitted.read(trained.path, "train"))
        assert again.loss(trained.weights) == trained.fitted.problem(trained.examples).loss(trained.weights)

    def test_the_problem_goes_to_other_devices_unless_the_task_says_it_cannot(self, trained):
        problem = deepcopy(trained.fitted.problem(trained.examples))
        refused = pytest.raises(TypeError, match="on the CPU alone")
        with refused if trained.task.cpu_alone else suppress(RuntimeError):  # this device has no numbers for bounds
            problem.to("meta")

    def test_what_it_wrote_reads_back(self, trained):
        stream = io.StringIO()
        trained.fitted.write(trained.examples, trained.fitted.predict(trained.weights, trained.examples), stream)
        assert trained.case.read_back(stream.getvalue(), trained.examples) == keys(trained.case, trained.outputs())

    def test_json_lines_read_back(self, trained):
        predictions, stream = trained.fitted.predict(trained.weights, trained.examples, 3), io.StringIO()
        write_json_lines(trained.fitted, trained.examples, predictions, stream)
        lines = stream.getvalue().splitlines()
        again = read_json_lines(trained.fitted, lines)
        assert ranked_keys(trained.case, again) == ranked_keys(trained.case, predictions)
        assert all(len(json.loads(line)["outputs"]) == len(own) for line, own in zip(lines, predictions, strict=True))
        with pytest.raises(ValueError, match="line 2: not a prediction of"):
            read_json_lines(trained.fitted, [lines[0], "{}"])

    def test_images_have_the_same_name_alone_in_lists_and_in_folders(self, trained, tmp_path):
        folder = Path(trained.case.write(tmp_path, False))
        files = sorted((folder if folder.is_dir() else folder.parent).rglob("*.png"))
        if not files:
            return

        def named(source):
            return [trained.fitted.input_to_json(example)["image"] for example in trained.fitted.read(source)]

        (alone,) = {*named(str(files[0]))}
        assert alone in (files[0].name, files[0].stem)
        assert {*named(io.StringIO(f"{files[0]}\n"))} == {alone}
        assert alone in named(str(files[0].parent))

    def test_masks_are_files_that_lines_name(self, trained, tmp_path):
        example, stream = trained.examples[:1], io.StringIO()
        (ranked,) = predictions = trained.fitted.predict(trained.weights, example, 2)
        if trained.case.name not in ("segmentation", "scenes"):
            with pytest.raises(ValueError, match="has no masks"):
                write_json_lines(trained.fitted, example, predictions, stream, tmp_path)
            return
        write_json_lines(trained.fitted, example, predictions, stream, tmp_path)
        paths = [values["mask"] for values in json.loads(stream.getvalue())["outputs"]]
        assert paths == [str(tmp_path / f"{example[0].name}{rank}.png") for rank in ("", ".2")]
        for path, (_, output) in zip(paths, ranked, strict=True):
            scale = 255 if output.dtype == bool else 1
            assert np.array_equal(cv2.imread(path, cv2.IMREAD_UNCHANGED), scale * output.astype(np.uint8))


def test_trains_and_predicts_on_the_command_line(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    case, flags = trained.case, trained.case.flags(trained.folder)
    new = case.write(tmp_path, False)
    data = ["--train", trained.path, "--test", trained.path]
    assert main(["train", case.name, *data, *flags, "--passes", "2", "--out", "model"]) == 0
    table = capsys.readouterr().out.partition(f"test: {trained.path}\n")[2].partition("\n\nsaved")[0]
    assert Path("model/curves.png").read_bytes().startswith(b"\x89PNG")
    model = json.loads(Path("model/model.json").read_text())
    assert model["settings"]["solver"] == trained.task.solver
    assert model["trained"] == json.loads(json.dumps(trained.fitted.to_dict()))
    assert trained.task.headline in model["metrics"]["test"]
    assert main(["evaluate", "model", trained.path]) == 0
    assert capsys.readouterr().out.strip() == table.strip() != ""
    assert main(["predict", "model", new, "--output", "out.txt"]) == 0
    fitted = load_task(case.name).from_dict(model["trained"])
    # What is measured is what predict says of the same file.
    assert main(["predict", "model", trained.path, "--json", "--output", "lines.jsonl"]) == 0
    answers = [ranked[0][1] for ranked in read_json_lines(fitted, Path("lines.jsonl").read_text().splitlines())]
    assert fitted.measure(fitted.read(trained.path, "test"), answers)[1].strip() == table.strip()
    capsys.readouterr()
    assert len(case.read_back(Path("out.txt").read_text(), fitted.read(new))) == len(fitted.read(new))
    assert main(["certify", "model", "--passes", "1"]) == 0
    assert "above the optimum by" in capsys.readouterr().out
