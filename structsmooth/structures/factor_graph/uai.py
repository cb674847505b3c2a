"""Graphs in files of the UAI competitions (``MARKOV``), which solvers such as toulbar2, libDAI and merlin exchange."""

from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.files import read_text
from structsmooth.messages import located
from structsmooth.structures.factor_graph.exact import sizes_of
from structsmooth.structures.factor_graph.factors import Factor, Table
from structsmooth.structures.factor_graph.graph import FactorGraph
from structsmooth.structures.factor_graph.layout import Tables

# Of the values of a file, exp and log of scores; and the entries of a table that is padded, or written.
_LARGEST_SCORE = 700.0
_MOST_ENTRIES = 2**26

Scope = tuple[int, ...]
Array = NDArray[np.float64]


def read_uai(
    path: str | Path, evidence: str | Path | None = None, *, max_table: int = 2**21, max_sets: int = 100_000
) -> FactorGraph:
    """The graph of a file in the format UAI, with the logarithms of its tables as scores, in float64; B = 1.

    Zeros are -inf, and so are states that a variable lacks. Tables of the same variables are added up; those of more
    than two are :class:`Table` factors. ``graph.max()`` is the most probable explanation (MPE), and
    ``graph.logsumexp()`` the logarithm of the partition function (PR).

    Args:
        path: of a ``MARKOV`` file, or a ``BAYES`` file, whose tables mean the same.
        evidence: of a file with numbers of variables and of their observed states, if any.
        max_table: as for :class:`~structsmooth.FactorGraph`.
        max_sets: as for :class:`~structsmooth.FactorGraph`.

    Raises:
        MemoryError: a table that is too large with all variables padded to the same number of states.
        ValueError: a file of another form, with the place where it departs from it.

    Reference:
        https://www.cs.huji.ac.il/project/PASCAL/fileFormat.php
    """
    words = _Words(path)
    (kind,) = words.take(1)
    if kind not in ("MARKOV", "BAYES"):
        raise ValueError(f"{path}: a UAI file begins with MARKOV or BAYES, got {kind[:20]!r}")
    sizes = words.integers(words.count(), least=1)
    scopes = [tuple(words.integers(words.count(), below=len(sizes))) for _ in range(words.count())]
    tables: dict[Scope, Array] = {}
    for scope in scopes:
        ordered, table = tuple(sorted(scope)), words.table(scope, sizes)
        if len(set(scope)) < len(scope):
            raise ValueError(f"{path}: the variables of a table must differ, got {scope}")
        table = table.transpose(np.argsort(scope))
        tables[ordered] = tables[ordered] + table if ordered in tables else table
    if words.words[words.place :]:
        raise ValueError(f"{path}: {len(words.words) - words.place} words are left behind the last table")
    unary, edges, pairwise, factors = _potentials(path, sizes, tables, _observed(evidence, sizes))
    return FactorGraph(unary, edges, pairwise, factors=factors, max_table=max_table, max_sets=max_sets)


def write_uai(graph: FactorGraph, path: str | Path, example: int = 0) -> None:
    """Write an example of a batch as a ``MARKOV`` file, whose tables are exp of scores, with 0 for -inf.

    Nodes that the example lacks are left out, and the others counted anew; so are states above the last that a node
    allows. Scores are within ±700, whose exp float64 holds, or -inf.

    Raises:
        MemoryError: a factor over too many nodes for a table.
        ValueError: other scores.
    """
    one = graph[example].to("cpu")
    unary, pairwise = one.unary[0].double(), one.batched().pairwise[0].double()
    nodes, states = one.node_mask[0].nonzero()[:, 0].tolist(), sizes_of(one.unary)
    tables: list[tuple[Scope, Tensor]] = [((v,), unary[v, : states[v]]) for v in nodes]
    for (a, b), real, table in zip(one.edges.view(-1, 2).tolist(), one.edge_mask[0].tolist(), pairwise, strict=True):
        if real:
            tables.append(((a, b), table[: states[a], : states[b]]))
    if one.factors is not None:
        automata = Tables(one.scopes, one.transitions)
        for f, scope in enumerate(automata.of(0)):
            sizes = [states[v] for v in scope]
            _check_entries(f"factors[{f}]", prod(sizes))
            if scope:
                tables.append((scope, one.factors[0, f].double()[automata.final_states(f, sizes)]))
    numbers = {v: str(i) for i, v in enumerate(nodes)}
    lines = ["MARKOV", str(len(nodes)), " ".join(str(states[v]) for v in nodes), str(len(tables))]
    lines += [" ".join([str(len(scope)), *(numbers[v] for v in scope)]) for scope, _ in tables]
    for scope, table in tables:
        if bool((table.abs() > _LARGEST_SCORE).logical_and(table > -torch.inf).any()):
            raise ValueError(
                f"scores must be within {_LARGEST_SCORE:g}, as their exp is written, got {float(table.abs().max())} "
                f"for nodes {scope}: subtract a constant, or divide all scores by one number"
            )
        lines.append(f"\n{table.numel()}\n" + " ".join(map(repr, table.exp().flatten().tolist())))
    Path(path).write_text("\n".join(lines) + "\n", encoding="ascii")


