"""Text chunking: the shared task of CoNLL-2000."""

from dataclasses import dataclass
from typing import ClassVar

from structsmooth.costs import Cost, NormalizedHamming
from structsmooth.files import data_file
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
    cost: ClassVar[Cost] = NormalizedHamming()
    lam: ClassVar[str] = "50/n"
    passes: ClassVar[int] = 20
    solver: ClassVar[str] = "proximal-bcfw"

    @classmethod
    def default_files(cls) -> dict[str, str]:
        """CoNLL-2000 (Tjong Kim Sang and Buchholz 2000)."""
        return {split: data_file("chunking", f"conll2000/{split}.txt.gz") for split in ("train", "test")}
