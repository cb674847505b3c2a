"""Predictions of sparse chains, in batches of any lengths."""

import pytest
import torch
from small_problems import random_problem, random_weights
from torch.nn.functional import one_hot

from structsmooth.models.chains import best_labels, chains, label_marginals
from structsmooth.text.schemes import transition_mask


@pytest.mark.parametrize("lengths", [(), (5,), (1,) * 600, (300, 1, 1, 400, 2), (1, 1, 70_000, 1, 1)])
def test_padding_is_bounded_and_changes_nothing(lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(lengths or (1,), states=2)
    sequences, w = problem.sequences.select(torch.arange(len(lengths))), random_weights(problem)
    shapes, select = [], type(sequences).select

    def watched(self, indices):
        batch = select(self, indices)
        shapes.append((len(batch), int(batch.lengths.max())))
        return batch

    monkeypatch.setattr(type(sequences), "select", watched)
    found = best_labels(chains(sequences, w, 2), 2)
    assert [len(ranked[0][1]) for ranked in found] == [*lengths]
    assert all(count == 1 or (count <= 256 and count * longest <= 1 << 16) for count, longest in shapes)
    assert sum(count for count, _ in shapes) == len(lengths)
    shapes.clear()
    monkeypatch.setattr("structsmooth.models.chains._BATCH", 1)
    assert best_labels(chains(sequences, w, 2), 2) == found
    assert len(shapes) == len(lengths)


def test_marginals_are_those_of_all_labellings() -> None:
    problem = random_problem((3, 1, 2), states=2)
    w, mask = random_weights(problem), transition_mask(["O", "B-X"], "BIO")
    for found, ranked in zip(
        label_marginals(chains(problem.sequences, w, 2, mask, 0.5)),
        best_labels(chains(problem.sequences, w, 2, mask, 0.5), 8),
        strict=True,
    ):
        scores = torch.tensor([score for score, _ in ranked], dtype=torch.float64)
        outputs = torch.tensor([labels for _, labels in ranked])
        expected = (scores.softmax(0)[:, None, None] * one_hot(outputs, 2)).sum(0)
        torch.testing.assert_close(found, expected)
