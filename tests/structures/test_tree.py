"""Trees: both backends against enumeration, against each other, and under what must not matter."""

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from enumeration import FORMS, EnumeratedTree, TreePotentials, random_chains, random_trees, small_trees
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import ORACLES, K, assert_same_oracles, values_and_gradients
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import Hamming, LinearChain, NormalizedHamming, StructuralHinge, Tree
from structsmooth.structures.tree import operators as compiled

BACKENDS = ["compiled", "torch"]
both_backends = pytest.mark.parametrize("backend", BACKENDS)
every_oracle = pytest.mark.parametrize("oracle", ORACLES)


def some_labels(unary: Tensor) -> Tensor:
    """Labels that depend on the shape only."""
    batch, nodes, states = unary.shape
    return torch.arange(batch * nodes).view(batch, nodes) * 7 % 5 % states


def on(backend: str, parents: Tensor, mask: Tensor | None = None) -> Callable[[Tensor, Tensor], Tree]:
    return lambda unary, pairwise: Tree(unary, pairwise, parents, mask, backend=backend)


def medium(**options: Any) -> TreePotentials:
    return random_trees(5, 7, 4, **options)


@both_backends
@settings(max_examples=100)
@given(potentials=small_trees(ties=False), k=st.integers(1, 12))
def test_oracles_match_enumeration(backend: str, potentials: TreePotentials, k: int) -> None:
    tree = Tree(*potentials, backend=backend)
    assert_same_oracles(tree, EnumeratedTree(*potentials), some_labels(potentials[0]), k)


@both_backends
@settings(max_examples=100)
@given(potentials=small_trees(outputs=300, ties=True), k=st.integers(1, 40))
def test_ties_are_broken_as_in_the_enumeration(backend: str, potentials: TreePotentials, k: int) -> None:
    tree = Tree(*potentials, backend=backend)
    assert_same_oracles(tree, EnumeratedTree(*potentials), some_labels(potentials[0]), k)


@both_backends
@given(potentials=small_trees(outputs=100, forbidden=0.0, ties=True), k=st.integers(60, 130))
def test_topk_lists_everything_when_k_is_large(backend: str, potentials: TreePotentials, k: int) -> None:
    assert_close(Tree(*potentials, backend=backend).topk(k), EnumeratedTree(*potentials).topk(k))


@both_backends
def test_the_lowest_of_the_best_labelings_wins(backend: str) -> None:
    """Among all labelings of score 0, the roots decide first: 0 everywhere, whatever the order of the nodes."""
    tree = Tree(torch.zeros(1, 4, 3), torch.zeros(1, 4, 3, 3), torch.tensor([[2, -1, 1, 1]]), backend=backend)
    assert not tree.max()[1].any()
    unary = torch.tensor([[[0.0, 0.0], [0.0, 0.0]]])
    differs = 1 - torch.eye(2).expand(1, 2, 2, 2)
    assert Tree(unary, differs, torch.tensor([[1, -1]]), backend=backend).max()[1].tolist() == [[1, 0]]


@both_backends
@pytest.mark.parametrize("oracle", ["max", "topk", "logsumexp", "marginals"])
@given(potentials=small_trees(outputs=1000))
def test_gradients_are_the_enumerated_statistics(oracle: str, backend: str, potentials: TreePotentials) -> None:
    unary, pairwise, parents, mask = potentials
    actual = values_and_gradients(oracle, on(backend, parents, mask), unary, pairwise)
    expected = values_and_gradients(oracle, lambda *s: EnumeratedTree(*s, parents, mask), unary, pairwise)
    assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@both_backends
@given(potentials=small_trees(outputs=1000, ties=False))  # among ties, any maximizer is a subgradient
def test_gradients_of_max_marginals_match_enumeration(backend: str, potentials: TreePotentials) -> None:
    unary, pairwise, parents, mask = potentials
    actual = values_and_gradients("max_marginals", on(backend, parents, mask), unary, pairwise)
    expected = values_and_gradients("max_marginals", lambda *s: EnumeratedTree(*s, parents, mask), unary, pairwise)
    assert_close(actual, expected)


