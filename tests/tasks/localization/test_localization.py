"""Localization end to end on small pictures, with a small random network in place of a trained one."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from boxed_images import drawn, rows, write_all
from PIL import Image
from small_tasks import small_networks
from torch import nn

from structsmooth import BCFW, Max, ProxLinear
from structsmooth.cli import main
from structsmooth.solvers import IncrementalProxLinear
from structsmooth.tasks import Localization
from structsmooth.tasks.localization import FittedLocalization
from structsmooth.tasks.localization.box_features import BACKBONES, load_backbone, load_features
from structsmooth.tasks.localization.examples import Detection, Example
from structsmooth.tasks.localization.images import ImageFile

# Objects in each image: class and edges.
PICTURES = {
    **{f"dog{i}": [("dog", (6 + 3 * i, 5, 30 + 3 * i, 25))] for i in range(5)},
    **{f"cat{i}": [("cat", (10, 4 + 2 * i, 36, 26 + 2 * i))] for i in range(4)},
    "both": [("dog", (2, 3, 22, 20)), ("cat", (32, 15, 58, 36))],
    "dogs": [("dog", (2, 3, 22, 20)), ("dog", (32, 15, 58, 36))],
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> str:
    """Proposals and features of all tests: most have the same pictures."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, cache) -> Path:
    small_networks(monkeypatch)
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path, PICTURES)
    return tmp_path


@pytest.fixture
def task(cache):
    def build(**settings) -> Localization:
        return Localization(**({"backbone": "tiny", "features_cache": cache, "jobs": 1} | settings))

    return build


def names(examples) -> list[tuple[str, str]]:
    return [(example.name.removesuffix(".png"), example.label) for example in examples]


def outputs(predictions) -> list[Detection]:
    return [ranked[0][1] for ranked in predictions]


# Reading.


def test_images_with_exactly_one_object_of_each_class(task):
    dogs, cats = [f"dog{i}" for i in range(5)], [f"cat{i}" for i in range(4)]
    expected = [(name, "cat") for name in [*cats, "both"]] + [(name, "dog") for name in [*dogs, "both"]]
    assert names(task().read("train.csv")) == expected
    assert task().fit(task().read("train.csv")).task.classes == ["cat", "dog"]
    examples = task(classes=["dog"]).read("train.csv")
    assert names(examples) == [pair for pair in expected if pair[1] == "dog"]
    assert examples[0].truth == (6, 5, 30, 25)
    assert load_features(examples[0].features).shape == (len(examples[0].boxes), 6, 4, 4)


def test_negatives_are_images_without_the_class_and_not_for_training(task):
    model = task(classes=["dog"], negatives=2)
    assert all(example.truth for example in model.read("train.csv"))
    examples = model.read("train.csv", "test")
    assert names(examples)[-2:] == [("cat0", "dog"), ("cat2", "dog")]
    assert [example.truth is None for example in examples] == [False] * 6 + [True] * 2
    assert all(example.known for example in examples)
    assert len(task(classes=["dog"], negatives=99).read("train.csv")) == 6  # of training


def test_what_is_wrong_with_images_is_reported_and_stops_nothing(task, folder, capsys):
    wrong = {
        "corrupt": [("dog", (1, 1, 9, 9))],
        "missing": [("dog", (1, 1, 9, 9))],
        "outside": [("dog", (70, 1, 90, 9))],
        "empty": [("dog", (9, 9, 9, 20))],
        "clipped": [("dog", (30, 10, 99, 30))],
    }
    for name in ("outside", "empty", "clipped"):
        (folder / f"{name}.png").write_bytes(drawn([]))
    (folder / "clipped.png").write_bytes(drawn([("dog", (30, 10, 60, 30))]))
    (folder / "corrupt.png").write_bytes(drawn([])[:50])
    (folder / "wrong.csv").write_text(rows(PICTURES | wrong))
    model = task(classes=["dog", "horse"])
    examples = model.read("wrong.csv")
    assert [name for name, _ in names(examples)] == [*(f"dog{i}" for i in range(5)), "both", "clipped"]
    assert examples[-1].truth == (30, 10, 60, 30)
    report = capsys.readouterr().err
    for line in (
        "box outside the image: outside.png",
        "box without area: empty.png",
        "box clipped to the image: clipped.png",
        "class without images that have exactly one of it: horse",
    ):
        assert line in report.splitlines()
    assert all(name in report for name in ("corrupt.png", "missing.png"))
    assert model.fit(examples).task.classes == ["dog"]


