"""What the machine code of a function depends on: its own code, and that of all functions that it can reach."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

# How all functions are compiled.
_RULES = b"".join((Path(__file__).parent / name).read_bytes() for name in ("jit.py", "library.py"))
_PACKAGE = __name__.partition(".")[0]
_PLAIN = (bool, int, float, complex, str, bytes, tuple, np.generic, np.dtype)


def digest(function: FunctionType) -> str:
    """A text that is the same as long as the machine code is, wherever the function stands in its file.

    Functions are followed through the globals and closures that their code names; other values become constants of
    machine code. The code is the one that was imported, even if its file has changed since.

    Raises:
        TypeError: a function uses a value that cannot be described, such as an object of a class.
    """
    text = hashlib.sha256(_RULES)
    for caller in reached(function):
        text.update(repr([_name(caller), caller.__defaults__, *_instructions(caller.__code__)]).encode())
        for name, value in _named_values(caller):
            callee = _function_behind(value)
            meaning = _described(value) if callee is None else (_name(callee), _options(value))
            text.update(repr((name, meaning)).encode())
    return text.hexdigest()


def reached(function: FunctionType) -> list[FunctionType]:
    """The function itself, and the functions of this package that it may call, directly or through others."""
    found = [function]
    for caller in found:
        callees = [_function_behind(value) for _, value in _named_values(caller)]
        found += [callee for callee in dict.fromkeys(callees) if callee is not None and callee not in found]
    return found


def _function_behind(value: Any) -> FunctionType | None:
    """The function of this package that was compiled, or that generates machine code; ``None`` for other values."""
    for attribute in ("py_func", "_defn"):  # of numba's dispatchers and intrinsics
        value = getattr(value, attribute, value)
    return value if isinstance(value, FunctionType) and value.__module__.partition(".")[0] == _PACKAGE else None


def _options(callee: Any) -> list[str]:
    """How a function is compiled, by its decorator."""
    options = getattr(callee, "targetoptions", {})  # which intrinsics do not have
    compiler = getattr(getattr(callee, "_compiler", None), "pipeline_class", None)
    return [repr(compiler), *(repr((name, sorted(v) if isinstance(v, set) else v)) for name, v in options.items())]


def _named_values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    yield from (
        (name, function.__globals__[name]) for name in _names(function.__code__) if name in function.__globals__
    )
    cells = function.__closure__ or ()
    yield from ((name, cell.cell_contents) for name, cell in zip(function.__code__.co_freevars, cells, strict=True))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _instructions(code: CodeType) -> Iterator[str]:
    yield repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        else:
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _described(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, np.ndarray):
        return repr((value.dtype, value.shape, value.tobytes()))
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    if hasattr(value, "__qualname__"):  # functions of other packages, types; named tuples have fields
        return repr((_name(value), getattr(value, "_fields", ())))
    raise TypeError(f"machine code depends on {value!r}, of which nothing says whether it has changed")


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"
