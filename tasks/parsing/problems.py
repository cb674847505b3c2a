"""Structural hinge losses of trees and of the relations of words, from their parts and features."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.problems import DifferenceProblem, PairFeatures, ProgramParts, ProgramProblem
from structsmooth.tasks.parsing.data import Tree
from structsmooth.tasks.parsing.features import Tokens, all_features, part_features
from structsmooth.tasks.parsing.parts import TreeParts


class TreeLabels(NamedTuple):
    """The trees of sentences.

    Attributes:
        trees: as the treebank has them.
        heads: near these, of trees that are outputs; -1 where they are unknown.
        some: heads of an output.
    """

    trees: Sequence[Tree]
    heads: Sequence[Sequence[int]]
    some: Sequence[Sequence[int]]


def tree_problem(
    tokens: Tokens, rows: TreeParts, parts: ProgramParts, labels: TreeLabels, bits: int, relations: Sequence[str]
) -> ProgramProblem | DifferenceProblem:
    """The problem of trees whose words also have one of some relations each, if there are any.

    The cost is the number of wrong heads and relations. If some are unknown, losses are those of partial labels.

    Args:
        tokens: of the sentences.
        rows: the parts of their trees.
        parts: the same of a program, with relations as labels.
        labels: the trees.
        bits: features are hashed to 2**bits buckets.
        relations: of words to their heads, learned from the heads that words have in the treebank.
    """
    flat, count = torch.tensor([head for tree in labels.heads for head in tree]), len(relations)
    of_rows = (rows.in_trees(labels.heads), rows.is_arc & (flat[rows.words] < 0), rows.in_trees(labels.some))
    if not count:
        return _of_parts(parts, part_features(tokens, rows, bits), *of_rows, rows.is_arc)
    known = torch.tensor([head for tree in labels.trees for head in tree.heads])
    numbers = {name: number for number, name in enumerate(relations)}
    chosen = torch.tensor([numbers.get(name, -1) for tree in labels.trees for name in tree.relations])
    chosen = chosen.masked_fill(known < 0, -1)[:, None]
    of_words, places = torch.ones(len(known), count, dtype=torch.bool), torch.arange(count)
    of_relations = (chosen == places, of_words & (chosen < 0), chosen.clamp_min(0) == places, of_words)
    both = zip((*of_rows, rows.is_arc), of_relations, strict=True)
    features = all_features(tokens, known.clamp_min(0), bits, relations, rows)
    return _of_parts(parts, features, *(rows.before_labels(count, *pair) for pair in both))


def _of_parts(
    parts: ProgramParts, features: PairFeatures, used: Tensor, free: Tensor, some_output: Tensor, counted: Tensor
) -> ProgramProblem | DifferenceProblem:
    """The problem of the parts that labels have, and of partial labels if other ones are free: bool [parts] each.

    The cost is the number of wrong parts among those that are counted.
    """
    if not bool(free.any()):
        return ProgramProblem(parts, features, used.long(), (counted & ~used).double())
    problem = ProgramProblem(parts, features, some_output.long(), counted.double())
    return problem.with_allowed(used | free | ~counted)
