"""Prediction in engines that give workers batches of records: Ray Data, Spark, Dask, pools of processes."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from structsmooth.tasks.trained import TrainedModel, load

Records = list[dict[str, Any]]
Columns = dict[str, Any]


def batch_predictor(folder: str | Path, column: str) -> "BatchPredictor":
    """What engines such as Ray Data, Spark and Dask call with batches of records, in workers on any machine.

    Args:
        folder: of a trained model, by a path that all workers see.
        column: what has the example of a record, as :meth:`TrainedModel.predict` takes it: for taggers a list of
            words, or a line of text.

    Raises:
        FileNotFoundError: no model in the folder.
        ValueError: a damaged model.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from structsmooth import batch_predictor, train
        >>> from structsmooth.tasks import NER
        >>> with TemporaryDirectory() as folder:
        ...     train(NER(words_only=True), NER.default_files()["train"], passes=3).save(folder)
        ...     predict = batch_predictor(folder, "text")
        ...     predict([{"id": 7, "text": "He left New York"}])[0]["tags"]
        ['O', 'O', 'I-LOC', 'I-LOC']
    """
    _loaded(str(folder))
    return BatchPredictor(str(folder), column)


class BatchPredictor:
    """A function from a batch of records to the same records with their best outputs; see :func:`batch_predictor`.

    It travels to workers as the path of its model, which each process opens once, with the first batch.

    Args:
        folder: of the model.
        column: what has the example of a record.
    """

    def __init__(self, folder: str, column: str) -> None:
        self.folder, self.column = folder, column

    def __call__(self, batch: Any) -> Any:
        """The records with what lines of JSON say of their best outputs: for taggers ``tokens``, ``tags``, ``score``.

        Args:
            batch: a list of records, a dictionary of columns, or a data frame of pandas; the result is of the same
                kind. Its columns must be other than those that are added, but for that of the examples.

        Raises:
            KeyError: records without the column.
            ValueError, TypeError: what is no example, or has no output.
        """
        if isinstance(batch, Mapping):
            return {**batch, **self._columns(list(batch[self.column]))}
        if isinstance(batch, Sequence):
            answers = self.answers([record[self.column] for record in batch])
            return [{**record, **answer} for record, answer in zip(batch, answers, strict=True)]
        return batch.assign(**self._columns(batch[self.column].tolist()))

    def answers(self, values: Sequence[Any]) -> Records:
        """The best outputs of examples with their scores, as plain JSON."""
        model = _loaded(self.folder)
        # Engines keep lists in arrays.
        examples = model.task.examples([v.tolist() if isinstance(v, np.ndarray) else v for v in values])
        best = [ranked[0] for ranked in model.alternatives(examples, 1)]
        pairs = zip(examples, best, strict=True)
        task = model.task
        return [{**task.input_to_json(x), "score": score, **task.output_to_json(y)} for x, (score, y) in pairs]

    def _columns(self, values: Sequence[Any]) -> Columns:
        """Answers by key, in arrays: those of lists have objects, whatever the lengths of the lists."""
        answers, task = self.answers(values), _loaded(self.folder).task
        # Engines ask for all columns of a batch without records, too.
        names = list(answers[0]) if answers else [*task.input_json, "score", task.output_json[0]]
        columns: Columns = {name: np.empty(len(answers), float if name == "score" else object) for name in names}
        for i, answer in enumerate(answers):
            for name in names:
                columns[name][i] = answer[name]
        return columns


@cache
def _loaded(folder: str) -> TrainedModel:
    return load(folder)
