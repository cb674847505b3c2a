"""Trees: chains as trees, ties, the order of the nodes, and parents that lead nowhere."""

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from enumeration import FORMS, EnumeratedTree, TreePotentials, random_chains, random_trees
from oracles import ORACLES, K, values_and_gradients
from refusals import Refusals, refusing
from structure_members import cyclic
from torch import Tensor
from torch.testing import assert_close

from structsmooth import LinearChain, Tree

BACKENDS = ["compiled", "torch"]
both_backends = pytest.mark.parametrize("backend", BACKENDS)
every_oracle = pytest.mark.parametrize("oracle", ["max", "topk", "logsumexp", "marginals", "max_marginals"])


def on(backend: str, parents: Tensor, mask: Tensor | None = None) -> Callable[[Tensor, Tensor], Tree]:
    return lambda unary, pairwise: Tree(unary, pairwise, parents, mask, backend=backend)


def medium(**options: Any) -> TreePotentials:
    return random_trees(5, 7, 4, **options)


@both_backends
def test_the_lowest_of_the_best_labelings_wins(backend: str) -> None:
    """Among all labelings of score 0, the roots decide first: 0 everywhere, whatever the order of the nodes."""
    tree = Tree(torch.zeros(1, 4, 3), torch.zeros(1, 4, 3, 3), torch.tensor([[2, -1, 1, 1]]), backend=backend)
    assert not tree.max()[1].any()
    unary = torch.tensor([[[0.0, 0.0], [0.0, 0.0]]])
    differs = 1 - torch.eye(2).expand(1, 2, 2, 2)
    assert Tree(unary, differs, torch.tensor([[1, -1]]), backend=backend).max()[1].tolist() == [[1, 0]]


# A chain is a tree.


def as_tree(unary: Tensor, transition: Tensor, lengths: Tensor, backend: str, backwards: bool = False) -> Tree:
    """A chain with one transition per edge as a tree that hangs on its first position, or on its last."""
    steps = unary.shape[1]
    positions, nothing = (
        torch.arange(steps).expand(unary.shape[:2]),
        torch.zeros_like(unary[:, :1, :, None] * transition[:, :1]),
    )
    if backwards:
        parents = torch.where(positions + 1 < lengths[:, None], positions + 1, -1)
        pairwise = torch.cat([transition.transpose(2, 3), nothing], 1)
    else:
        parents, pairwise = positions - 1, torch.cat([nothing, transition], 1)
    return Tree(unary, pairwise, parents, positions < lengths[:, None], backend=backend)


@both_backends
@pytest.mark.parametrize("backwards", [False, True])
def test_a_chain_is_a_tree(backwards: bool, backend: str) -> None:
    unary, transition, lengths = random_chains(6, 9, 4, FORMS[2], lengths=[9, 1, 8, 2, 9, 5], forbidden=0.05)
    chain, tree = LinearChain(unary, transition, lengths), as_tree(unary, transition, lengths, backend, backwards)
    y = cyclic(unary)
    for name, arguments in [("max", ()), ("topk", (7,)), ("logsumexp", ()), ("max_marginals", ()), ("score", (y,))]:
        assert_close(getattr(tree, name)(*arguments), getattr(chain, name)(*arguments), rtol=1e-10, atol=1e-10)
    assert torch.equal(tree.lengths, chain.lengths)
    for name, arguments in [("marginals", ()), ("parts", (y,))]:
        (node, edge), (own_node, own_edge) = getattr(chain, name)(*arguments), getattr(tree, name)(*arguments)
        assert_close(own_node, node)
        assert_close(own_edge[:, :-1].transpose(2, 3) if backwards else own_edge[:, 1:], edge)


