"""What a search trains and measures on: folds of cross-validation that keep texts whole, or development data."""

from argparse import Namespace
from collections.abc import Sequence
from itertools import pairwise

import torch

from structsmooth.cli.data import HeldOut, identity, read_examples
from structsmooth.messages import stage
from structsmooth.problems import Problem
from structsmooth.tasks import FittedTask, Task, load_task


class Splits:
    """Training and held-out data: folds of the training data, or the training data and the development data."""

    def __init__(self, options: Namespace) -> None:
        if options.dev is not None and (options.train is None or options.folds is not None):
            raise ValueError("--dev needs --train, and takes the place of --folds")
        if options.folds is not None and options.folds < 2:
            raise ValueError(f"--folds must be at least 2, got {options.folds}")
        self.train = options.train or load_task(options.task).default_files()["train"]
        self.dev, self.count, self.seed = options.dev, 5 if options.folds is None else options.folds, options.seed
        self.names = ["dev"] if self.dev else [f"fold-{i + 1}" for i in range(self.count)]
        self.files = identity({"train": self.train} | ({"dev": self.dev} if self.dev else {}))
        self.files |= {} if self.dev else {"folds": self.count}
        self._task: Task | None = None
        self._made: dict[str, tuple[FittedTask, Problem, HeldOut]] = {}

    def of(self, task: Task, name: str) -> tuple[FittedTask, Problem, HeldOut]:
        """The task fitted to the training data of a split, its problem, and held-out data; the last task's are kept."""
        if task != self._task:
            self._task, self._made = task, {}
            self._examples = read_examples(task, self.train, "train")
            self._folds = (
                [] if self.dev else folds(task.texts(self._examples), len(self._examples), self.count, self.seed)
            )
        if name not in self._made:
            with stage(f"encoding {name}"):
                self._made[name] = self._split(task, name)
        return self._made[name]

    def _split(self, task: Task, name: str) -> tuple[FittedTask, Problem, HeldOut]:
        if self.dev:
            fitted = task.fit(self._examples)
            return fitted, fitted.problem(self._examples), HeldOut(fitted.read(self.dev, "dev"))
        out = self._folds[self.names.index(name)]
        left = set(range(len(self._examples))) - set(out)
        kept = [self._examples[i] for i in sorted(left)]
        fitted = task.fit(kept)
        return fitted, fitted.problem(kept), HeldOut(fitted.examples([self._examples[i] for i in out]))


def folds(texts: Sequence[int] | None, n: int, count: int, seed: int) -> list[list[int]]:
    """Divide examples 0 to n - 1 into folds of about equal size; within each, they keep their order.

    Texts are dealt out whole, in random order, the largest first. Without texts, folds are blocks of neighbours.

    Args:
        texts: number of the text of each example, if it is known: [n].
        n: number of examples.
        count: number of folds.
        seed: same seed, same folds.

    Raises:
        ValueError: fewer than two folds, or more folds than texts.

    Example:
        >>> folds(None, 5, 2, 0)
        [[0, 1], [2, 3, 4]]
    """
    names = sorted(set(texts)) if texts is not None else range(n)
    if not 2 <= count <= len(names):
        kind = "examples" if texts is None else "texts"
        raise ValueError(f"--folds must be from 2 to the number of {kind}, {len(names)}, got {count}")
    if texts is None:
        bounds = [n * i // count for i in range(count + 1)]
        return [list(range(*pair)) for pair in pairwise(bounds)]
    members: dict[int, list[int]] = {name: [] for name in names}
    for example, name in enumerate(texts):
        members[name].append(example)
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).tolist()
    dealt: list[list[int]] = [[] for _ in range(count)]
    # Sorting is stable: of texts of one size, the order is the random one.
    for name in sorted((names[i] for i in order), key=lambda name: -len(members[name])):
        min(dealt, key=len).extend(members[name])
    return [sorted(fold) for fold in dealt]
