"""What pages say that models have learned is what their weights do."""

import base64
import io
import re

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from scene_images import CLASSES
from small_tasks import ALIGNMENT, POSE, SCENES, SEGMENTATION

from structsmooth.tasks.alignment.data import SentencePair
from structsmooth.tasks.alignment.features import GROUPS, feature_names, pair_features
from structsmooth.tasks.pose.features import oriented_gradients
from structsmooth.tasks.pose.score import PoseScore
from structsmooth.tasks.scenes import graphs
from structsmooth.tasks.segmentation.pictures import Picture
from structsmooth.tasks.segmentation.superpixels import SCALES, Superpixels


def fitted(case, folder, **settings):
    """A task with its examples."""
    task = case.task(folder, **settings)
    examples = task.read(case.write(folder, True))
    return task.fit(examples), examples


def weights(dim: int) -> torch.Tensor:
    """Whole numbers whose sizes differ: tables write those below 1000 in full."""
    sizes = 1 + torch.randperm(dim, generator=torch.Generator().manual_seed(0)).double()
    return torch.where(sizes % 2 == 0, sizes, -sizes)


def pictures(block) -> list[np.ndarray]:
    encoded = re.findall(r'src="data:image/png;base64,([^"]*)"', block.content)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in encoded]


# Word alignment.


def test_weights_of_pairs_of_words_are_named_and_sorted(tmp_path):
    task, _ = fitted(ALIGNMENT, tmp_path)
    names = feature_names()
    w = weights(len(names))
    (table,) = task.show_weights(w, [])
    shown = {(name, group): float(text) for name, group, text in table.rows}
    assert shown == pytest.approx(dict(zip(names, w.tolist(), strict=True)))
    sizes = [abs(weight) for weight in shown.values()]
    assert sizes == sorted(sizes, reverse=True)


def test_names_of_features_of_pairs_of_words(tmp_path):
    task, _ = fitted(ALIGNMENT, tmp_path)
    pair = SentencePair(("la", "maison", "1789", "."), ("the", "maisons", "1789", "."))
    planes = dict(zip(feature_names(), np.moveaxis(pair_features(task.lexicon, pair), 2, 0), strict=True))
    assert planes["same word", "spelling"].nonzero() == (2, 2)
    assert planes["same punctuation", "spelling"].nonzero() == (3, 3)
    assert planes["same first 4 letters", "spelling"].nonzero() == (1, 1)
    assert planes["both with digits", "spelling"].nonzero() == (2, 2)
    assert [place.tolist() for place in planes["both first or both last", "position"].nonzero()] == [[0, 3], [0, 3]]
    assert planes["distance²", "position"] == pytest.approx(planes["distance from the diagonal", "position"] ** 2)
    assert planes["√ Dice", "dice"] == pytest.approx(np.sqrt(planes["Dice", "dice"]))
    assert (planes["constant", ""] == 1).all()
    for group in GROUPS:
        assert len(feature_names([group])) == pair_features(task.lexicon, pair, [group]).shape[2]


# Poses.


def test_springs_are_those_of_the_limbs(tmp_path):
    task, _ = fitted(POSE, tmp_path)
    module = PoseScore(task.skeleton, task.task.window)
    w = weights(module.filters.numel() + module.springs.numel())
    torch.nn.utils.vector_to_parameters(w, module.parameters())
    table, _ = task.show_weights(w, [])
    assert [row[:2] for row in table.rows] == task.skeleton.limbs
    shown = torch.tensor([[float(text) for text in row[2:]] for row in table.rows], dtype=torch.float64)
    torch.testing.assert_close(shown, module.springs.detach(), rtol=0.005, atol=0)


