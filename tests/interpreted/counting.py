"""Where kernels are tested; their launches, and the bytes that they load and store, counted in the interpreter."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"

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
