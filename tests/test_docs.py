"""Documents: their code blocks run, their links lead somewhere, and the reference has every public name; doctests."""

import ast
import doctest
import importlib
import inspect
import re
import shlex
from io import StringIO
from pathlib import Path

import pytest
import readme
import torch
from source_tree import LIBRARY, ROOT, module_names

import structsmooth
import structsmooth.decisions
import structsmooth.estimators
import structsmooth.experiments
import structsmooth.factors
import structsmooth.markup
import structsmooth.models
import structsmooth.programs
import structsmooth.report
import structsmooth.tasks
import structsmooth.text
from structsmooth.cli import main

# Pages that train networks, or compare with other libraries.
LONG_PAGES = {"docs/deep.md", "docs/migration.md", "docs/recipes.md"}
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_blocks(path: Path) -> list[tuple[int, str]]:
    """Line and text of the Python blocks of a document."""
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


def blocks() -> list[object]:
    """Python blocks, padded so that tracebacks name the line of the document."""
    return [
        pytest.param(
            path,
            "\n" * line + code,
            id=f"{name_of(path)}:{line + 1}",
            marks=pytest.mark.long if name_of(path) in LONG_PAGES else (),
        )
        for path in DOCUMENTS
        for line, code in python_blocks(path)
    ]


def reference() -> list[str]:
    """Names that the reference pages list."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    return [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.M)]


def write_modules(path, folder):
    """Blocks that begin with the name of a file, which other blocks of the document import."""
    for _, code in python_blocks(path):
        if name := re.match(r"# (\w+\.py)\n", code):
            (folder / name[1]).write_text(code)


# The recipes show Lightning and transformers as they are, with their warnings about themselves.
@pytest.mark.filterwarnings("ignore:::lightning", "ignore:::transformers", "ignore:::torch")
@pytest.mark.filterwarnings("ignore:.*torch_struct.* does not define `arg_constraints`")
@pytest.mark.parametrize(("path", "code"), blocks())
def test_code_blocks_run(path, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_modules(path, tmp_path)
    torch.manual_seed(0)
    exec(compile(code, str(path), "exec"), {"__name__": "example"})


def run_commands(lines: str, monkeypatch) -> None:
    """Lines of a shell: commands of this package, which may get a text by ``echo``."""
    for line in lines.splitlines():
        text, _, command = line.rpartition(" | ")
        monkeypatch.setattr("sys.stdin", StringIO("\n".join(shlex.split(text)[1:]) + "\n"))
        assert main(shlex.split(command, comments=True)[1:]) == 0


def test_the_readme_shows_what_its_examples_print(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert [language for language, *_ in readme.examples()] == ["sh", "python", "python", "python"]
    for language, code, output in readme.examples():
        if language == "sh":
            run_commands(code, monkeypatch)
        else:
            exec(compile(code, "README.md", "exec"), {"__name__": "example"})
        assert capsys.readouterr().out.rstrip().endswith(output)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_fences_close(path):
    """An open fence would swallow the text after it, up to the next one."""
    fences = re.findall(r"^```(\w*)$", path.read_text(encoding="utf-8"), re.M)
    assert len(fences) % 2 == 0
    assert not any(fences[1::2])


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_tables_have_no_gaps(path):
    """Rows after a blank line would show as text: they lack a header."""
    gaps = re.findall(r"^\|.*\n\n(\|.*)\n(?!\| ?:?-)", path.read_text(encoding="utf-8"), re.M)
    assert not gaps


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_to_files(path):
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    missing = [target for target in local if not (path.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_pages_of_marks_say_where_they_are_shown(path):
    """Formatters take a mark in a block of code for code, and change it."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"--8 < ?--", text)
    if re.search(r"^(--8<--|::: )", text, re.M):
        page = path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert re.match(rf"(# .*\n\n)?.*`make docs`.*\bbuild/site/{page}\b", text)


PACKAGES = [
    structsmooth,
    structsmooth.decisions,
    structsmooth.estimators,
    structsmooth.experiments,
    structsmooth.factors,
    structsmooth.markup,
    structsmooth.models,
    structsmooth.programs,
    structsmooth.report,
    structsmooth.tasks,
    structsmooth.text,
]


def exported(package):
    """``__all__``, or else what a package imports as itself."""
    imports = [node for node in ast.parse(inspect.getsource(package)).body if isinstance(node, ast.ImportFrom)]
    return getattr(package, "__all__", [alias.asname for node in imports for alias in node.names if alias.asname])


TIME_OR_MEMORY = re.compile(r"\b\d[\d.,]* (?:ms|µs|s|CPU seconds|MB|GB)\b")
COMMAND = re.compile(r"scripts[/. ]|measurements\.md|reproduction\.md|structsmooth (?:train|path|predict|show)\b")
# Borders of phones in ms; and the best path of an hour, which no command prints.
UNPRINTED = {"docs/recipes.md": "## Forced alignment", "docs/structures/paths.md": "## Alignment"}


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=name_of)
def test_times_and_memory_stand_beside_the_command_that_prints_them(path):
    for section in re.split(r"^(?=#+ )", path.read_text(encoding="utf-8"), flags=re.M):
        prose = re.sub(r"^```.*?^```$", "", section, flags=re.M | re.S)
        if path.name != "measurements.md" and not section.startswith(UNPRINTED.get(name_of(path), "-")):
            assert COMMAND.search(section) or not (found := TIME_OR_MEMORY.search(prose)), found[0]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_reference_has_every_public_name(package):
    listed = {*reference()}
    names = {f"{package.__name__}.{name}" for name in exported(package) if f"structsmooth.{name}" not in listed}
    assert not names - listed, f"add to docs/reference: {names - listed}"


def test_reference_names_once_what_there_is():
    names = reference()
    assert len(names) == len({*names})
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_the_reference_of_structures_has_all_members():
    """They stand in the order of use, so each is listed."""
    page = (ROOT / "docs" / "reference" / "structures.md").read_text(encoding="utf-8")
    listed = re.search(r"^      members: \[(.*)\]$", page, re.M)[1].split(", ")
    assert listed[:2] == ["max", "topk"]
    assert sorted(listed) == sorted(name for name in dir(structsmooth.Structure) if not name.startswith("_"))


def test_the_task_of_the_documents_trains_and_predicts(tmp_path, monkeypatch, capsys):
    (code,) = [code for _, code in python_blocks(ROOT / "docs" / "tasks" / "own.md") if "class Topics(Task)" in code]
    (tmp_path / "topics.py").write_text(code)
    (tmp_path / "train.tsv").write_text("sport\tthe team won\nmoney\tthe bank paid\n" * 4)
    (tmp_path / "new.txt").write_text("a bank\na team\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["train", "topics:Topics", "--train", "train.tsv", "--test", "train.tsv", "--out", "model"]) == 0
    assert "accuracy 8 of 8" in capsys.readouterr().out
    assert main(["predict", "model", "new.txt", "--task", "topics:Topics", "--top", "2"]) == 0
    assert capsys.readouterr().out == "money\tsport\ta bank\nsport\tmoney\ta team\n"


@pytest.mark.parametrize("name", module_names(LIBRARY))
def test_doctests(name):
    torch.manual_seed(0)
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_documents_and_modules_are_found():
    assert {"README.md", "CONTRIBUTING.md", "docs/solvers.md", "docs/structures/chain.md"} <= {
        name_of(path) for path in DOCUMENTS
    }
    assert {"structsmooth.structures.chain", "structsmooth.tasks.text.ner", "structsmooth.models.bilstm"} <= {
        *module_names(LIBRARY)
    }