def _potentials(
    path: object, sizes: list[int], tables: dict[Scope, Array], observed: dict[int, int]
) -> tuple[Tensor, Tensor, Tensor, list[Factor]]:
    """What a graph is made of: unary scores, edges, pairwise scores and factors, of tables by their ordered scopes."""
    states, first = max(sizes), torch.zeros(1, len(sizes), max(sizes), dtype=torch.float64)
    for v, size in enumerate(sizes):
        first[0, v, size:] = -torch.inf
        first[0, v, : observed.get(v, 0)] = first[0, v, observed.get(v, states - 1) + 1 :] = -torch.inf
    pairs, factors = list[Scope](), list[Factor]()
    _check_entries(f"{path}: the tables of pairs", states**2 * sum(len(scope) == 2 for scope in tables))
    pairwise = torch.zeros(1, sum(len(scope) == 2 for scope in tables), states, states, dtype=torch.float64)
    for scope, array in tables.items():
        table = torch.from_numpy(np.ascontiguousarray(array))
        if len(scope) < 2:  # a constant is a score of every state of the first node
            first[0, scope[0] if scope else 0, : table.shape[-1] if scope else None] += table
        elif len(scope) == 2:
            pairwise[0, len(pairs), : table.shape[0], : table.shape[1]] = table
            pairs.append(scope)
        else:
            _check_entries(f"{path}: the table of {scope}", states ** (len(scope) + 1))
            whole = table.new_zeros((states,) * len(scope))
            whole[tuple(map(slice, table.shape))] = table
            factors.append(Table(torch.tensor(scope), whole))
    return first, torch.tensor(pairs, dtype=torch.int64).view(-1, 2), pairwise, factors


def _check_entries(name: str, entries: int) -> None:
    if entries > _MOST_ENTRIES:
        raise MemoryError(f"{name} needs {entries:,} entries, more than {_MOST_ENTRIES:,}, as a table of a graph")


def _observed(evidence: str | Path | None, sizes: Sequence[int]) -> dict[int, int]:
    """The observed states of variables; a file may say first that it has one sample."""
    if evidence is None:
        return {}
    words = _Words(evidence)
    if words.words[:1] == ["1"] and len(words.words) % 2 == 0:
        words.take(1)
    found = words.integers(2 * words.count(), below=max(len(sizes), *sizes))
    observed = dict(zip(found[::2], found[1::2], strict=True))
    if words.words[words.place :] or any(v >= len(sizes) or state >= sizes[v] for v, state in observed.items()):
        raise ValueError(f"{evidence}: expected a number of variables, and each with its state, got {found}")
    return observed


class _Words:
    """The words of a file, one after the other."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.words, self.place = path, read_text(Path(path)).split(), 0

    def take(self, count: int) -> list[str]:
        found = self.words[self.place : self.place + count]
        if len(found) < count:
            raise ValueError(f"{self.path}: the file ends where {count - len(found)} more numbers are due")
        self.place += count
        return found

    def integers(self, count: int, least: int = 0, below: int | None = None) -> list[int]:
        found = self.take(count)
        for word in found:
            if not word.isdecimal() or int(word) < least or (below is not None and int(word) >= below):
                wanted = f"from {least}" + ("" if below is None else f" to {below - 1}")
                raise ValueError(f"{self.path}: word {self.place} must be an integer {wanted}, got {word[:20]!r}")
        return [int(word) for word in found]

    def count(self) -> int:
        return self.integers(1)[0]

    def table(self, scope: Scope, sizes: Sequence[int]) -> Array:
        """The logarithms of a table, with an axis for each variable of a scope."""
        shape = [sizes[v] for v in scope]
        count = self.count()
        if count != prod(shape):
            raise ValueError(f"{self.path}: the table of {scope} must have {prod(shape)} entries, got {count}")
        with located(f"{self.path}: the table of {scope}"):
            entries = np.array(self.take(count), dtype=np.float64)
            if not (np.isfinite(entries) & (entries >= 0)).all():
                raise ValueError("it must have numbers from 0, of which logarithms are taken")
        with np.errstate(divide="ignore"):
            return np.log(entries).reshape(shape)
