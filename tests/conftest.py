"""Settings of all tests: random instances are the same in every run, and torch uses one thread.

Tests are of two suites. That of every change has the first two seeds of each test and few random instances, the long
one also all others, and what is marked as long.

Tensors in tests are small: threads would only wait for each other, which takes long on a busy machine. A test that is
about threads asks for them. OMP_NUM_THREADS sets another number for all tests.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("short", derandomize=True, deadline=None, max_examples=15)
settings.register_profile("long", settings.get_profile("short"), max_examples=50)
_THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
torch.set_num_threads(_THREADS)


def pytest_configure(config: pytest.Config) -> None:
    """Before tests are imported, whose random instances take the settings of that moment."""
    settings.load_profile("short" if config.option.markexpr == "not long" else "long")


@pytest.hookimpl(tryfirst=True)  # before marks are selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More seeds are for the long suite."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            seed = item.callspec.params.get("seed", 0)
            if isinstance(seed, int) and seed >= 2:
                item.add_marker(pytest.mark.long)


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
