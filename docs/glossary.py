"""Links to the glossary: the first use of one of its words on a page leads there."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_HEADING = re.compile(r"^### (.+) \{ #([\w-]+) \}$", re.M)
_TAG = re.compile(r"(<[^>]+>)")
# Words in these elements stay as they are.
_CLOSED = ("a", "button", "code", "h1", "h2", "h3", "h4", "math", "pre", "script", "style", "summary", "svg", "title")
_PAGE = "glossary.md"


def words(glossary: str) -> dict[str, str]:
    """The anchors of the words of a glossary: its headings list them, with commas between."""
    return {word: anchor for names, anchor in _HEADING.findall(glossary) for word in names.split(", ")}


def on_page_content(html: str, *, page: Page, files: Files, **_: Any) -> str:
    """The page with links to the glossary, unless it is the glossary or a page of the reference."""
    glossary = files.get_file_from_path(_PAGE)
    if glossary is None or page.file.src_uri == _PAGE or page.file.src_uri.startswith("reference/"):
        return html
    return linked(html, words(glossary.content_string), glossary.url_relative_to(page.file))


def linked(html: str, anchors: dict[str, str], url: str) -> str:
    """The text with a link at the first of the words of each entry, outside of code, links and headings."""
    left = dict(anchors)
    closed = 0
    parts = []
    for part in _TAG.split(html):
        if tag := re.match(r"<(/?)(\w+)", part):
            closed += (tag[2] in _CLOSED) * (-1 if tag[1] else not part.endswith("/>"))
        elif not closed:
            part = _first_uses(part, left, url)
        parts.append(part)
    return "".join(parts)


def _first_uses(text: str, left: dict[str, str], url: str) -> str:
    """A text with links; entries that get one are taken from those that are left."""

    def link(found: re.Match[str]) -> str:
        anchor = next((left[word] for word in left if word.lower() == found[0].lower()), None)
        for word in [word for word in left if left[word] == anchor]:
            del left[word]
        return f'<a class="glossary" href="{url}#{anchor}">{found[0]}</a>' if anchor else found[0]

    if not left or not text.strip():
        return text
    names = "|".join(map(re.escape, sorted(left, key=len, reverse=True)))
    return re.sub(rf"(?<![\w-])(?:{names})(?![\w-])", link, text, flags=re.I)
