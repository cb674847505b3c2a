"""The sentences of each of several processes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from structsmooth import processes
from structsmooth.processes import own_files, process_share
from structsmooth.text.conll import Share, expect_one_form
from structsmooth.text.corpus import Corpus
from structsmooth.text.texts import TextCorpus


def own_corpus(read: Callable[[str | list[str], Literal["train"], Share], Corpus], path: str) -> Corpus:
    """The sentences of this process in training data: of whole files, if there are enough of them.

    Every process that joined calls it.

    Args:
        read: reads a file, the files of a pattern or those of a list, for a split, of which a share is kept.
        path: a file, or a pattern.

    Raises:
        ValueError, OSError: what ``read`` refuses in some process.
    """
    files = own_files(path)
    if files is None:
        return processes.run_on_all_ranks(lambda: read(path, "train", process_share))
    corpus = processes.run_on_all_ranks(lambda: read(files, "train", range))
    return one_form(corpus, path, [f"from {first}" for first, *_ in processes.gathered(files)])


def one_form(corpus: Corpus, name: str, parts: Sequence[object]) -> Corpus:
    """The sentences of this process as one that has read the parts of all would have them.

    Raises:
        ValueError: the parts are of several forms.
    """
    expect_one_form(name, parts, processes.gathered(corpus.form))
    if not isinstance(corpus, TextCorpus):
        return corpus
    # The same line breaks end sentences in all files, as if one process had read them.
    breaks = max(number or 1 for number in processes.gathered(corpus.how.line_breaks))
    return corpus.cut(replace(corpus.how, line_breaks=breaks))