@both_backends
def test_gradient_of_the_score_is_the_parts(backend: str) -> None:
    unary, pairwise, parents, mask = medium()
    y = some_labels(unary)
    _, gradients = vjp(lambda *s: on(backend, parents, mask)(*s).score(y).sum(), (unary, pairwise))
    assert_close(gradients, Tree(unary, pairwise, parents, mask).parts(y))


@both_backends
@every_oracle
def test_an_example_without_outputs_has_no_gradient(oracle: str, backend: str) -> None:
    unary, pairwise, parents, _ = random_trees(2, 4, 3, padding=False)
    unary[0, 1] = -torch.inf
    *values, unary_gradient, pairwise_gradient = values_and_gradients(oracle, on(backend, parents), unary, pairwise)
    assert not any(v.isnan().any() for v in values)
    assert not unary_gradient[0].any()
    assert not pairwise_gradient[0].any()
    assert unary_gradient[1].any()


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
    y = some_labels(unary)
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


# Backends.


@both_backends
@pytest.mark.parametrize("ties", [False, True])
def test_topk_is_sorted_distinct_and_grows_at_the_end(backend: str, ties: bool) -> None:
    tree = Tree(*random_trees(6, 20, 6, ties=ties, forbidden=0.05, seed=1), backend=backend)
    values, y = tree.topk(12)
    finite = values > -torch.inf
    assert (values.diff()[finite[:, 1:]] <= 0).all()
    assert finite.sum() > 40
    for row, kept in zip(y, finite, strict=True):
        assert len(row[kept].unique(dim=0)) == kept.sum()
    for j in range(12):
        assert_close(tree.score(y[:, j])[finite[:, j]], values[:, j][finite[:, j]])
        assert_close(tree.topk(j + 1), (values[:, : j + 1], y[:, : j + 1]))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("nodes", [1, 12])
def test_backends_agree(nodes: int, ties: bool) -> None:
    unary, pairwise, parents, mask = random_trees(8, nodes, 5, ties=ties, forbidden=0.1, seed=2)
    fast, plain = (Tree(unary, pairwise, parents, mask, backend=backend) for backend in BACKENDS)
    assert_same_oracles(fast, plain, some_labels(unary), k=9)
    for oracle in ORACLES:
        if oracle != "max_marginals" or not ties:
            fast, plain = (
                values_and_gradients(oracle, on(backend, parents, mask), unary, pairwise) for backend in BACKENDS
            )
            assert_close(fast, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("k", [2, 5, 30])
def test_many_branches_at_one_node(k: int) -> None:
    """A star of 7 leaves and two stars in a forest: joining many lists, with ties."""
    for seed, parents in enumerate([[3, 3, 3, -1, 3, 3, 3, 3], [4, 4, 4, 7, -1, 7, 7, -1]]):
        unary, pairwise, _, mask = random_trees(3, 8, 2, seed=seed, ties=True, padding=False)
        potentials = unary, pairwise, torch.tensor([parents] * 3), mask
        for backend in BACKENDS:
            assert_close(Tree(*potentials, backend=backend).topk(k), EnumeratedTree(*potentials).topk(k))


@both_backends
@every_oracle
@pytest.mark.parametrize("nodes", [1, 4])
def test_gradcheck(nodes: int, oracle: str, backend: str) -> None:
    unary, pairwise, parents, mask = random_trees(2, nodes, 3, seed=4)
    inputs = unary.requires_grad_(), pairwise.requires_grad_()
    assert torch.autograd.gradcheck(lambda *scores: ORACLES[oracle](on(backend, parents, mask)(*scores)), inputs)


@both_backends
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_second_derivatives_of_the_log_partition(forbidden: float, backend: str) -> None:
    unary, pairwise, parents, mask = random_trees(3, 4, 2, seed=5, forbidden=forbidden)
    allowed = unary > -torch.inf, pairwise > -torch.inf
    inputs = [scores[own].requires_grad_() for scores, own in zip((unary, pairwise), allowed, strict=True)]

    def log_partition(*free: Tensor) -> Tensor:
        full = (
            torch.full_like(scores, -torch.inf).masked_scatter(own, values)
            for scores, own, values in zip((unary, pairwise), allowed, free, strict=True)
        )
        return on(backend, parents, mask)(*full).logsumexp()

    assert torch.autograd.gradgradcheck(log_partition, inputs)


@both_backends
def test_second_derivatives_of_the_marginals(backend: str) -> None:
    unary, pairwise, parents, mask = random_trees(2, 3, 2, padding=False)
    inputs = unary.requires_grad_(), pairwise.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda *scores: on(backend, parents, mask)(*scores).marginals(), inputs)


