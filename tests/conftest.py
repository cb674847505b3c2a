"""Settings of all tests: random instances are the same in every run, and torch uses one thread.

Tensors in tests are small: threads would only wait for each other, which takes long on a busy machine. A test that is
about threads asks for them. OMP_NUM_THREADS sets another number for all tests.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("repeatable")
_THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
torch.set_num_threads(_THREADS)


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made but not rendered, which takes longer than all else in a small run."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, path, **__: Path(path).touch())


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads for a test, which may itself set any number."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(_THREADS)
