"""Reading and writing of column files: layouts, encodings, and the place of every error."""

import gzip
import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structsmooth.files import checksum
from structsmooth.text.conll import read_conll, read_corpus
from structsmooth.text.corpus import Sentence
from structsmooth.text.layouts import write_conll

FOUR_COLUMNS = """\
-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER

"""
EU = Sentence(["EU", "rejects"], [["NNP", "VBZ"], ["I-NP", "I-VP"]], ["I-ORG", "O"])
PETER = Sentence(["Peter"], [["NNP"], ["I-NP"]], ["I-PER"])

cells = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=5)
words = cells.filter(lambda cell: cell != "-DOCSTART-")


@st.composite
def corpora(draw: st.DrawFn) -> list[Sentence]:
    """Sentences with one number of columns."""
    middle = draw(st.integers(0, 3))

    def column(values: st.SearchStrategy[str], length: int) -> list[str]:
        return draw(st.lists(values, min_size=length, max_size=length))

    return [
        Sentence(
            column(words, length),
            [column(cells, length) for _ in range(middle)],
            column(st.sampled_from(["O", "B-PER", "I-PER"]), length),
        )
        for length in draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    ]


def write(folder: Path, content: str | bytes, name: str = "corpus.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_reads_four_columns(tmp_path: Path) -> None:
    assert read_conll(write(tmp_path, FOUR_COLUMNS)) == [EU, PETER]


def test_reads_three_columns() -> None:
    (sentence,) = read_conll(io.StringIO("He PRP B-NP\nruns VBZ B-VP\n"))
    assert sentence == Sentence(["He", "runs"], [["PRP", "VBZ"]], ["B-NP", "B-VP"])
    assert sentence.pos == ["PRP", "VBZ"]
    assert sentence.chunk == ["-", "-"]


def test_reads_two_columns() -> None:
    (sentence,) = read_conll(io.StringIO("He O\nruns O\n"))
    assert sentence == Sentence(["He", "runs"], [], ["O", "O"])
    assert sentence.pos == sentence.chunk == ["-", "-"]
    assert len(sentence) == 2


def test_reads_sentences_without_tags() -> None:
    (sentence,) = read_conll(io.StringIO("He PRP B-NP\nruns VBZ B-VP\n"), tagged=False)
    assert sentence == Sentence(["He", "runs"], [["PRP", "VBZ"], ["B-NP", "B-VP"]], None)


def test_reads_bare_words() -> None:
    assert read_conll(io.StringIO("He\nruns"), tagged=False) == [Sentence(["He", "runs"], [])]


@pytest.mark.parametrize("name", ["corpus.gz", "corpus.txt"])
def test_recognizes_gzip_by_content(tmp_path: Path, name: str) -> None:
    assert read_conll(write(tmp_path, gzip.compress(FOUR_COLUMNS.encode()), name)) == [EU, PETER]


def test_a_gz_name_does_not_make_an_archive(tmp_path: Path) -> None:
    assert read_conll(str(write(tmp_path, FOUR_COLUMNS, "corpus.gz"))) == [EU, PETER]


@pytest.mark.parametrize(
    "content",
    [
        FOUR_COLUMNS.replace("\n", "\r\n"),
        FOUR_COLUMNS.replace(" ", "\t"),
        FOUR_COLUMNS.replace(" ", "  \t"),
        FOUR_COLUMNS.rstrip("\n"),
        "\n\n" + FOUR_COLUMNS.replace("\n\n", "\n \n\n"),
        "\ufeff" + FOUR_COLUMNS,
        FOUR_COLUMNS.split("\n\n", 1)[1] + "-DOCSTART- -X- O O",
        FOUR_COLUMNS.split("\n\n", 1)[1] + "-DOCSTART- -X- -X- -X- O\n\n",
        FOUR_COLUMNS.replace("O\n\nPeter", "O\n-DOCSTART-\nPeter"),
    ],
    ids=["crlf", "tabs", "runs", "no newline", "blanks", "bom", "last", "wide", "between"],
)
def test_tolerates_variants(tmp_path: Path, content: str) -> None:
    assert read_conll(write(tmp_path, content)) == [EU, PETER]


def test_no_break_spaces_belong_to_words() -> None:
    (sentence,) = read_conll(io.StringIO("10\u00a0000\u2028 CD O\n"))
    assert sentence.words == ["10\u00a0000\u2028"]


@given(corpora())
def test_reads_what_it_wrote(corpus: list[Sentence]) -> None:
    stream = io.StringIO()
    write_conll(corpus, [sentence.tags or [] for sentence in corpus], stream)
    stream.seek(0)
    for sentence, copy in zip(corpus, read_conll(stream), strict=True):
        assert copy == Sentence(sentence.words, [*sentence.columns, copy.tags or []], sentence.tags)


def test_writes_input_columns_and_predicted_tags() -> None:
    stream = io.StringIO()
    write_conll([EU], [["I-LOC", "O"]], stream)
    assert stream.getvalue() == "EU NNP I-NP I-ORG I-LOC\nrejects VBZ I-VP O O\n\n"


def test_writes_sentences_without_tags() -> None:
    stream = io.StringIO()
    write_conll([Sentence(["He"], []), Sentence(["runs"], [])], [["I-PER"], ["O"]], stream)
    assert stream.getvalue() == "He I-PER\n\nruns O\n\n"


def test_write_refuses_another_number_of_sentences() -> None:
    with pytest.raises(ValueError, match="got 2 sentences, but tags of 1"):
        write_conll([EU, PETER], [["O", "O"]], io.StringIO())


def test_write_refuses_another_number_of_tags() -> None:
    with pytest.raises(ValueError, match=r"sentences\[1\] has 1 tokens, got 2 tags"):
        write_conll([EU, PETER], [["O", "O"], ["O", "O"]], io.StringIO())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a NNP O\n\nb O\n", ":3: expected 3 columns, got 2"),
        ("-DOCSTART- O\n\na NNP O\nb NNP - O\n", ":4: expected 3 columns, got 4"),
        ("a B-PER\n\nb PER\n", ":3: bad tag 'PER'"),
        ("a X-PER\n", ":1: bad tag 'X-PER'"),
        ("\na\n", ":2: expected a word and a tag, got one column"),
        (b"a O\nb\xff O\n", ":2: byte 0xff is not utf-8"),
        (b"\xef\xbb\xbfa O\nb O\n\xe9 O\n", ":3: byte 0xe9 is not utf-8"),
        ("", ": no sentences"),
        ("\n \n-DOCSTART- O\n", ": no sentences"),
        (gzip.compress(FOUR_COLUMNS.encode(), mtime=0)[:-9], ": damaged gzip archive"),
        (b"\x1f\x8bnonsense", ": damaged gzip archive"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}{message}')}"):
        read_conll(path)


@pytest.mark.parametrize("archive", [False, True])
def test_refuses_what_would_fill_the_memory(archive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = FOUR_COLUMNS.encode() * 20_000
    path = write(tmp_path, gzip.compress(content) if archive else content)
    assert len(read_conll(path)) == 40_000
    monkeypatch.setattr("structsmooth.text.lines._LARGEST", 1 << 20)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: more than 1 MiB of text; give a part of it$"):
        read_conll(path)


def test_refuses_endless_lines(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(b"a O\nb" + b"\0" * 10**8))
    with pytest.raises(ValueError, match=r":2: a line of more than 1 MiB; each token needs a line of its own$"):
        read_conll(path)


@pytest.mark.parametrize("block", [3, 4, 7, 1000])
def test_lines_may_span_blocks(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structsmooth.text.lines._BLOCK", block)
    assert read_conll(write(tmp_path, "\ufeff" + FOUR_COLUMNS.replace("EU", "E\u00dc"))) == [
        Sentence(["E\u00dc", "rejects"], EU.columns, EU.tags),
        PETER,
    ]
    with pytest.raises(ValueError, match=r":4: expected 4 columns, got 3$"):
        read_conll(write(tmp_path, FOUR_COLUMNS.replace("VBZ", "")))


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "missing.txt"
    with pytest.raises(FileNotFoundError, match=re.escape(str(path))):
        read_conll(path)


def named_stream(content: bytes, errors: str) -> io.TextIOWrapper:
    """A text stream with the name of standard input."""
    buffer = io.BytesIO(content)
    buffer.name = "<stdin>"
    return io.TextIOWrapper(buffer, encoding="utf-8", errors=errors)


def test_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_conll(named_stream(FOUR_COLUMNS.encode(), "strict")) == [EU, PETER]
    packed = io.BufferedReader(io.BytesIO(gzip.compress(FOUR_COLUMNS.encode())))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(packed, encoding="utf-8"))
    assert read_conll(sys.stdin) == [EU, PETER]


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_undecodable_standard_input(errors: str) -> None:
    with pytest.raises(ValueError, match=r"^<stdin>:2: byte 0xff is not utf-8"):
        read_conll(named_stream(b"a O\nb\xff O\n", errors))


def test_bad_row_of_standard_input() -> None:
    with pytest.raises(ValueError, match=r"^<stdin>:2: expected 2 columns, got 1"):
        read_conll(named_stream(b"a O\nb\n", "strict"))


def test_reads_pipes() -> None:
    reading, writing = os.pipe()
    os.write(writing, FOUR_COLUMNS.encode())
    os.close(writing)
    assert read_conll(f"/dev/fd/{reading}") == [EU, PETER]
    os.close(reading)


# Shares of a file, as processes read them.

ROWS = [b"a O", b"b\tB-X", b"- O", b"\xc3\xa9 O", b" c I-X\r"]
SEPARATORS = [b"", b" \t", b"\r", b"\x1c", b"-DOCSTART- -X- O", b"\x1c-DOCSTART-"]
ERRORS = [b"a b O", b"a bad", b"alone", b"\xff O", b"-DOCSTART- \xff"]
lines = st.one_of(st.sampled_from(ROWS), st.sampled_from(SEPARATORS), st.sampled_from([*SEPARATORS, *ERRORS]))
layouts = st.lists(lines, max_size=12).map(b"\n".join)


def share(rank: int, count: int) -> Callable[[int], range]:
    return lambda n: range(rank * n // count, (rank + 1) * n // count)


def outcome(path: Path, share: Callable[[int], range] | None = None) -> list[Sentence] | str:
    """The sentences of a file or of a part of it, or the error."""
    try:
        return list(read_corpus(path, share=share))
    except ValueError as error:
        return str(error)


@settings(deadline=None)
@given(content=layouts, mark=st.sampled_from([b"", b"\xef\xbb\xbf"]), block=st.sampled_from([1, 5, 1 << 18]))
def test_shares_make_the_whole(content: bytes, mark: bytes, block: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("structsmooth.text.lines._BLOCK", block)
        path = write(Path(folder), mark + content)
        whole = outcome(path)
        for count in (1, 2, 3):
            parts = [outcome(path, share(rank, count)) for rank in range(count)]
            empty = f"{path}: no sentences"
            errors = [part for part in parts if isinstance(part, str) and part != empty]
            if isinstance(whole, str):
                assert errors[:1] == ([] if whole == empty else [whole])
            else:
                assert not errors
                assert [sentence for part in parts if part != empty for sentence in part] == whole


def test_lines_of_other_shares_are_not_parsed(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(FOUR_COLUMNS.replace("Peter NNP", "Peter").encode()), "corpus.gz")
    assert read_corpus(path, share=lambda n: range(n - 1))[:] == [EU]
    with pytest.raises(ValueError, match=r"corpus.gz:6: expected 4 columns, got 3"):
        read_corpus(path, share=lambda n: range(n - 1, n))


def test_files_of_too_many_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRUCTSMOOTH_FILE_LIMIT", "1")
    path = tmp_path / "blank.txt"
    path.write_text("Ada B-PER\n" + "\n" * 2**16)
    with pytest.raises(ValueError, match=r"blank\.txt: more than .* lines: split the file, or raise STRUCT"):
        read_corpus(str(path))


def test_shards_are_read_as_one_corpus(tmp_path: Path) -> None:
    parts = [
        "Ada NNP B-PER\nmet VBD O\n\nBo NNP B-PER\n",
        "-DOCSTART- -X- O\n\nRome NNP B-LOC\n",
        "Ada NNP B-PER\nsang VBD O\n",
    ]
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.txt").write_text(part)
    (tmp_path / "whole.conll").write_text("\n\n".join(parts))
    pattern, whole = str(tmp_path / "?.txt"), read_corpus(str(tmp_path / "whole.conll"))
    joined = read_corpus(pattern)
    assert list(joined) == list(whole)
    assert joined.distinct == whole.distinct
    assert joined.documents is not None
    assert joined.documents.tolist() == [0, 0, 1, 2]
    assert list(read_corpus(pattern, share=lambda count: range(1, count - 1))) == list(whole)[1:3]
    assert list(read_corpus(str(tmp_path / "0*"))) == list(whole)[:2]
    before = checksum(pattern)
    (tmp_path / "3.txt").write_text("Bo VBD\n")
    assert checksum(pattern) != before
    with pytest.raises(
        ValueError, match=r"\?\.txt: files must be of one form, got .*0\.txt: 3 columns.*3\.txt: 2 columns"
    ):
        read_corpus(pattern, plain=True)
    with pytest.raises(FileNotFoundError, match="no file matches the pattern"):
        read_corpus(str(tmp_path / "*.gz"))