# What must not matter.


@both_backends
@every_oracle
def test_scores_added_to_a_node_add_to_every_output(oracle: str, backend: str) -> None:
    unary, pairwise, parents, mask = medium()
    generator = torch.Generator().manual_seed(1)
    shift, edge_shift = torch.randn(2, *mask.shape, dtype=torch.float64, generator=generator)
    build = on(backend, parents, mask)
    tree, moved = build(unary, pairwise), build(unary + shift[..., None], pairwise + edge_shift[..., None, None])
    added = (shift * mask).sum(1) + (edge_shift * mask * (parents >= 0)).sum(1)
    for before, after in zip(ORACLES[oracle](tree), ORACLES[oracle](moved), strict=True):
        expected = before + (0 if oracle == "marginals" else added.view(-1, *[1] * (before.dim() - 1)))
        inside = mask.unsqueeze(-1) if oracle == "max_marginals" else torch.tensor(True)
        assert_close(after, torch.where(inside, expected, before))
    assert_close(tree.topk(K)[1], moved.topk(K)[1])


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
@every_oracle
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e300])
def test_padding_and_roots_may_hold_anything(garbage: float, oracle: str, backend: str) -> None:
    unary, pairwise, parents, mask = medium()
    clean = values_and_gradients(oracle, on(backend, parents, mask), unary, pairwise)
    hangs = mask & (parents >= 0)
    dirty = unary.masked_fill(~mask[..., None], garbage), pairwise.masked_fill(~hangs[..., None, None], garbage)
    assert_close(values_and_gradients(oracle, on(backend, parents, mask), *dirty), clean, rtol=0, atol=0)
    other_parents = torch.where(mask, parents, 3)
    assert_close(values_and_gradients(oracle, on(backend, other_parents, mask), *dirty), clean, rtol=0, atol=0)
    for gradient, used in zip(clean[-2:], (mask, hangs), strict=True):
        assert not gradient[~used].any()
    if oracle == "marginals":
        assert not any(part[~used].any() for part, used in zip(clean[:2], (mask, hangs), strict=True))
    if oracle == "max_marginals":
        assert not clean[0][~mask].any()


@both_backends
def test_padding_of_labels(backend: str) -> None:
    unary, pairwise, parents, mask = medium()
    tree, y = on(backend, parents, mask)(unary, pairwise), some_labels(unary)
    nonsense = torch.where(mask, y, -100)
    assert torch.equal(tree.score(nonsense), tree.score(y))
    assert_close(tree.parts(nonsense), tree.parts(y), rtol=0, atol=0)
    assert not tree.topk(K)[1].transpose(1, 2)[~mask].any()


