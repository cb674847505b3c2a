"""A batch of examples, held as tensors: what structures do with it as objects."""

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from structsmooth.settings import plain_number
from structsmooth.structures.containers import PARAMETERS, TensorFields, register

B = TypeVar("B", bound="Batch")

# Before torch 2.14, neither vars() nor __dict__ is traced in full, only attributes that are named.
_TRACES_VARS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)


class Batch:
    """A batch of B examples: potentials, and further tensors that go with them.

    A subclass names the attributes that hold its potentials in ``potential_names``, further tensors that have a row for
    each example in ``row_names``, and all other attributes in ``field_names``, each beside those of its base classes:
    copies made inside ``torch.compile`` of a torch before 2.14 have the attributes that are named. Batches are pytrees,
    whose leaves are their tensors.
    """

    potential_names: tuple[str, ...] = ()  # an instance may have more than its class, and names them in field_names
    row_names: ClassVar[tuple[str, ...]] = ()
    field_names: ClassVar[tuple[str, ...]] = ()
    _cached: ClassVar[tuple[str, ...]] = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    __dataclass_fields__ = TensorFields()
    __dataclass_params__ = PARAMETERS

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        bases = [vars(base) for base in reversed(cls.__mro__)]
        members = dict(item for base in bases for item in base.items())
        cls._cached = tuple(name for name, member in members.items() if isinstance(member, cached_property))
        kinds = "potential_names", "row_names", "field_names"
        cls._fields = tuple(sorted({name for base in bases for kind in kinds for name in base.get(kind, ())}))
        register(cls)

    @property
    def potentials(self) -> tuple[Tensor, ...]:
        """The tensors that are scored, in the order of ``potential_names``."""
        if not self.potential_names:
            raise NotImplementedError(f"{type(self).__name__} must name its potentials in potential_names")
        return tuple([getattr(self, name) for name in self.potential_names])

    def check_shapes(self) -> None:
        """Raise ``TypeError`` or ``ValueError`` for potentials of a wrong type, shape or device."""

    def __len__(self) -> int:
        return len(self.potentials[0])

    def __getitem__(self: B, index: Any) -> B:
        """Some of the examples, by an index as of a tensor [B]; an integer gives a batch of one example.

        Potentials that all examples share stay shared.

        Raises:
            IndexError: an example that does not exist.
        """
        index = plain_number(index)
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"example {index} of a batch of {len(self)}")
            index = slice(index % len(self), index % len(self) + 1)
        return self._mapped(lambda name, tensor: tensor[index], self._rows())

    def to(self: B, *target: torch.device | torch.dtype | str | int) -> B:
        """The same batch on another device, in another floating point dtype, or both.

        Args:
            target: a device, a dtype, or one of each. Integers and masks keep their dtype.
        """
        dtypes = [t for t in target if isinstance(t, torch.dtype)]
        devices = [t for t in target if not isinstance(t, torch.dtype)]

        def moved(name: str, tensor: Tensor) -> Tensor:
            for device in devices:
                tensor = tensor.to(device)
            for dtype in dtypes if tensor.is_floating_point() else []:
                tensor = tensor.to(dtype)
            return tensor

        batch = self._mapped(moved)
        batch.check_shapes()
        return batch

    def detach(self: B) -> B:
        """The same batch without the history of its tensors: gradients do not flow through it."""
        return self._mapped(lambda name, tensor: tensor.detach())

    def __repr__(self) -> str:
        tensors = [f"{name}: {_summary(t)}" for name, t in self._tensors().items() if not name.startswith("_")]
        return f"{type(self).__name__}({', '.join(tensors)})"

    def _rows(self) -> tuple[str, ...]:
        """Names of the tensors with a row for each example."""
        return self.potential_names + self.row_names

    def attributes(self) -> dict[str, Any]:
        """All attributes by name, but cached properties."""
        if _TRACES_VARS or not torch.compiler.is_compiling():
            return {name: value for name, value in vars(self).items() if name not in self._cached}
        return {name: getattr(self, name) for name in self._fields if hasattr(self, name)}

    def _tensors(self) -> dict[str, Tensor]:
        """All tensors that the batch was made of."""
        return {name: value for name, value in self.attributes().items() if isinstance(value, Tensor)}

    def _mapped(self: B, function: Callable[[str, Tensor], Tensor], names: tuple[str, ...] | None = None) -> B:
        """A copy with other tensors, of the given names or of all."""
        return self._changed(
            {name: function(name, tensor) for name, tensor in self._tensors().items() if names is None or name in names}
        )

    def _changed(self: B, attributes: dict[str, Any]) -> B:
        """A copy with other attributes, without cached properties, which depend on the old ones."""
        batch = self._copy()
        for name, value in attributes.items():
            setattr(batch, name, value)
        return batch

    def _copy(self: B) -> B:
        """A copy without cached properties."""
        if not torch.compiler.is_compiling():
            batch = copy(self)
            for name in self._cached:
                batch.__dict__.pop(name, None)
            return batch
        batch = object.__new__(type(self))
        for name, value in self.attributes().items():
            setattr(batch, name, value)
        return batch


def _summary(tensor: Tensor) -> str:
    """A tensor in the text of a batch: dtype, shape and, away from the CPU, device."""
    device = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}{device}"
