"""Dynamic programs as acyclic hypergraphs."""

import json
import weakref
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from itertools import count
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import library

from structsmooth.structures.checks import is_exporting

T = TypeVar("T")

Integers = npt.ArrayLike

_LARGEST = 2**31 - 2  # of indices in int32, with a slot for what is missing


class Program:
    """An acyclic hypergraph whose derivations are the outputs of a structure.

    Nodes are numbered from 0, and each edge has a head, at most two tails of lower number, and at most one score. The
    value of a node is the sum, over the edges into it, of the score times the values of the tails: the largest one, the
    log-sum-exp or another sum of a semiring. A derivation from a root takes one edge into the root, and again one edge
    into each of its tails. Different derivations from a root must be different outputs.

    A batch of examples shares one program. Smaller examples have a root of their own: if the nodes that they need are
    those of the lowest numbers, they take no more time than they would alone.

    Args:
        head: the node that each edge leads into, integers [E], in any order.
        left: the first tail of each edge, integers [E], or one for all; -1 for none.
        right: the second tail, likewise.
        index: which of the scores each edge has, integers [E], or one for all; -1 for none.
        scores: number of scores, P.
        roots: root nodes, from which examples choose by their size: integers [R], or one. Default: the last node.
        nodes: number of nodes, if some above all heads have no edge into them, and so no derivation.

    Attributes:
        nodes, edges, scores: the numbers N, E and P.
        longest: the largest number of scores in a derivation from a root, M; at least 1.
        depth: the largest number of nodes in a derivation from a root, D.
        handle: its number, by which operators know it in this process.
        recipe: the name of the function that builds it and its arguments; none unless a :func:`cached_program` did.

    Raises:
        ValueError: edges whose tails do not have lower numbers than their heads, or indices that are out of range.

    Example:
        Both ways from 0 to 2, directly or by 1:

        >>> program = Program(head=[0, 1, 2, 2], left=[-1, 0, 1, 0], index=[-1, 0, 1, 2], scores=3)
        >>> program.nodes, program.longest
        (3, 2)
    """

    def __init__(
        self,
        head: Integers,
        left: Integers = -1,
        right: Integers = -1,
        index: Integers = -1,
        *,
        scores: int,
        roots: Integers | None = None,
        nodes: int = 1,
    ) -> None:
        columns = {"head": head, "left": left, "right": right, "index": index}
        heads, lefts, rights, indices = (np.ascontiguousarray(column) for column in _aligned(columns))
        self.edges, self.scores = len(heads), scores
        if not self.edges:
            raise ValueError("head must name at least one edge: a program without edges has no derivation")
        self.nodes = max(nodes, 1 + int(heads.max()))
        ends = np.asarray([self.nodes - 1] if roots is None else roots, dtype=np.int64).reshape(-1)
        _check(heads, lefts, rights, indices, scores, ends, self.nodes)
        from structsmooth.structures.programs import compiled  # numba loads with the first program

        self.arrays = compiled.by_head(heads, lefts, rights, indices, self.nodes, scores)
        self.roots = ends
        self.level, visited, used = compiled.measure(self.arrays, scores)
        self.depth, self.longest = int(visited[ends].max()), max(1, int(used[ends].max()))
        self.handle = next(_numbers)
        self.recipe: tuple[Any, ...] = ()
        _alive[self.handle] = self

    def by_level(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Nodes [N] in the order of levels, and the place [N + 1] of each: 0 is that of a missing tail, the last."""
        order = np.argsort(self.level, kind="stable")
        place = np.zeros(self.nodes + 1, np.int64)
        place[order] = 1 + np.arange(self.nodes)
        return order, place

    def __repr__(self) -> str:
        return f"Program({self.nodes} nodes, {self.edges} edges, {self.scores} scores)"


class SymbolicProgram:
    """A program with sizes that ``torch.export`` leaves open: it is built when the exported program runs.

    Args:
        recipe: as of a :class:`Program`.
    """

    def __init__(self, recipe: tuple[Any, ...]) -> None:
        self.recipe = recipe

    @property
    def handle(self) -> int:
        """There is none yet."""
        raise NotImplementedError(
            f"{self.recipe[0]} builds its program for given sizes, so plain torch is exported with these alone: give "
            'dynamic_shapes to the batch alone, or export with backend="compiled"'
        )


# Operators know programs by numbers, which graphs of torch.compile hold as constants.
_numbers = count()
_alive: "weakref.WeakValueDictionary[int, Program]" = weakref.WeakValueDictionary()
_recipes: dict[int, Callable[[], Program]] = {}
_handles: dict[Callable[..., Program], Callable[..., int]] = {}
_builders: dict[str, Callable[..., Program]] = {}  # by their names in exported graphs


def program_of(handle: int) -> Program:
    """The program of a number; one that a cache has dropped is built again."""
    program = _alive.get(handle)
    if program is None and handle not in _recipes:
        raise ValueError(
            "an exported graph names a dynamic program that was built in another process: build it in a function "
            "marked cached_program, which the exported graph can call by its name"
        )
    return _recipes[handle]() if program is None else program


def sizes_of(handle: int) -> tuple[Any, ...]:
    """The arguments of the :func:`cached_program` that a number stands for, which need not be built."""
    recipe = _recipes.get(handle)
    return recipe.args if isinstance(recipe, partial) else program_of(handle).recipe[1:]


def handles_of(build: Callable[..., Program]) -> Callable[..., int]:
    """The function of sizes that gives the handle of a :func:`cached_program`, and does not build it."""
    return _handles[build]


def longest_derivation(handle: Any) -> int:
    """The largest number of scores in a derivation, M; a symbol for that of a program that is built later."""
    if isinstance(handle, int):
        return program_of(handle).longest
    symbol: Any = library.get_ctx().new_dynamic_size()
    return cast(int, symbol)


def exported_handle(program: Program | SymbolicProgram) -> int:
    """The handle of a program in an exported graph, which builds the program where it runs, if a function can."""
    if not program.recipe:
        return program.handle
    name, *sizes = program.recipe
    known = json.dumps([name, *[None if isinstance(size, torch.SymInt) else size for size in sizes]])
    handle: int = torch.ops.structsmooth.program(known, [size for size in sizes if isinstance(size, torch.SymInt)])
    return handle


library.define("structsmooth::program", "(str recipe, SymInt[] sizes) -> SymInt")


@library.impl("structsmooth::program", "CompositeExplicitAutograd")
def _built(recipe: str, sizes: list[int]) -> int:
    """The handle of the program of a recipe in JSON; ``sizes`` are those of its arguments that are null."""
    (name, *arguments), given = json.loads(recipe), iter(sizes)
    if name not in _builders:  # a file must not choose what is imported
        raise ValueError(f"an exported graph needs the dynamic program {name}: import its module first")
    return _builders[name](*[next(given) if a is None else _hashable(a) for a in arguments]).handle


library.register_fake("structsmooth::program", lambda recipe, sizes: library.get_ctx().new_dynamic_size())


def _hashable(argument: Any) -> Any:
    return tuple(map(_hashable, argument)) if isinstance(argument, list) else argument


def constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function, without loading ``torch.compile``, as one that this calls once with numbers, while it traces."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def kept_on_devices(make: Callable[[Program, torch.device], T]) -> Callable[[int, torch.device], T]:
    """A function of handles and devices that makes something of a program once for each device."""

    def kept(handle: int, device: torch.device) -> T:
        program = program_of(handle)
        made: dict[Any, T] = program.__dict__.setdefault("_made", {})
        if (make, device) not in made:
            # What is kept must not belong to a mode or to a transform of torch.func, which ends.
            with torch.inference_mode(False), torch._C._DisableFuncTorch():
                made[make, device] = make(program, device)
        return made[make, device]

    return constant(wraps(make)(kept))


def cached_program(build: Callable[..., Program]) -> Callable[..., Program]:
    """A function of sizes that builds a program, and remembers those that it has built last.

    Args:
        build: a function of integers, booleans and tuples of them that returns a :class:`Program`.

    Example:
        >>> @cached_program
        ... def steps(length: int) -> Program:
        ...     nodes = np.arange(length)
        ...     return Program(head=nodes, left=nodes - 1, index=nodes, scores=length)
        >>> steps(3) is steps(3)
        True
    """
    handles: dict[tuple[Any, ...], int] = {}

    @lru_cache(maxsize=64)
    def remembered(*sizes: Any) -> Program:
        program = build(*sizes)
        program.handle = handles.setdefault(sizes, program.handle)
        program.recipe = recipe(sizes)
        _alive[program.handle] = program
        _recipes[program.handle] = partial(remembered, *sizes)
        return program

    def handle_of(*sizes: Any) -> int:
        handle = handles.setdefault(sizes, next(_numbers))
        _recipes[handle] = partial(remembered, *sizes)
        return handle

    name = f"{build.__module__}:{build.__qualname__}"

    def recipe(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        return () if "<locals>" in name else (name, *sizes)

    @wraps(build)
    def of_sizes(*sizes: Any) -> Any:
        if is_exporting() and any(isinstance(size, torch.SymInt) for size in sizes):
            return SymbolicProgram(recipe(sizes))
        return remembered(*sizes)

    _builders[name] = constant(of_sizes)
    _handles[_builders[name]] = constant(handle_of)
    return _builders[name]


def narrowed(column: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Numbers of nodes or scores as int32; ``ValueError`` if one is too large for it."""
    if column.size and max(-int(column.min()), int(column.max())) > _LARGEST:
        raise ValueError(f"a program has at most {_LARGEST} nodes, edges and scores")
    return column.astype(np.int32, copy=False)


def _aligned(columns: dict[str, Integers]) -> list[npt.NDArray[np.int32]]:
    """Columns of edges as int32 arrays, broadcast to one length."""
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    for name, array in arrays.items():
        if array.size and array.dtype.kind not in "iu":
            raise TypeError(f"{name} must hold integers, got {array.dtype}")
    edges = arrays["head"].size
    for name, array in arrays.items():
        if array.size not in (1, edges):
            raise ValueError(f"{name} must have one entry for each of {edges} edges, or one for all, got {array.size}")
    return [np.broadcast_to(narrowed(array).reshape(-1), edges) for array in arrays.values()]


def _check(
    head: npt.NDArray[np.int32],
    left: npt.NDArray[np.int32],
    right: npt.NDArray[np.int32],
    index: npt.NDArray[np.int32],
    scores: int,
    roots: npt.NDArray[np.int64],
    nodes: int,
) -> None:
    if max(nodes, scores, len(head)) > _LARGEST:
        raise ValueError(f"a program has at most {_LARGEST} nodes, edges and scores")
    for name, tail in (("left", left), ("right", right)):
        wrong = (tail >= head) | (tail < -1)
        if wrong.any():
            e = int(wrong.argmax())
            raise ValueError(
                f"{name} must be -1 or a node of lower number than the head: edge {e} leads from {tail[e]} to {head[e]}"
            )
    if head.min() < 0:
        raise ValueError(f"head must not be negative, got {head.min()}")
    wrong = (index >= scores) | (index < -1)
    if wrong.any():
        raise ValueError(f"index must be -1 or from 0 to {scores - 1}, got {index[wrong.argmax()]}")
    if not roots.size or roots.min() < 0 or roots.max() >= nodes:
        raise ValueError(f"roots must be nodes from 0 to {nodes - 1}, got {roots.tolist()}")
