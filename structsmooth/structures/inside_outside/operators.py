"""Oracles of grammars (CPU): those of programs, but sums over trees are found span by span in the linear domain.

Arguments are those of the operators of programs: scores [B, P] as :class:`~structsmooth.Grammar` orders them, lengths
[B], and the handle of the program, which is built if a pass over it is needed.
"""

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures.checks import is_exporting
from structsmooth.structures.operators import (
    asks_gradients,
    compiled_operator,
    exp_oracle_backward,
    log_partition_backward,
    save_inputs_and_statistics,
    without_statistics,
)
from structsmooth.structures.productions import span_tables
from structsmooth.structures.programs import operators as programs
from structsmooth.structures.programs.program import program_of, sizes_of
from structsmooth.structures.programs.reference import HasProgram

compiled = LazyLoops("structsmooth.structures.inside_outside.compiled")
passes = LazyLoops("structsmooth.structures.programs.compiled")
_SENTENCES = "Tensor scores, Tensor lengths, SymInt handle"

traits, smoothed_top_k, top_k = programs.traits, programs.smoothed_top_k, programs.top_k
scores_of_outputs, outputs = programs.scores_of_outputs, programs.outputs
max_marginals, sample = programs.max_marginals, programs.sample


class HasHandle(HasProgram, Protocol):
    """A structure that knows the number of its program without building it."""

    @property
    def handle(self) -> int:
        """The number."""


def as_argument(space: HasHandle) -> int:
    """What stands for the program of a structure."""
    return programs.as_argument(space) if is_exporting() else space.handle


@lru_cache(maxsize=64)
def _tables(handle: int) -> tuple[tuple[Any, ...], tuple[int, int, int]]:
    """The rules of a grammar, and the numbers of words, preterminals and symbols."""
    words, preterminals, symbols, rules = sizes_of(handle)
    return span_tables(preterminals, symbols, rules), (words, preterminals, symbols)


def _read(scores: Tensor, lengths: Tensor, handle: int) -> tuple[Any, ...]:
    tables, layout = _tables(handle)
    smallest, largest = lengths.aminmax() if lengths.numel() else (0, 0)
    if not 0 <= int(smallest) <= int(largest) <= layout[0]:
        raise ValueError(f"lengths must be from 0 to {layout[0]}, got {lengths.tolist()}")
    return tables, layout, scores, lengths, handle


def _operations(scores: Tensor, lengths: Tensor, handle: int) -> int:
    ((pairs, *_), (_, pair, *_), _), (words, *_) = _tables(handle)
    return len(scores) * words**2 * (words * len(pairs) // 6 + len(pair))


def _sums(
    tables: Any, layout: Any, scores: Any, lengths: Any, handle: int, values: Any, parts: Any, begin: int, end: int
) -> None:
    """Log-partition [B], and probabilities [B, P] or [B, 0], by passes over the program where digits would be lost."""
    exact = np.zeros(len(scores), bool)
    compiled.batch_sums(tables, layout, scores, lengths, values, parts, exact, begin, end)
    for b in range(begin, end):
        if not exact[b]:
            program = program_of(handle)
            arguments = program.arrays, scores, program.roots[lengths], values
            if parts.shape[1]:
                passes.batch_marginals(*arguments, parts, b, b + 1)
            else:
                passes.batch_log_partition(*arguments, b, b + 1)


sums = compiled_operator(
    f"grammar_marginals({_SENTENCES}) -> (Tensor, Tensor)",
    results=lambda scores, *_: (scores.new_empty(scores.shape[0]), scores.new_empty(scores.shape)),
    loop=_sums,
    reads=_read,
    operations=lambda *arguments: 3 * _operations(*arguments),
    finish=without_statistics,
    gradient=exp_oracle_backward(lambda scores, weights, *others: (programs.tangents(*scores, *weights, *others),)),
    save=save_inputs_and_statistics,
)
"""Log-partition [B] and probabilities [B, P]."""

_value = compiled_operator(
    f"grammar_log_partition({_SENTENCES}) -> (Tensor, Tensor)",
    results=lambda scores, *_: (scores.new_empty(scores.shape[0]), scores.new_empty(scores.shape[0], 0)),
    loop=_sums,
    reads=_read,
    operations=_operations,
    gradient=log_partition_backward(lambda *arguments: sums(*arguments)[1:]),
)
"""Log-partition [B] alone."""


def log_partition(scores: Tensor, lengths: Tensor, handle: int) -> Tensor:
    """Log-partition [B]; if a gradient is asked, by the passes that find it, too."""
    log_z: Tensor = (sums if asks_gradients(scores) else _value)(scores, lengths, handle)[0]
    return log_z


def marginals(scores: Tensor, lengths: Tensor, handle: int) -> tuple[Tensor]:
    """Probabilities [B, P]."""
    return (sums(scores, lengths, handle)[1],)
