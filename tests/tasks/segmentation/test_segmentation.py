"""The segmenter end to end on tiny images."""

import io
import json

import cv2
import numpy as np
import pytest
import torch
from images import SIZE, ellipse, write_all, zipped

from structsmooth import BCFW, CasimirSVRG
from structsmooth.cli import main
from structsmooth.models.superpixels import SuperpixelGraph, balanced_cost
from structsmooth.tasks import Segmentation


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A segmenter, its test images and weights."""
    path = write_all(tmp_path_factory.mktemp("ellipses"), 10)
    task = Segmentation(colours=6, textures=6)
    examples = task.read(path + "#1-6")
    fitted = task.fit(examples)
    result = BCFW().solve(fitted.problem(examples), lam=10 / 6, passes=15)
    return fitted, fitted.read(path + "#7-10", "test"), result.weights


def outputs(predictions):
    return [ranked[0][1] for ranked in predictions]


def test_finds_objects_that_it_has_not_seen(trained):
    task, examples, weights = trained
    metrics, table = task.measure(examples, outputs(task.predict(weights, examples)))
    nothing, _ = task.measure(examples, [np.zeros(SIZE, bool) for _ in examples])
    everything, _ = task.measure(examples, [np.ones(SIZE, bool) for _ in examples])
    assert nothing["iou"] == 0
    assert metrics["iou"] > max(0.75, everything["iou"])
    assert metrics["accuracy"] > 0.93 > nothing["accuracy"]
    assert "iou" in table


def test_pairwise_weights_are_not_negative(trained):
    task, _, weights = trained
    pairwise = weights[task.vocabulary.unary_size :]
    assert len(pairwise) == task.vocabulary.pairwise_size
    assert (pairwise >= 0).all()
    assert (pairwise > 0).any()
    assert (weights[: len(weights) - len(pairwise)] < 0).any()


def test_primal_solvers_do_not_keep_the_bounds(trained):
    task, examples, _ = trained
    with pytest.raises(ValueError, match="does not keep the bounds"):
        CasimirSVRG().solve(task.problem(examples), lam=1.0, passes=1)


def test_without_pairwise_scores(trained):
    _, examples, _ = trained
    task = Segmentation(pairwise=False, colours=6, textures=6).fit(examples)
    problem = task.problem(examples)
    assert problem.dim == task.vocabulary.unary_size
    weights = BCFW().solve(problem, lam=10 / 4, passes=15).weights
    assert task.measure(examples, outputs(task.predict(weights, examples)))[0]["iou"] > 0.7
    assert not Segmentation.from_dict(task.to_dict()).task.pairwise
    assert problem.bounds is None
    assert len(CasimirSVRG().solve(problem, lam=10 / 4, passes=1).weights) == problem.dim


def test_measure_by_hand(trained):
    task, examples, _ = trained
    masks = [picture.mask for picture in examples]
    assert task.measure(examples, masks)[0] == {"iou": 1.0, "accuracy": 1.0}
    halves = [mask & (np.arange(SIZE[1]) < SIZE[1] // 2) for mask in masks]
    metrics, _ = task.measure(examples, halves)
    assert metrics["iou"] == pytest.approx(np.mean([h.sum() / m.sum() for h, m in zip(halves, masks, strict=True)]))
    wrong = [(m != h).mean() for h, m in zip(halves, masks, strict=True)]
    assert metrics["accuracy"] == pytest.approx(1 - np.mean(wrong))


def test_cost_of_superpixels_by_hand():
    unary, pairwise = torch.zeros(1, 4, 2).double(), torch.zeros(1, 1, 2, 2).double()
    graph = SuperpixelGraph(unary, torch.tensor([[0, 1]]), pairwise, torch.tensor([[10, 30, 40, 20]]))
    cost = balanced_cost(graph, torch.tensor([[0, 0, 1, 0]]))
    expected = torch.tensor([[[0, 10 / 120], [0, 30 / 120], [0.5, 0], [0, 20 / 120]]]).double()
    torch.testing.assert_close(cost, expected)
    other = graph.cost_augmented(torch.tensor([[1, 1, 1, 1]]), balanced_cost)
    assert other.sizes is graph.sizes
    torch.testing.assert_close(other.unary[0, :, 0], graph.sizes[0].double() / 200)


def test_writes_what_it_predicts(trained):
    task, examples, weights = trained
    predictions, stream = task.predict(weights, examples, 2), io.StringIO()
    task.write(examples, predictions, stream)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["image"] for line in lines] == [picture.name for picture in examples]
    for line, ranked in zip(lines, predictions, strict=True):
        for found, (score, mask) in zip(line["outputs"], ranked, strict=True):
            assert (found["score"], found["size"]) == (score, list(SIZE))
            labels = np.arange(len(found["runs"])) % 2 == 1
            assert np.array_equal(np.repeat(labels, found["runs"]).reshape(SIZE), mask)


def test_images_without_masks_can_be_predicted_alone(trained, tmp_path):
    task, _, weights = trained
    examples = task.read(write_all(tmp_path, 2, masks=False))
    predicted = outputs(task.predict(weights, examples))
    assert [mask.shape for mask in predicted] == [SIZE, SIZE]
    for use in (task.problem, lambda pictures: task.measure(pictures, predicted)):
        with pytest.raises(ValueError, match="e00 has no mask"):
            use(examples)


def test_refuses_empty_input_and_vocabularies(trained):
    task, _, _ = trained
    with pytest.raises(ValueError, match="standard input: expected lines with paths of images"):
        task.read(io.StringIO())
    with pytest.raises(ValueError, match="colours must be at least 1, got 0"):
        Segmentation(colours=0)


def test_default_data_are_two_parts_of_an_archive(monkeypatch, tmp_path):
    (tmp_path / "weizmann_horse").mkdir()
    (tmp_path / "weizmann_horse" / "weizmann_horse_250.zip").touch()
    monkeypatch.setenv("STRUCTSMOOTH_DATA", str(tmp_path))
    assert Segmentation.default_files()["test"].endswith("weizmann_horse_250.zip#201-327")


def test_command_line(tmp_path, capsys):
    write_all(tmp_path / "data", 5)
    path, out = zipped(tmp_path / "data"), str(tmp_path / "run")
    options = ["--train", f"{path}#1-4", "--test", f"{path}#5", "--out", out, "--colours", "4", "--textures", "4"]
    assert main(["train", "segmentation", *options, "--passes", "3", "--lam", "10/n"]) == 0
    settings = json.loads((tmp_path / "run" / "model.json").read_text())["settings"]
    assert (settings["solver"], settings["steps"]) == ("proximal-bcfw", "fw")
    assert "iou" in capsys.readouterr().out
    drawn = tmp_path / "drawn"
    assert main(["predict", out, f"{path}#5", "--pictures", str(drawn)]) == 0
    assert json.loads(capsys.readouterr().out)["image"] == "e04"
    assert [file.name for file in drawn.iterdir()] == ["e04.png"]
    assert cv2.imread(str(drawn / "e04.png")).shape == ellipse(4)[0].shape
    assert main(["train", "segmentation", *options, "--solver", "sgd", "--out", out + "2"]) == 2
    assert "does not keep the bounds" in capsys.readouterr().err