@both_backends
@every_oracle
@pytest.mark.parametrize("backwards", [False, True])
def test_gradients_of_a_chain_as_a_tree(backwards: bool, oracle: str, backend: str) -> None:
    unary, transition, lengths = random_chains(4, 5, 3, FORMS[2], lengths=[5, 1, 4, 2])

    def build(unary: Tensor, transition: Tensor) -> Any:
        tree = as_tree(unary, transition, lengths, backend, backwards)
        return tree if oracle != "marginals" else Nodes(tree)

    class Nodes:
        """A structure that only knows the marginals of its nodes."""

        def __init__(self, structure: Any) -> None:
            self.marginals = lambda: structure.marginals()[:1]

    def chain(unary: Tensor, transition: Tensor) -> Any:
        chain = LinearChain(unary, transition, lengths)
        return chain if oracle != "marginals" else Nodes(chain)

    actual = values_and_gradients(oracle, build, unary, transition)
    assert_close(actual, values_and_gradients(oracle, chain, unary, transition), rtol=1e-10, atol=1e-10)


@both_backends
def test_ties_of_a_chain_hung_on_its_last_position(backend: str) -> None:
    """The chain decides by the last label first."""
    unary, transition, lengths = random_chains(20, 6, 3, FORMS[2], ties=True, forbidden=0.1)
    tree = as_tree(unary, transition, lengths, backend, backwards=True)
    assert_close(tree.topk(20), LinearChain(unary, transition, lengths).topk(20))


@pytest.mark.parametrize("k", [2, 5, 30])
def test_many_branches_at_one_node(k: int) -> None:
    """A star of 7 leaves and two stars in a forest: joining many lists, with ties."""
    for seed, parents in enumerate([[3, 3, 3, -1, 3, 3, 3, 3], [4, 4, 4, 7, -1, 7, 7, -1]]):
        unary, pairwise, _, mask = random_trees(3, 8, 2, seed=seed, ties=True, padding=False)
        potentials = unary, pairwise, torch.tensor([parents] * 3), mask
        for backend in BACKENDS:
            assert_close(Tree(*potentials, backend=backend).topk(k), EnumeratedTree(*potentials).topk(k))


# What must not matter.


@both_backends
def test_renaming_the_states_renames_the_answers(backend: str) -> None:
    unary, pairwise, parents, mask = medium()
    new = torch.tensor([2, 0, 3, 1])
    build = on(backend, parents, mask)
    tree, renamed = build(unary, pairwise), build(unary[..., new], pairwise[..., new, :][..., new])
    values, y = tree.topk(K)
    other_values, other_y = renamed.topk(K)
    assert_close(values, other_values)
    assert torch.equal(y, torch.where(mask[:, None], new[other_y], 0))
    assert_close(tree.logsumexp(), renamed.logsumexp())
    node, edge = tree.marginals()
    assert_close(renamed.marginals(), (node[..., new], edge[..., new, :][..., new]))
    assert_close(renamed.max_marginals(), tree.max_marginals()[..., new])


@both_backends
@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_nodes_does_not_matter(seed: int, backend: str) -> None:
    unary, pairwise, parents, mask = medium(seed=seed)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(seed))
    position = order.argsort()
    moved_parents = parents[:, order]
    moved_parents = torch.where(
        mask[:, order] & (moved_parents >= 0), position[moved_parents.clamp(0, 6)], moved_parents
    )
    tree = on(backend, parents, mask)(unary, pairwise)
    moved = on(backend, moved_parents, mask[:, order])(unary[:, order], pairwise[:, order])
    values, y = tree.topk(K)
    assert_close(moved.topk(K), (values, y[..., order]))
    assert_close(moved.logsumexp(), tree.logsumexp())
    assert_close(moved.marginals(), tuple(part[:, order] for part in tree.marginals()))
    assert_close(moved.max_marginals(), tree.max_marginals()[:, order])


@both_backends
def test_parents_of_padding_may_be_anything(backend: str) -> None:
    unary, pairwise, parents, mask = medium()
    tree = on(backend, parents, mask)(unary, pairwise)
    other = on(backend, torch.where(mask, parents, 3), mask)(unary, pairwise)
    for oracle in ("topk", "marginals", "max_marginals"):
        assert_close(ORACLES[oracle](other), ORACLES[oracle](tree), rtol=0, atol=0)


