"""Lines of texts: marks where files were joined, and characters in halves."""

from pathlib import Path

import pytest

from structsmooth.text.conll import read_corpus
from structsmooth.text.lines import read_text, returns_before_breaks


@pytest.mark.parametrize("size", [7, 1 << 18])
def test_marks_where_files_were_joined_and_characters_in_halves(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("structsmooth.text.lines._BLOCK", size)
    halves = "😀".encode("utf-16-be")
    cesu = b"".join(chr(int.from_bytes(halves[i : i + 2], "big")).encode(errors="surrogatepass") for i in (0, 2))
    path = tmp_path / "data.txt"
    path.write_bytes("\ufeffAda B-PER\n\n\ufeffBo B-PER\n\ufeff\n".encode() + b"a\xef\xbb\xbf" + cesu + "힣 O".encode())
    assert [sentence.words for sentence in read_corpus(str(path))] == [["Ada"], ["Bo"], ["a\ufeff😀힣"]]
    path.write_bytes(cesu + b"\r\n\xef\xbb\xbfAda\r\n")
    assert [*read_text(str(path))] == ["😀", "Ada"]
    assert returns_before_breaks(str(path)) == [1, 5]
    path.write_bytes(b"Ada\n" + cesu[:3] + b" O\n")
    with pytest.raises(ValueError, match=r"data\.txt:2: byte 0xed is not utf-8"):
        list(read_text(str(path)))