@both_backends
def test_every_entry_of_a_batch_stands_alone(backend: str) -> None:
    unary, pairwise, parents, mask = medium(seed=3)
    tree = on(backend, parents, mask)(unary, pairwise)
    values, y = tree.topk(K)
    node, edge = tree.marginals()
    for b in range(len(unary)):
        own = mask[b].nonzero().squeeze(1)
        position = torch.full((7,), -1).scatter(0, own, torch.arange(len(own)))
        own_parents = torch.where(parents[b, own] >= 0, position[parents[b, own].clamp_min(0)], -1)
        alone = on(backend, own_parents[None])(unary[b, own][None], pairwise[b, own][None])
        assert_close(alone.topk(K), (values[b : b + 1], y[b : b + 1][..., own]))
        assert_close(alone.logsumexp(), tree.logsumexp()[b : b + 1])
        assert_close(alone.marginals(), (node[b, own][None], edge[b, own][None]))
        assert_close(alone.max_marginals(), tree.max_marginals()[b, own][None])


@both_backends
def test_marginals_are_consistent(backend: str) -> None:
    _, _, parents, mask = potentials = random_trees(6, 25, 6, forbidden=0.05)
    node, edge = Tree(*potentials, backend=backend).marginals()
    assert_close(node.sum(-1), mask.double())
    hangs = mask & (parents >= 0)
    assert_close(edge.sum(2), node * hangs[..., None])
    above = node.gather(1, torch.where(hangs, parents, 0)[..., None].expand(node.shape))
    assert_close(edge.sum(3), above * hangs[..., None])


def test_lengths_count_nodes() -> None:
    unary, pairwise, parents, mask = medium()
    tree = Tree(unary, pairwise, parents, mask)
    assert torch.equal(tree.lengths, mask.sum(1))
    y = some_labels(unary)
    wrong = torch.where(mask, (y + 1) % 4, 0)
    zeros = Tree(unary * 0, pairwise * 0, parents, mask)
    assert_close(zeros.cost_augmented(y, NormalizedHamming()).score(wrong), torch.ones(5, dtype=torch.float64))
    assert_close(zeros.cost_augmented(y, Hamming()).max()[0], mask.sum(1).double())


@both_backends
@every_oracle
def test_tensors_of_the_caller_stay_as_they_are(oracle: str, backend: str) -> None:
    unary, pairwise, parents, mask = medium()
    leaf = torch.zeros_like(unary, requires_grad=True)
    inputs = (unary.transpose(0, 1).contiguous().transpose(0, 1), pairwise, parents, mask, leaf)  # one not contiguous
    before = [(tensor.clone(), tensor.requires_grad, tensor._version) for tensor in inputs]
    outputs = ORACLES[oracle](Tree(*inputs[:4], backend=backend))
    assert not any(output.requires_grad for output in outputs)
    sum(output.sum() for output in ORACLES[oracle](Tree(leaf, *inputs[1:4], backend=backend))).backward()
    for tensor, (content, requires_grad, version) in zip(inputs, before, strict=True):
        assert torch.equal(tensor, content)
        assert (tensor.requires_grad, tensor._version) == (requires_grad, version)


@both_backends
@every_oracle
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_oracles_work_where_gradients_are_off(context: Callable[[], Any], oracle: str, backend: str) -> None:
    potentials = medium()
    expected = ORACLES[oracle](Tree(*potentials, backend=backend))
    with context():
        assert_close(ORACLES[oracle](Tree(*(tensor.clone() for tensor in potentials), backend=backend)), expected)


@both_backends
@every_oracle
def test_an_empty_batch_gives_empty_answers(oracle: str, backend: str) -> None:
    unary, pairwise, parents, mask = random_trees(0, 3, 2)
    results = values_and_gradients(oracle, on(backend, parents, mask), unary, pairwise)
    assert all(result.shape[0] == 0 for result in results)


def test_replacing_keeps_the_trees() -> None:
    unary, pairwise, parents, mask = medium()
    tree = Tree(unary, pairwise, parents, mask, backend="torch", validate_args=False)
    other = tree.replace(unary * 2, pairwise * 2)
    assert torch.equal(other.mask, mask)
    assert torch.equal(other.parents, parents)
    assert (other.backend, other.validate_args) == ("torch", False)
    assert_close(other.max()[0], tree.max()[0] * 2)
    assert tree.unary is unary


# Precision. Float16 and bfloat16 scores are exact in float32, in which their sums are accumulated.


