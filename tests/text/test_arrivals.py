"""The sentences of an open stream: each part is given as soon as it has come, and all parts together are the stream."""

import io

import pytest

from structsmooth.files import LIMIT_VARIABLE, FileError
from structsmooth.text.arrivals import arrivals
from structsmooth.text.conll import read_corpus
from structsmooth.text.forms import AS_FOUND, Sample

WORDS = "-DOCSTART-\n\n# one\nAda\nmet\n\n \nBo\n\n"
JSON = '{"text": "Ada"}\n\n{"text": "Bo\\nCy"}\n'
LISTED = '[{"text": "Ada"},\n\n{"text": "Bo"}]\n'


class Pipe(io.StringIO):
    """A stream whose lines come one by one."""

    name = "pipe"

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines, self.taken = lines, 0

    def read(self, size: int | None = -1, /) -> str:
        """The next line, however many characters are asked for."""
        self.taken += 1
        return self.lines[self.taken - 1] if self.taken <= len(self.lines) else ""


def given(text: str, is_text: bool = False) -> list[tuple[int, str, str]]:
    """How many lines had come when a part was given, its name and what it has."""
    pipe = Pipe(text.splitlines(keepends=True))
    return [(pipe.taken, part.name, part.read()) for part in arrivals(pipe, None, is_text)]


@pytest.mark.parametrize(
    ("text", "is_text", "taken"),
    [
        (WORDS, False, [6, 9]),
        (WORDS.rstrip(), False, [6, 9]),  # the last word ends with the stream, which is asked for once more
        (JSON, False, [1, 3]),
        (LISTED, False, [4]),
        ("Ada met\n\nBo fell\n#1\n", True, [1, 3, 4]),
        ("Ada met\r\rBo fell\r\n", True, [3]),
        ("\n\n", False, [3]),
    ],
)
def test_parts_come_as_soon_as_they_are_whole(text: str, is_text: bool, taken: list[int]) -> None:
    found = given(text, is_text)
    assert [number for number, _, _ in found] == taken
    whole = "".join(part for _, _, part in found)
    assert whole == "\n".join(text.splitlines()) + "\n"
    before = [0]
    for _, name, part in found:
        assert name == ("pipe" if not before[-1] else f"pipe, behind line {before[-1]}")
        before.append(before[-1] + part.count("\n"))


def test_errors_name_the_line() -> None:
    parts = arrivals(Pipe(["Ada B-PER\n", "\n", "Bo\n"]), None, False)
    assert len(read_corpus(next(parts))) == 1
    with pytest.raises(ValueError, match=r"pipe, behind line 2:1: expected 2 columns, got 1"):
        read_corpus(next(parts))


def test_a_sentence_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "1")
    with pytest.raises(FileError, match="pipe: takes more than 1 MiB"):
        list(arrivals(Pipe(["word\n" * 5000] * 10), None, False))
    assert len(list(arrivals(Pipe(["word\n\n" * 5000] * 10), None, False))) == 10


TEXTLESS = ["[]", " [ ]\n", "[\n]\n", "[[]]", "[ {}, 1]", "[null, 3]", '[[null, {"entities": []}],\n["Ada", {}]]']


@pytest.mark.parametrize("text", TEXTLESS)
def test_lists_without_texts_are_json(text: str) -> None:
    for name in ("standard input", "a.json"):
        assert Sample(name, text.encode()).texts(AS_FOUND) == "json list"
    with pytest.raises(ValueError, match=r"example 1|no sentences"):
        read_corpus(io.StringIO(text), tagged=False)
    for word in ("[", "[]\nAda\n", "[null"):
        assert Sample("a.txt", word.encode()).texts(AS_FOUND) is None
        assert Sample("a.jsonl.gz", word.encode()).texts(AS_FOUND) == "json list"
