"""Files of any origin: what would take too much memory, or is not what it says, costs an error with the file's name."""

import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from structsmooth.files import (
    LIMIT_VARIABLE,
    FileError,
    csv_rows,
    load_array,
    load_arrays,
    read_bytes,
    read_json,
    read_lines,
    size_limit,
)
from structsmooth.tasks.images import opened, read_image
from structsmooth.text.conll import read_corpus

MIB = 1 << 20


def png(width: int, height: int, body: bytes = bytes(100)) -> bytes:
    """A PNG file whose header declares a size, whatever its body has."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


def bmp(width: int, height: int) -> bytes:
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)


def tiff(width: int, height: int) -> bytes:
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: 4}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)


def jpeg(width: int, height: int) -> bytes:
    data = bytearray(cv2.imencode(".jpg", np.zeros((8, 8, 3), np.uint8))[1].tobytes())
    struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, height, width)
    return bytes(data)


def npy(shape: tuple[int, ...], dtype: str = "|u1", data: bytes = b"") -> bytes:
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def archive(path: Path, *, method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name.replace("_", "."), data)
    return path


def patched(path: Path, at: int, value: int) -> Path:
    """The archive with another number in the headers of its only member, local and central."""
    data = bytearray(path.read_bytes())
    for mark, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        struct.pack_into("<H", data, data.index(mark) + at + shift, value)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "data", [png(30000, 30000), bmp(30000, 30000), jpeg(60000, 60000), tiff(50000, 50000), png(9000, 9000)]
)
def test_images_that_declare_too_many_pixels_are_not_decoded(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"a\.png: takes [\d,]+ MiB in memory, .* set STRUCTSMOOTH_FILE_LIMIT="):
        read_image(path)


@pytest.mark.parametrize("data", [b"", b"text", b"P6 30000 30000 255\n", b"\xff\xd8\xff\xe0", bmp(2, 2)])
def test_what_is_no_image_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"a\.png: (no image|expected an image)"):
        read_image(path)


@pytest.mark.parametrize(
    "member",
    [
        npy((10**12,)),
        npy((10**6, 10**6, 10**6), "<f8"),
        npy((2,), "|O", b"\x80\x04N."),
        npy((-1,)),
        b"",
        b"\x93NUMPY\x09\x00",
        b"\x93NUMPY\x01\x00\x05\x00((((",
        npy((3,), "<f8", b"123"),
    ],
)
def test_arrays_that_are_not_what_they_declare(tmp_path: Path, member: bytes) -> None:
    path, alone = archive(tmp_path / "a.npz", x_npy=member), tmp_path / "a.npy"
    alone.write_bytes(member)
    for read in (load_arrays, load_array):
        with pytest.raises(FileError, match=r"a\.np[yz]: expected an ar"):
            read(str(path if read is load_arrays else alone))


def test_a_member_that_is_larger_than_it_declares(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", a_png=bytes(3 * MIB))
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", data, data.index(mark) + at, 10)
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"a\.zip/a\.png: expected a member of the archive that can be read"):
        read_bytes(opened(path) / "a.png")


def test_sentences_and_texts_are_bounded_by_their_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "1")
    (tmp_path / "a.txt").write_text("a O\n" * 2000)
    with pytest.raises(FileError, match=r"a\.txt: sentence 1 of 2,000 words: takes 2 MiB in memory"):
        read_corpus(str(tmp_path / "a.txt"))
    (tmp_path / "a.jsonl").write_text('{"text": "' + "a " * 2000 + '", "spans": []}')
    with pytest.raises(ValueError, match=r"a\.jsonl: text 1: more than 1,024 words in a text: make it several"):
        read_corpus(str(tmp_path / "a.jsonl"))
    (tmp_path / "a.jsonl").write_text('{"text": "a", "spans": []}\n' * 3000)
    with pytest.raises(FileError, match=r"a\.jsonl: takes more than 1 MiB in memory"):
        read_corpus(str(tmp_path / "a.jsonl"))
    (tmp_path / "a.txt").write_text("".join(f"a{i} O\n\n" for i in range(3000)))
    with pytest.raises(FileError, match=r"a\.txt: takes more than 1 MiB in memory"):
        read_corpus(str(tmp_path / "a.txt"))


def test_one_limit_for_all_that_unpacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = archive(tmp_path / "a.npz", x_npy=npy((3 * MIB,), data=bytes(3 * MIB)))
    text = archive(tmp_path / "a.zip", a_txt=bytes(3 * MIB), a_png=png(800, 400))
    (tmp_path / "a.json").write_text("[" + "0," * MIB + "0]")
    readers: list[Callable[[], object]] = [
        lambda: load_arrays(str(packed)),
        lambda: read_bytes(opened(text) / "a.txt"),
        lambda: read_json(tmp_path / "a.json"),
        lambda: read_lines(tmp_path / "a.json"),
        lambda: read_image(opened(text) / "a.png"),
    ]
    monkeypatch.setenv(LIMIT_VARIABLE, "1")
    assert size_limit() == MIB
    for read in readers:
        with pytest.raises(FileError, match=r"a\.\w+: takes \d+ MiB in memory, and the limit is 1 MiB: if you trust"):
            read()
    monkeypatch.setenv(LIMIT_VARIABLE, "70")  # a value of JSON is larger in memory than in its file
    for read in readers[:-1]:
        read()
    for odd in ("0", "-1", "x", "1.5"):
        monkeypatch.setenv(LIMIT_VARIABLE, odd)
        with pytest.raises(ValueError, match="must be a positive whole number of MiB"):
            size_limit()


@pytest.mark.parametrize(("at", "value"), [(6, 1), (8, 99)], ids=["encrypted", "unsupported"])
def test_members_that_cannot_be_read(tmp_path: Path, at: int, value: int) -> None:
    folder = opened(patched(archive(tmp_path / "a.zip", a_png=png(3, 3)), at, value))
    with pytest.raises(FileError, match=r"a\.zip/a\.png: expected a member of the archive that can be read"):
        read_image(folder / "a.png")
    arrays = patched(archive(tmp_path / "a.npz", x_npy=npy((1,), data=b"1")), at, value)
    with pytest.raises(FileError, match=r"a\.npz: expected an archive"):
        load_arrays(str(arrays))


def test_json_and_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in ("[" * 100_000, "{", "1" * 10_000, "\\"):
        path.write_text(text)
        with pytest.raises(FileError, match=r"a\.json: expected JSON"):
            read_json(path)
    lines = ["a,b", "", "1,2", "x" * 200_000]
    rows = csv_rows(lines, "a.csv")
    assert [next(rows), next(rows)] == [(1, ["a", "b"]), (3, ["1", "2"])]
    with pytest.raises(ValueError, match=re.escape("a.csv:4: field larger than field limit")):
        next(rows)


def test_a_device_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "1")
    with pytest.raises(FileError, match="/dev/zero: takes more than 1 MiB"):
        read_bytes(Path("/dev/zero"))
