"""Operators as tracing sees them, beside what they give."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map_only

from structsmooth.structures import transforms


@contextmanager
def traced() -> Iterator[set[str]]:
    """Operators of the library that run are traced, too: with the right shapes and dtypes, and open sizes stay open.

    What comes of it is their names.
    """
    names, call = set[str](), OpOverload.__call__

    def trace(operator: OpOverload, arguments: Any, sizes: ShapeEnv | None) -> Any:
        detached = tree_map_only(Tensor, Tensor.detach, arguments)
        with FakeTensorMode(shape_env=sizes) as mode:
            return call(operator, *tree_map_only(Tensor, mode.from_tensor, detached))

    def checked(operator: OpOverload, *arguments: Any, **options: Any) -> Any:
        found = call(operator, *arguments, **options)
        if operator.namespace == "structsmooth":
            names.add(operator.name().partition("::")[2])
            for fake, real in zip(tree_leaves(trace(operator, arguments, None)), tree_leaves(found), strict=True):
                assert (fake.shape, fake.dtype) == (real.shape, real.dtype), operator
            sizes = ShapeEnv(duck_shape=False)
            trace(operator, arguments, sizes)
            # Of pairs, of which some tensors are made, there are always two.
            assert not any(size.is_number and size != 2 for size in sizes.replacements.values()), operator
        return found

    # Without the short way, which does not lead by the operator.
    with (
        patch.object(OpOverload, "__call__", checked),
        patch.object(transforms, "PLAIN", ()),
    ):
        yield names
