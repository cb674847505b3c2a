"""Kernels as torch operators."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, library


def operator(name: str, schema: str, device: str = "default") -> Callable[[Callable[..., Any]], Any]:
    """Register a function of tensors, which it does not change, as the operator ``structsmooth::name``.

    The same as ``torch.library.custom_op``, except that its first call does not import the machinery of
    ``torch.compile``, which takes seconds and 200 MB.

    Args:
        name: what the operator is called.
        schema: its types, such as ``"(Tensor x, int k) -> (Tensor, Tensor)"``.
        device: of the tensors that it takes, such as ``"cpu"``; any by default.
    """

    def register(function: Callable[..., Any]) -> Any:
        qualified = f"structsmooth::{name}"
        library.define(qualified, schema, tags=torch.Tag.pt2_compliant_tag)
        library.impl(qualified, device, _opaque(function))
        return getattr(torch.ops.structsmooth, name).default

    return register


cpu_operator = functools.partial(operator, device="cpu")


def _opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, closed to ``torch.compile`` if that is in use."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if "torch._dynamo" in sys.modules:
            return torch.compiler.disable(function)(*arguments)
        return function(*arguments)

    return call


def weighted_sum(weights: Sequence[Tensor | None], statistics: Sequence[Tensor]) -> Tensor:
    """⟨weights, statistics⟩, where gradients that autograd leaves out are zero: its gradient is a Hessian product."""
    products = [(w * m).sum() for w, m in zip(weights, statistics, strict=True) if w is not None]
    return torch.stack(products).sum()
