"""Superpixels and their features: what they must be by definition, and that they are the same every time."""

from itertools import pairwise

import cv2
import numpy as np
import pytest
from images import ellipse

from structsmooth.plain import from_plain, plain
from structsmooth.tasks.scenes.regions import Regions, describe
from structsmooth.tasks.segmentation import superpixels
from structsmooth.tasks.segmentation.superpixels import Superpixels, Vocabulary

LABELS = np.array([[0, 0, 1, 1], [0, 2, 2, 1], [3, 3, 2, 2]])


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.fit([ellipse(seed)[0] for seed in range(4)], colours=6, textures=5)


def test_borders_by_hand() -> None:
    parts = Superpixels.from_labels(LABELS)
    assert parts.sizes.tolist() == [3, 3, 4, 2]
    assert parts.edges.tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [2, 3]]
    assert parts.borders.tolist() == [1, 2, 1, 3, 2]
    assert parts.counts(LABELS >= 2).tolist() == [0, 0, 4, 2]
    nearest, first, second = (members.tolist() for members in parts.neighbourhoods())
    assert nearest == [[a, a] for a in range(4)]
    assert first == [[a, b] for a in range(4) for b in range(4) if {a, b} != {1, 3}]
    assert second == [[a, b] for a in range(4) for b in range(4)]


def test_one_superpixel_has_no_borders() -> None:
    parts = Superpixels.from_labels(np.zeros((3, 4), int))
    assert (parts.sizes.tolist(), parts.edges.shape, parts.borders.shape) == ([12], (0, 2), (0,))


def test_histograms_by_hand() -> None:
    rows, columns, words = np.array([[0, 0, 1, 2], [0, 1, 1, 0], [1, 1, 0, 2]])
    counts = Superpixels.from_labels(LABELS).histograms(LABELS[rows, columns], words, 3)
    assert counts.tolist() == [[0, 2, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]]


def test_superpixels_are_connected_and_follow_the_object() -> None:
    image, mask = ellipse(0)
    image = cv2.GaussianBlur(np.where(mask[..., None] > 0, 200, 50).astype(np.uint8).repeat(3, 2), (3, 3), 0)
    parts = Superpixels.of(image)
    assert parts.labels.shape == image.shape[:2]
    assert parts.sizes.sum() == mask.size
    assert (parts.sizes > 0).all()
    assert 20 < len(parts.sizes) < 100
    for label in range(len(parts.sizes)):
        assert cv2.connectedComponents((parts.labels == label).astype(np.uint8), connectivity=4)[0] == 2
    inside = parts.counts(mask > 0)
    assert np.minimum(inside, parts.sizes - inside).sum() < 0.03 * mask.size


def test_features(vocabulary: Vocabulary) -> None:
    image, _ = ellipse(5)
    parts = Superpixels.of(image)
    features = vocabulary.features(image, parts)
    n, edges = len(parts.sizes), len(parts.edges)
    assert features.unary.shape == (n, vocabulary.unary_size)
    assert features.pairwise.shape == (edges, vocabulary.pairwise_size)
    assert features.unary.dtype == features.pairwise.dtype == np.float32
    assert np.array_equal(features.edges, parts.edges)
    assert np.array_equal(features.sizes, parts.sizes)
    # Blocks of 1, and of square roots of histograms, in proportion to the size.
    size = parts.sizes / parts.sizes.mean()
    bounds = np.cumsum([0, 1, *3 * [6, 5, 36]])
    for begin, end in pairwise(bounds):
        np.testing.assert_allclose(np.linalg.norm(features.unary[:, begin:end], axis=1), size, rtol=1e-5)
    length = features.pairwise[:, :1]
    np.testing.assert_allclose(length[:, 0], parts.borders / np.sqrt(parts.sizes.mean()), rtol=1e-5)
    assert (features.pairwise >= 0).all()
    assert (features.pairwise <= length * (1 + 1e-5)).all()


