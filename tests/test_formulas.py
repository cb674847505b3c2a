"""Formulas of the documentation: LaTeX between dollars becomes MathML."""

import html
import re

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from source_tree import ROOT

SETTINGS = """
docs_dir: pages
hooks: [{hook}]
theme: {{name: mkdocs, highlightjs: false}}
site_name: formulas
plugins: []
"""


@pytest.fixture
def page(tmp_path):
    """The body of a page of this text, as the documentation's own settings build it."""

    def built(text: str) -> str:
        own = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
        extensions = re.search(r"^markdown_extensions:\n(?: .*\n)+", own, re.M)
        (tmp_path / "pages").mkdir()
        (tmp_path / "pages" / "index.md").write_text(text, encoding="utf-8")
        file = tmp_path / "mkdocs.yml"
        file.write_text(SETTINGS.format(hook=ROOT / "docs" / "mathematics.py") + extensions[0], encoding="utf-8")
        build(load_config(str(file)))
        return (tmp_path / "site" / "index.html").read_text(encoding="utf-8")

    return built


def test_formulas_become_mathml(page):
    built = page("The gap of $f_i$ is $a < b$:\n\n$$\nF(w) = \\frac{1}{n} \\sum_i f_i(w)\n$$\n")
    assert built.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">') == 2
    assert built.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">') == 1
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mi>n</mi></mrow></mfrac>" in built
    assert not re.search(r"\$|\\frac|arithmatex", built)


def test_dollars_of_programs_stay(page):
    program = "solver=$svrg,mu=1 $svrg,mu=2"
    built = page(f"Run `echo $HOME $PATH`, for $5 or $6.\n\n```sh\n{program}\n$ structsmooth predict\n```\n")
    text = html.unescape(re.sub(r"<[^>]*>", "", built))
    assert program in text
    assert "\n$ structsmooth predict" in text
    assert "Run echo $HOME $PATH, for $5 or $6." in text
    assert "<math" not in built


@pytest.mark.parametrize("latex", ["x^", r"\fraction{1}{2}", r"\frac{1}", "{x", "x}", r"\left( x", "a & b"])
def test_a_malformed_formula_ends_the_build(page, caplog, latex):
    with pytest.raises(Abort):
        page(f"The objective:\n\n$$\n{latex}\n$$\n")
    assert f"index.md: malformed formula {latex!r}" in caplog.text
