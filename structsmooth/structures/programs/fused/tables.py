"""A program as the tables that kernels read: its edges in rows by head, by tail and by score."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from structsmooth.compiled.gpu import launch
from structsmooth.structures.programs.program import Program, kept_on_devices, program_of

Array = npt.NDArray[Any]

# Nodes and edges that a kernel takes at once, and how it is launched.
TILE = {"NODES": 16, "EDGES": 16, **launch(16 * 16 * 8, 16)}


class Tables(NamedTuple):
    """Int32 tables on a device. Nodes stand at places 1 to N, level by level; 0 is the place of a missing tail."""

    rows: Tensor  # [N + 2]: the edges into each place
    left: Tensor  # [E]: places
    right: Tensor
    head: Tensor
    score: Tensor  # [E]: which of the scores, P for none
    bounds: Tensor  # [L + 1]: the first places of levels
    out_rows: Tensor  # [N + 2]: of ``out_edges``, the edges out of each place
    out_edges: Tensor
    score_rows: Tensor  # [P + 1]: of ``score_edges``, the edges that have each score
    score_edges: Tensor
    places: Tensor  # int64 [R]: those of the roots


@kept_on_devices
def tables_of(program: Program, device: torch.device) -> Tables:
    """The tables of a program, which is given by its handle, on a device, made once."""
    rows, left, right, index = program.arrays
    order, place = program.by_level()
    head = place[np.repeat(np.arange(program.nodes), np.diff(rows))]
    by_head = np.argsort(head, kind="stable")
    head, first, second = head[by_head], place[left[by_head]], place[right[by_head]]
    scores = index[by_head]
    both = np.concatenate([first, second])
    edges = np.tile(np.arange(program.edges), 2)[both > 0]
    out_rows, out = _grouped(both[both > 0], program.nodes + 1)
    used = np.flatnonzero(scores < program.scores)
    score_rows, uses = _grouped(scores[used], program.scores)
    bounds = 1 + np.flatnonzero(np.diff(program.level[order], prepend=0, append=-1))

    columns: list[Array] = [_grouped(head, program.nodes + 1)[0], first, second, head, scores, bounds]
    columns += [out_rows, edges[out], score_rows, used[uses]]
    tensors = [torch.from_numpy(column.astype(np.int32)).to(device) for column in columns]
    return Tables(*[*tensors, torch.from_numpy(place[program.roots]).to(device)])


def _grouped(keys: Array, count: int) -> tuple[Array, Array]:
    """Rows [count + 1] of the entries with each key, and the order that puts them there."""
    rows = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))])
    return rows, np.argsort(keys, kind="stable")


def rooted(root_index: Tensor, handle: int) -> tuple[Tables, Tensor, dict[str, int]]:
    """The tables, the places of the roots [B], and sizes; numbers of roots beyond their range count as the nearest."""
    program, tables = program_of(handle), tables_of(handle, root_index.device)
    roots = tables.places[root_index.clamp(0, len(program.roots) - 1)]
    return tables, roots, {"nodes": program.nodes, "scores": program.scores}
