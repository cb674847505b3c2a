"""First visits: from the first page, links beside the words of a question lead to an example within two clicks."""

import re
from pathlib import PurePosixPath

import pytest
from markdown.extensions.toc import slugify_unicode
from source_tree import ROOT

VISITS = {
    "Viterbi": r"chain\.max\(\)",
    "ONNX": r"torch\.export\.export\(",
    "confidence": r'span\["probability"\]',
    "my own space": r"\(DynamicProgram\)",
    "pytorch-crf": r"from torchcrf import CRF",
}
CLICKS = 2

HEADING = re.compile(r"^(#+) (.*?)(?: \{ #([\w-]+) \})?$", re.M)
CODE = re.compile(r"^```(\w*)\n.*?^```$", re.M | re.S)


def page(name: str) -> str:
    """A page, with the passages that it includes from the README."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    def passage(mark: re.Match[str]) -> str:
        return readme.partition(f"[start:{mark[1]}] -->")[2].partition("<!--")[0]

    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return re.sub(r'^--8<-- "README\.md:(\w+)"$', passage, text, flags=re.M)


def section(name: str, anchor: str) -> str:
    """The part of a page under the heading of an anchor; all of it without an anchor."""
    text = page(name)
    if not anchor:
        return text
    headings = [found for found in HEADING.finditer(text) if not inside_code(text, found.start())]
    (first,) = [found for found in headings if (found[3] or slugify_unicode(found[2], "-")) == anchor]
    later = (found.start() for found in headings if found.start() > first.start() and len(found[1]) <= len(first[1]))
    return text[first.start() : next(later, len(text))]


def inside_code(text: str, place: int) -> bool:
    return any(block.start() < place < block.end() for block in CODE.finditer(text))


def entries() -> dict[str, str]:
    """The words of the glossary, to which the build links first uses, with their anchors."""
    found = re.findall(r"^### (.+) \{ #([\w-]+) \}$", page("glossary.md"), re.M)
    return {word.lower(): anchor for words, anchor in found for word in words.split(", ")}


def links(name: str, anchor: str, question: str) -> set[tuple[str, str]]:
    """Where a reader may go: by all links of a section, or a page's links beside the words of the question."""
    paragraphs = re.split(r"\n\s*\n", CODE.sub("", section(name, anchor)))
    chosen = [text for text in paragraphs if anchor or question.lower() in text.lower()]
    targets = [target for text in chosen for target in re.findall(r"\]\(([^):]+\.md(?:#[\w-]+)?)\)", text)]
    folder = PurePosixPath(name).parent
    found = {normal(folder, target) for target in targets}
    entry = entries().get(question.lower()) if chosen else None
    return found | ({("glossary.md", entry)} if entry else set())


def normal(folder: PurePosixPath, target: str) -> tuple[str, str]:
    """The page of a link, by its path below docs/, and its anchor."""
    name, _, anchor = target.partition("#")
    path = (ROOT / "docs" / folder / name).resolve().relative_to((ROOT / "docs").resolve())
    return path.as_posix(), anchor


@pytest.mark.parametrize(("question", "example"), VISITS.items())
def test_a_question_leads_to_an_example(question, example):
    places = {("index.md", "")}
    for _ in range(CLICKS):
        places |= {link for place in places for link in links(*place, question)}
    blocks = [block[0] for place in places for block in CODE.finditer(section(*place)) if block[1] == "python"]
    assert any(re.search(example, block) for block in blocks)


def test_without_clicks_there_is_no_way():
    assert not links("index.md", "", "a question of nobody")
