"""Programs put together from groups of edges."""

from typing import Any

import numpy as np
import numpy.typing as npt

from structsmooth.structures.programs.program import Integers, Program, narrowed


class ProgramBuilder:
    """Collects edges in groups, each given by arrays that broadcast, and makes a program of them.

    Args:
        scores: number of scores of the program.

    Example:
        A chain of 3 positions and 2 states, whose transitions are scores 0 to 3:

        >>> t, before, after = np.ogrid[1:3, :2, :2]
        >>> builder = ProgramBuilder(scores=4)
        >>> builder.add(head=np.arange(2))  # the first position
        >>> builder.add(head=2 * t + after, left=2 * (t - 1) + before, index=2 * before + after)
        >>> builder.add(head=6, left=[4, 5])
        >>> builder.build()
        Program(7 nodes, 12 edges, 4 scores)
    """

    def __init__(self, scores: int) -> None:
        self.scores = scores
        self._columns: tuple[list[npt.NDArray[np.int32]], ...] = ([], [], [], [])

    def add(
        self, head: Integers, left: Integers = -1, right: Integers = -1, index: Integers = -1, where: Any = True
    ) -> None:
        """Edges, one for each entry of the arrays broadcast to one shape, in the order of memory.

        Args:
            head: the node that each edge leads into.
            left: its first tail; -1 for none.
            right: its second tail; -1 for none.
            index: its score; -1 for none.
            where: booleans, false for the entries that are no edge.
        """
        columns = [narrowed(np.asarray(column)) for column in (head, left, right, index)]
        *columns, kept = np.broadcast_arrays(*columns, where)
        for groups, column in zip(self._columns, columns, strict=True):
            groups.append(column.reshape(-1) if where is True else column[kept.astype(bool)])

    def build(self, roots: Integers | None = None, nodes: int = 1) -> Program:
        """The program of all edges; ``roots`` and ``nodes`` as in :class:`Program`."""
        for groups in self._columns:
            groups[:] = [np.concatenate(groups)]  # a column at a time, as memory bounds the size of programs
        head, left, right, index = (groups[0] for groups in self._columns)
        return Program(head, left, right, index, scores=self.scores, roots=roots, nodes=nodes)