def test_contrast_lowers_pairwise_features(vocabulary: Vocabulary) -> None:
    image, mask = ellipse(1)
    parts = Superpixels.of(image)
    features = vocabulary.features(image, parts)
    inside = 2 * parts.counts(mask > 0) > parts.sizes
    a, b = parts.edges.T
    similar = features.pairwise[:, 1:] / features.pairwise[:, :1]
    assert similar[inside[a] != inside[b]].mean() < 0.8 * similar[inside[a] == inside[b]].mean()


def test_everything_is_the_same_every_time(vocabulary: Vocabulary) -> None:
    images = [ellipse(seed)[0] for seed in range(4)]
    again = Vocabulary.fit(images, colours=6, textures=5)
    assert np.array_equal(again.colours, vocabulary.colours)
    assert np.array_equal(again.textures, vocabulary.textures)
    first, second = (vocabulary.features(images[0], Superpixels.of(images[0])) for _ in range(2))
    for name in ("unary", "edges", "pairwise", "sizes"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    restored = from_plain(Vocabulary, plain(vocabulary), "vocabulary")
    assert np.array_equal(restored.colours, vocabulary.colours)
    assert np.array_equal(restored.textures, vocabulary.textures)


def test_vocabularies_are_no_larger_than_what_there_is() -> None:
    flat = np.full((40, 40, 3), 90, np.uint8)
    flat[:, 20:] = 180
    vocabulary = Vocabulary.fit([flat], colours=50, textures=50)
    assert len(vocabulary.colours) == 2
    assert len(vocabulary.textures) < 50
    features = vocabulary.features(flat, Superpixels.of(flat))
    assert features.unary.shape[1] == vocabulary.unary_size
    assert np.isfinite(features.unary).all()


@pytest.mark.parametrize("shape", [(50, 61), (61, 50), (7, 9), (16, 16)])
def test_descriptors_stand_where_the_texture_is(shape: tuple[int, int]) -> None:
    height, width = shape
    image = np.full((height, width, 3), 128, np.uint8)
    image[: height // 4, : width // 4 : 2] = 255
    rows, columns, descriptors = superpixels.gradient_histograms(image)
    assert set(rows) == set(range(0, height, 4))
    assert set(columns) == set(range(0, width, 4))
    assert descriptors.shape == (len(rows), 128)
    assert len(rows) == len(set(rows)) * len(set(columns))
    busy = descriptors.any(1)
    near = (rows < height // 4) & (columns < width // 4)
    far = (rows > height // 4 + 9) | (columns > width // 4 + 9)
    assert busy[near].all()
    assert not busy[far].any()


def test_bright_to_the_right_is_not_bright_to_the_left() -> None:
    ramp = np.tile(np.arange(0, 240, 5, dtype=np.uint8), (48, 1))
    images = [np.repeat(pixels[..., None], 3, 2) for pixels in (ramp, ramp[:, ::-1], ramp.T)]
    middle = [superpixels.gradient_histograms(np.ascontiguousarray(image))[2][6 * 12 + 6] for image in images]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert not np.array_equal(middle[a], middle[b])


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (5, 1), (2, 2), (3, 3), (1, 40), (40, 1), (5, 7), (6, 6), (2, 19)])
@pytest.mark.parametrize("side", [2, 12, 20, 1000])
def test_tiny_images_have_superpixels_and_features(size: tuple[int, int], side: int) -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (*size, 3)).astype(np.uint8)
    vocabulary = Vocabulary.fit([image], 4, 4)
    parts = Superpixels.of(image, side)
    assert parts.labels.shape == size
    assert parts.sizes.sum() == size[0] * size[1]
    assert len(vocabulary.features(image, parts).unary) == len(parts.sizes)
    regions = Regions.of(image, side)
    assert [len(features) for features in describe(image, regions, vocabulary)] == [
        len(regions.fine.sizes),
        len(regions.coarse.sizes),
    ]


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.zeros((2, 4)), np.zeros(3), np.zeros((1, 1, 3))])
def test_a_vocabulary_of_other_shapes_is_refused(rows: np.ndarray) -> None:
    with pytest.raises(ValueError, match="colours must be rows of 3 numbers, got shape"):
        Vocabulary(rows.astype(np.uint8), np.zeros((1, 128), np.uint8))
