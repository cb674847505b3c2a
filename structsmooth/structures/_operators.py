"""Kernels as torch operators."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import library


def cpu_operator(name: str, schema: str) -> Callable[[Callable[..., Any]], Any]:
    """Register a function of CPU tensors, which it does not change, as the operator ``structsmooth::name``.

    The same as ``torch.library.custom_op``, except that its first call does not import the machinery of
    ``torch.compile``, which takes seconds and 200 MB.

    Args:
        name: what the operator is called.
        schema: its types, such as ``"(Tensor x, int k) -> (Tensor, Tensor)"``.
    """

    def register(function: Callable[..., Any]) -> Any:
        qualified = f"structsmooth::{name}"
        library.define(qualified, schema, tags=torch.Tag.pt2_compliant_tag)
        library.impl(qualified, "cpu", _opaque(function))
        return getattr(torch.ops.structsmooth, name).default

    return register


def _opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, closed to ``torch.compile`` if that is in use."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if "torch._dynamo" in sys.modules:
            return torch.compiler.disable(function)(*arguments)
        return function(*arguments)

    return call
