"""Pairs of sentences and the links between their words: folders of parallel files, or text with a pair on each line."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TextIO

from structsmooth.files import read_lines, split_part
from structsmooth.messages import warn

Link = tuple[int, int]

# What separates the sentences and the links of a line.
_BAR = "|||"
_FROM_ZERO = "positions count from 0; take 1 off all of them if these count from 1"
_NAMED = 8  # lines that a warning names
_MANY = 10  # pairs of which one has a link to a first word, if positions count from 0
# Files of links beside NAME.f and NAME.e: lines of links, or the table of the NAACL 2003 shared task.
_LINES, _TABLE = ".align", ".wa"


@dataclass(frozen=True)
class SentencePair:
    """Two sentences with the same meaning, and the links between their words.

    Attributes:
        source: words of the first, the rows of alignments.
        target: words of the second.
        sure: links (source position, target position) that an alignment should have; ``None`` if they are unknown.
        possible: further links that it may have.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[Link] | None = None
    possible: frozenset[Link] = frozenset()


def read_pairs(path: str | TextIO) -> list[SentencePair]:
    """Pairs of sentences of a folder (``FOLDER#test``), or of text.

    ``FOLDER#NAME`` has a sentence on each line of ``NAME.f`` (source) and ``NAME.e`` (target), words separated by
    blanks, and links in ``NAME.align``, ``NAME.wa``, or not at all. ``FOLDER#NAME:1-100`` are the first 100 pairs, and
    ``FOLDER#A+B`` those of A, then of B. In other text a line is ``source ||| target``, or
    ``source ||| target ||| links``, or the same with tabs in the place of bars. Links are written ``3-5`` with
    positions from 0, source first, and ``3-5-P`` or ``3?5`` if they are only possible. Lines of ``NAME.wa`` are the
    number of the pair, the target position and the source position, all from 1, and S or P, as in the NAACL 2003 shared
    task. A link that is given twice counts once, and is sure if it is so once. A sentence may have no words, and then
    no links: a blank line is a pair of two such. Lines where only one of them has no words are named in a warning.

    Raises:
        ValueError: something else, with the path and the line.
        OSError: a file that cannot be read.
    """
    if not isinstance(path, str):
        return _from_zero(_from_lines(path, "standard input"), "standard input")
    file, part = split_part(path)
    if part is not None:
        return _from_zero([pair for name in part.split("+") for pair in _from_folder(file, name, path)], path)
    if file.is_dir():
        names = sorted(words.stem for words in file.glob("*.f"))
        raise ValueError(f"{path}: a folder needs a name, such as {path}#{names[0] if names else 'test'}")
    return _from_zero(_from_lines(read_lines(file), path), path)


def _from_zero(pairs: list[SentencePair], path: str) -> list[SentencePair]:
    """The pairs, unless none of many has a link to a first word."""
    linked = [links for pair in pairs if pair.sure is not None and (links := pair.sure | pair.possible)]
    if len(linked) >= _MANY and all(all(link) for links in linked for link in links):
        raise ValueError(f"{path}: no link of {len(linked)} pairs has a first word: {_FROM_ZERO}")
    return pairs


def _from_lines(lines: Iterable[str], place: str) -> list[SentencePair]:
    pairs = []
    for number, line in enumerate(lines, 1):
        cells = line.rstrip("\n").split(_BAR if _BAR in line else "\t") if line.strip() else ["", ""]
        if len(cells) not in (2, 3):
            wanted = f"source {_BAR} target, perhaps with {_BAR} links; or tabs between them"
            raise ValueError(f"{place}:{number}: expected {wanted}")
        source, target = (tuple(cell.split()) for cell in cells[:2])
        links = _links(cells[2], f"{place}:{number}") if len(cells) == 3 else None
        pairs.append(_pair(source, target, links, f"{place}:{number}"))
    if not pairs:
        raise ValueError(f"{place}: no sentences")
    _warn_of_one_side(pairs, place)
    return pairs