def test_images_without_proposals_are_reported(task, capsys, monkeypatch):
    monkeypatch.setattr(
        "structsmooth.tasks.localization.proposals.selective_search", lambda *_: np.zeros((0, 4), np.float32)
    )
    with pytest.raises(ValueError, match=r"train\.csv: no images to use; no boxes proposed: dog0\.png"):
        task(classes=["dog"], proposals=17).read("train.csv")


def test_no_image_of_a_class_is_refused(task):
    with pytest.raises(ValueError, match="no images to use; class without images that have exactly one of it: cow"):
        task(classes=["cow"]).read("train.csv")


def test_what_is_said_of_missing_files_is_not_of_classes(task, folder, capsys):
    objects = {"gone": [("dog", (1, 1, 9, 9))]}
    (folder / "gone.csv").write_text(rows(objects))
    (folder / "some.csv").write_text(rows(PICTURES | objects))
    with pytest.raises(ValueError, match=r"^gone\.csv: no images to use; unreadable file \(.*\): gone\.png$"):
        task(classes=["dog"]).read("gone.csv")
    assert len(task(classes=["dog"]).read("some.csv")) == 6
    assert "class without" not in capsys.readouterr().err


def test_training_and_evaluation_need_boxes(task, folder):
    model = task(classes=["dog"])
    examples = model.read(str(folder), "predict")
    assert {example.known for example in examples} == {False}
    with pytest.raises(ValueError, match="these images have no boxes: training"):
        model.fit(examples)
    with pytest.raises(ValueError, match="these images have no boxes: evaluation"):
        model.read(str(folder), "test")
    fitted = FittedLocalization(model, 1.0, (6, 4, 4))
    with pytest.raises(ValueError, match="these images have no boxes: evaluation"):
        fitted.measure(examples, [Detection((0, 0, 1, 1), 0.0)] * len(examples))


def test_networks_load_when_features_are_computed(task, monkeypatch):
    monkeypatch.setattr("structsmooth.tasks.localization.load_backbone", None)
    model = task()
    with pytest.raises(TypeError):
        model.read("train.csv")
    FittedLocalization(model, 1.0, (6, 4, 4)).module()


# Training.


@pytest.mark.parametrize(
    ("head", "solver", "passes"), [("linear", BCFW(), 40), ("elu", ProxLinear(inner=BCFW()), 25)], ids=["linear", "elu"]
)
def test_learns_its_training_data(task, head, solver, passes):
    untrained = task(head=head)
    examples = untrained.read("train.csv")
    model = untrained.fit(examples)
    problem = model.problem(examples)
    result = solver.solve(problem, lam=0.01 / problem.n, passes=passes)
    assert result.history[-1].objective < 0.2 * result.history[0].objective
    metrics, table = model.measure(examples, outputs(model.predict(result.weights, examples)))
    assert metrics["corloc"] == metrics["ap"] == 1.0
    assert metrics["mean_iou"] > 0.8
    assert [line.split()[0] for line in table.splitlines()] == ["class", "cat", "dog", "mean"]


