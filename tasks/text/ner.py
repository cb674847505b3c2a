"""Named entity recognition, and any other tagging of CoNLL column files."""

from dataclasses import dataclass
from importlib.resources import files
from typing import ClassVar

from structsmooth.costs import Cost, Hamming
from structsmooth.tasks.text.tagging import Tagging
from structsmooth.text.templates import PLAIN, RICH, Templates


@dataclass(frozen=True)
class NER(Tagging):
    """Named entity recognition with a linear chain over sparse attributes and Hamming cost.

    Further options: see :class:`~structsmooth.tasks.text.tagging.Tagging`.

    Args:
        rich: affixes, shapes and pairs in addition to the paper's words, parts of speech and chunks.

    Reference:
        Pillutla et al. (2019), section 7.1.1.
    """

    rich: bool = True

    summary: ClassVar[str] = "named entity recognition: linear chains on CoNLL column files"
    cost: ClassVar[Cost] = Hamming()
    lam: ClassVar[str] = "10/n"
    passes: ClassVar[int] = 15
    solver: ClassVar[str] = "proximal-bcfw"

    @property
    def templates(self) -> Templates:
        """The templates of the rich or of the plain attributes."""
        return RICH if self.rich else PLAIN

    @classmethod
    def default_files(cls) -> dict[str, str]:
        """Entities in filings to the US Securities and Exchange Commission (Salinas Alvarado et al. 2015)."""
        folder = files("structsmooth.data") / "sec_filings"
        return {"train": str(folder / "FIN5.txt.gz"), "test": str(folder / "FIN3.txt.gz")}
