"""Semantic segmentation: files, superpixels, regressions, graphs, metrics, and the model."""

import io
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from images import zipped
from scene_images import CLASSES, SIZE, VOID, scene, write_all

from structsmooth import SoftBCFW
from structsmooth.tasks import Scenes
from structsmooth.tasks.scenes import graphs, results
from structsmooth.tasks.scenes.data import Scene, read_scenes
from structsmooth.tasks.scenes.logistic import fit_logistic, log_probabilities, out_of_fold
from structsmooth.tasks.scenes.regions import Regions, merge
from structsmooth.tasks.segmentation.superpixels import Superpixels

SMALL = {"side": 12, "colours": 6, "textures": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return Path(write_all(tmp_path_factory.mktemp("scenes") / "data", 6))


@pytest.fixture(scope="module", params=["none", "stars", "adjacency", "both"])
def fitted(request, folder):
    """A segmenter of each kind, and its scenes."""
    task = Scenes(graph=request.param, **SMALL)
    examples = task.read(f"{folder}#train+val")
    return task.fit(examples), examples


def random_weights(problem) -> torch.Tensor:
    return torch.randn(problem.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


# Files.


def test_parts_of_folders_and_zip_files(folder):
    assert [s.name for s in read_scenes(f"{folder}#train")] == ["s00", "s02", "s04"]
    assert [s.name for s in read_scenes(f"{folder}#val+train")] == ["s01", "s03", "s05", "s00", "s02", "s04"]
    plain, packed = read_scenes(str(folder)), read_scenes(zipped(folder))
    assert [s.name for s in plain] == [s.name for s in packed] == [f"s{i:02}" for i in range(6)]
    for i, (a, b) in enumerate(zip(plain, packed, strict=True)):
        image, labels = scene(i)
        assert a.classes == b.classes == CLASSES
        assert all(np.array_equal(s.image, image) and np.array_equal(s.labels, labels) for s in (a, b))


def test_classes_that_count_as_void(folder):
    found = Scenes(void="grass").read(str(folder))[0]
    labels = scene(0)[1]
    assert found.classes == ("sky", "house")
    assert np.array_equal(found.labels, np.choose(np.minimum(labels, 3), [0, VOID, 1, VOID]))
    for wrong in ("gras", "sky, grass, house"):
        with pytest.raises(ValueError, match=f"{wrong} must be some of the classes, and not all"):
            Scenes(void=wrong.replace(" ", "")).read(str(folder))


@pytest.mark.parametrize(
    ("name", "text", "part", "fault"),
    [
        ("x.txt", None, "#x", r"x\.txt: no such file"),
        ("x.txt", "\n", "#x", r"x\.txt: empty"),
        ("x.txt", "s00\ns77\n", "#x", r"x\.txt:2: images/ has no s77"),
        ("classes.txt", None, "", r"classes\.txt: no such file"),
        ("classes.txt", "a\na\n", "", r"classes\.txt: expected up to 255 different names"),
    ],
)
def test_faults_of_lists(tmp_path, name, text, part, fault):
    path = Path(write_all(tmp_path / "data", 1))
    (path / name).unlink(missing_ok=True)
    if text is not None:
        (path / name).write_text(text)
    with pytest.raises(ValueError, match=fault):
        read_scenes(f"{path}{part}")


def test_labels_of_another_size_or_depth_are_refused(tmp_path):
    path = Path(write_all(tmp_path / "data", 1))
    for wrong in (np.zeros((3, 4), np.uint8), np.zeros(SIZE, np.uint16)):
        assert cv2.imwrite(str(path / "labels" / "s00.png"), wrong)
        with pytest.raises(ValueError, match=r"labels/s00\.png: expected one byte for each pixel of images/s00\.png"):
            read_scenes(str(path))


def test_images_to_predict_may_be_alone(tmp_path):
    path = Path(write_all(tmp_path / "data", 2))
    image = path / "images" / "s01.png"
    for source in (str(image), io.StringIO(f"{image}\n")):
        (scene,) = Scenes().read(source, "predict")
        assert (scene.name, scene.labels, scene.classes) == ("s01", None, ())


@pytest.mark.parametrize("settings", [{"graph": "ring"}, {"side": 1}, {"colours": 0}, {"textures": 0}])
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))} must be"):
        Scenes(**settings)