def test_last_layers_begin_as_they_are_and_move(task, monkeypatch, tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        deep = nn.Sequential(nn.Conv2d(3, 6, 16, stride=16), nn.ReLU(), nn.Conv2d(6, 5, 1))
    monkeypatch.setitem(BACKBONES, "deep", lambda _: copy.deepcopy(deep))
    settings = {"backbone": "deep", "feature_dtype": "float32"}
    frozen, tuned = task(**settings), task(**settings, tune="last:1")
    assert load_features(tuned.read("train.csv")[0].features).shape[1:] == (6, 4, 4)
    models = [(own.fit(examples), examples) for own in (frozen, tuned) if (examples := own.read("train.csv"))]
    problems = [model.problem(examples) for model, examples in models]
    head, both = (problem.start() for problem in problems)
    assert len(both) == len(head) + 2 * (6 * 5 + 5) == models[1][0].dim
    assert both.count_nonzero() == head.count_nonzero()
    assert problems[1].loss(both) == pytest.approx(problems[0].loss(head), rel=1e-5)
    results = [IncrementalProxLinear().solve(problem, lam=0.1 / problem.n, passes=8) for problem in problems]
    assert results[1].history[-1].objective < 0.9 * results[0].history[-1].objective
    with pytest.raises(ValueError, match="the backbone has 2 layers, of which last:2 leaves none"):
        task(**settings, tune="last:2").read("train.csv")
    with torch.no_grad():
        deep[2].weight.add_(1.0)
    other = replace(models[1][0], task=replace(models[1][0].task))  # as loaded where the file of weights is another
    with pytest.raises(ValueError, match="the weights of deep have changed since the model was trained"):
        other.problem(models[1][1])
    with pytest.raises(ValueError, match="the weights of deep have changed since the model was trained"):
        models[0][0].predict(results[0].weights, task(**settings).read("train.csv"))


def test_loss_is_the_cost_of_the_worst_box_where_scores_are_zero(task):
    examples = task(classes=["dog"]).read("train.csv")
    problem = task(classes=["dog"], head="linear").fit(examples).problem(examples)
    worst = 0.0
    for example in examples:
        label = int(overlaps(example, example.truth).argmax())
        worst += 1 - float(overlaps(example, example.boxes[label].tolist()).min())
    assert problem.loss(problem.start()) == pytest.approx(worst / len(examples))


def overlaps(example: Example, box) -> torch.Tensor:
    from torchvision.ops import box_iou

    return box_iou(example.boxes, torch.tensor([box]))[:, 0]


@pytest.mark.parametrize("head", ["linear", "elu"])
def test_classes_are_problems_of_their_own(task, head):
    """With shares n_c / n of the examples, losses and gradients of all classes are those of each alone."""
    examples = task().read("train.csv")
    together = task(head=head).fit(examples)
    problem = together.problem(examples)
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(problem.dim, generator=generator)
    loss, gradient = problem.loss_and_grad(w, Max())
    pieces, losses = [], 0.0
    for label, own in zip(together.task.classes, w.chunk(2), strict=True):
        alone = replace(together, task=task(head=head, classes=[label]))
        part = alone.problem([example for example in examples if example.label == label])
        own_loss, own_gradient = part.loss_and_grad(own, Max())
        losses += own_loss * part.n / problem.n
        pieces.append(own_gradient * part.n / problem.n)
    assert loss == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(gradient, torch.cat(pieces), rtol=1e-4, atol=1e-5)


def test_scale_gives_an_average_box_norm_20(task):
    examples = task().read("train.csv")
    model = task().fit(examples)
    norms = [load_features(e.features).float().flatten(1).norm(dim=1) * model.scale for e in examples]
    assert float(torch.cat(norms).mean()) == pytest.approx(20, rel=1e-4)


def test_first_weights_follow_the_seed(task):
    def first(seed):
        model = FittedLocalization(task(seed=seed, classes=["a", "b"]), 1.0, (6, 4, 4))
        return nn.utils.parameters_to_vector(model.module().parameters())

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))
    one, other = first(1).chunk(2)
    assert not torch.equal(one, other)


# Measuring.


def example(label: str, truth, name: str = "x") -> Example:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0.0, 0, 10, 5]])
    return Example(name, ImageFile(name), label, boxes, Path(name), truth, known=True)


def test_metrics_by_hand(task):
    model = FittedLocalization(task(classes=["cat", "dog"]), 1.0, (6, 4, 4))
    whole, half, third = (0.0, 0.0, 10.0, 10.0), (0.0, 0.0, 10.0, 5.0), (0.0, 0.0, 10.0, 3.0)
    examples = [example("dog", whole), example("dog", whole), example("dog", third), example("dog", None)]
    found = [Detection(whole, 4.0), Detection(half, 2.0), Detection(half, 1.0), Detection(whole, 3.0)]
    metrics, table = model.measure(examples, found)
    assert metrics["corloc"] == pytest.approx(2 / 3)  # exactly half is not more than half
    assert metrics["mean_iou"] == pytest.approx((1 + 0.5 + 0.6) / 3)
    # Ranked: right, the image without a dog, wrong, right.
    assert metrics["ap"] == pytest.approx((1 + 2 / 4) / 3)
    assert metrics["ap_11_points"] == pytest.approx((4 * 1 + 3 * 2 / 4) / 11)
    assert metrics["best_proposal_iou"] == pytest.approx((1 + 1 + 0.6) / 3)
    assert table.splitlines()[1].split()[:2] == ["dog", "3"]
    more, table = model.measure([*examples, example("cat", whole)], [*found, Detection(whole, 0.0)])
    assert more["corloc"] == pytest.approx((2 / 3 + 1) / 2)
    with pytest.raises(ValueError, match="none of these images has an object"):
        model.measure(examples[-1:], found[-1:])


# Predicting.


@pytest.fixture
def trained(task):
    untrained = task(classes=["dog"], head="linear")
    examples = untrained.read("train.csv")
    model = untrained.fit(examples)
    problem = model.problem(examples)
    return model, examples, BCFW().solve(problem, lam=0.01 / problem.n, passes=30).weights


def test_detections_have_their_scores(trained):
    model, examples, weights = trained
    ranked = model.predict(weights, examples, 4)
    assert all(detection.score == score for alternatives in ranked for score, detection in alternatives)


