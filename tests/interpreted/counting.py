"""Where kernels are tested; their launches, and the bytes that they load and store, counted in the interpreter."""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

from structsmooth.compiled import gpu

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"


def each_kernel(first: str, *others: str) -> pytest.MarkDecorator:
    """One kernel in every suite, the others in the long one."""
    return pytest.mark.parametrize("kernel", [first, *(pytest.param(name, marks=pytest.mark.long) for name in others)])


needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="counts what the interpreter does")


@dataclass
class Traffic:
    """Of everything that ran."""

    launches: int = 0
    bytes: int = 0


@contextmanager
def counted() -> Iterator[Traffic]:
    traffic = Traffic()
    launch, load, store = (
        GridExecutor.__call__,
        InterpreterBuilder.create_masked_load,
        InterpreterBuilder.create_masked_store,
    )

    def counting_launch(self: Any, *arguments: Any, **options: Any) -> Any:
        traffic.launches += 1
        return launch(self, *arguments, **options)

    def counting_load(self: Any, pointers: Any, mask: Any, *others: Any, **options: Any) -> Any:
        loaded = load(self, pointers, mask, *others, **options)
        traffic.bytes += int(mask.data.sum()) * loaded.data.itemsize
        return loaded

    def counting_store(self: Any, pointers: Any, value: Any, mask: Any, *others: Any, **options: Any) -> Any:
        traffic.bytes += int(mask.data.sum()) * value.data.itemsize
        return store(self, pointers, value, mask, *others, **options)

    with (
        patch.object(GridExecutor, "__call__", counting_launch),
        patch.object(InterpreterBuilder, "create_masked_load", counting_load),
        patch.object(InterpreterBuilder, "create_masked_store", counting_store),
    ):
        yield traffic


class _Computing(TorchDispatchMode):
    """Operators that compute something, not views, empty tensors or types."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = operator._opname
        if not operator.is_view and not name.startswith(("empty", "new_empty", "promote_types", "detach")):
            self.names.append(name)
        return operator(*args, **(kwargs or {}))


@contextmanager
def computing() -> Iterator[list[str]]:
    with _Computing() as mode:
        yield mode.names


@contextmanager
def failing(kernel: str) -> Iterator[None]:
    """Where the kernel of a name does not launch, of which there has to be one warning."""
    launch = GridExecutor.__call__

    def refusing_launch(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.fn.__name__ == kernel:
            raise ValueError("no such card")
        return launch(self, *arguments, **options)

    with (
        patch.object(GridExecutor, "__call__", refusing_launch),
        patch.object(gpu, "_fallen", set()),
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        yield
    messages = [str(warning.message) for warning in told if "the kernel" in str(warning.message)]
    assert len(messages) == 1
    assert re.match(rf"the kernel \w+\.fused\.{kernel} does not run on .* \(ValueError: no such card\)", messages[0])


@contextmanager
def grids() -> Iterator[dict[str, tuple[int, ...]]]:
    """The grids of kernels, which do not run."""
    found: dict[str, tuple[int, ...]] = {}

    def note(self: Any, *_: Any, **options: Any) -> None:
        found[self.fn.__name__] = self.grid

    with patch.object(GridExecutor, "__call__", note):
        yield found