# Superpixels.


def test_merging_by_hand():
    parts = Superpixels.from_labels(np.array([[0, 1, 2, 3, 4]]))
    means = np.array([[0.0], [0.1], [1.0], [1.2], [0.05]])
    # 0 and 1 go first, then 2 and 3; 4 is like 0, but touches 3 alone.
    assert merge(parts, means, 4).tolist() == [0, 0, 1, 2, 3]
    assert merge(parts, means, 3).tolist() == [0, 0, 1, 1, 2]
    assert merge(parts, means, 1).tolist() == [0] * 5


def test_merged_regions_are_those_of_wards_method():
    rows, columns = np.repeat([0, 1, 2, 3], [3, 1, 4, 2]), np.repeat([0, 1, 2, 3], [2, 5, 1, 3])
    parts = Superpixels.from_labels(rows[:, None] * 4 + columns)
    features = np.random.default_rng(0).normal(size=(16, 3))
    groups = [{v} for v in range(16)]
    touching = np.zeros((16, 16), bool)
    touching[tuple(parts.edges.T)] = touching[tuple(parts.edges.T[::-1])] = True

    def increase(first, second):
        if not touching[np.ix_(sorted(first), sorted(second))].any():
            return np.inf
        sizes = [parts.sizes[sorted(group)] for group in (first, second)]
        means = [
            np.average(features[sorted(g)], axis=0, weights=w) for g, w in zip((first, second), sizes, strict=True)
        ]
        total, other = sizes[0].sum(), sizes[1].sum()
        return ((means[0] - means[1]) ** 2).sum() * total * other / (total + other)

    while len(groups) > 5:
        first, second = min(combinations(groups, 2), key=lambda pair: increase(*pair))
        groups = [group for group in groups if group not in (first, second)] + [first | second]
    found = merge(parts, features, 5)
    assert {frozenset(np.flatnonzero(found == group)) for group in range(5)} == set(map(frozenset, groups))


