"""Formulas of the pages: LaTeX between dollars becomes MathML, which browsers draw without scripts."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)
_BRACE = re.compile(r"(?<!\\)[{}]")


def on_page_content(html: str, *, page: Page, **_: Any) -> str:
    """The page with its formulas in MathML.

    Raises:
        PluginError: If a formula is malformed, with the name of the page.
    """

    def mathml(formula: re.Match[str]) -> str:
        latex = unescape(formula[2]).strip()
        try:
            if formula[1] == "span":
                return _mathml(latex, "inline")
            return f'<div style="overflow: auto hidden; padding: 0.2em 0">{_mathml(latex, "block")}</div>'
        except Exception as error:  # the converter has no common class of errors
            raise PluginError(f"{page.file.src_uri}: malformed formula {latex!r}: {error!r}") from error

    return _FORMULA.sub(mathml, html)


def _mathml(latex: str, display: str) -> str:
    """The formula in MathML; what the converter lets pass is refused here."""
    braces = _BRACE.findall(latex)
    if braces.count("{") != braces.count("}"):
        raise ValueError("braces do not match")
    converted = convert(latex, display=display)
    for element in ElementTree.fromstring(converted).iter():
        if element.text and "\\" in element.text:
            raise ValueError(f"unknown command {element.text}")
        if element.tag.endswith("}mfrac") and len(element) != 2:
            raise ValueError("a fraction needs a numerator and a denominator")
    return converted
