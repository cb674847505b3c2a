"""Segmentations as run lengths."""

import numpy as np
import pytest

from structsmooth.tasks.segmentation.pictures import run_lengths


@pytest.mark.parametrize("mask", [[[0, 0], [0, 0]], [[1, 1], [1, 1]], [[1, 0], [0, 1]], [[0, 1], [1, 0]]])
def test_runs_begin_with_background(mask):
    runs = run_lengths(np.array(mask, bool))
    assert np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(2, 2).tolist() == np.array(mask, bool).tolist()
