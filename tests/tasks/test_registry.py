"""How tasks are found by name."""

import subprocess
import sys

import pytest

import structsmooth.tasks
from structsmooth.tasks import NER, Task, load_task


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch", "unknown task 'nosuch': expected one of ner, .*or package.module:ClassName"),
        ("no_such_module:Task", "task 'no_such_module:Task' cannot be imported: No module named"),
        ("json:NoSuchClass", "task 'json:NoSuchClass' cannot be imported"),
        ("json:loads", "task 'json:loads' must be a subclass of structsmooth.tasks.Task"),
        ("json:JSONDecoder", "must be a subclass of structsmooth.tasks.Task"),
    ],
)
def test_load_task_says_what_is_wrong(name, message):
    with pytest.raises(ValueError, match=message):
        load_task(name)


def test_load_task_finds_a_class_in_the_working_directory(tmp_path, monkeypatch):
    module = "from structsmooth.tasks import NER\n\n\nclass Chunking(NER):\n    lam = '1/n'\n"
    (tmp_path / "tiny_user_task.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    task = load_task("tiny_user_task:Chunking")
    assert issubclass(task, Task)
    assert (task.__name__, task.lam) == ("Chunking", "1/n")
    assert task().fitted_type is NER.fitted_type
    assert load_task("ner") is NER


def test_tasks_load_when_they_are_asked_for():
    code = (
        "import sys, structsmooth.tasks; print(*sys.modules); from structsmooth.tasks import OCR; print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    before, after = (set(line.split()) for line in run.stdout.splitlines())
    rooms = {f"structsmooth.tasks.{room}" for room in ("text.ner", "ocr", "segmentation", "scenes", "localization")}
    assert before.isdisjoint(rooms)
    assert after & rooms == {"structsmooth.tasks.ocr"}
    with pytest.raises(AttributeError, match=r"'structsmooth\.tasks' has no attribute 'Nothing'"):
        _ = structsmooth.tasks.Nothing
