"""Tables of the pages: names in code may wrap at underscores and commas."""

import re
from typing import Any

_CELL = re.compile(r"<t[dh][^>]*>.*?</t[dh]>", re.S)
_CODE = re.compile(r"<code>[^<]*</code>")
_BREAK = re.compile(r"(?<=[_,(=])(?=[\w&])")


def on_page_content(html: str, **_: Any) -> str:
    """The page with places where names in cells may wrap."""
    return _CELL.sub(lambda cell: _CODE.sub(lambda code: _wrapping(code[0]), cell[0]), html)


def _wrapping(code: str) -> str:
    name = code.removeprefix("<code>").removesuffix("</code>")
    return f"<code>{_BREAK.sub('<wbr>', name)}</code>"
