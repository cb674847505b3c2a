"""Elements of HTML, whose text and attributes are escaped."""

import html
from collections.abc import Iterable

_VOID = {"br", "img", "input", "link", "meta"}


class Markup(str):
    """HTML that is inserted as it is; all other text is escaped where it enters an element."""

    __slots__ = ()


def element(tag: str, *content: str, **attributes: str | int | float | None) -> Markup:
    """An element of HTML with escaped text and attributes.

    Args:
        tag: its name.
        content: texts, which are escaped, and elements, which are not.
        attributes: by their names with underscores for hyphens, and one more at the end for a Python keyword, as in
            ``class_``; those that are ``None`` are left out.

    Example:
        >>> element("b", "1 < 2", class_="big")
        '<b class="big">1 &lt; 2</b>'
    """
    given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    head = "".join(f' {name}="{html.escape(str(value))}"' for name, value in given.items())
    if tag in _VOID:
        return Markup(f"<{tag}{head}>")
    return Markup(f"<{tag}{head}>{joined(content)}</{tag}>")


def joined(content: Iterable[str]) -> Markup:
    """Texts and elements one after the other; texts are escaped.

    Example:
        >>> joined(["<", element("i", "x")])
        '&lt;<i>x</i>'
    """
    return Markup("".join(piece if isinstance(piece, Markup) else html.escape(piece) for piece in content))