def test_predictions_can_be_read_as_annotations(trained, folder):
    model, examples, weights = trained
    predictions = model.predict(weights, examples)
    with open(folder / "found.csv", "w") as stream:
        model.write(examples, predictions, stream)
    again = model.read("found.csv", "test")
    assert names(again) == names(examples)
    for example_, detection in zip(again, outputs(predictions), strict=True):
        assert example_.truth == pytest.approx(detection.box)


def test_pictures_show_both_boxes(trained, folder):
    model, examples, weights = trained
    model.draw(examples, model.predict(weights, examples), folder / "out")
    assert {path.name for path in (folder / "out").iterdir()} == {f"{name}-dog.png" for name, _ in names(examples)}
    moved = [[(1.0, Detection((40.0, 30.0, 60.0, 40.0), 1.0))]]
    model.draw(examples[:1], moved, folder / "moved")
    pixels = np.asarray(Image.open(folder / "moved" / "dog0-dog.png"))
    assert tuple(pixels[5, 20]) == (0, 255, 0)  # upper edge of the true box
    assert tuple(pixels[30, 50]) == (255, 0, 0)  # upper edge of the one found
    assert pixels.shape == (40, 60, 3)


# Options and the command line.


def test_weights_of_networks_are_asked_for(monkeypatch, tmp_path):
    monkeypatch.delenv("STRUCTSMOOTH_DATA", raising=False)
    with pytest.raises(ValueError, match=r"give --backbone-weights, or set STRUCTSMOOTH_DATA.*--backbone squeezenet"):
        load_backbone("squeezenet-caffe")
    with pytest.raises(ValueError, match="backbone must be one of squeezenet-caffe, squeezenet, alexnet"):
        load_backbone("resnet")
    with pytest.raises(FileNotFoundError, match=r"nosuch\.npz"):
        load_backbone("alexnet", str(tmp_path / "nosuch.npz"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "deep"}, "head must be one of linear, elu, got 'deep'"),
        ({"negatives": -1}, "negatives must be at least 0, got -1"),
        ({"proposals": 0}, "proposals must be at least 1"),
        ({"feature_dtype": "int8"}, "feature_dtype must be one of float16, float32, got 'int8'"),
        ({"backbone": "resnet"}, "backbone must be one of squeezenet-caffe, squeezenet, alexnet"),
        ({"tune": "all"}, "tune must be last:K, such as last:1, got 'all'"),
        ({"search": "slow"}, "search must be one of fast, quality"),
    ],
)
def test_bad_settings(task, settings, message):
    with pytest.raises(ValueError, match=message):
        task(**settings)


def test_commands(cache, folder, capsys):
    options = ["--backbone", "tiny", "--features-cache", cache, "--jobs", "1", "--class", "dog", "--negatives", "3"]
    run = ["--train", "train.csv", "--test", "train.csv", "--passes", "5", "--out", "model"]
    assert main(["train", "localization", *run, *options]) == 0
    table = capsys.readouterr().out.partition("test: train.csv\n")[2].partition("\n\nsaved")[0]
    settings = json.loads((folder / "model" / "model.json").read_text())["settings"]
    assert (settings["solver"], settings["head"]) == ("incremental-prox-linear", "elu")
    assert main(["evaluate", "model", "train.csv"]) == 0
    assert capsys.readouterr().out.strip() == table.strip()
    assert main(["predict", "model", "dog0.png", "--top", "2", "--pictures", "pictures"]) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert header == "image,class,xmin,ymin,xmax,ymax,score"
    assert first.split(",")[:2] == second.split(",")[:2] == ["dog0.png", "dog"]
    assert [path.name for path in (folder / "pictures").iterdir()] == ["dog0-dog.png"]
    (folder / "bad.csv").write_text("image,class,xmin,ymin,xmax,ymax\nx.png,dog,1,2,3,four\n")
    assert main(["evaluate", "model", "bad.csv"]) == 2
    assert "bad.csv:2: could not convert" in capsys.readouterr().err


def test_tasks_without_pictures_say_so(tmp_path, capsys):
    (tmp_path / "words.txt").write_text("Ada B-PER\nmet O\n\nParis B-LOC\n")
    assert main(["train", "ner", "--train", "words.txt", "--bits", "8", "--passes", "1", "--out", "ner"]) == 0
    for flags in (["--pictures", "new"], ["--json", "--masks", "new"]):
        assert main(["predict", "ner", "nowhere.txt", *flags]) == 2  # before the file is read
        assert f"{flags[-2]}: NER has no {flags[-2].removeprefix('--')}" in capsys.readouterr().err
    assert not Path("new").exists()