def _warn_of_one_side(pairs: Sequence[SentencePair], place: str) -> None:
    """Name the lines whose sentence has words, and its translation none."""
    lines = [number for number, pair in enumerate(pairs, 1) if bool(pair.source) != bool(pair.target)]
    if lines:
        named = ", ".join(map(str, lines[:_NAMED])) + (", ..." if len(lines) > _NAMED else "")
        warn(f"{place}: one of the sentences has no words, and so no links, in line {named}: are both files in step?")


def _from_folder(folder: Path, part: str, path: str) -> list[SentencePair]:
    match = re.fullmatch(r"([^:]+)(?::(\d+)-(\d+))?", part)
    if match is None:
        raise ValueError(f"{path}: expected NAME or NAME:first-last after the #, got {part!r}")
    stem = folder / match[1]
    files = (stem.with_name(stem.name + end) for end in (".f", ".e"))
    sources, targets = ([tuple(line.split()) for line in read_lines(file)] for file in files)
    if len(sources) != len(targets):
        raise ValueError(f"{stem}.f has {len(sources)} lines, but {stem}.e has {len(targets)}")
    pairs = []
    for number, (source, target, links) in enumerate(zip_longest(sources, targets, _all_links(stem, len(sources))), 1):
        pairs.append(_pair(source, target, links, f"{stem}{_LINES}:{number}"))
    first, last = int(match[2] or 1), int(match[3] or len(pairs))
    if not 1 <= first <= last <= len(pairs):
        raise ValueError(f"{path}: there are {len(pairs)} pairs, got {first}-{last}")
    _warn_of_one_side(pairs, str(stem))
    return pairs[first - 1 : last]


def _all_links(stem: Path, count: int) -> Sequence[list[tuple[Link, bool]]]:
    """Links of each pair, and whether they are sure; none at all if there is no file of them."""
    for ending, read in ((_LINES, _read_lines), (_TABLE, _read_table)):
        file = stem.with_name(stem.name + ending)
        if file.exists():
            return read(read_lines(file), str(file), count)
    return []


def _read_lines(lines: Iterable[str], place: str, count: int) -> list[list[tuple[Link, bool]]]:
    links = [_links(line, f"{place}:{number}") for number, line in enumerate(lines, 1)]
    if len(links) != count:
        raise ValueError(f"{place} has {len(links)} lines, but there are {count} sentences")
    return links


def _read_table(lines: Iterable[str], place: str, count: int) -> list[list[tuple[Link, bool]]]:
    links: list[list[tuple[Link, bool]]] = [[] for _ in range(count)]
    for number, line in enumerate(lines, 1):
        match = re.fullmatch(r"\s*(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?(?:\s+[\d.]+)?\s*", line)
        if match is None or not 1 <= int(match[1]) <= count or "0" in match.group(2, 3):
            raise ValueError(f"{place}:{number}: expected a pair from 1 to {count}, target, source and S or P")
        links[int(match[1]) - 1].append(((int(match[3]) - 1, int(match[2]) - 1), match[4] != "P"))
    return links


def _links(text: str, place: str) -> list[tuple[Link, bool]]:
    links = []
    for word in text.split():
        match = re.fullmatch(r"(\d+)([-?])(\d+)(-P)?", word)
        if match is None:
            raise ValueError(f"{place}: expected links such as 3-5 or 3-5-P, got {word[:40]!r}")
        links.append(((int(match[1]), int(match[3])), match[2] == "-" and match[4] is None))
    return links


def _pair(
    source: tuple[str, ...], target: tuple[str, ...], links: Sequence[tuple[Link, bool]] | None, place: str
) -> SentencePair:
    if links is None and (source or target):
        return SentencePair(source, target)
    links = links or ()
    for (i, j), _ in links:
        if i >= len(source) or j >= len(target):
            hint = f": {_FROM_ZERO}" if all(all(link) for link, _ in links) else ""
            sizes = f"{len(source)} and {len(target)} words"
            raise ValueError(f"{place}: link {i}-{j} is outside sentences of {sizes}{hint}")
    sure = frozenset(link for link, is_sure in links if is_sure)
    return SentencePair(source, target, sure, frozenset(link for link, _ in links) - sure)
