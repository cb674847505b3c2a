"""Label maps as stretches of equal pixels."""

import numpy as np
import pytest

from structsmooth.tasks.images import stretches, unrolled


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8])
@pytest.mark.parametrize(
    ("pixels", "lengths"),
    [
        ([[0, 0], [0, 0]], [4]),
        ([[1, 1], [1, 1]], [4]),
        ([[1, 0], [0, 1]], [1, 2, 1]),
        ([[0, 1, 1], [1, 0, 0]], [1, 3, 2]),
    ],
)
def test_stretches_go_row_by_row_and_back(pixels: list[list[int]], lengths: list[int], dtype: type) -> None:
    labels = np.array(pixels, dtype)
    values, found = stretches(labels)
    assert found.tolist() == lengths
    assert (values[1:] != values[:-1]).all()
    again = unrolled(values, found, labels.shape)
    assert again.dtype == labels.dtype
    np.testing.assert_array_equal(again, labels)
