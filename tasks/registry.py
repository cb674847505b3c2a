"""The tasks of the package by name, and tasks of a user."""

import importlib
import sys

from structsmooth.tasks.base import Task

TASKS = {
    "ner": "structsmooth.tasks.text.ner:NER",
    "chunking": "structsmooth.tasks.text.chunking:Chunking",
    "ocr": "structsmooth.tasks.ocr:OCR",
    "segmentation": "structsmooth.tasks.segmentation:Segmentation",
    "localization": "structsmooth.tasks.localization:Localization",
}


def load_task(name: str) -> type[Task]:
    """The class of a task: a name from ``TASKS``, or ``package.module:ClassName`` for a task of your own.

    Raises:
        ValueError: an unknown task, with what to do.
    """
    module, _, attribute = TASKS.get(name, name).partition(":")
    if not attribute:
        raise ValueError(f"unknown task {name!r}: expected one of {', '.join(TASKS)}, or package.module:ClassName")
    if name not in TASKS and "" not in sys.path:
        sys.path.insert(0, "")  # a user's own module may be in the working directory
    try:
        task = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"task {name!r} cannot be imported: {error}") from error
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise ValueError(f"task {name!r} must be a subclass of structsmooth.tasks.Task")
    return task
