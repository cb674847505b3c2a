"""Batches by functions of users, with outputs and without."""

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from structsmooth.estimators.collating import Collate

PAIRS = [(torch.tensor([float(i), float("nan")]), torch.tensor(i % 2)) for i in range(4)]
INPUTS, OUTPUTS = map(list, zip(*PAIRS, strict=True))


def apart(X, y=None):
    return torch.stack(X), y


@pytest.mark.parametrize("function", [None, default_collate, apart, lambda pairs, pad=0: default_collate(pairs)])
def test_inputs_are_those_of_training(function):
    collate = Collate(function, OUTPUTS)
    x, y = collate(PAIRS)
    torch.testing.assert_close(x, torch.stack(INPUTS), equal_nan=True)
    assert torch.stack(list(y)).equal(torch.stack(OUTPUTS))
    for check in (False, True):
        torch.testing.assert_close(collate.inputs(INPUTS, check=check), x, equal_nan=True)


@pytest.mark.parametrize(
    "leak",
    [
        lambda y: y,
        lambda y: (1, [y, "text"]),
        lambda y: {"labels": y},
        lambda y: float(y),
        lambda y: torch.zeros(1 + int(y)),
        lambda y: [None] * int(y),
        lambda y: None if y else "text",
    ],
)
def test_inputs_that_depend_on_outputs_are_noticed(leak):
    collate = Collate(lambda pairs: (leak(pairs[0][1]), None), OUTPUTS)
    collate.inputs(INPUTS)
    with pytest.raises(ValueError, match="collate must give the same inputs whatever the outputs are"):
        collate.inputs(INPUTS, check=True)


@pytest.mark.parametrize("outputs", [[np.zeros(2), np.ones(2), np.zeros(3)], [np.zeros(2), np.zeros(3)]])
def test_outputs_of_another_shape_stand_in_first(outputs):
    seen = []
    Collate(lambda pairs: (0, seen.append(len(pairs[0][1]))), outputs).inputs(INPUTS, check=True)
    assert seen == [2, 3]
    seen.clear()
    Collate(lambda pairs: (0, seen.append(len(pairs[0][1]))), outputs[:1] * 3).inputs(INPUTS, check=True)
    assert seen == [2], "there is no other"
