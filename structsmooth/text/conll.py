"""Files of tagged sentences: a block of whole lines at a time, whole files or the share of a process."""

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import check_size, shards
from structsmooth.messages import bounded
from structsmooth.text.brat import brat_texts, read_brat
from structsmooth.text.corpus import Corpus, Sentence, Token
from structsmooth.text.documents import TRAINING, Document, Segmentation
from structsmooth.text.forms import AS_FOUND, Reading, Sample
from structsmooth.text.json_forms import json_documents
from structsmooth.text.layouts import COMMENT, DOCUMENT, MAY_SEPARATE, SKIPPED, Layout, is_blank
from structsmooth.text.lines import Source, begun, blocks, check_words, decoded_lines, source_name, undecodable
from structsmooth.text.texts import Kind, TextCorpus
from structsmooth.text.universal import Treebank, Universal, universal_columns
from structsmooth.text.webanno import webanno_documents

_HIDDEN = (
    "all words are _, as in treebanks whose text may not be published: put them in as the page of the treebank says"
)
_MOST_HIDDEN = 2  # words of a sentence that may all be underscores
_LAST = COMMENT - 1  # and below: tokens with which sentences end, counted down
# Bytes of memory that a row takes which is like no other.
_ROW = 512

Share = Callable[[int], range]
"""Which neighbours among the examples of a file are kept, given how many there are."""

Reader = Callable[[Iterable[str], str], Corpus]
"""What gives the corpus of all lines of a file and its name."""


def read_conll(path: Source, *, tagged: bool = True) -> list[Sentence]:
    """Sentences of a column file; arguments and errors are those of :func:`read_corpus`."""
    return list(read_corpus(path, tagged=tagged))


def read_corpus(
    path: Source | list[str],
    *,
    tagged: bool = True,
    plain: bool = False,
    column: str | None = None,
    unknown: str | None = None,
    reading: Reading = AS_FOUND,
    share: Share | None = None,
    how: Segmentation = TRAINING,
) -> Corpus:
    """The corpus of a file in columns, as in CoNLL-2003 (word, pos, chunk, tag) and CoNLL-2000 (word, pos, tag).

    Tabs separate the columns of a row that has any, and white space those of others; blank lines and ``-DOCSTART-``
    lines separate sentences. The first lines tell which column has what: the word is first, or behind numbers of the
    words, and the tag last, or first in front of the word; a header and comments in front of sentences are left out.
    Files are UTF-8, plain or compressed by gzip, of at most 512 MiB of text; larger data are several files of one form.

    Args:
        path: the file, an open text stream, or a pattern such as ``shards/*.conll.gz``, for all files that match but
            empty ones; or a list of files.
        tagged: a column has the tags; otherwise all columns behind the words are columns of the sentences.
        plain: tags may be any strings, and not those of entities alone.
        column: the file is CoNLL-U, and this column has the tags. Comments, rows of several words and empty nodes are
            left out.
        unknown: what stands in the place of tags that are unknown, if some are.
        reading: the columns of words and tags, where the first lines do not tell, and the encoding.
        share: which neighbouring sentences of a file to keep, given how many there are; all if not given. Other lines
            are not parsed: they may even be malformed.
        how: texts are cut into sentences and words.

    Raises:
        ValueError: a line has another number of columns than others, a bad tag or bytes that are not UTF-8 (the
            message starts with ``path:line:``); the file is empty, too large, a damaged archive or of another form,
            which the message names; or it is CoNLL-U, and there is no ``column``.
        OSError: the file cannot be read, or does not exist (:class:`FileNotFoundError`).
    """

    def choose(name: str, begin: bytes) -> Layout | Reader:
        if column is not None:
            return Universal(column, unknown)
        sample = Sample(name, begin)
        if (kind := sample.texts(reading)) is not None:
            return texts_of(kind, how, reading, tagged, share)
        if not reading.chosen and sample.universal:
            raise ValueError(
                f"{name}: this file is CoNLL-U: choose the column with the tags, --column {universal_columns()}, "
                f"in Python NER(column='upos')"
            )
        return sample.columns(tagged, plain, unknown, reading)

    files = path if isinstance(path, list) else shards(path) if isinstance(path, str) else []
    if isinstance(path, list) or files not in ([], [path]):
        name = source_name(path)
        read = partial(
            read_corpus, tagged=tagged, plain=plain, column=column, unknown=unknown, reading=reading, how=how
        )
        whole = joined(name, files, list(map(read, files)), how, share)
        return whole if share is None or isinstance(whole, TextCorpus) else whole.part(share(len(whole)))
    if column is None and not reading.chosen and (texts := brat_texts(path)):
        documents = list(read_brat(texts, reading.encoding, tagged))
        if how.cuts and how.of(documents).line_breaks == 1:  # examples of their own, for processes and folds
            documents = list(chain.from_iterable(document.lines() for document in documents))
        return TextCorpus.of_texts(documents, "brat", how, source_name(path), share)
    return read_laid_out(path, choose, share, reading.encoding)


