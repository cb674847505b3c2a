import re

import pytest

from structsmooth.files import DATA_VARIABLE, checksum, data_file, read_lines, select
from structsmooth.tasks.alignment.data import read_pairs
from structsmooth.tasks.multilabel.data import read_examples
from structsmooth.tasks.ocr.letters import read_words
from structsmooth.text.conll import read_conll


def test_parts_of_a_file(tmp_path):
    assert select("a/letters.npz") == (tmp_path.__class__("a/letters.npz"), None)
    assert select("letters.npz#0")[1] == range(1)
    assert select("letters.npz#1-9")[1] == range(1, 10)
    odd = tmp_path / "notes#1"
    odd.write_text("a file may have that name")
    assert select(str(odd)) == (odd, None)


@pytest.mark.parametrize("part", ["", "x", "3-1", "1-2-3", "-1"])
def test_what_is_no_part(part):
    with pytest.raises(ValueError, match="expected a number or first-last"):
        select(f"letters.npz#{part}")


def test_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(ValueError, match="give --train, or set STRUCTSMOOTH_DATA"):
        data_file("ocr", "ocr/letters.npz#0")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"letters\.npz not found"):
        data_file("ocr", "ocr/letters.npz#0")
    (tmp_path / "ocr").mkdir()
    (tmp_path / "ocr" / "letters.npz").write_bytes(b"")
    assert data_file("ocr", "ocr/letters.npz#0") == str(tmp_path / "ocr" / "letters.npz#0")


def test_checksums_tell_data_apart(tmp_path):
    file, folder = tmp_path / "a", tmp_path / "folder"
    file.write_bytes(b"1")
    folder.mkdir()
    (folder / "b").write_bytes(b"1")
    seen = [checksum(str(file)), checksum(f"{file}#1"), checksum(f"{file}#2"), checksum(str(folder))]
    file.write_bytes(b"2")
    (folder / "b").write_bytes(b"12")
    seen += [checksum(str(file)), checksum(str(folder))]
    assert len(set(seen)) == len(seen)


def test_lines_of_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("é\r\n\nb".encode("utf-8-sig"))
    assert read_lines(path) == ["é", "", "b"]


@pytest.mark.parametrize(
    ("read", "name"), [(read_lines, "a.txt"), (read_pairs, "a.txt"), (read_examples, "a.txt"), (read_examples, "a.csv")]
)
def test_what_is_no_text(tmp_path, read, name):
    path = tmp_path / name
    path.write_bytes(b"a\xff")
    with pytest.raises(ValueError, match=re.escape(f"{path}: expected text in UTF-8 (invalid start byte at byte 1)")):
        read(str(path))


@pytest.mark.parametrize("read", [read_lines, read_conll, read_words, read_examples])
def test_a_folder_is_no_file(tmp_path, read):
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}: expected a file, got a folder")):
        read(str(tmp_path))
