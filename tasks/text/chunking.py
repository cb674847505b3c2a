"""Text chunking: the shared task of CoNLL-2000."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TextIO

from structsmooth.costs import Cost, Hamming, NormalizedHamming
from structsmooth.tasks.base import FittedTask, Split
from structsmooth.tasks.text.joint import FittedChunking, together
from structsmooth.tasks.text.tagging import Tagging
from structsmooth.text.conll import Share
from structsmooth.text.corpus import Corpus
from structsmooth.text.lines import source_name
from structsmooth.text.templates import CHUNKING, RICH, Templates


@dataclass(frozen=True)
class Chunking(Tagging):
    """Text chunking with a linear chain over sparse attributes and the fraction of wrong tags as cost.

    Attributes are words and parts of speech up to two tokens away, pairs of adjacent ones, and triples of parts of
    speech. Options: see :class:`~structsmooth.tasks.text.tagging.Tagging`.

    Args:
        joint: learn parts of speech, the first column behind the words, together with chunks, by words alone: a chain
            over the pairs of both that occur, whose attributes and cost are those of ``ner``. λ of 10/n suits it.

    Reference:
        Osokin et al. (2016), appendix I.2; Sha and Pereira (2003), "Shallow Parsing with Conditional Random Fields".
    """

    bits: int = 0
    joint: bool = False

    summary: ClassVar[str] = "text chunking: linear chains on CoNLL column files"
    # CoNLL-2000 (Tjong Kim Sang and Buchholz 2000).
    data: ClassVar[Mapping[str, str]] = {split: f"conll2000/{split}.txt.gz" for split in ("train", "test")}
    lam: ClassVar[str] = "50/n"
    passes: ClassVar[int] = 20
    solver: ClassVar[str] = "proximal-bcfw"
    fitted_type: ClassVar[type[FittedTask]] = FittedChunking

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.joint and (self.column is not None or self.scheme not in (None, "plain") or self.unknown is not None):
            raise ValueError("joint takes pairs of columns as they are: leave column, scheme and unknown out")
        if self.joint:
            object.__setattr__(self, "words_only", True)  # parts of speech are what it learns

    @property
    def templates(self) -> Templates:
        """Those of the paper, or for parts of speech those of named entities."""
        return RICH if self.joint else CHUNKING

    @property
    def cost(self) -> Cost:  # type: ignore[override]
        """The fraction of wrong tags, or the number of wrong pairs."""
        return Hamming() if self.joint else NormalizedHamming()

    @property
    def headline(self) -> str:  # type: ignore[override]
        """F1 of chunks; accuracy of plain tags."""
        return "f1" if self.joint else super().headline

    @property
    def plain(self) -> bool:
        """Whether tags are taken as they are, as pairs of both are."""
        return self.joint or super().plain

    def read(self, path: str | TextIO | list[str], split: Split = "train", share: Share | None = None) -> Corpus:
        """As :meth:`Tagging.read`, with pairs of both as tags, if these are learned."""
        corpus = super().read(path, split, share)
        return together(corpus, source_name(path)) if self.joint and split != "predict" else corpus
