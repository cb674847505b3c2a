"""The sentences of an open stream, such as a pipe, as soon as they have arrived."""

from collections.abc import Iterator
from io import StringIO
from typing import Literal, TextIO

from structsmooth.files import check_size
from structsmooth.text.forms import AS_FOUND, Sample
from structsmooth.text.layouts import DOCUMENT_START, is_blank
from structsmooth.text.lines import BEGIN, blocks, source_name

_CHARACTER, _LINE = 5, 64  # bytes of memory that a character of a part takes, and a line beside these
_BESIDE_WORDS = ("#", DOCUMENT_START)

Unit = Literal["line", "paragraph", "whole"]
"""What can be answered alone: each line, lines up to a blank one, or all that comes."""


class Arrival(StringIO):
    """Whole sentences of a stream, to be read as a file.

    Attributes:
        name: of the stream, and behind which of its lines they begin.
        begin: the first lines of the stream that have arrived, which tell its form.
    """

    def __init__(self, lines: list[bytes], name: str, begin: bytes) -> None:
        super().__init__(b"".join(line + b"\n" for line in lines).decode("utf-8", "surrogateescape"))
        self.name, self.begin = name, begin


def arrivals(stream: TextIO, encoding: str | None, is_text: bool, neighbours: bool = False) -> Iterator[TextIO]:
    """The sentences of a stream, at each time all that have arrived; one that has none is given as it is.

    Args:
        stream: lines of text or of JSON, of which each is answered alone; columns, where a blank line ends what is; or
            JSON of another kind, which ends with the stream.
        encoding: of its bytes, by default its own.
        is_text: whether these are lines of text, whatever they look like.
        neighbours: whether answers depend on the neighbouring sentences of a document, so that columns are one whole.

    Raises:
        ValueError: what a file must not have, such as a line or a sentence without end; see :func:`blocks`.
    """
    name = place = source_name(stream)
    unit: Unit | None = "line" if is_text else None
    begin, waiting, size, done, has_words = b"", list[bytes](), 0, 0, False
    for block in blocks(stream, encoding, endless=True):
        begin += block[: max(BEGIN - len(begin), 0)]
        whole = 0  # lines that can be answered
        for line in block[:-1].split(b"\n"):
            text = line.decode(errors="replace")
            waiting.append(line)
            size += _CHARACTER * len(line) + _LINE
            blank = is_blank(text)
            unit = unit if unit or blank else _unit(name, text, neighbours)
            has_words |= not blank and not (unit == "paragraph" and text.startswith(_BESIDE_WORDS))
            if has_words and (unit == "line" or (unit == "paragraph" and blank)):
                whole, has_words = len(waiting), False
        if whole:
            yield Arrival(waiting[:whole], place, begin)
            done, waiting = done + whole, waiting[whole:]
            place, size = f"{name}, behind line {done}", sum(_CHARACTER * len(line) + _LINE for line in waiting)
        check_size(place, size, whole=False)
    if has_words or not done:
        yield Arrival(waiting, place, begin)


def _unit(name: str, line: str, neighbours: bool) -> Unit:
    """What can be answered alone in a stream whose first line is this one."""
    form = Sample(name, line.encode()).texts(AS_FOUND)
    if form == "json lines":
        return "line"
    return "paragraph" if form is None and not neighbours and not line.lstrip().startswith(("[", "{")) else "whole"
