"""The examples of the README, with what they print."""

import re

from source_tree import ROOT

_EXAMPLE = re.compile(r"^```(python|sh)\n((?:(?!```).)*)^```\n\n```text\n(.*?)^```$", re.M | re.S)


def examples() -> list[tuple[str, str, str]]:
    """Language, code and output of each example whose output is shown."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [(language, code, output.rstrip()) for language, code, output in _EXAMPLE.findall(text)]
