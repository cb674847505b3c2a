"""Readers of images with boxes, on files made here."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from structsmooth.tasks.localization.annotations import read_annotations
from structsmooth.tasks.localization.images import BoxedObject, Faults, clip_box, decode

OBJECT = """<object><name>{label}</name><difficult>{difficult}</difficult>
<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>
<bndbox><xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax></bndbox></object>"""


def png(width: int = 8, height: int = 6) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def boxed(label, *edges, difficult=0) -> str:
    return OBJECT.format(*edges, label=label, difficult=difficult)


def add_image(year: Path, name: str, *objects: str, image: bytes | None = None) -> None:
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (year / folder).mkdir(parents=True, exist_ok=True)
    (year / "JPEGImages" / f"{name}.jpg").write_bytes(png() if image is None else image)
    (year / "Annotations" / f"{name}.xml").write_text(f"<annotation>{''.join(objects)}</annotation>")


def add_split(year: Path, split: str, *names: str) -> None:
    (year / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{name} -1\n" for name in names))


@pytest.fixture
def year(tmp_path) -> Path:
    year = tmp_path / "data" / "VOCdevkit" / "VOC2012"
    add_image(year, "a", boxed("dog", 1, 2, 8, 6))
    add_image(year, "b", boxed("dog", 2.5, 2, 4, 4), boxed("cat", 1, 1, 2, 3, difficult=1))
    add_image(year, "c")
    add_split(year, "train", "b", "a")
    return year


def zipped(folder: Path) -> Path:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder))
    return path


def content(source) -> dict[str, object]:
    images, faults = read_annotations(source)
    assert not faults
    return {image.name: image.objects for image in images}


# PASCAL VOC.

A = (BoxedObject("dog", (0, 1, 8, 6)),)
B = (BoxedObject("dog", (1.5, 1, 4, 4)), BoxedObject("cat", (0, 0, 2, 3), difficult=True))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_voc_folder_from_every_level(year, depth):
    root = str([year, *year.parents][depth])
    assert content(root) == {"a": A, "b": B, "c": ()}
    assert list(content(f"{root}#train").items()) == [("b", B), ("a", A)]


def test_voc_archive_equals_its_folder(year):
    root = year.parents[1]
    archive = str(zipped(root))
    assert content(archive) == content(str(root))
    (first, _), _ = read_annotations(f"{archive}#train")
    assert first.file.read_bytes() == (year / "JPEGImages" / "b.jpg").read_bytes()


def test_splits_of_several_years_are_joined(year):
    other = year.parent / "VOC2007"
    add_image(other, "z", boxed("cow", 1, 1, 2, 2))
    add_split(other, "train", "z")
    assert list(content(f"{year.parent}#train")) == ["z", "b", "a"]


def test_split_that_is_not_there(year):
    with pytest.raises(FileNotFoundError, match="no images of this split; there are train"):
        read_annotations(f"{year}#val")


def test_faults_of_images_do_not_stop_others(year):
    (year / "Annotations" / "no_image.xml").write_text("<annotation/>")
    (year / "Annotations" / "broken.xml").write_text("<annotation><object>")
    add_image(year, "no_box", "<object><name>dog</name></object>")
    add_image(year, "not_a_number", boxed("dog", "one", 2, 3, 4))
    add_image(year, "infinite", boxed("dog", 1, 2, "inf", 4))
    add_image(year, "text", "<object>dog</object>")
    (year / "Annotations" / "other.xml").write_text("<html/>")
    for name in ("broken", "other"):
        (year / "JPEGImages" / f"{name}.jpg").write_bytes(png())
    add_split(year, "train", "a", "no_annotation")
    images, faults = read_annotations(str(year))
    assert [image.name for image in images] == ["a", "b", "c"]
    named = [name for names in faults.names.values() for name in names]
    assert sorted(named) == ["broken", "infinite", "no_box", "no_image", "not_a_number", "other", "text"]
    assert faults.names["missing image"] == ["no_image"]
    assert all(reason.startswith(("malformed annotation (", "missing image")) for reason in faults.names)
    assert str(read_annotations(f"{year}#train")[1]) == "missing annotation: no_annotation"


def test_damaged_member_of_an_archive(year):
    archive = zipped(year.parents[1])
    data = archive.read_bytes()
    position = data.index(png()[8:])  # stored, not compressed
    archive.write_bytes(data[:position] + b"\0" * 20 + data[position + 20 :])
    images, _ = read_annotations(str(archive))
    with pytest.raises(OSError, match="damaged in the archive"):
        images[0].file.read_bytes()


# Other sources.

OBJECTS = {"x.png": (BoxedObject("dog", (0, 1, 4.5, 3)), BoxedObject("cat", (1, 1, 2, 2))), "y.png": None}


def test_csv(tmp_path):
    path = tmp_path / "boxes.csv"
    path.write_text(
        "score,image,class,xmin,ymin,xmax,ymax\n9,x.png,dog,0,1,4.5,3\n1,y.png,,,,,\n2,x.png,cat,1,1,2,2\n", "utf-8-sig"
    )
    assert content(str(path)) == OBJECTS
    images, _ = read_annotations(str(path), str(tmp_path / "pictures"))
    assert images[0].file.path == str(tmp_path / "pictures" / "x.png")


def test_csv_of_names(tmp_path):
    path = tmp_path / "names.csv"
    path.write_text("image\nx.png\ny.png\n")
    assert content(str(path)) == {"x.png": None, "y.png": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: expected the columns image, class"),
        ("picture\nx.png\n", ":1: expected the columns"),
        ("image,class,xmin,ymin,xmax\nx,dog,1,2,3\n", ":1: expected the columns"),
        ("image,class,xmin,ymin,xmax,ymax\nx,dog,1,2,3,4\nx,dog,1,2,3,four\n", ":3: could not convert"),
        ("image,class,xmin,ymin,xmax,ymax\nx,dog,1,2,3,nan\n", ":2: expected a finite number"),
        ("image,class,xmin,ymin,xmax,ymax\nx,,1,2,3,4\n", ":2: expected a class and four edges"),
        ("image,class,xmin,ymin,xmax,ymax\nx,dog,1,2,3\n", ":2: expected a class and four edges"),
        ('image\n""\n', ":2: expected the name of an image"),
    ],
)
def test_malformed_csv(tmp_path, text, message):
    path = tmp_path / "boxes.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="boxes.csv" + message):
        read_annotations(str(path))


def coco(**changes) -> dict:
    box = {"image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4]}
    return {
        "images": [{"id": 7, "file_name": "x.png"}, {"id": 8, "file_name": "y.png"}],
        "annotations": [box, box | {"iscrowd": 1}],
        "categories": [{"id": 3, "name": "dog"}],
    } | changes


def test_coco(tmp_path):
    path = tmp_path / "boxes.json"
    path.write_text(json.dumps(coco()))
    dog = BoxedObject("dog", (1, 2, 4, 6))
    assert content(str(path)) == {"x.png": (dog, dog._replace(difficult=True)), "y.png": ()}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "lacks 'categories'"),
        ([], "not annotations as in COCO"),
        (coco(annotations=[{"image_id": 9, "category_id": 3, "bbox": [1, 2, 3, 4]}]), "lacks 9"),
        (coco(annotations=[{"image_id": 7, "category_id": 3, "bbox": [1, 2, 3]}]), "not enough values"),
        (coco(annotations=[{"image_id": 7, "category_id": 3, "bbox": None}]), "not annotations as in COCO"),
    ],
)
def test_malformed_coco(tmp_path, data, message):
    path = tmp_path / "boxes.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=rf"boxes\.json: not annotations.*{message}|{message}"):
        read_annotations(str(path))
    path.write_text("{")
    with pytest.raises(ValueError, match="not annotations as in COCO"):
        read_annotations(str(path))


def test_images_without_annotations(tmp_path):
    (tmp_path / "b.png").write_bytes(png())
    (tmp_path / "a.JPG").write_bytes(png())
    (tmp_path / "notes.txt").write_text("no image")
    assert list(content(str(tmp_path)).items()) == [("a.JPG", None), ("b.png", None)]
    assert content(str(tmp_path / "b.png")) == {"b.png": None}
    one, other = str(tmp_path / "b.png"), str(tmp_path / "a.JPG")
    assert content(io.StringIO(f"{one}\n\n{other}\n")) == {"b.png": None, "a.JPG": None}


def test_what_is_no_source(tmp_path):
    with pytest.raises(FileNotFoundError, match="nosuch: no such file"):
        read_annotations(str(tmp_path / "nosuch"))
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ValueError, match=r"notes\.txt: expected a folder or zip archive"):
        read_annotations(str(tmp_path / "notes.txt"))
    with pytest.raises(ValueError, match="only data in the layout of PASCAL VOC have splits"):
        read_annotations(f"{tmp_path}#train")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "")
    with pytest.raises(ValueError, match="no images, neither in images/ nor beside it"):
        read_annotations(str(tmp_path / "other.zip"))


# Images and boxes.


def test_decode_gives_rgb():
    pixels = np.zeros((2, 3, 4), np.uint8)
    pixels[..., 0], pixels[..., 3] = 200, 255
    stream = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(stream, "PNG")
    assert decode(stream.getvalue()).tolist() == pixels[..., :3].tolist()
    stream = io.BytesIO()
    Image.fromarray(pixels[..., 0]).save(stream, "PNG")
    assert decode(stream.getvalue()).tolist() == np.repeat(pixels[..., :1], 3, 2).tolist()


@pytest.mark.parametrize("data", [b"", b"no image", png()[:40], png(40, 40)[:-30]])
def test_decode_refuses_corrupt_images(data):
    with pytest.raises(ValueError, match="corrupt image"):
        decode(data)


def test_clip_box():
    assert clip_box((1, 2, 3, 4), 8, 6) == (1, 2, 3, 4)
    assert clip_box((-1, 2, 9.5, 7), 8, 6) == (0, 2, 8, 6)
    for box in [(1, 2, 1, 4), (3, 2, 1, 4), (1, 4, 3, 4)]:
        with pytest.raises(ValueError, match="without area"):
            clip_box(box, 8, 6)
    for box in [(8, 1, 9, 2), (-2, 1, 0, 2), (1, 6, 2, 7)]:
        with pytest.raises(ValueError, match="outside the image"):
            clip_box(box, 8, 6)


def test_faults_are_named_and_counted():
    faults = Faults()
    assert not faults
    for i in range(12):
        faults.add("corrupt", f"i{i}")
    more = Faults()
    more.add("corrupt", "i12")
    more.add("odd", "j")
    faults.update(more)
    with faults.noting("k"):
        raise ValueError("odd")
    text = ", ".join(f"i{i}" for i in range(10))
    assert str(faults) == f"corrupt: {text} and 3 more\nodd: j, k"


@pytest.mark.parametrize("inside", ["images", "."])
@pytest.mark.parametrize("kind", [str, lambda folder: str(zipped(folder))], ids=["folder", "archive"])
@pytest.mark.parametrize("source", [str, lambda path: io.StringIO(f"\n{path}\n")], ids=["path", "stream"])
def test_images_of_folders_and_archives(tmp_path, inside, kind, source):
    folder = tmp_path / "new"
    (folder / inside).mkdir(parents=True)
    for name in ("y.png", "x.png", "notes.txt"):
        (folder / inside / name).write_bytes(png())
    images, faults = read_annotations(source(kind(folder)))
    assert [(image.name, image.objects) for image in images] == [("x.png", None), ("y.png", None)]
    assert images[0].file.read_bytes() == png()
    assert not faults


def test_nothing_to_predict_is_refused(tmp_path):
    for source in (str(tmp_path), io.StringIO(f"{tmp_path}\n")):
        with pytest.raises(ValueError, match="no images, neither in images/ nor beside it"):
            read_annotations(source)
    with pytest.raises(ValueError, match="standard input: expected lines with paths of images"):
        read_annotations(io.StringIO("\n"))


def test_images_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.png").write_bytes(png())
    for name in ("", "x.png"):
        with pytest.raises(ValueError, match=r"two images have the name x\.png"):
            read_annotations(io.StringIO(f"{tmp_path / 'a' / name}\n{tmp_path / 'b' / name}\n"))
    (tmp_path / "a" / "x.gif").write_bytes(png())
    with pytest.raises(ValueError, match=r"x\.\w+ and x\.\w+ have the same name"):
        read_annotations(str(tmp_path / "a"))
