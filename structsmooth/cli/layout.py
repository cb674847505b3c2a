"""How help is laid out: paragraphs are filled, and indented lines, such as examples, stay as they are."""

from argparse import HelpFormatter
from itertools import groupby


class Layout(HelpFormatter):
    """The layout of all commands."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = []
        for keep, lines in groupby(text.splitlines(), key=lambda line: not line or line.startswith("  ")):
            part = "\n".join(lines)
            parts.append(part if keep else super()._fill_text(part, width, indent))
        return "\n".join(parts)


EXAMPLES = {
    "train": "structsmooth train ner --train train.txt --test test.txt --out runs/mine",
    "evaluate": "structsmooth evaluate runs/mine test.txt",
    "predict": "structsmooth predict runs/mine new.txt --top 3 --output tagged.txt",
    "info": "structsmooth info runs/mine",
    "tune": "structsmooth tune ner --train train.txt --folds 5 --lam 1/n 10/n 100/n",
    "compare": "structsmooth compare ner --solvers proximal-bcfw,sgd --lams 10/n,1/n",
    "path": "structsmooth path ocr --epsilon 0.1 --out runs/path",
    "certify": "structsmooth certify runs/mine --accuracy 0.01",
    "show": "structsmooth show runs/mine test.txt --examples 10",
    "doctor": "structsmooth doctor --json",
}
"""A command line for each command, which its help ends with."""
