"""The parts of a checkpoint for another number of processes than those that saved them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from structsmooth import processes
from structsmooth.checkpoint import load_state
from structsmooth.history import History, Row
from structsmooth.problems import Problem
from structsmooth.solvers import Solver, State
from structsmooth.solvers.state import Partitioning


class _Piece(NamedTuple):
    """Some blocks of a part of a checkpoint; ``None`` if a process needs none of that part."""

    state: State | None
    history: History


def history_of(values: Mapping[str, Any]) -> History:
    """The history that a checkpoint has beside tensors."""
    return History(map(Row.from_dict, values["history"]))


def rearranged(
    solver: Solver[Any], problem: Problem, files: Mapping[int, Path], saved: Sequence[int]
) -> tuple[State, History]:
    """State and history for the blocks that this process has now, of the parts that other processes saved.

    Blocks are known by their places among those of all processes, which stay the same. A process gets the blocks that
    it needs of one part after the other, from a process that has the file.

    Args:
        solver: whose states are partitioned.
        problem: over the examples that this process has now.
        files: the parts that this process has, by number.
        saved: number of blocks of each part.

    Raises:
        ValueError: the parts have other blocks than the problem.
    """
    assert isinstance(solver, Partitioning)
    wanted = processes.gathered(solver.blocks_of(problem))
    if sum(wanted) != sum(saved):
        raise ValueError(
            f"the checkpoint is of {sum(saved)} blocks, and the data have {sum(wanted)}: "
            "resume with the data that it was made with"
        )
    found: list[_Piece] = []
    for number, place in enumerate(_places(saved)):
        overlaps = [_common(place, place_now) for place_now in _places(wanted)]
        own: dict[tuple[int, int], Callable[[], _Piece]] = {}
        if number in files:
            own = {
                (number, process): partial(_piece, solver, problem, files[number], blocks)
                for process, blocks in enumerate(overlaps)
            }
        found.append(processes.delivered((number, processes.rank()), own))
    states = [piece.state for piece in found if piece.state is not None]
    state: State = processes.run_on_all_ranks(lambda: solver.assembled(problem, states))
    return state, found[0].history


def _places(counts: Sequence[int]) -> list[range]:
    """Where the blocks of each process are among those of all."""
    return [range(*bounds) for bounds in pairwise(accumulate(counts, initial=0))]


def _common(saved: range, wanted: range) -> range:
    """The blocks in both, numbered from the first that was saved."""
    begin, end = max(saved.start, wanted.start), min(saved.stop, wanted.stop)
    return range(begin - saved.start, max(begin, end) - saved.start)


def _piece(solver: Solver[Any], problem: Problem, file: Path, blocks: range) -> _Piece:
    """Some blocks of a part of a checkpoint that is in a file."""
    tensors, values = load_state(file)
    history = history_of(values)
    if not blocks:
        return _Piece(None, history)
    assert isinstance(solver, Partitioning)
    return _Piece(solver.part(problem, solver.state_type.joined(tensors, values["state"]), blocks), history)
