"""Training examples of hosts of which each has files of its own."""

from collections.abc import Sequence
from socket import gethostname
from typing import Any

from structsmooth import processes
from structsmooth.tasks.base import FittedTask, Task
from structsmooth.tasks.text.own import one_form
from structsmooth.tasks.text.tagging import Tagging
from structsmooth.text import conll
from structsmooth.text.corpus import Corpus
from structsmooth.text.documents import TRAINING

_NAME = "the data of all hosts"


def read_host(task: Task, path: str) -> Sequence[Any]:
    """Examples of this process, of those that its host has at a path: its other processes have the others.

    Every process that joined calls it.

    Raises:
        ValueError: as for :meth:`Task.read`, or fewer examples, or texts, than processes of the host; in all processes.
        OSError: a file that some process cannot read.
    """

    def read() -> Sequence[Any]:
        if isinstance(task, Tagging):  # whole texts belong to a process
            return task.read(path, "train", processes.host_share)
        with processes.alone():  # the others have no part in what is computed for files of this host
            examples = task.read(path, "train")
        return [examples[i] for i in processes.host_share(len(examples))]

    return processes.run_on_all_ranks(read)


def joined(own: Sequence[Any]) -> Sequence[Any]:
    """The examples of all processes in order of rank, of which each gives its own. Every process calls it.

    Raises:
        ValueError: texts of several forms.
    """
    if isinstance(own, Corpus):
        return conll.joined(_NAME, _hosts(), processes.gathered(own), TRAINING)
    return processes.concatenated(own)


def fit_joined(task: Task, own: Sequence[Any]) -> tuple[FittedTask, Sequence[Any]]:
    """The task with the features and labels of all processes' own examples, and these. Every process calls it.

    Sentences stay where they are; other examples go to all processes, which drop them then.

    Raises:
        ValueError: as for :meth:`Task.fit`, or texts of several forms.
    """
    if isinstance(task, Tagging):
        corpus = one_form(Corpus.of(own), _NAME, _hosts())
        return task.fit(corpus, processes.gathered), corpus
    return task.fit(joined(own)), own


def _hosts() -> list[str]:
    """The host of each process."""
    return [f"on {name}" for name in processes.gathered(gethostname())]
