"""Small problems over trees with sparse features of their arcs, and the enumeration of the trees."""

from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from structsmooth.problems import PairFeatures, PartRows, ProgramParts, ProgramProblem, arcs_of, behind_arcs

LENGTHS = torch.tensor([3, 1, 4, 2, 3])
BITS = 6


def trees(words: int, single_root: bool = True, projective: bool = True) -> list[tuple[int, ...]]:
    """Heads, from 0 for the root, of all trees; of those without crossing arcs if ``projective``."""
    return [heads for heads in product(range(words + 1), repeat=words) if _is_tree(heads, single_root, projective)]


def _is_tree(heads: tuple[int, ...], single_root: bool, projective: bool) -> bool:
    if heads.count(0) != 1 and (single_root or not heads.count(0)):
        return False
    for word in range(1, len(heads) + 1):
        for _ in heads:
            word = heads[word - 1] if word else 0
        if word:
            return False
    arcs = [tuple(sorted((head, word))) for word, head in enumerate(heads, 1)]
    return not projective or not any(a < c < b < d for a, b in arcs for c, d in arcs)


def random_trees(lengths: Tensor, seed: int = 0, single_root: bool = True, projective: bool = True) -> Tensor:
    """Numbers of uses of the arcs of a random tree for each sentence, [parts]."""
    generator = torch.Generator().manual_seed(seed)
    heads, modifiers, offsets = arcs_of(lengths)
    labels = torch.zeros(len(heads), dtype=torch.int64)
    for i, words in enumerate(lengths.tolist()):
        every = trees(words, single_root, projective)
        tree = torch.tensor(every[int(torch.randint(len(every), (1,), generator=generator))])
        own = slice(offsets[i], offsets[i + 1])
        labels[own] = (tree[modifiers[own] - 1] == heads[own]).long()
    return labels


def random_pairs(lengths: Tensor, seed: int = 0, labels: int = 0) -> PairFeatures:
    """Four templates for arcs and two more for the words between; with labels, two of the four are theirs."""
    generator = torch.Generator().manual_seed(seed)

    def keys(rows: int, columns: int) -> Tensor:
        return torch.randint(2**32, (rows, columns), generator=generator).to(torch.uint32)

    heads, modifiers, offsets = arcs_of(lengths)
    places = torch.nn.functional.pad((lengths + 1).cumsum(0), (1, 0))
    begin = torch.repeat_interleave(places[:-1], offsets.diff())
    tokens = int(places[-1])
    tables = (keys(tokens, 6), keys(tokens, 6), keys(5, 6), keys(tokens, 2))
    pairs = PairFeatures((begin + heads).int(), (begin + modifiers).int(), *tables, bits=BITS)
    if not labels:
        return pairs
    # Each word with itself, once for every label, whose features are those of the first two columns alone.
    arcs, offsets = behind_arcs(lengths, labels)
    words = torch.arange(tokens)[torch.ones(tokens).bool().index_fill_(0, places[:-1], False)].repeat_interleave(labels)
    first, second = (torch.empty(int(offsets[-1]), dtype=torch.int32) for _ in range(2))
    kinds, is_arc = torch.zeros_like(first), torch.zeros_like(first).bool().index_fill_(0, arcs, True)
    first[arcs], second[arcs] = pairs.first, pairs.second
    first[~is_arc] = second[~is_arc] = words.int()
    kinds[~is_arc] = torch.arange(1, labels + 1).repeat(int(lengths.sum())).int()
    columns = torch.tensor([[2, 6], *[[0, 2]] * labels])
    return replace(pairs, first=first, second=second, kinds=kinds, kind_keys=keys(1 + labels, 6), kind_columns=columns)


def pair_problem(single_root: bool = True, projective: bool = True, **settings: Any) -> ProgramProblem:
    labels = random_trees(LENGTHS, single_root=single_root, projective=projective)
    kind = ProgramParts.projective_trees if projective else ProgramParts.spanning_trees
    parts = kind(LENGTHS, single_root)
    return ProgramProblem(parts, random_pairs(LENGTHS), labels, **settings)


def labelled_problem(labels: int = 3, projective: bool = True, **settings: Any) -> ProgramProblem:
    """Trees whose words also have one of three labels each."""
    generator = torch.Generator().manual_seed(5)
    arcs, offsets = behind_arcs(LENGTHS, labels)
    every = torch.zeros(int(offsets[-1]), dtype=torch.int64)
    is_arc = torch.zeros(len(every)).bool().index_fill_(0, arcs, True)
    words = int(LENGTHS.sum())
    chosen = torch.zeros(words, labels, dtype=torch.int64)
    chosen[torch.arange(words), torch.randint(labels, (words,), generator=generator)] = 1
    every[arcs], every[~is_arc] = random_trees(LENGTHS, projective=projective), chosen.flatten()
    kind = ProgramParts.projective_trees if projective else ProgramParts.spanning_trees
    parts = kind(LENGTHS, labels=labels)
    return ProgramProblem(parts, random_pairs(LENGTHS, labels=labels), every, **settings)


def row_problem(**settings: Any) -> ProgramProblem:
    """Up to four features of each arc, some twice."""
    generator = torch.Generator().manual_seed(1)
    parts = ProgramParts.projective_trees(LENGTHS)
    counts = torch.randint(5, (len(parts.scores),), generator=generator)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    columns = torch.randint(12, (int(offsets[-1]),), generator=generator, dtype=torch.int32)
    return ProgramProblem(parts, PartRows(columns, offsets, 12), random_trees(LENGTHS), **settings)


def feature_matrix(problem: ProgramProblem) -> Tensor:
    """Features of all parts, [parts, dim], from their definition."""
    features = problem.part_features
    matrix = torch.zeros(len(features), features.features, dtype=torch.float64)
    if isinstance(features, PartRows):
        for p, (begin, end) in enumerate(
            zip(features.offsets[:-1].tolist(), features.offsets[1:].tolist(), strict=True)
        ):
            for column in features.columns[begin:end].tolist():
                matrix[p, column] += 1
        return matrix
    first, second, distances, between = (
        table.long()
        for table in (features.first_keys, features.second_keys, features.distance_keys, features.between_keys)
    )
    reach, plain = len(distances) // 2, first.shape[1] - between.shape[1]
    kinds = torch.zeros_like(features.first) if features.kinds is None else features.kinds
    for p, (a, b, kind) in enumerate(zip(features.first, features.second, kinds, strict=True)):
        sums = first[a] + second[b] + distances[min(max(int(b - a), -reach), reach) + reach]
        begin, end = 0, first.shape[1]
        if features.kind_keys is not None and features.kind_columns is not None:
            sums, (begin, end) = sums + features.kind_keys.long()[kind], features.kind_columns[kind].tolist()
        columns = sums[begin : min(plain, end)].tolist()
        for c in range(min(a, b) + 1, max(a, b)) if end > plain else ():
            columns += (sums[plain:] + between[c]).tolist()
        for column in columns:
            matrix[p, column % 2**32 >> 32 - features.bits] += 1
    return matrix
