"""A device in Python with numbers of its own, for machines without a GPU: operators refuse tensors of two devices.

Tensors of the device ``card`` are wrappers around tensors of the CPU. An operator whose tensors are all on the card
runs on what they wrap. As on a GPU, single numbers of the CPU and indices may take part, numpy refuses the tensors, and
all others of the CPU are an error.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

_register = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
needs_card = pytest.mark.skipif(_register is None, reason="needs a version of torch with devices in Python")
aten = torch.ops.aten
# Operators that copy from one device to another.
COPIES = {aten.copy_.default, aten._to_copy.default}
# Operators that take indices from the CPU.
INDEXED = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
}


def register() -> None:
    """Tell the engine of gradients of the device, which it learns before its first backward pass, or never."""
    if _register is not None:
        _register("card")


class OnCard(Tensor):
    """A tensor of the card."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OnCard":
        found: OnCard = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device("card", 0),
        )
        found.inner = inner
        return found

    def tolist(self) -> Any:
        return self.inner.tolist()

    def __repr__(self, **_: Any) -> str:
        return f"OnCard({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return on_card(func, args, kwargs or {})


def on_card(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    flat, spec = tree_flatten((args, kwargs))
    tensors = [value for value in flat if isinstance(value, Tensor)]
    here = [value for value in tensors if isinstance(value, OnCard)]
    device = kwargs.get("device")
    if here and func not in COPIES:
        judged = tree_leaves((args[0], args[2:], kwargs)) if func in INDEXED else flat
        if any(isinstance(value, Tensor) and not isinstance(value, OnCard) and value.dim() for value in judged):
            raise RuntimeError(
                f"{func}: tensors on the card and on the CPU, {[tuple(value.shape) for value in tensors]}"
            )
    unwrapped = [value.inner if isinstance(value, OnCard) else value for value in flat]
    inner_args, inner_kwargs = tree_unflatten(unwrapped, spec)
    to_card = here if device is None else torch.device(device).type == "card"
    if device is not None:
        inner_kwargs["device"] = "cpu"
    if func is aten.copy_.default:
        to_card = isinstance(args[0], OnCard)
    found = func(*inner_args, **inner_kwargs)
    if func is aten._to_copy.default and device is not None and not to_card and found is inner_args[0]:
        found = found.clone()
    if not to_card:
        return found
    found = tree_map_only(Tensor, OnCard, found)
    return return_and_correct_aliasing(func, args, kwargs, found)


class _Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return on_card(func, args, kwargs or {})


class _Tensors(TorchFunctionMode):
    """Tensors of numbers of Python are made on the CPU, and copied."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.new_tensor:
            kwargs = {"device": args[0].device, "dtype": args[0].dtype, **kwargs}
            func, args = torch.tensor, args[1:]
        device = kwargs.get("device")
        if func not in {torch.tensor, torch.as_tensor} or device is None or torch.device(device).type != "card":
            return func(*args, **kwargs)
        return func(*args, **{**kwargs, "device": "cpu"}).to(device)


@contextmanager
def card() -> Iterator[torch.device]:
    """The device, on which tensors may be made inside."""
    with _Tensors(), _Operators():
        yield torch.device("card", 0)
