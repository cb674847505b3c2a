"""Values as plain JSON, and back: what a file says becomes values of declared types, or is refused by name."""

import base64
import zlib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from torch import Tensor

from structsmooth.files import decoding, size_limit
from structsmooth.settings import check_choice, check_number

PACKED = {"packed": True}
"""Metadata of the field of a dataclass: an array that is compressed text as plain JSON."""


def plain(value: Any) -> Any:
    """A value as plain JSON: dataclasses by their fields, or by a ``to_dict`` of their own; arrays as lists.

    Example:
        >>> plain({"shape": (2, 3), "colours": np.zeros((1, 3), np.uint8)})
        {'shape': [2, 3], 'colours': [[0, 0, 0]]}
    """
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {f.name: (_packed if f.metadata == PACKED else plain)(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray | Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


def from_plain(hint: Any, value: Any, name: str) -> Any:
    """The value of a declared type that :func:`plain` gave, or something else that JSON may hold.

    Args:
        hint: a type of JSON, an array of a dtype, a dataclass, or choices, lists, tuples and mappings of them; a
            dataclass is read by the types of its fields, or by a ``from_dict`` of its own.
        value: plain JSON of any origin.
        name: of the value, for messages.

    Raises:
        TypeError: a value of another type.
        ValueError: a number out of bounds, an unknown or missing entry, or what a dataclass refuses.

    Example:
        >>> from_plain(tuple[int, ...], [2, 3], "shape")
        (2, 3)
        >>> from_plain(list[str], ["a", 3], "labels")
        Traceback (most recent call last):
            ...
        TypeError: labels[1] must be of type str, got int
    """
    kind, *bounds = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    origin, options = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return _union(options, value, name)
    if origin is Literal:
        check_choice(name, value, options)
        return value
    if bounds:
        value = check_number(name, value, *bounds, integer=kind is int)
    if origin is np.ndarray:
        return _array(value, get_args(options[1])[0], name)
    if is_dataclass(origin):
        return _instance(origin, value, name)
    if hasattr(origin, "_fields"):  # a named tuple
        return origin(*from_plain(tuple[tuple(get_type_hints(origin).values())], value, name))  # type: ignore[misc]
    # JSON writes 1.0 as 1 in other languages; True is no number, hence ``type`` and not ``isinstance``.
    if origin is float and type(value) is int:
        value = float(value)
    # Arrays of numpy and tensors, to which such numbers go, have 64 bits.
    if origin is int and type(value) is int and abs(value) >= 1 << 63:
        raise ValueError(f"{name} must be a number of 64 bits, got {value}")
    expected = list if origin is tuple else origin
    if origin is not Any and type(value) is not expected:
        raise TypeError(f"{name} must be of type {expected.__name__}, got {type(value).__name__}")
    if origin is dict and options:
        return {key: from_plain(options[1], one, f"{name}.{key}") for key, one in value.items()}
    return _sequence(origin, options, value, name) if origin in (list, tuple) and options else value


def check_entries(name: str, entries: Mapping[str, Any], known: Collection[str], needed: Collection[str] = ()) -> None:
    """Raise ``ValueError`` for entries that are not known, or missing ones."""
    if unknown := [entry for entry in entries if entry not in known]:
        raise ValueError(f"{name} has unknown entries: {', '.join(unknown)}")
    if missing := [entry for entry in needed if entry not in entries]:
        raise ValueError(f"{name} lacks {', '.join(sorted(missing))}")


def is_needed(field: Field[Any]) -> bool:
    """Whether a field of a dataclass has no default."""
    return field.default is MISSING and field.default_factory is MISSING


def _union(options: tuple[Any, ...], value: Any, name: str) -> Any:
    """The value of the first of several types that has it; the error is that of the last one."""
    *others, last = (option for option in options if option is not NoneType)
    if value is None and NoneType in options:
        return None
    for option in others:
        try:
            return from_plain(option, value, name)
        except (TypeError, ValueError):  # noqa: PERF203 - few types
            continue
    return from_plain(last, value, name)


def _sequence(origin: Any, options: tuple[Any, ...], values: list[Any], name: str) -> Any:
    if origin is list and {*map(type, values)} == {*options}:  # the usual case, in one step
        return values
    hints = options if origin is tuple and options[-1] is not ... else options[:1] * len(values)
    if len(values) != len(hints):
        raise ValueError(f"{name} must have {len(hints)} entries, got {len(values)}")
    return origin(from_plain(*pair, f"{name}[{i}]") for i, pair in enumerate(zip(hints, values, strict=True)))


def _instance(cls: Any, value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must have named entries, got {type(value).__name__}")
    if "from_dict" in vars(cls):
        return cls.from_dict(value)
    hints = get_type_hints(cls, include_extras=True)
    check_entries(name, value, [f.name for f in fields(cls)], [f.name for f in fields(cls) if is_needed(f)])
    read = {f.name: _unpacked if f.metadata == PACKED else from_plain for f in fields(cls)}
    return cls(**{key: read[key](hints[key], one, f"{name}.{key}") for key, one in value.items()})


def _packed(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes())).decode("ascii")


def _unpacked(hint: Any, text: Any, name: str) -> Any:
    """An array of one dimension, of the dtype that a hint has."""
    data, unpacking = base64.b64decode(from_plain(str, text, name)), zlib.decompressobj()
    with decoding(name, "compressed numbers"):
        array = np.frombuffer(unpacking.decompress(data, size_limit()), get_args(get_args(hint)[1])[0]).copy()
    if not unpacking.eof:
        raise ValueError(f"{name}: unpacks to more than the limit for files, or its end is missing")
    return array


def _array(value: Any, dtype: Any, name: str) -> Any:
    """Numbers in lists as an array; integers must be of its dtype, and other numbers finite."""
    try:
        array = np.array(value)
        kinds = "iu" if np.dtype(dtype).kind in "iu" else "iuf"
        converted = array.astype(dtype) if array.size == 0 or array.dtype.kind in kinds else None
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be an array of numbers ({error})") from error
    if converted is None or not np.isfinite(converted).all() or (kinds == "iu" and (converted != array).any()):
        raise ValueError(f"{name} must be an array of numbers of type {np.dtype(dtype).name}")
    return converted
