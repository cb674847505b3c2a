"""Hooks of the documentation: the search finds the words of the glossary, first uses lead there, names wrap."""

import importlib.util
import json
import re
import shutil

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from source_tree import ROOT

SETTINGS = (
    "docs_dir: pages\ntheme: {name: mkdocs}\nsite_name: glossary\nplugins: [search]\nmarkdown_extensions: [attr_list]\n"
)


def loaded(name):
    """A hook of the documentation."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


glossary = loaded("glossary")
WORDS = glossary.words((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """The sections of the glossary as the search of the site has them: text by anchor."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "pages").mkdir()
    shutil.copy(ROOT / "docs" / "glossary.md", folder / "pages" / "index.md")
    (folder / "mkdocs.yml").write_text(SETTINGS)
    build(load_config(str(folder / "mkdocs.yml")))
    entries = json.loads((folder / "site" / "search" / "search_index.json").read_text())["docs"]
    return {entry["location"].partition("#")[2]: f"{entry['title']} {entry['text']}".lower() for entry in entries}


@pytest.mark.parametrize(
    ("synonym", "anchor"),
    [
        *WORDS.items(),
        ("structural SVM", "structural-svm"),
        ("topk", "k-best"),
        ("logits", "emissions"),
        ("probabilities", "confidence"),
        ("CKY", "semi-crf"),
        ("perceptron", "structural-svm"),
        ("log-partition", "forward-backward"),
        ("duality gap", "certificate"),
    ],
)
def test_the_search_finds_synonyms(index, synonym, anchor):
    assert synonym.lower() in index[anchor]


def test_the_first_use_leads_to_the_glossary():
    html = (
        "<h2>Oracle</h2><p><code>Oracle</code> An oracle, <a href='x'>oracle</a>; the oracle of a non-oracle CRFs.</p>"
    )
    built = glossary.linked(html, WORDS, "../glossary.html")
    assert re.findall(r'<a class="glossary" href="([^"]*)">([^<]*)</a>', built) == [
        ("../glossary.html#oracle", "oracle")
    ]
    assert "An <a class" in built


def test_an_entry_is_linked_once():
    built = glossary.linked("<p>logits and emissions</p>", WORDS, "glossary.html")
    assert built == '<p><a class="glossary" href="glossary.html#emissions">logits</a> and emissions</p>'


def test_names_in_tables_wrap_at_underscores():
    tables = loaded("tables")
    html = "<td><code>cache_hit_rate</code> a_b</td><p><code>a_b</code></p>"
    assert tables.on_page_content(html) == ("<td><code>cache_<wbr>hit_<wbr>rate</code> a_b</td><p><code>a_b</code></p>")