def test_strokes_lie_along_edges(tmp_path):
    """Filters that are the features of a dark corner: its edge falls from the right to the left."""
    task, _ = fitted(POSE, tmp_path)
    window, joints = task.task.window, len(task.skeleton.names)
    rows, columns = np.indices((8 * window,) * 2)
    image = np.where(rows + columns < 8 * window, 0, 255).astype(np.uint8)
    edge = torch.from_numpy(oriented_gradients(np.dstack([image] * 3), 8)).permute(2, 0, 1).flatten()
    factors = torch.zeros(joints).double()
    factors[:2] = torch.tensor([1.0, -1.0])
    w = torch.cat([torch.outer(factors, edge).flatten(), torch.zeros(4 * (joints - 1)).double()])
    _, drawing = task.show_weights(w, [])
    positive, negative, *others = pictures(drawing)
    middle = slice(len(positive) // 3, -(len(positive) // 3))  # the cell in the middle of three
    for stroke in (positive[middle, middle], negative[middle, middle]):
        falling, rising = (np.diagonal(own[..., 3]).astype(int).sum() for own in (stroke, stroke[:, ::-1]))
        assert rising > 3 * falling
    blue, orange = (own[own[..., 3] > 0][0, :3] for own in (positive, negative))
    assert blue[2] > blue[0]
    assert orange[0] > orange[2]
    assert not any(own[..., 3].any() for own in others)


# Scenes.


@pytest.mark.parametrize("kind", ["none", "stars", "adjacency", "both"])
def test_weights_of_scenes_give_the_potentials(tmp_path, kind):
    task, (scene, *_) = fitted(SCENES, tmp_path, graph=kind)
    count = len(CLASSES)
    w = weights(2 * count * (2 * count + 1) + 2 * graphs.EDGE_FEATURES)
    (regions,), (levels,) = task.unaries.regions([scene]), task.unaries([scene])
    own = graphs.SceneGraph.of(regions, levels, kind)
    ((_, bound),) = graphs.batches([own], w)
    alone, above, *blocks = task.show_weights(w, [])
    assert (list(alone.rows), list(alone.columns)) == ([*CLASSES], [*CLASSES, "constant"])
    x = own.features.numpy()
    fine = own.types == 0
    expected = x[fine][:, :count] @ alone.values[:, :-1].T + alone.values[:, -1] + x[fine][:, count:] @ above.values.T
    if (~fine).any():
        coarse, *blocks = blocks
        expected = np.vstack([expected, x[~fine][:, count:] @ coarse.values[:, :-1].T + coarse.values[:, -1]])
    np.testing.assert_allclose((bound.unary[0] - own.base_scores).numpy(), expected)
    if kind == "none":
        assert not blocks
        return
    (table,) = blocks
    shown = {(edge, name): float(text) for edge, name, text in table.rows}
    by_type = [torch.tensor([shown.get(name, 0.0) for name in names]).double() for names in graphs.EDGE_NAMES]
    strengths = [
        float(x[: len(by_type[t])] @ by_type[t]) for t, x in zip(own.edge_types, own.edge_features, strict=True)
    ]
    assert bound.pairwise[0, :, 0, 0].tolist() == pytest.approx(strengths)
    assert not bound.pairwise[0, :, 0, 1].any()


# Segmentation.


def test_weights_like_a_corner_show_its_place_and_colour(tmp_path):
    task, (picture, *_) = fitted(SEGMENTATION, tmp_path)
    image = np.full_like(picture.image, (40, 90, 160))
    parts = Superpixels.of(image)
    corner = task.vocabulary.features(image, parts).unary[parts.labels[0, 0]].astype(np.float64)
    distances = task.vocabulary.colours.astype(float) - cv2.cvtColor(image, cv2.COLOR_BGR2LAB)[0, 0]
    lab = task.vocabulary.colours[(distances**2).sum(1).argmin()]
    nearest = cv2.cvtColor(lab[None, None], cv2.COLOR_LAB2RGB)[0, 0].tolist()
    for sign, place in ((1, 1), (-1, 2)):
        w = torch.from_numpy(np.concatenate([sign * corner, np.zeros(task.vocabulary.pairwise_size)]))
        colours, places, _ = task.show_weights(w, [])
        for row in colours.rows:
            assert not re.search("rgb", row[3 - place])
            assert re.findall(r"rgb\(.*?\)", row[place]) == [f"rgb({', '.join(map(str, nearest))})"]
        own, *wider = pictures(places)
        assert own[0, 0, 3] > 0
        assert not own[-1, :, 3].any()
        assert (own[0, 0, 2] > own[0, 0, 0]) == (sign > 0)
        assert all((other[..., 3] > 0).sum() >= (own[..., 3] > 0).sum() for other in wider)


def test_weights_of_borders_give_the_scores_of_agreement(tmp_path):
    task, (picture, *_) = fitted(SEGMENTATION, tmp_path)
    assert isinstance(picture, Picture)
    vocabulary, parts = task.vocabulary, Superpixels.of(picture.image)
    w = weights(vocabulary.unary_size + vocabulary.pairwise_size)
    _, _, matrix = task.show_weights(w, [])
    length = parts.borders / np.sqrt(parts.sizes.mean())
    expected, rows = length * matrix.values[0, 0], iter(matrix.values[1:, 1:])
    for members in parts.neighbourhoods():
        for counts in vocabulary.histograms(picture.image, parts):
            histogram = np.zeros_like(counts)
            np.add.at(histogram, members[:, 0], counts[members[:, 1]])
            p, q = (histogram / histogram.sum(1, keepdims=True))[parts.edges.T]
            distance = ((p - q) ** 2 / np.maximum(p + q, 1e-12)).sum(1) / 2
            expected = expected + length * (np.exp(-np.outer(distance, SCALES)) @ next(rows))
    scores = vocabulary.features(picture.image, parts).pairwise @ w[vocabulary.unary_size :].numpy()
    np.testing.assert_allclose(expected, scores, rtol=1e-4)
    assert list(matrix.columns) == ["0", *(f"{scale:g}" for scale in SCALES)]


def test_without_scores_of_borders_none_are_shown(tmp_path):
    task, _ = fitted(SEGMENTATION, tmp_path, pairwise=False)
    assert len(task.show_weights(weights(task.vocabulary.unary_size), [])) == 2