def joined(
    name: str, parts: Sequence[object], corpora: Sequence[Corpus], how: Segmentation, share: Share | None = None
) -> Corpus:
    """The corpus of this name from those of its parts, in order; of texts, a share of these."""
    expect_one_form(name, parts, [corpus.form for corpus in corpora])
    if not isinstance(first := corpora[0], TextCorpus):
        return Corpus.joined(corpora)
    texts = chain.from_iterable(corpus.texts for corpus in corpora if isinstance(corpus, TextCorpus))
    return TextCorpus.of_texts(texts, first.kind, how, name, share)


def expect_one_form(name: str, parts: Sequence[object], forms: Sequence[str]) -> None:
    """Refuse a corpus of this name whose parts are not all of one form."""
    if len({*forms}) > 1:
        found = "; ".join(f"{part}: {form}" for part, form in zip(parts, forms, strict=True))
        raise ValueError(f"{name}: files must be of one form, got {bounded(found)}")


def texts_of(
    kind: Kind,
    how: Segmentation,
    reading: Reading = AS_FOUND,
    annotated: bool = False,
    share: Share | None = None,
) -> Reader:
    """What reads the texts of a file of some kind; arguments are those of :func:`read_corpus`."""

    def read(lines: Iterable[str], name: str) -> TextCorpus:
        if kind == "text" and how.line_breaks != 1:  # where more breaks end sentences, it is one document
            lines = ["\n".join("" if is_blank(line) else line for line in lines)]
        documents = documents_of(kind, lines, name, reading, annotated)
        return TextCorpus.of_texts(documents, kind, how, name, share)

    return read


def documents_of(
    kind: Kind, lines: Iterable[str], name: str, reading: Reading = AS_FOUND, annotated: bool = True
) -> Iterable[Document]:
    """The texts of the lines of a file of some kind, with their annotations if these are wanted.

    Raises:
        ValueError: what the readers of these kinds refuse, with the name of the file and its line.
    """
    if kind == "text":
        return (Document(line, None) for line in lines if not is_blank(line))
    if kind == "webanno":
        return webanno_documents(lines, name, reading.feature, annotated)
    return json_documents(lines, name, reading.tag_names, annotated, reading.annotator)


def read_laid_out(
    path: Source,
    choose: Callable[[str, bytes], Layout | Reader],
    share: Share | None = None,
    encoding: str | None = None,
) -> Corpus:
    """The corpus of a file in the layout, or by the reader, that ``choose`` gives for its name and its first lines.

    Errors and ``share`` are those of :func:`read_corpus`.
    """
    name, numbers, wanted, done = source_name(path), array("i"), range(sys.maxsize), 0
    begin, whole = begun(blocks(path, encoding))
    layout = choose(name, getattr(path, "begin", begin))
    if not isinstance(layout, Layout):
        return layout(decoded_lines(whole, name), name)
    if share is not None:
        wanted, whole = lines_of(share, whole, layout.separator), blocks(path, encoding)
    parsed, kept_blocks, kept = _ParsedLines(layout), list[bytes](), 0
    for block in whole:
        count = block.count(b"\n")
        if inside := _within(block, range(wanted.start - done, wanted.stop - done), count):
            _extend(numbers, inside, parsed, name, max(done, wanted.start))
        if layout.keeps_lines:
            kept_blocks.append(block)
            kept += len(block)
        check_size(name, _ROW * len(parsed) + kept, whole=False)
        done += count
    if not parsed.distinct:
        raise ValueError(f"{name}: no sentences")
    corpus = _corpus(parsed, np.frombuffer(numbers, dtype=np.int32), name, wanted.start)
    return Treebank(**vars(corpus), content=kept_blocks) if layout.keeps_lines else corpus


