"""Loops over a batch are shared between threads if they are long enough."""

import pytest

from structsmooth.compiled.threads import over_batch


@pytest.mark.usefixtures("two_threads")
def test_large_batches_are_shared_between_threads() -> None:
    ranges: list[tuple[int, int]] = []
    over_batch(lambda *bounds: ranges.append(bounds), 65, 10**7)
    assert sorted(ranges) == [(0, 32), (32, 65)]
    ranges.clear()
    over_batch(lambda *bounds: ranges.append(bounds), 65, 1000)
    assert ranges == [(0, 65)]


@pytest.mark.usefixtures("two_threads")
def test_an_error_in_a_thread_reaches_the_caller() -> None:
    def fail(begin: int, end: int) -> None:
        if begin > 0:
            raise MemoryError

    with pytest.raises(MemoryError):
        over_batch(fail, 65, 10**7)
