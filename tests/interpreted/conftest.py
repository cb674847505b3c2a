"""What Triton's interpreter needs to run kernels as a GPU does."""

from collections.abc import Callable
from typing import Any

import pytest
from interpreted.counting import INTERPRETED


@pytest.fixture(autouse=True)
def boolean_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks become boolean, as compiled kernels have them.

    In Triton 3.9 the interpreter refuses others in loads and stores, and yet makes int32 of the comparison of two
    numbers where it meets a block, as in ``possible & (t > 0)``.
    """
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