class _ParsedLines(dict[bytes, int]):
    """The number of the token of each line, which is parsed when it is first seen; below 0 for lines without one.

    From ``_LAST`` downwards, it is that of a token with which a sentence ends.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.distinct: dict[Token, int] = {}

    def __missing__(self, line: bytes) -> int:
        found = self.layout.parse(line.decode())
        number = self.distinct.setdefault(found, len(self.distinct)) if isinstance(found, Token) else found
        self[line] = number = _LAST - number if number >= 0 and self.layout.ends(line.decode()) else number
        return number


def _extend(numbers: "array[int]", block: bytes, parsed: _ParsedLines, name: str, before: int) -> None:
    """Append the numbers of the tokens of a block, which has some lines before it."""
    begin = len(numbers)
    try:
        numbers.extend(map(parsed.__getitem__, block[:-1].split(b"\n")))
    except ValueError as error:  # of the line behind the last complete one
        line = before + len(numbers) - begin + 1
        reason = undecodable(error) if isinstance(error, UnicodeDecodeError) else bounded(str(error))
        raise ValueError(f"{name}:{line}: {reason}") from None


def _corpus(parsed: _ParsedLines, numbers: NDArray[np.int32], name: str, before: int) -> Corpus:
    """The corpus of the numbers of lines, which have some before them."""
    inside = np.flatnonzero((numbers[1:] == COMMENT) & (numbers[:-1] >= 0))
    if len(inside):
        raise ValueError(
            f"{name}:{before + int(inside[0]) + 2}: this line in a sentence begins with #, but has not the columns and "
            "tags of other rows; comments stand before sentences"
        )
    last, numbers = numbers <= _LAST, np.where(numbers <= _LAST, _LAST - numbers, numbers)
    last, numbers = last[numbers != SKIPPED], numbers[numbers != SKIPPED]
    present = numbers >= 0
    ends = np.cumsum(present)[~present | last]  # tokens before each separator, or up to the last of a sentence
    offsets = np.unique(np.concatenate([ends, [0, np.count_nonzero(present)]]))
    documents = np.cumsum(numbers == DOCUMENT)[present][offsets[:-1]]
    layout = parsed.layout
    corpus = Corpus(list(parsed.distinct), numbers[present], offsets, documents, str(layout), layout.between)
    hidden = np.array([token.word == "_" for token in corpus.distinct])[corpus.tokens]
    lengths = np.diff(offsets)
    expect_words(np.add.reduceat(hidden, offsets[:-1], dtype=np.int64), lengths, name)
    longest = int(lengths.argmax())
    check_words(f"{name}: sentence {longest + 1}", int(lengths[longest]))
    return corpus


def expect_words(hidden: NDArray[np.int64], sizes: NDArray[np.int64], name: str) -> None:
    """Refuse sentences of underscores, which stand for words that may not be published.

    Args:
        hidden: how many words of each sentence are underscores.
        sizes: how many words each has.
        name: of the file.

    Raises:
        ValueError: a sentence, or all of several, have no others.
    """
    everywhere = len(sizes) > 1 and bool((hidden == sizes).all())
    whole = np.flatnonzero((hidden == sizes) & (everywhere | (hidden > _MOST_HIDDEN)))
    if len(whole):
        raise ValueError(f"{name}: sentence {whole[0] + 1} of {len(sizes)}: {_HIDDEN}")


def lines_of(share: Share, whole: Iterable[bytes], separator: re.Pattern[str]) -> range:
    """The lines of some neighbouring sentences; each sentence has all lines up to the next.

    Args:
        share: the numbers of the sentences, given how many there are.
        whole: the blocks of the file.
        separator: of lines between sentences.
    """
    begins, line, separated = array("q"), 0, True
    for block in whole:
        lines = block[:-1].decode(errors="replace").split("\n")
        found = (line[:1] in MAY_SEPARATE and separator.fullmatch(line) is not None for line in lines)
        separating = np.fromiter(found, np.bool_, len(lines))
        after = np.append(separated, separating[:-1])
        begins.extend((line + np.flatnonzero(~separating & after)).tolist())
        line, separated = line + len(lines), bool(separating[-1])
    if not begins:
        return range(line)  # no share has any sentence: all of the file is to be refused
    places = [0, *begins[1:], line]  # of all sentences, and of the end
    numbers = share(len(begins))
    return range(places[numbers.start], places[numbers.stop])


def _within(block: bytes, lines: range, count: int) -> bytes:
    """The lines of a block whose numbers are in a range."""
    if lines.start <= 0 and lines.stop >= count:
        return block
    return b"".join(line + b"\n" for line in block[:-1].split(b"\n")[max(lines.start, 0) : max(lines.stop, 0)])
