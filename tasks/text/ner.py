"""Named entity recognition, and any other tagging of CoNLL column files."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar

from structsmooth.costs import Cost, Hamming
from structsmooth.tasks.text.attributes import PLAIN, RICH, Templates
from structsmooth.tasks.text.tagging import Tagging


@dataclass
class NER(Tagging):
    """Named entity recognition with a linear chain over sparse attributes and Hamming cost.

    Args:
        bits: attributes are hashed to 2**bits buckets; 0 keeps a dictionary of those in the training data.
        scheme: of the tags learned and predicted; ``fit`` takes that of the training data if not given.
        encoder: attributes to integers; set by ``fit``.
        tags: what the states stand for; set by ``fit``.
        columns: number of columns of the training data; set by ``fit``.
        rich: affixes, shapes and pairs beside words, parts of speech and chunks of the paper.

    Reference:
        Pillutla et al. (2019), section 7.1.1.
    """

    rich: bool = True

    summary: ClassVar[str] = "named entity recognition: linear chains on CoNLL column files"
    cost: ClassVar[Cost] = Hamming()
    lam: ClassVar[str] = "10/n"
    passes: ClassVar[int] = 15

    @property
    def templates(self) -> Templates:
        """The rich attributes or the plain ones."""
        return RICH if self.rich else PLAIN

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Options of the attributes and tags."""
        parser.add_argument(
            "--rich",
            action=BooleanOptionalAction,
            default=True,
            help="affixes, shapes and pairs beside the paper's words, parts of speech and chunks (default: yes)",
        )
        super().add_arguments(parser)

    @classmethod
    def from_options(cls, options: Namespace) -> NER:
        """An untrained tagger."""
        return cls(bits=options.bits, scheme=options.scheme, rich=options.rich)

    @classmethod
    def default_files(cls) -> dict[str, str]:
        """Entities in filings to the US Securities and Exchange Commission (Salinas Alvarado et al. 2015)."""
        folder = files("structsmooth.data") / "sec_filings"
        return {"train": str(folder / "FIN5.txt.gz"), "test": str(folder / "FIN3.txt.gz")}

    def to_dict(self) -> dict[str, Any]:
        """Settings, attributes and tags."""
        return {"rich": self.rich, **super().to_dict()}