@both_backends
@every_oracle
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_float32_is_close_to_float64(scale: float, oracle: str, backend: str) -> None:
    """Relative to the largest; probabilities and sums of them lose the digits before the point of the log-partition."""
    unary, pairwise, parents, mask = random_trees(4, 50, 9, seed=3)
    single = (unary * scale).float(), (pairwise * scale).float()
    *actual, a_unary, a_pairwise = values_and_gradients(oracle, on(backend, parents, mask), *single)
    double = single[0].double(), single[1].double()
    *expected, e_unary, e_pairwise = values_and_gradients(oracle, on(backend, parents, mask), *double)
    for pairs, tolerance in [
        (zip(actual, expected, strict=True), 1e-5 if oracle == "marginals" else 1e-6),
        ([(a_unary, e_unary), (a_pairwise, e_pairwise)], 1e-5),
    ]:
        for a, e in pairs:
            assert a.dtype == torch.float32
            assert (a - e).abs().max() <= tolerance * max(1.0, e.abs().max())


@both_backends
@every_oracle
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_accumulated_in_float32(dtype: torch.dtype, oracle: str, backend: str) -> None:
    unary, pairwise, parents, mask = medium()
    half, build = (unary.to(dtype), pairwise.to(dtype)), on(backend, parents, mask)
    *values, first, second = values_and_gradients(oracle, build, *half)
    *expected, e_first, e_second = values_and_gradients(oracle, build, *(scores.float() for scores in half))
    assert_close(values, expected, rtol=0, atol=0)
    assert_close((first, second), (e_first.to(dtype), e_second.to(dtype)))


@both_backends
def test_mixed_precision_takes_the_wider_type(backend: str) -> None:
    unary, pairwise, parents, mask = medium()
    build = on(backend, parents, mask)
    assert_close(build(unary.half(), pairwise).logsumexp(), build(unary.half().double(), pairwise).logsumexp())


@both_backends
@given(potentials=small_trees(outputs=1000, ties=False), scale=st.sampled_from([100.0, 400.0, 1e3, 1e4]))
def test_extreme_dynamic_range(backend: str, potentials: TreePotentials, scale: float) -> None:
    unary, pairwise, parents, mask = potentials
    wide = unary * scale, pairwise * scale
    actual = values_and_gradients("logsumexp", on(backend, parents, mask), *wide)
    expected = values_and_gradients("logsumexp", lambda *s: EnumeratedTree(*s, parents, mask), *wide)
    assert_close(actual, expected, rtol=1e-12, atol=1e-9)


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


# Devices, threads and compilation.


@every_oracle
def test_the_torch_backend_never_looks_at_values(oracle: str) -> None:
    """Tensors on the meta device have none: nothing waits for a GPU."""
    potentials = medium()
    shapes = [value.shape for value in ORACLES[oracle](Tree(*potentials))]
    tree = Tree(*(tensor.to("meta") for tensor in potentials), validate_args=False)
    assert [value.shape for value in ORACLES[oracle](tree)] == shapes


@pytest.mark.usefixtures("two_threads")
@every_oracle
def test_threads_do_not_change_the_answer(oracle: str) -> None:
    unary, pairwise, parents, mask = random_trees(33, 20, 12, forbidden=0.01)
    shared = values_and_gradients(oracle, on("compiled", parents, mask), unary, pairwise)
    torch.set_num_threads(1)
    alone = values_and_gradients(oracle, on("compiled", parents, mask), unary, pairwise)
    assert_close(shared, alone, rtol=1e-13, atol=1e-13)


