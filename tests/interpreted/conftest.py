"""Masks of kernels in Triton's interpreter, on which 3.9 insists to be boolean while it makes others."""

from collections.abc import Callable
from typing import Any

import pytest
from interpreted.counting import INTERPRETED


@pytest.fixture(autouse=True)
def boolean_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of numbers becomes int32 where it meets a block, and loads and stores refuse that since 3.9."""
    if not INTERPRETED:
        return
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, tl

    def with_boolean_mask(create: Callable[..., Any], place: int) -> Callable[..., Any]:
        def call(builder: Any, *arguments: Any) -> Any:
            found = [*arguments]
            found[place] = TensorHandle(arguments[place].data.astype(bool), tl.int1)
            return create(builder, *found)

        return call

    for name, place in (("create_masked_load", 1), ("create_masked_store", 2)):
        monkeypatch.setattr(InterpreterBuilder, name, with_boolean_mask(getattr(InterpreterBuilder, name), place))
