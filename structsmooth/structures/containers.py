"""Batches as containers of tensors: what lets torch see the tensors of a module's output that is a structure.

``torch.export``, and ``DistributedDataParallel`` with a static graph, look into pytrees. ``find_unused_parameters`` and
``fully_shard`` look into lists, tuples, dictionaries and dataclasses alone, so batches have the fields of a dataclass.
"""

import dataclasses
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

from torch import Tensor
from torch.utils import _pytree as pytree


class Container(Protocol):
    """An object with named attributes, which is copied without calling its constructor."""

    def attributes(self) -> dict[str, Any]:
        """All attributes of the container by name."""
        ...


Context = tuple[tuple[str, ...], dict[str, Any]]


def register(cls: type[Container]) -> None:
    """Make the instances of a class pytrees, whose leaves are those of the attributes that hold tensors."""

    def rebuilt(values: Iterable[Any], context: Context) -> Any:
        names, others = context
        instance = cls.__new__(cls)
        for name, value in (others | dict(zip(names, values, strict=True))).items():
            setattr(instance, name, value)
        return instance

    def with_keys(instance: Container) -> tuple[list[tuple[pytree.KeyEntry, Any]], Context]:
        values, context = _flattened(instance)
        keys = map(pytree.GetAttrKey, context[0])
        return list(zip(keys, values, strict=True)), context

    pytree.register_pytree_node(cls, _flattened, rebuilt, flatten_with_keys_fn=with_keys)


def _flattened(instance: Container) -> tuple[list[Any], Context]:
    """The attributes that hold tensors, and their names with all other attributes."""
    tensors: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in instance.attributes().items():
        kind = tensors if any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value)) else others
        kind[name] = value
    return list(tensors.values()), (tuple(tensors), others)


class TensorFields:
    """``__dataclass_fields__``: for an instance, its attributes that hold tensors; for a class, none to inherit."""

    def __get__(self, instance: Container | None, owner: type) -> dict[str, "dataclasses.Field[Any]"]:
        return {} if instance is None else _fields(_flattened(instance)[1][0])


@lru_cache
def _fields(names: tuple[str, ...]) -> dict[str, "dataclasses.Field[Any]"]:
    """Fields of these names, as the standard library makes them."""
    return {field.name: field for field in dataclasses.fields(dataclasses.make_dataclass("Tensors", names))}


# What the standard library looks up in a base class with fields: nothing is frozen.
PARAMETERS = dataclasses.make_dataclass("Plain", ()).__dataclass_params__  # type: ignore[attr-defined]
