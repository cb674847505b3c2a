"""Calls that must be refused, by their names: each with the error that it raises and a pattern of the message."""

from collections.abc import Callable

import pytest

Refusals = dict[str, tuple[Callable[[], object], type[Exception], str]]


def refusing(cases: Refusals) -> Callable[[str], None]:
    """The test that every call is refused."""

    @pytest.mark.parametrize("name", cases)
    def test_refuses(name: str) -> None:
        call, error, message = cases[name]
        with pytest.raises(error, match=message):
            call()

    return test_refuses