def test_regions_are_connected_and_nested(folder):
    regions = Regions.of(read_scenes(str(folder))[0].image, 8)
    fine, coarse = regions.fine, regions.coarse
    assert len(coarse.sizes) == -(-len(fine.sizes) // 4)
    assert np.array_equal(regions.parents[fine.labels], coarse.labels)
    assert regions.contrasts.shape == (len(fine.edges),)
    for label in range(len(coarse.sizes)):
        assert cv2.connectedComponents((coarse.labels == label).astype(np.uint8), connectivity=4)[0] == 2


# Regressions.


def test_regression_reaches_a_stationary_point():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    counts = torch.randint(5, (60, 3), generator=generator).double()
    weights = fit_logistic(x, counts, 0.1, 200).requires_grad_()
    loss = -(counts * log_probabilities(weights, x)).sum() / counts.sum() + 0.05 * weights.square().sum()
    (gradient,) = torch.autograd.grad(loss, weights)
    assert gradient.norm() < 1e-4
    assert weights.norm() > 0.1


def test_out_of_fold_probabilities_do_not_know_their_own_labels():
    generator = torch.Generator().manual_seed(0)
    x, groups = torch.randn(40, 3, generator=generator), torch.arange(8).repeat_interleave(5)
    counts = torch.randint(5, (40, 2), generator=generator).float()
    found = out_of_fold(x, counts, groups, 4, 0.1, 30)
    own = groups % 4 == 1
    changed = out_of_fold(x, torch.where(own[:, None], counts.flip(1), counts), groups, 4, 0.1, 30)
    assert torch.equal(found[own], changed[own])
    assert not torch.allclose(found[~own], changed[~own])
    assert torch.allclose(found.exp().sum(1), torch.ones(40))


# Graphs.


def test_training_and_prediction_score_alike(fitted):
    """Where no superpixel is void, the potentials of the problem are those of the structure that predicts."""
    task, examples = fitted
    filled = [Scene(s.name, s.image, np.where(s.labels == VOID, 0, s.labels), s.classes) for s in examples]
    problem, regions = task.problem(filled), task.unaries.regions(filled)
    w, levels = random_weights(problem), task.unaries.of_training(filled)
    whole = [graphs.SceneGraph.of(*pair, task.task.graph) for pair in zip(regions, levels, strict=True)]
    seen = set()
    for numbers, graph in graphs.batches(whole, w):
        for b, i in enumerate(numbers):
            unary, pairwise = problem.feature_map.scores(w, i)
            nodes, edges = len(unary), len(pairwise)
            base = problem.graphs.base_scores[problem.graphs.nodes_of(i)]
            torch.testing.assert_close(graph.unary[b, :nodes], base + unary)
            torch.testing.assert_close(graph.pairwise[b, :edges], pairwise)
            assert torch.equal(graph.edges[b, :edges], whole[i].edges)
            assert int(graph.node_mask[b].sum()) == nodes
            assert int(graph.edge_mask[b].sum()) == edges
            seen.add(i)
    assert seen == set(range(len(examples)))


def test_kinds_of_graphs(fitted):
    task, examples = fitted
    (regions,), (levels,) = task.unaries.regions(examples[:1]), task.unaries(examples[:1])
    graph = graphs.SceneGraph.of(regions, levels, task.task.graph)
    fine, coarse, borders = len(regions.parents), len(regions.coarse.sizes), len(regions.fine.edges)
    counts = {
        "none": (fine, 0, 0),
        "stars": (fine + coarse, 0, fine),
        "adjacency": (fine, borders, 0),
        "both": (fine + coarse, borders, fine),
    }
    types = graph.edge_types.tolist()
    assert (len(graph.types), types.count(0), types.count(1)) == counts[task.task.graph]
    assert graph.edge_features[graph.edge_types == 0].diff(dim=1).le(0).all()  # agreement fades with contrast


def test_decoding_is_near_the_best_labels(fitted):
    task, examples = fitted
    w = random_weights(task.problem(examples)) / 3
    regions, levels = task.unaries.regions(examples), task.unaries(examples)
    whole = [graphs.SceneGraph.of(*pair, task.task.graph) for pair in zip(regions, levels, strict=True)]
    for _, graph in graphs.batches(whole, w):
        score, y = graphs.decoded(graph, task.task.graph)
        best, _ = graph.max()
        torch.testing.assert_close(score, graph.score(y))
        if task.task.graph in graphs.TREES:
            torch.testing.assert_close(score, best)
        assert (score > best - 0.02 * best.abs()).all()


def test_void_superpixels_are_left_out(fitted):
    task, examples = fitted
    first = examples[0]
    half = np.where(np.arange(SIZE[1]) < SIZE[1] // 2, VOID, first.labels).astype(np.uint8)
    partly = Scene(first.name, first.image, half, first.classes)
    nothing = Scene(first.name, first.image, np.full_like(half, VOID), first.classes)
    regions = task.unaries.regions([partly])[0].fine
    problem = task.problem([partly, nothing, *examples[1:]])
    assert problem.n == len(examples)  # nothing is left of the second
    own = problem.graphs.nodes_of(0)
    known = regions.counts(half < len(CLASSES))
    fine = (problem.graphs.types[own] == 0).numpy()
    kept = (known > 0) & (2 * known >= regions.sizes)
    assert 0 < kept.sum() < len(kept)
    np.testing.assert_allclose(problem.graphs.costs[own].numpy()[fine], known[kept] / regions.sizes.mean())
    with pytest.raises(ValueError, match="no superpixel has a class"):
        task.problem([nothing, nothing])


# Metrics.


def test_metrics_by_hand():
    truth = [np.array([[0, 0, 1], [1, 1, VOID]], np.uint8), np.array([[2, 9]], np.uint8)]
    found = [np.array([[0, 1, 1], [1, 0, 0]], np.uint8), np.array([[2, 2]], np.uint8)]
    counts = results.confusion(truth, found, 4)
    assert counts.tolist() == [[1, 1, 0, 0], [1, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    expected = {
        "pixel_accuracy": 4 / 6,
        "mean_class_accuracy": (1 / 2 + 2 / 3 + 1) / 3,
        "mean_iou": (1 / 3 + 2 / 4 + 1) / 3,
    }
    assert results.measures(counts) == pytest.approx(expected)
    lines = results.table(["sky", "grass", "house", "boat"], counts).splitlines()
    assert lines[0].split() == ["pixel_accuracy", "66.67", "%"]
    assert lines[-3].split() == ["grass", "50.00", "|", "33", "67", ".", "."]
    with pytest.raises(ValueError, match="no pixel has a class"):
        results.measures(np.zeros((2, 2), np.int64))


def test_colours_of_classes_differ_and_stand_in_the_legend(tmp_path):
    colours = results.palette(21)
    assert len(np.unique(colours, axis=0)) == 21
    image, found = np.zeros((40, 30, 3), np.uint8), np.full((40, 30), 4, np.uint8)
    found[:20] = 2
    results.save_overlay(tmp_path / "drawn.png", Scene("a", image, None, ()), found, [str(i) for i in range(21)])
    legend = cv2.imread(str(tmp_path / "drawn.png"))[:, 60:]
    for line, label in enumerate((2, 4)):
        coloured = np.argwhere((legend[:, :17] == colours[label]).all(-1))
        assert coloured.min(0).tolist() == [4 + 16 * line, 4]
        assert coloured.max(0).tolist() == [15 + 16 * line, 15]
        assert len(coloured) == 12 * 12
    assert (legend[:, 17:] < 128).any()  # names


# The model.


def test_finds_classes_in_scenes_that_it_has_not_seen(folder, tmp_path):
    task = Scenes(**SMALL)
    fitted = task.fit(train := task.read(f"{folder}#train"))
    w = SoftBCFW().solve(fitted.problem(train), lam=0.1, passes=40).weights
    new = fitted.read(f"{folder}#val", "test")
    predictions = fitted.predict(w, new)
    metrics, _ = fitted.measure(new, [ranked[0][1] for ranked in predictions])
    assert metrics["pixel_accuracy"] > 0.93
    fitted.draw(new, predictions, tmp_path / "drawn")
    assert sorted(file.name for file in (tmp_path / "drawn").iterdir()) == ["s01.png", "s03.png", "s05.png"]
    height, width = cv2.imread(str(tmp_path / "drawn" / "s01.png")).shape[:2]
    assert (height, width > 3 * SIZE[1]) == (SIZE[0], True)
    assert fitted.predict(w, []) == []


def test_probabilities_of_the_user(folder, tmp_path):
    for i, s in enumerate(read_scenes(str(folder))):
        noise = np.random.default_rng(i).random((*SIZE, len(CLASSES)))
        maps = 0.6 * (s.labels[..., None] == np.arange(len(CLASSES))) + 0.4 * noise
        np.save(tmp_path / f"{s.name}.npy", maps / maps.sum(2, keepdims=True))
    task = Scenes(probabilities=str(tmp_path), **SMALL)
    fitted = task.fit(train := task.read(f"{folder}#train"))
    assert fitted.regressions is None
    w = SoftBCFW().solve(fitted.problem(train), lam=0.1, passes=40).weights
    new = Scenes.from_dict(fitted.to_dict()).read(f"{folder}#val", "test")
    found = [ranked[0][1] for ranked in Scenes.from_dict(fitted.to_dict()).predict(w, new)]
    assert fitted.measure(new, found)[0]["pixel_accuracy"] > 0.95
    np.save(tmp_path / "s01.npy", np.ones((*SIZE, 2)))
    with pytest.raises(ValueError, match=r"s01\.npy: expected probabilities \(64, 80, 3\), got shape \(64, 80, 2\)"):
        fitted.predict(w, fitted.read(f"{folder}#val"))
