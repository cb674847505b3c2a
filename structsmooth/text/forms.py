"""What a file is, by its first lines: columns and what they say, lines of text, or a form that is refused by name."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise, takewhile

from structsmooth.text.json_forms import is_pair
from structsmooth.text.layouts import (
    DOCUMENT_START,
    IDENTIFIER,
    NUMBER,
    UNIVERSAL_COLUMNS,
    Columns,
    Roles,
    cells,
    ends_sentence,
    is_blank,
    is_tag,
)
from structsmooth.text.schemes import FORMS, Form
from structsmooth.text.texts import Kind

_SNIFFED = 2000  # lines
_HEAD = 6  # the column of CoNLL-U with the number of another word
_EXPECTED = "a word in each line, with its tag behind it, and a blank line after each sentence"
_REMEDY = "convert it, or choose its columns by --word-column and --tag-column"
_TEXT = "lines of text"
# Names of columns in headers, and keys of other files.
_NAME = re.compile("(word|token|form|text|sentence|lemma|[ux]?pos|chunk|tag|label|ner?|entity|id)s?([-_ ].*)?", re.I)
# What files of other forms begin with.
_FOREIGN = {
    "JSON": r'(?:\[\s*)*\{\s*(?:"(?:[^"\\\n]|\\.)*"\s*:|\}\s*$)|\[\s*(?:\[\s*)?"(?:[^"\\\n]|\\.)*"\s*[,\]]'
    r"|\[\s*(?:\]\s*$|\[\s*\]|\{\s*\}|(?:\[\s*)?null\s*[,\]])",  # a list of nothing, or whose first text is missing
    "XML or HTML": r"<(?:\?xml|!doctype|!--|[a-z][\w:.-]*(?:\s[^<>\n]*)?>(?=[^\0]*</))",
    "ARFF": r"(?:[^\S\n]*(?:%.*)?\n)*[^\S\n]*@relation\b",
    "the TSV of WebAnno, older than version 3": r"#FORMAT=WebAnno",
    "the standoff annotation of brat": r"T\d+\t\S+ \d+ \d+|[REAM]\d+\t\w\S* ?\S*[TE]\d|#\d+\t\w+ [TREAM]\d",
    "a treebank in brackets": r"\(\s?(?-i:[A-Z]*)\s?\((?-i:[A-Z$.,:-]+)[ (]",
    "YAML": r"%YAML|---[^\S\n]*\n",
    "RTF": r"\{\\rtf",
    "PDF": r"%PDF-",
    "no text, or in another encoding (--encoding utf-16, for instance)": r"[^\0]*\0",
}
_YAML_KEY = re.compile(r"[\"']?[\w-]+[\"']?:[^\S\n]*[|>]?$")
_YAML_ENTRY = re.compile(r"(?:-\s+)?[\"']?([a-z_]+)[\"']?:(?:\s|$)")
_YAML_LINE = re.compile(r"\s+\S|-(?:\s|$)|#|[\"']?[\w -]+[\"']?:(?:\s|$)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.|"")*"(?:[,;].*)?|.*[,;]"(?:[^"\\]|\\.|"")*"')
_DASHED_NUMBER = re.compile(r"(\d+)-(\d+)")
_DIGIT = re.compile(r"\d")
_OFFSETS = re.compile(r"(\d+)(?:[-:,]\d+)?")
_SENTENCE_NUMBER = re.compile(r"(?:(?:sentence|sent|doc|s|d)[ :#_.-]*|#)?\d+([-.]\d+)?[.:)]?", re.I)


@dataclass(frozen=True)
class Reading:
    """How a user wants a file to be read, whatever its first lines are.

    Args:
        word_column: the column of the words, counted from 1, or its name in a header; found out from the first lines if
            it is not given.
        tag_column: the column of the tags, likewise; in the TSV of WebAnno, the feature that labels entities.
        encoding: of the file, such as latin-1; UTF-8 if it is not given.
        names: of the tags, where files of JSON have their numbers, in order and separated by commas.
        annotator: whose annotations count where those of Label Studio differ: a number, a name or an address.
    """

    word_column: str | int | None = None
    tag_column: str | int | None = None
    encoding: str | None = None
    names: str | None = None
    annotator: str | None = None

    @property
    def chosen(self) -> bool:
        """Whether the user has chosen a column."""
        return self.word_column is not None or self.tag_column is not None

    @property
    def feature(self) -> str | None:
        """The name of the column of the tags, if the user has given one, and not its number."""
        return str(self.tag_column) if re.search(r"\D", str(self.tag_column or 0)) else None

    @property
    def tag_names(self) -> list[str]:
        """The names of the tags that have numbers; none if they are not given."""
        return self.names.split(",") if self.names else []


AS_FOUND = Reading()


class Sample:
    """The first lines of a file.

    Attributes:
        count: the number of columns of most rows, comments left aside.
        front: how many columns in front of the words number sentences and words, or have offsets.
        universal: whether the file is CoNLL-U.
        tabbed: whether tabs separate the cells of most rows.
    """

    def __init__(self, name: str, begin: bytes) -> None:
        self.name, self.text = name, begin.decode(errors="replace")
        self.lines = self.text.split("\n")[:_SNIFFED]
        self._rows: list[list[str]] = []
        apart, gap = list[bool](), True  # rows with lines before them that separate sentences
        for row in map(cells, self.lines):
            if row and row[0] != DOCUMENT_START:
                self._rows.append(row)
                apart.append(gap)
            gap = not row or row[0] == DOCUMENT_START
        body = [i for i, row in enumerate(self._rows) if not row[0].startswith("#")] or range(len(self._rows))
        first = self._rows[body[0]] if body else []
        self.universal = name.removesuffix(".gz").endswith(".conllu") or (
            len(first) == UNIVERSAL_COLUMNS
            and IDENTIFIER.fullmatch(first[0]) is not None
            and re.fullmatch(r"_|\d+", first[_HEAD]) is not None
        )
        self.header = tuple(first) if len(body) > 1 and _names(first) > 1 else ()
        body = body[1:] if self.header else body
        self._body = [self._rows[i] for i in body]
        counts = Counter(map(len, self._body))
        self.count = counts.most_common(1)[0][0] if counts else 1
        begins = list[bool]()  # whether rows begin sentences, comments and the header aside
        for i in range(len(self._rows)):
            before = self._rows[i - 1]
            note = before[0].startswith("#") and (len(before) != self.count or not before[0].strip("#"))
            begins.append(apart[i] or (begins[-1] and (note or tuple(before) == self.header)))
        self._begins = [begins[i] for i in body]
        marked = [begin and row[0].startswith("#") for row, begin in zip(self._rows, begins, strict=True)]
        self._marked = list(compress(self._rows, marked))
        self._unmarked = [row for row, mark in zip(self._rows, marked, strict=True) if not mark]
        self.tabbed = 2 * sum("\t" in line.strip() for line in self.lines) > len(body)
        self._even = [row for row in self._body if len(row) == self.count]
        self.front, self._numbers, self._ranges = self._numbering()

    def _numbering(self) -> tuple[int, int, bool]:
        """How many columns stand in front of the words, which one numbers these (from 1), and if it has ranges."""
        columns, place = self._columns_but_last, 0
        for place, numbers in enumerate(columns):
            dashed = [found[2] for number in numbers if (found := _DASHED_NUMBER.fullmatch(number))]
            ranges = len(dashed) < len(numbers)
            if _counts_up(numbers if ranges else dashed, self._begins) and (not place or not all(self._begins)):
                offsets = takewhile(self._has_offsets, columns[place + 1 :])
                return place + 1 + len(list(offsets)), place + 1, ranges
            if not self._is_constant(numbers):
                break
        else:
            place = len(columns)
        numbered = any(all(map(_DIGIT.search, cells)) for cells in columns[:place]) and not all(self._begins)
        return place if numbered else 0, 0, True

    @property
    def _columns_but_last(self) -> list[tuple[str, ...]]:
        return [*zip(*(row[: self.count - 1] for row in self._body), strict=False)]

    def _is_constant(self, cells: Sequence[str]) -> bool:
        """Whether the rows of each sentence have the same cell in a column."""
        neighbours = zip(cells, cells[1:], self._begins[1:], strict=False)
        return all(before == cell or begin for before, cell, begin in neighbours)

    def _has_offsets(self, cells: Sequence[str]) -> bool:
        """Whether a column has the places of words in a text, as in 0-3."""
        found = [_OFFSETS.fullmatch(cell) for cell in cells]
        starts = [match[1] for match in found if match]
        return len(starts) == len(cells) and _counts_up(starts, self._begins)

    def texts(self, reading: Reading) -> Kind | None:
        """The form of a file of annotated texts: JSON, of which each line is a value or all are one, or WebAnno's."""
        if reading.word_column is None and self.text.startswith("#FORMAT=WebAnno TSV 3"):
            return "webanno" if reading.tag_column is None or reading.feature else None
        if reading.chosen:
            return None
        try:
            value = json.loads(next(line for line in self.lines if not is_blank(line)))
        except (ValueError, RecursionError, StopIteration):
            value = None
        if isinstance(value, dict) or is_pair(value):
            return "json lines"
        named = re.search(r"\.(json|jsonl|ndjson)(\.gz)?$", self.name, re.I)  # whatever its first lines are
        return "json list" if named or re.match(_FOREIGN["JSON"], self.text.lstrip()) else None

    def has_mostly(self, column: int, is_such: Callable[[str], bool]) -> bool:
        """Whether most rows with a cell in some column have one of a kind there."""
        found = [is_such(row[column]) for row in self._body if column < len(row)]
        return not found or 2 * sum(found) >= len(found)

    def _share(self, column: int, is_tag: Callable[[str], bool]) -> float:
        """The share of rows that have a tag in some column."""
        return sum(is_tag(row[column]) for row in self._even) / max(len(self._even), 1)

    def roles(self, tagged: bool | None, is_tag: Callable[[str], bool], reading: Reading, no_tag: str = "_-") -> Roles:
        """What the columns say.

        Args:
            tagged: whether one has the tags; if it is not known, one has if most rows have a tag there.
            is_tag: tells tags.
            reading: what the user wants.
            no_tag: cells of columns that say nothing.

        Raises:
            ValueError: a column that was chosen and is not there.
        """
        first, count = self.front, self.count
        if tagged and first >= count - 1:
            first = 0  # these are no numbers of words, but the words
        tags_alone = self._tags_behind_numbers(first, is_tag, no_tag)
        if reading.chosen:
            tag, word = self._number_of(reading.tag_column), self._number_of(reading.word_column)
            tag = count if tag is None and tagged else tag
            word = 1 + first + (tag == 1 + first) if word is None else word
            if word == tag or not {word, word if tag is None else tag} <= set(range(1, count + 1)):
                choice = f"--word-column {word}" + (f" and --tag-column {tag}" if tag is not None else "")
                raise ValueError(f"{self.name}: expected two of its {count} columns, counted from 1, got {choice}")
            first = first if word > first else 0
            bare = tag is not None and (tag - 1 in tags_alone or self._has_other_tags(word, tag))
            roles = Roles(count, word - 1, None if tag is None else tag - 1, first, bare=bare)
        else:
            self._expect_sentences(tagged)
            roles = Roles(count, first, None, first)
            found = self._tags_first_or_last(first, tagged, is_tag, no_tag)
            if tagged or (tagged is None and count > 1 and self._share(found[1], is_tag) >= 0.5):
                roles = replace(roles, word=found[0], tag=found[1], bare=found[1] in tags_alone)
        numbers, ends = self._numbers if first else 0, self.tabbed and any(map(ends_sentence, self._even))
        roles = replace(roles, numbers=numbers, ranges=self._ranges, header=self.header, tabbed=self.tabbed, ends=ends)
        return self._with_comments(roles)

    def _number_of(self, column: str | int | None) -> int | None:
        """The number of a column, which may be given by its name in the header."""
        if not re.search(r"\D", str(column or 0)):
            return None if column is None else int(column)
        if str(column) not in self.header:
            names = f"one of the header, {', '.join(self.header)}" if self.header else "its number: there is no header"
            raise ValueError(f"{self.name}: no column {column!r}: give {names}")
        return 1 + self.header.index(str(column))

    def _has_other_tags(self, word: int, tag: int) -> bool:
        """Whether columns between have other tags of the same kind by the header, as NE-COARSE-LIT and NE-FINE-LIT."""
        kinds = [re.split("[-_]", name)[0] for name in self.header]
        return bool(kinds) and kinds[tag - 1] in kinds[min(word, tag) : max(word, tag) - 1]

    def _expect_sentences(self, tagged: bool | None) -> None:
        """Refuse numbers in front of the words that begin anew, or change, without a blank line before them."""
        # Of two columns the first has the words, which may be numbers themselves.
        if self._numbers or (tagged and self.count == 2):
            return
        cells = next((cells for cells in self._columns_but_last if not self._is_constant(cells)), ())
        given = [cell for cell in cells if cell]
        again = sum(cell in ("0", "1") or cell.endswith("-1") for cell in given) > 1
        repeated = any(before == cell for before, cell in pairwise(given)) or len(given) < len(cells)
        if given and (again or repeated) and all(map(_SENTENCE_NUMBER.fullmatch, given)):
            raise ValueError(
                f"{self.name}: numbers in front of the words begin anew, or change, without a blank line before them: "
                "put such lines between sentences, or choose columns by --word-column and --tag-column"
            )

    def _tags_behind_numbers(self, first: int, fits: Callable[[str], bool], no_tag: str) -> list[int]:
        """The columns behind words with numbers, if all that say something have tags, as those of inner entities."""
        used = [c for c in range(first + 1, self.count) if not self._says_nothing(c, no_tag)]
        tags = all(self._share(c, lambda cell: fits(cell) or is_tag(cell)) > 0.95 for c in used)
        return used if first and tags else []

    def _says_nothing(self, column: int, no_tag: str) -> bool:
        return {row[column] for row in self._even} <= set(no_tag)

    def _tags_first_or_last(
        self, first: int, tagged: bool | None, is_tag: Callable[[str], bool], no_tag: str
    ) -> tuple[int, int]:
        """The columns of words and of tags: tags are last, or first in front of the words."""
        if several := self._tags_behind_numbers(first, is_tag, no_tag):  # inner entities stand behind the outer ones
            used = [c for c in several if len({row[c] for row in self._even}) > 1] or several
            return first, used[0] if tagged else max(used, key=lambda c: self._share(c, is_tag))
        if self.count == 2 and self._share(0, is_tag) > 0.95 and self._share(1, is_tag) < 0.5:
            return 1, 0
        used = [c for c in range(first + 1, self.count) if not self._says_nothing(c, no_tag)]
        return first, used[-1] if used else self.count - 1

    def _with_tags_inside(self, roles: Roles, is_tag: Callable[[str], bool]) -> Roles:
        """The column of tags where others stand behind it, such as the names of annotators; the roles without one."""
        found = [c for c in range(self.count) if self._share(c, is_tag) > 0.95]
        if len(found) > 1 and self.header:
            names = ", ".join(self.header[c] for c in found)
            raise ValueError(f"{self.name}: several columns have tags: choose one by --tag-column, of {names}")
        if len(found) != 1:
            return roles
        return self._with_comments(replace(roles, tag=found[0], word=roles.word + (roles.word == found[0])))

    def _with_comments(self, roles: Roles) -> Roles:
        """Which rows are comments, if some of those are that begin with a number sign where a sentence begins."""
        known = frozenset(row[roles.tag or 0] for row in self._unmarked if len(row) == roles.count)
        return replace(roles, known=known) if any(roles.is_comment(row, known) for row in self._marked) else roles

    def columns(self, tagged: bool, plain: bool, unknown: str | None, reading: Reading) -> Columns:
        """The layout of a file in columns, in which all tags should be tags of entities unless they are plain.

        Raises:
            ValueError: it has another form, which the message names.
        """

        def fits(cell: str) -> bool:
            return cell == unknown or is_tag(cell)

        roles = self.roles(tagged, fits, reading, "_-".replace(unknown or " ", ""))
        if not (plain or reading.chosen or roles.tag is None) and self._share(roles.tag, fits) < 0.5:
            roles = self._with_tags_inside(roles, fits)
        if not reading.chosen and (plain or roles.tag is None or self._share(roles.tag, fits) < 0.5):
            self.refuse(self.other_form(is_tag))
            self.refuse(self._other_rows() if tagged else None)
            words, tags = ({row[c] for row in self._even} for c in (roles.word, roles.tag or 0))
            if plain and len(tags) > max(100, len(words)):
                self.refuse(f"rows of {len(tags)} different tags for {len(words)} words")
        if not plain and roles.tag is not None:
            roles = replace(roles, forms=self._forms(roles.tag))
        return Columns(roles, plain, unknown)

    def _forms(self, column: int) -> tuple[Form, ...]:
        """The forms of tags that most rows have, so that the others are refused and not these."""
        tags = Counter(row[column] for row in self._even)
        counts = Counter(form for tag, count in tags.items() for form in FORMS if form.split(tag) for _ in range(count))
        most = max(counts.values(), default=0)
        return tuple(form for form in FORMS if counts[form] == most)

    def refuse(self, form: str | None) -> None:
        """Refuse a file of another form, if that is known."""
        if form is not None:
            raise ValueError(f"{self.name}: expected {_EXPECTED}; got {form}: {_REMEDY}")

    def other_form(self, is_tag: Callable[[str], bool]) -> str | None:
        """The name of the form of a file without columns between blanks."""
        text = self.text.lstrip()
        for name, pattern in _FOREIGN.items():
            if re.match(pattern, text, re.I):
                return name
        lines = [line for line in self.lines if not is_blank(line)]
        if len(lines) > 1 and any(map(_is_yaml_key, lines)) and all(map(_YAML_LINE.match, lines)):
            return "YAML"
        if len(lines) > 1 and all(map(_QUOTED.fullmatch, map(str.strip, lines))):
            return "strings in quotation marks, as in JSON or CSV"
        names = [name.strip(' "') for name in re.split("[,;]", "".join(lines[:1]).strip())]
        if len(names) > 1 and (
            self.name.lower().endswith(".csv") or _names(names) > any(" " in name for name in names)
        ):
            return "CSV"
        pieces = [piece for line in lines for piece in line.split()]
        joined = sum(is_tag(re.split("[,;/|]", piece)[-1]) for piece in pieces if re.search(".[,;/|]", piece))
        return "words and tags with commas, bars or slashes between them" if 2 * joined > len(pieces) else None

    def is_text(self, fits: Callable[[Sequence[str]], bool]) -> bool:
        """Whether these are lines of text, and not rows of cells.

        Args:
            fits: whether a row may be that of a token.

        Raises:
            ValueError: they are neither.
        """
        if 2 * sum(map(fits, self._body)) > len(self._body):
            return False
        self.refuse(form if (form := self._other_rows()) != _TEXT else None)
        counts = Counter(len(line.split()) for line in self.lines if not is_blank(line))
        single = len(self._body) == 1 and max(counts) > 1 and not is_tag(self._body[0][-1])
        # Rows of cells have as many each, by three quarters at least; lines of text differ in length.
        return not self.tabbed and (single or 4 * max(counts.values(), default=1) < 3 * counts.total())

    def _other_rows(self) -> str | None:
        """What the rows are, if they are not those of a token each."""
        rows = self._body
        spaced = [row for row in rows if len(row) > 1 and (" " in row[0] or row[-1].count(" ") > 1)]
        if self.tabbed and 2 * len(spaced) >= len(rows):
            return "whole sentences between tabs"
        if 4 * len(self._even) >= 3 * len(rows) or len(rows) < 3:
            return None
        shortest = min(map(len, rows))
        inside = any(_counts_up([row[c] for row in rows], self._begins) for c in range(min(4, shortest)))
        return "rows of changing length, as in CoNLL-2009 and OntoNotes" if self.tabbed or inside else _TEXT


def _counts_up(numbers: Sequence[str], begins: Sequence[bool]) -> bool:
    """Whether cells number rows: they grow within each sentence, ranges aside."""
    before = -1
    for cell, begin in zip(numbers, begins, strict=True):
        found = NUMBER.fullmatch(cell[:20])
        if found is None or (not found[2] and int(found[1]) <= before and not begin):
            return False
        before = before if found[2] else int(found[1])
    # Where each sentence is one word, numbers that grow are anything; only ones all the way down are numbers of words.
    return not all(begins) or (len(begins) > 1 and {number.rstrip(".:)") for number in numbers} == {"1"})


def _is_yaml_key(line: str) -> bool:
    entry = _YAML_ENTRY.match(line)
    return _YAML_KEY.match(line) is not None or (entry is not None and _NAME.fullmatch(entry[1]) is not None)


def _names(cells: Sequence[str]) -> int:
    """How many cells of a row look like names of columns, as in a header."""
    return sum(_NAME.fullmatch(cell) is not None for cell in cells)