@both_backends
def test_marginals_are_consistent(backend: str) -> None:
    _, _, parents, mask = potentials = random_trees(6, 25, 6, forbidden=0.05)
    node, edge = Tree(*potentials, backend=backend).marginals()
    assert_close(node.sum(-1), mask.double())
    hangs = mask & (parents >= 0)
    assert_close(edge.sum(2), node * hangs[..., None])
    above = node.gather(1, torch.where(hangs, parents, 0)[..., None].expand(node.shape))
    assert_close(edge.sum(3), above * hangs[..., None])


@both_backends
@pytest.mark.parametrize("gap", [1.0, 300.0, 350.0, 372.0, 400.0, 700.0, 745.0, 1e3, 1e4, 1e8])
def test_equal_labelings_through_a_deep_valley(gap: float, backend: str) -> None:
    """Each of two equal labelings is `gap` below another in some branch: its exponential there underflows."""
    unary = torch.zeros(1, 3, 2, dtype=torch.float64)
    pairwise = torch.full((1, 3, 2, 2), -torch.inf, dtype=torch.float64)
    pairwise[0, 1:] = torch.where(torch.eye(2) > 0, 0.0, -torch.inf)
    unary[0, 1, 1], unary[0, 2, 0] = -gap, -gap
    tree = Tree(unary, pairwise, torch.tensor([[-1, 0, 0]]), backend=backend)
    assert_close(tree.logsumexp(), torch.tensor([math.log(2) - gap], dtype=torch.float64), rtol=1e-15, atol=0)
    node, edge = tree.marginals()
    assert_close(node, torch.full((1, 3, 2), 0.5, dtype=torch.float64), rtol=1e-7, atol=0)
    assert_close(edge[0, 1:], 0.5 * torch.eye(2, dtype=torch.float64).expand(2, 2, 2), rtol=1e-7, atol=0)


# Bad input.

B, N, S = 2, 3, 4
PARENTS = [[-1, 0, 1], [2, 2, -1]]


def tree(**changes: Any) -> Tree:
    good = {"unary": torch.zeros(B, N, S), "pairwise": torch.zeros(B, N, S, S), "parents": torch.tensor(PARENTS)}
    return Tree(**good | changes)


def integers(*shape: int, value: int = 0) -> Tensor:
    return torch.full(shape or (B, N), value)


def with_parents(parents: list[list[int]], mask: list[list[int]] | None = None) -> Tree:
    return tree(parents=torch.tensor(parents), mask=None if mask is None else torch.tensor(mask).bool())


