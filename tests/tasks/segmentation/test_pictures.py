"""Reading images with masks, and drawing segmentations."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from images import SIZE, ellipse, write, write_all, zipped
from PIL import Image

from structsmooth.tasks.images import read_listed
from structsmooth.tasks.segmentation.pictures import Picture, overlay, read_pictures


def test_folders_and_zip_files_hold_the_same(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "data", 3)
    (tmp_path / "data" / "images" / "notes.txt").write_text("no image")
    (tmp_path / "data" / "more").mkdir()
    for pictures in (read_pictures(folder), read_pictures(zipped(tmp_path / "data"))):
        assert [picture.name for picture in pictures] == ["e00", "e01", "e02"]
        for seed, picture in enumerate(pictures):
            image, mask = ellipse(seed)
            assert np.array_equal(picture.image, image)
            assert picture.mask is not None
            assert np.array_equal(picture.mask, mask > 0)
            assert picture.mask.dtype == bool


@pytest.mark.parametrize(("part", "names"), [("#2-3", ["e01", "e02"]), ("#4", ["e03"]), ("#1-4", None)])
def test_parts_count_from_one(tmp_path: Path, part: str, names: list[str] | None) -> None:
    path = write_all(tmp_path, 4)
    assert [picture.name for picture in read_pictures(path + part)] == (names or ["e00", "e01", "e02", "e03"])


@pytest.mark.parametrize("part", ["#0-2", "#3-5", "#5"])
def test_parts_that_are_not_there(tmp_path: Path, part: str) -> None:
    with pytest.raises(ValueError, match="there are 4 images, counted from 1"):
        read_pictures(write_all(tmp_path, 4) + part)


def test_masks_may_be_absent(tmp_path: Path) -> None:
    path = write_all(tmp_path, 2, masks=False)
    write(tmp_path, "e02", *ellipse(2))
    assert [picture.mask is None for picture in read_pictures(path)] == [True, True, False]


def test_masks_of_ones_are_masks(tmp_path: Path) -> None:
    image, mask = ellipse(0)
    write(tmp_path, "a", image, mask // 255)
    (picture,) = read_pictures(str(tmp_path))
    assert np.array_equal(picture.mask, mask > 0)


def test_grey_images_get_three_channels(tmp_path: Path) -> None:
    image, mask = ellipse(0)
    write(tmp_path, "a", image[..., 0], mask)
    (picture,) = read_pictures(str(tmp_path))
    assert np.array_equal(picture.image, np.repeat(image[..., :1], 3, 2))


def test_refuses_no_data(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder, zip file or image"):
        read_pictures(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="no images, neither in images/ nor beside it"):
        read_pictures(str(tmp_path))
    (tmp_path / "a.txt").write_text("no archive")
    with pytest.raises(ValueError, match=r"a\.txt: expected a folder, a zip file or an image"):
        read_pictures(str(tmp_path / "a.txt"))
    with pytest.raises(ValueError, match="standard input: expected lines with paths of images"):
        read_listed(["\n"], read_pictures)


def test_images_alone(tmp_path: Path) -> None:
    path = Path(write_all(tmp_path / "data", 3, masks=False))
    plain = path / "images"
    for source in (str(plain), zipped(plain)):
        assert [picture.name for picture in read_pictures(source)] == ["e00", "e01", "e02"]
    assert [picture.name for picture in read_pictures(f"{plain}#2")] == ["e01"]
    (single,) = read_pictures(str(plain / "e01.png"))
    assert single.name == "e01"
    assert single.mask is None
    assert np.array_equal(single.image, ellipse(1)[0])


def test_paths_line_by_line(tmp_path: Path) -> None:
    path = Path(write_all(tmp_path / "data", 3, masks=False))
    first, others = str(path / "images" / "e00.png"), f"{path}#2-3"
    pictures = read_listed([f"{first}\n", "\n", others], read_pictures)
    assert [picture.name for picture in pictures] == ["e00", "e01", "e02"]
    with pytest.raises(ValueError, match="two images have the name e00"):
        read_listed([first, first], read_pictures)


def test_gif_files_are_images(tmp_path: Path) -> None:
    Image.new("RGB", (8, 6), (200, 30, 90)).save(tmp_path / "a.gif")
    (picture,) = read_pictures(str(tmp_path))
    assert picture.name == "a"
    assert (picture.image == [90, 30, 200]).all()
    assert picture.image.shape == (6, 8, 3)


def test_refuses_files_that_are_no_images(tmp_path: Path) -> None:
    write_all(tmp_path / "data", 2)
    file = tmp_path / "data" / "images" / "e01.png"
    for content in (b"", b"no image", file.read_bytes()[:40]):
        file.write_bytes(content)
        for path in (str(tmp_path / "data"), zipped(tmp_path / "data")):
            with pytest.raises(ValueError, match=r"images/e01\.png: (no image|expected an image)"):
                read_pictures(path)
        assert len(read_pictures(str(tmp_path / "data") + "#1")) == 1


def test_refuses_damaged_archives(tmp_path: Path) -> None:
    write_all(tmp_path / "data", 1)
    path = Path(zipped(tmp_path / "data"))
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"images/e00\.png: expected a member"):
        read_pictures(str(path))


@pytest.mark.parametrize("value", [0, 255])
def test_refuses_masks_of_one_colour(tmp_path: Path, value: int) -> None:
    image, _ = ellipse(0)
    write(tmp_path, "a", image, np.full(SIZE, value, np.uint8))
    with pytest.raises(ValueError, match=r"masks/a\.png: expected object and background, got one colour"):
        read_pictures(str(tmp_path))


def test_refuses_masks_of_another_size(tmp_path: Path) -> None:
    image, mask = ellipse(0)
    write(tmp_path, "a", image, mask[:, 1:])
    with pytest.raises(ValueError, match=r"masks/a\.png: expected the size of images/a\.png, .*got \(72, 95\)"):
        read_pictures(str(tmp_path))


def test_refuses_images_of_the_same_name(tmp_path: Path) -> None:
    image, mask = ellipse(0)
    write(tmp_path, "a", image, mask)
    cv2.imwrite(str(tmp_path / "images" / "a.bmp"), image)
    with pytest.raises(ValueError, match=r"images: a\.\w+ and a\.\w+ have the same name"):
        read_pictures(str(tmp_path))


def test_overlays_show_prediction_and_mask() -> None:
    image, mask = np.full((20, 20, 3), 100, np.uint8), np.zeros((20, 20), bool)
    predicted = mask.copy()
    predicted[:10], mask[5:15, 5:15] = True, True
    drawn = overlay(Picture("a", image, mask), predicted)
    assert drawn[0, 0].tolist() == [45, 155, 45]
    assert drawn[19, 19].tolist() == [100, 100, 100]
    assert drawn[5, 5].tolist() == drawn[14, 14].tolist() == [0, 0, 255]
    assert drawn[12, 10].tolist() == [100, 100, 100]
    assert overlay(Picture("a", image, None), predicted)[5, 5].tolist() == [45, 155, 45]
    assert (image == 100).all()
