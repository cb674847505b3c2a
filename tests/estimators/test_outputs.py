"""Predictions of several lengths: numpy joins them as objects, and takes them for lists otherwise."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from structsmooth.estimators.outputs import Outputs

PAIRS, SINGLE = Outputs([["a", "b"], ["c", "d"]]), Outputs([["e"]])


@pytest.mark.parametrize("others", [[SINGLE], [PAIRS], [Outputs(), SINGLE]], ids=["ragged", "equal", "empty"])
def test_outputs_of_folds_are_joined_as_objects(others):
    joined = np.concatenate([PAIRS, *others])
    assert joined.dtype == object
    assert joined.tolist() == [*PAIRS, *(own for other in others for own in other)]
    assert joined[::-1].tolist() == joined.tolist()[::-1]


def test_outputs_are_joined_to_rows_of_arrays():
    joined = np.concatenate([np.arange(4).reshape(2, 2), Outputs([np.arange(3)])])
    assert [own.tolist() for own in joined] == [[0, 1], [2, 3], [0, 1, 2]]


def test_otherwise_they_are_lists():
    assert PAIRS == [["a", "b"], ["c", "d"]]
    assert_array_equal(np.array(PAIRS), np.array(list(PAIRS)))
    assert_array_equal(np.concatenate(PAIRS), ["a", "b", "c", "d"])
    assert_array_equal(np.stack([PAIRS, PAIRS]), np.stack([list(PAIRS)] * 2))
    assert_array_equal(np.concatenate([PAIRS, PAIRS], axis=1), [["a", "b"] * 2, ["c", "d"] * 2])
    assert np.mean(Outputs([1, 3])) == 2
    assert np.shape(a=PAIRS) == (2, 2)
    with pytest.raises(ValueError, match="same shape"):
        np.stack([PAIRS, SINGLE])
