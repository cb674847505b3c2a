"""Tasks: data reading, features, costs, metrics and defaults that worked."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names
from structsmooth.spelling import suggestion
from structsmooth.tasks.base import FittedTask as FittedTask
from structsmooth.tasks.base import Task as Task

if TYPE_CHECKING:  # a task loads when it is asked for, and with it what only its data need
    from structsmooth.tasks.alignment import Alignment as Alignment
    from structsmooth.tasks.localization import Localization as Localization
    from structsmooth.tasks.multilabel import Multilabel as Multilabel
    from structsmooth.tasks.ocr import OCR as OCR
    from structsmooth.tasks.parsing import Parsing as Parsing
    from structsmooth.tasks.pose import Pose as Pose
    from structsmooth.tasks.scenes import Scenes as Scenes
    from structsmooth.tasks.segmentation import Segmentation as Segmentation
    from structsmooth.tasks.segments import Segments as Segments
    from structsmooth.tasks.text.chunking import Chunking as Chunking
    from structsmooth.tasks.text.ner import NER as NER
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "structsmooth.tasks.alignment": "Alignment",
            "structsmooth.tasks.localization": "Localization",
            "structsmooth.tasks.multilabel": "Multilabel",
            "structsmooth.tasks.ocr": "OCR",
            "structsmooth.tasks.parsing": "Parsing",
            "structsmooth.tasks.pose": "Pose",
            "structsmooth.tasks.scenes": "Scenes",
            "structsmooth.tasks.segmentation": "Segmentation",
            "structsmooth.tasks.segments": "Segments",
            "structsmooth.tasks.text.chunking": "Chunking",
            "structsmooth.tasks.text.ner": "NER",
        },
        others="FittedTask Task TASKS load_task",
    )


TASKS = {
    "ner": "structsmooth.tasks.text.ner:NER",
    "chunking": "structsmooth.tasks.text.chunking:Chunking",
    "ocr": "structsmooth.tasks.ocr:OCR",
    "segmentation": "structsmooth.tasks.segmentation:Segmentation",
    "scenes": "structsmooth.tasks.scenes:Scenes",
    "multilabel": "structsmooth.tasks.multilabel:Multilabel",
    "alignment": "structsmooth.tasks.alignment:Alignment",
    "localization": "structsmooth.tasks.localization:Localization",
    "pose": "structsmooth.tasks.pose:Pose",
    "parsing": "structsmooth.tasks.parsing:Parsing",
    "segments": "structsmooth.tasks.segments:Segments",
}


def load_task(name: str) -> type[Task]:
    """The class of a task: a name from ``TASKS``, or ``package.module:ClassName`` for a task of your own.

    The module of such a task is imported, which executes it: give names that you trust, not those of files.

    Raises:
        ValueError: an unknown task, with what to do.
    """
    module, _, attribute = TASKS.get(name, name).partition(":")
    if not attribute:
        asked = f"unknown task {name!r}{suggestion(name, TASKS)}"
        raise ValueError(f"{asked}: expected one of {', '.join(TASKS)}, or package.module:ClassName")
    if name not in TASKS and "" not in sys.path:
        sys.path.insert(0, "")  # a user's own module may be in the working directory
    try:
        task = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"task {name!r} cannot be imported: {error}") from error
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise ValueError(f"task {name!r} must be a subclass of structsmooth.tasks.Task")
    return task
