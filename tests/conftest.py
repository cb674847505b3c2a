"""Settings of all tests: random instances are the same in every run, and torch uses one thread.

Tests are of two suites. That of every change has the first two seeds of each test, each value of each other parameter
and few random instances; the long one has all others, what is marked as long, and what long.txt leaves to it.

Tensors in tests are small: threads would only wait for each other, which takes long on a busy machine. A test that is
about threads asks for them. OMP_NUM_THREADS sets another number for all tests.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
import torch
from hypothesis import settings

from scripts.shared.networks import why_not

settings.register_profile("short", derandomize=True, deadline=None, max_examples=8)
settings.register_profile("long", settings.get_profile("short"), max_examples=50)
LONG = Path(__file__).with_name("long.txt")
# A test of more combinations of parameters has so many in the suite of every change, others than its neighbours have.
_MOST = 16
_THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
torch.set_num_threads(_THREADS)


def pytest_configure(config: pytest.Config) -> None:
    """Before tests are imported, whose random instances take the settings of that moment."""
    settings.load_profile("short" if config.option.markexpr == "not long" else "long")


@pytest.hookimpl(tryfirst=True)  # before marks are selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More seeds, and most combinations of other parameters, are for the long suite."""
    cases = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        if isinstance(item, pytest.Function):
            seed = item.callspec.params.get("seed", 0) if hasattr(item, "callspec") else 0
            if isinstance(seed, int) and seed >= 2:
                item.add_marker(pytest.mark.long)
            elif item.get_closest_marker("long") is None:
                cases[item.nodeid.partition("[")[0]].append(item)
    listed = (line.split() for line in LONG.read_text().splitlines() if not line.startswith("#"))
    most = {f"tests/{test}": int(count) for count, test in listed}
    for test, some in cases.items():
        # In an order that has nothing to do with the parameters, so that different values meet.
        some.sort(key=lambda item: crc32(item.nodeid.encode()))
        kept = some if len(some) <= _MOST else [*_cover(some)]
        for item in {*some} - {*kept[: most.get(test, _MOST)]}:
            item.add_marker(pytest.mark.long)


def _cover(items: list[pytest.Function]) -> Iterator[pytest.Function]:
    """As many items as a test needs so that each value of each of its parameters occurs."""
    met = set[tuple[str, object]]()
    for item in items:
        values = {*map(_identity, item.callspec.params.items())}
        if values - met:
            yield item
        met |= values


def _identity(parameter: tuple[str, object]) -> tuple[str, object]:
    name, value = parameter
    return name, value if isinstance(value, (str, int, float, type(None))) else id(value)


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made but not rendered, which takes longer than all else in a small run."""

    def leave_blank(_: object, place: object, **__: object) -> None:
        if isinstance(place, (str, Path)):
            Path(place).touch()

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", leave_blank)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads for a test, which may itself set any number."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(_THREADS)


@pytest.fixture(scope="session")
def networks() -> None:
    """Networks of namespaces, which this machine can make; else the test is skipped, with the reason."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