@both_backends
@pytest.mark.parametrize(
    "loss",
    [StructuralHinge(), StructuralHinge.crf(), StructuralHinge.softmax_margin(), StructuralHinge.sparsemap(k=3)],
    ids=["hinge", "crf", "softmax_margin", "sparsemap"],
)
def test_losses_compile_without_graph_breaks(loss: StructuralHinge, backend: str) -> None:
    unary, pairwise, parents, mask = random_trees(3, 4, 3)
    y = some_labels(unary)

    def run(unary: Tensor, pairwise: Tensor) -> Tensor:
        return loss(on(backend, parents, mask)(unary, pairwise), y)

    torch.compiler.reset()
    compiled_run = torch.compile(run, fullgraph=True, backend="aot_eager")  # raises at a graph break
    assert_close(vjp(compiled_run, (unary, pairwise)), vjp(run, (unary, pairwise)))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # by opcheck
def test_operators_are_registered_correctly() -> None:
    unary, pairwise, parents, mask = random_trees(2, 3, 2)
    inputs = unary.requires_grad_(), pairwise.requires_grad_(), parents, mask
    torch.library.opcheck(compiled.top_k, (*inputs, 3))
    torch.library.opcheck(compiled.marginals, inputs)
    torch.library.opcheck(compiled.max_marginals, inputs)


# Bad input.

B, N, S = 2, 3, 4
PARENTS = [[-1, 0, 1], [2, 2, -1]]


def tree(**changes: Any) -> Tree:
    good = {"unary": torch.zeros(B, N, S), "pairwise": torch.zeros(B, N, S, S), "parents": torch.tensor(PARENTS)}
    return Tree(**good | changes)


def labels(*shape: int, label: int = 0) -> Tensor:
    return torch.full(shape or (B, N), label)


def with_parents(parents: list[list[int]], mask: list[list[int]] | None = None) -> Tree:
    return tree(parents=torch.tensor(parents), mask=None if mask is None else torch.tensor(mask).bool())


CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "unary is a list": (lambda: tree(unary=[[[0.0]]]), TypeError, "unary must be .* got list"),
    "unary holds integers": (lambda: tree(unary=labels(B, N, S)), TypeError, "unary .* floating point"),
    "unary is a matrix": (lambda: tree(unary=torch.zeros(N, S)), ValueError, r"unary .* \[B, N, S\] .* got \(3, 4\)"),
    "no nodes": (lambda: tree(unary=torch.zeros(B, 0, S)), ValueError, "unary .* N, S >= 1"),
    "unary is NaN": (lambda: tree(unary=torch.full((B, N, S), math.nan)), ValueError, "unary must not contain NaN"),
    "pairwise is None": (lambda: tree(pairwise=None), TypeError, "pairwise must be .* got NoneType"),
    "pairwise is complex": (lambda: tree(pairwise=torch.zeros(B, N, S, S) * 1j), TypeError, "pairwise .* floating"),
    "pairwise is shared": (lambda: tree(pairwise=torch.zeros(S, S)), ValueError, r"pairwise .* got \(4, 4\)"),
    "pairwise is +inf": (
        lambda: tree(pairwise=torch.full((B, N, S, S), math.inf)),
        ValueError,
        r"pairwise must not contain NaN or \+inf",
    ),
    "pairwise elsewhere": (
        lambda: tree(pairwise=torch.zeros(B, N, S, S, device="meta")),
        ValueError,
        "pairwise must be on the device of unary, cpu, got meta",
    ),
    "parents are floats": (lambda: tree(parents=torch.zeros(B, N)), TypeError, "parents must be integers"),
    "parents are booleans": (lambda: tree(parents=torch.ones(B, N).bool()), TypeError, "parents must be integers"),
    "parents are None": (lambda: tree(parents=None), TypeError, "parents must be .* got NoneType"),
    "parents of one example": (lambda: tree(parents=torch.tensor([-1, 0, 0])), ValueError, r"parents .* got \(3,\)"),
    "parents elsewhere": (lambda: tree(parents=labels().to("meta")), ValueError, "parents must be on .* got meta"),
    "own parent": (lambda: with_parents([[-1, 1, 0], [2, 2, -1]]), ValueError, "parents .* cycle; example 0: node 1"),
    "cycle": (lambda: with_parents([[-1, 0, 1], [1, 2, 0]]), ValueError, "parents .* cycle; example 1: node 0"),
    "parent N": (lambda: with_parents([[-1, 0, 3], [2, 2, -1]]), ValueError, "parents .* node 2 has parent 3"),
    "parent -2": (lambda: with_parents([[-1, 0, 1], [2, -2, -1]]), ValueError, "parents .* node 1 has parent -2"),
    "parent is padding": (
        lambda: with_parents(PARENTS, [[1, 0, 1], [1, 1, 1]]),
        ValueError,
        "parents must not be padding; example 0: node 2 has parent 1",
    ),
    "no node left": (lambda: with_parents(PARENTS, [[1, 1, 1], [0, 0, 0]]), ValueError, "mask .* example 1 has none"),
    "mask is a list": (lambda: tree(mask=[[True] * N] * B), TypeError, "mask must be .* got list"),
    "mask holds integers": (lambda: tree(mask=labels(label=1)), TypeError, "mask must be boolean, got torch.int64"),
    "mask of one example": (lambda: tree(mask=torch.ones(N).bool()), ValueError, r"mask .* \[B, N\] = \(2, 3\), got"),
    "mask elsewhere": (lambda: tree(mask=torch.ones(B, N, device="meta").bool()), ValueError, "mask must be on"),
    "unknown backend": (lambda: tree(backend="cuda"), ValueError, "backend must be .* got 'cuda'"),
    "compiled elsewhere": (
        lambda: Tree(
            *(torch.zeros(shape, device="meta") for shape in ((B, N, S), (B, N, S, S))),
            labels().to("meta"),
            backend="compiled",
        ),
        ValueError,
        "compiled backend runs on the CPU only",
    ),
    "one potential": (lambda: tree().replace(torch.zeros(B, N, S)), ValueError, "replace takes two potentials"),
    "other nodes": (
        lambda: tree().replace(torch.zeros(B, 2, S), torch.zeros(B, 2, S, S)),
        ValueError,
        r"unary must have shape .* got \(2, 2, 4\)",
    ),
    "replaced by NaN": (
        lambda: tree().replace(torch.full((B, N, S), math.nan), torch.zeros(B, N, S, S)),
        ValueError,
        "unary must not contain NaN",
    ),
    "k is 0": (lambda: tree().topk(0), ValueError, "k must be at least 1"),
    "k is a float": (lambda: tree().topk(2.0), TypeError, "k must be an int"),
    "y is a list": (lambda: tree().score([[0] * N] * B), TypeError, "y must be .* got list"),
    "y holds floats": (lambda: tree().parts(torch.zeros(B, N)), TypeError, "y must hold integer labels"),
    "y of another shape": (lambda: tree().score(labels(B, 2)), ValueError, r"y must have shape \[B, N\] = \(2, 3\)"),
    "y elsewhere": (lambda: tree().score(labels().to("meta")), ValueError, "y must be on .* got meta"),
    "label S": (lambda: tree().score(labels(label=S)), ValueError, "y must hold labels from 0 to 3"),
    "cost of another shape": (
        lambda: tree().cost_augmented(labels(), torch.zeros(B, N, S, S)),
        ValueError,
        "cost must broadcast",
    ),
    "costs of bad labels": (lambda: tree().cost_augmented(labels(label=-1), Hamming()), ValueError, "y must hold"),
}


@pytest.mark.parametrize("name", CASES)
def test_refuses(name: str) -> None:
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()


def test_the_good_calls_behind_the_bad_ones_are_good() -> None:
    assert tree().score(labels()).shape == (B,)
    assert with_parents([[-1, 0, 1], [2, 9, -1]], [[1, 1, 1], [1, 0, 1]]).max()[1].shape == (B, N)


def test_values_are_not_checked_on_request() -> None:
    bad = tree(unary=torch.full((B, N, S), math.nan), validate_args=False)
    assert bad.replace(*bad.potentials).validate_args is False


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
        good = any(mask) and all(ends_at_a_root(v, parents, mask) for v in range(nodes) if mask[v])
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