CASES: Refusals = {
    "no nodes": (lambda: tree(unary=torch.zeros(B, 0, S)), ValueError, "unary .* N, S >= 1"),
    "pairwise is shared": (lambda: tree(pairwise=torch.zeros(S, S)), ValueError, r"pairwise .* got \(4, 4\)"),
    "parents are floats": (lambda: tree(parents=torch.zeros(B, N)), TypeError, "parents must be integers"),
    "parents are booleans": (lambda: tree(parents=torch.ones(B, N).bool()), TypeError, "parents must be integers"),
    "parents are None": (lambda: tree(parents=None), TypeError, "parents must be .* got NoneType"),
    "parents of one example": (lambda: tree(parents=torch.tensor([-1, 0, 0])), ValueError, r"parents .* got \(3,\)"),
    "parents elsewhere": (lambda: tree(parents=integers().to("meta")), ValueError, "parents must be on .* got meta"),
    "own parent": (lambda: with_parents([[-1, 1, 0], [2, 2, -1]]), ValueError, "parents .* cycle; example 0: node 1"),
    "cycle": (lambda: with_parents([[-1, 0, 1], [1, 2, 0]]), ValueError, "parents .* cycle; example 1: node 0"),
    "parent N": (lambda: with_parents([[-1, 0, 3], [2, 2, -1]]), ValueError, "parents .* node 2 has parent 3"),
    "parent -2": (lambda: with_parents([[-1, 0, 1], [2, -2, -1]]), ValueError, "parents .* node 1 has parent -2"),
    "parent is padding": (
        lambda: with_parents(PARENTS, [[1, 0, 1], [1, 1, 1]]),
        ValueError,
        "parents must not be padding; example 0: node 2 has parent 1",
    ),
    "mask is a list": (lambda: tree(mask=[[True] * N] * B), TypeError, "mask must be .* got list"),
    "mask holds integers": (
        lambda: tree(mask=integers(value=2)),
        ValueError,
        "mask must be boolean, or integers 0 and 1",
    ),
    "mask of one example": (lambda: tree(mask=torch.ones(N).bool()), ValueError, r"mask .* \[B, N\] = \(2, 3\), got"),
    "mask elsewhere": (lambda: tree(mask=torch.ones(B, N, device="meta").bool()), ValueError, "mask must be on"),
    "unknown backend": (lambda: tree(backend="cuda"), ValueError, "backend must be .* got 'cuda'"),
    "no kernels": (lambda: tree(backend="triton"), ValueError, 'must be "auto", "compiled" or "torch", got .triton'),
    "compiled elsewhere": (
        lambda: Tree(
            *(torch.zeros(shape, device="meta") for shape in ((B, N, S), (B, N, S, S))),
            integers().to("meta"),
            backend="compiled",
        ),
        ValueError,
        "compiled backend runs on the CPU only",
    ),
}
test_refuses = refusing(CASES)


def test_the_good_calls_behind_the_bad_ones_are_good() -> None:
    assert tree().score(integers()).shape == (B,)
    assert with_parents([[-1, 0, 1], [2, 9, -1]], [[1, 1, 1], [1, 0, 1]]).max()[1].shape == (B, N)


@pytest.mark.parametrize("parents", [[[1, 0, -1]], [[7, -3, 0]], [[1, 2, 0]], [[-1, -1, 99]]])
def test_unchecked_parents_do_no_harm(parents: list[list[int]]) -> None:
    """The compiled oracles read nothing outside the tensors, and leave out what hangs on no root."""
    unary = torch.zeros(1, 3, 2)
    bad = Tree(unary, torch.zeros(1, 3, 2, 2), torch.tensor(parents), validate_args=False, backend="compiled")
    assert bad.topk(3)[0].isfinite().any()
    assert bad.marginals()[0].isfinite().all()
    assert bad.max_marginals().isfinite().all()


@pytest.mark.parametrize("seed", range(5))
def test_random_parents_are_refused_or_form_a_forest(seed: int) -> None:
    """Against following the parents one by one."""
    r = random.Random(seed)
    outcomes = set()
    for _ in range(60):
        nodes = r.randint(1, 6)
        parents = [r.choice([-1, r.randint(-1, nodes - 1), r.randint(-2, nodes)]) for _ in range(nodes)]
        mask = [r.random() < 0.8 for _ in range(nodes)]
        good = all(ends_at_a_root(v, parents, mask) for v in range(nodes) if mask[v])
        outcomes.add(good)
        arguments = torch.zeros(1, nodes, 2), torch.zeros(1, nodes, 2, 2), torch.tensor([parents]), torch.tensor([mask])
        if good:
            assert Tree(*arguments).lengths.item() == np.sum(mask)
        else:
            with pytest.raises(ValueError, match=r"parents|mask"):
                Tree(*arguments)
    assert outcomes == {False, True}


def ends_at_a_root(v: int, parents: list[int], mask: list[bool]) -> bool:
    for _ in parents:
        if parents[v] == -1:
            return True
        if not 0 <= parents[v] < len(parents) or not mask[parents[v]]:
            return False
        v = parents[v]
    return False
