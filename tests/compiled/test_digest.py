"""Digests tell apart what machine code depends on."""

import pytest

from structsmooth.compiled.digest import digest

SOMETHING = object()


def test_what_cannot_be_described_is_refused() -> None:
    def function() -> object:
        return SOMETHING

    with pytest.raises(TypeError, match="machine code depends on <object object"):
        digest(function)  # type: ignore[arg-type]


def test_values_of_closures_count() -> None:
    def adds(number: float) -> str:
        return digest(lambda x: x + number)  # type: ignore[arg-type]

    assert adds(1.0) == adds(1.0)
    assert adds(1.0) != adds(2.0)
