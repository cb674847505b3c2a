"""Tasks: data reading, features, costs, metrics and defaults that worked."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from structsmooth.tasks.base import FittedTask, Task
from structsmooth.tasks.registry import TASKS, load_task

if TYPE_CHECKING:  # a task loads when it is asked for, and with it what only its data need
    from structsmooth.tasks.localization import Localization
    from structsmooth.tasks.ocr import OCR
    from structsmooth.tasks.segmentation import Segmentation
    from structsmooth.tasks.text.chunking import Chunking
    from structsmooth.tasks.text.ner import NER

__all__ = ["NER", "OCR", "TASKS", "Chunking", "FittedTask", "Localization", "Segmentation", "Task", "load_task"]

_MODULES = {name: module for module, _, name in (path.partition(":") for path in TASKS.values())}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
