"""Text chunking: the shared task of CoNLL-2000."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from structsmooth.costs import Cost, NormalizedHamming
from structsmooth.tasks.text.tagging import Tagging
from structsmooth.text.templates import CHUNKING, Templates


@dataclass(frozen=True)
class Chunking(Tagging):
    """Text chunking with a linear chain over sparse attributes and the fraction of wrong tags as cost.

    Attributes are words and parts of speech up to two tokens away, pairs of adjacent ones, and triples of parts of
    speech. Options: see :class:`~structsmooth.tasks.text.tagging.Tagging`.

    Reference:
        Osokin et al. (2016), appendix I.2; Sha and Pereira (2003), "Shallow Parsing with Conditional Random Fields".
    """

    bits: int = 0

    templates: ClassVar[Templates] = CHUNKING
    summary: ClassVar[str] = "text chunking: linear chains on CoNLL column files"
    # CoNLL-2000 (Tjong Kim Sang and Buchholz 2000).
    data: ClassVar[Mapping[str, str]] = {split: f"conll2000/{split}.txt.gz" for split in ("train", "test")}
    cost: ClassVar[Cost] = NormalizedHamming()
    lam: ClassVar[str] = "50/n"
    passes: ClassVar[int] = 20
    solver: ClassVar[str] = "proximal-bcfw"
