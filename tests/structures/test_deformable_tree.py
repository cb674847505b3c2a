"""Deformable trees: against trees with tables, springs at their limits, larger grids, and refusals."""

import pytest
import torch
from enumeration import Placements, random_placements, rest_positions
from oracles import values_and_gradients
from refusals import Refusals, refusing
from torch import Tensor
from torch.testing import assert_close

from structsmooth import DeformableTree, StructuralHinge, Tree
from structsmooth.structures.deformable_tree import reference

NAN, INF = torch.nan, torch.inf


def deformable(unary: Tensor, deformation: Tensor, parents: Tensor) -> DeformableTree:
    return DeformableTree(unary, deformation, parents, rest_positions(len(parents)))


def tabulated(unary: Tensor, deformation: Tensor, parents: Tensor) -> Tree:
    """The same outputs and scores, with tables of pairs of positions."""
    batch, nodes, height, width = unary.shape
    index = torch.arange(height * width)
    places = torch.stack([index % width, index // width], -1).double()
    d = places - places[:, None] - rest_positions(nodes)[:, None, None]
    costs = torch.einsum("vijc,bvc->bvij", torch.stack([d, d**2], -1).flatten(3), deformation)
    return Tree(unary.flatten(2), -costs, parents.expand(batch, nodes))


@pytest.mark.parametrize("forbidden", [0.0, 0.6])
@pytest.mark.parametrize("weight", [0.0, 1e-300, 1e-9, 0.01, 1.0, 1e9])
def test_agrees_with_tables_of_all_pairs(weight: float, forbidden: float) -> None:
    unary, deformation, parents = random_placements(2, 5, 7, 9, forbidden=forbidden)
    deformation[..., 1::2] *= weight
    instance = unary, deformation, parents
    for oracle in ("max", "topk", "max_marginals"):
        actual, expected = (
            values_and_gradients(oracle, lambda u, d, build=build: build(u, d, parents), *instance[:2])
            for build in (deformable, tabulated)
        )
        scale = max(1.0, weight)
        for a, e in zip(actual, expected, strict=True):
            assert_close(a.flatten(), e.flatten(), rtol=1e-10, atol=1e-10 * scale)
    assert torch.equal(deformable(*instance).max()[1], tabulated(*instance).max()[1])


def test_the_compiled_messages_are_those_of_the_reference() -> None:
    unary, deformation, parents = random_placements(2, 9, 17, 23, seed=5, forbidden=0.1)
    used = torch.where((parents >= 0)[:, None], deformation, 0.0)
    expected = reference.max_marginals(unary, used, rest_positions(9), parents)
    assert_close(deformable(unary, deformation, parents).max_marginals(), expected)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 9), (8, 1)])
def test_grids_may_be_lines(height: int, width: int) -> None:
    instance = random_placements(2, 4, height, width, seed=1)
    assert_close(deformable(*instance).max(), tabulated(*instance).max())
    assert_close(deformable(*instance).max_marginals().flatten(2), tabulated(*instance).max_marginals())


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("weight", [0.0, 1e-7, 1e-5, 1e-3, 1.0])
def test_windows_of_any_width_find_the_messages_of_the_reference(weight: float, forbidden: bool) -> None:
    for height, width in ((1, 600), (300, 2), (20, 40)):
        unary, deformation, parents = random_placements(1, 3, height, width, seed=7)
        if forbidden:  # far more than a window
            unary.flatten(2)[..., 50:-50] = -INF
        deformation *= weight
        structure = deformable(unary, deformation, parents)
        used = torch.where((parents >= 0)[:, None], deformation, 0.0)
        expected = reference.max_marginals(unary, used, rest_positions(3), parents)
        assert_close(structure.max_marginals(), expected, rtol=1e-10, atol=1e-10)
        value, y = structure.max()
        assert_close(value, expected.flatten(1).max(1).values)
        assert_close(structure.score(y), value)


def test_anchors_far_outside_the_grid() -> None:
    unary, deformation, parents = random_placements(1, 3, 6, 30, seed=8)
    for anchor in (1e4, -1e4):
        anchors = torch.full((3, 2), anchor).double()
        used = torch.where((parents >= 0)[:, None], deformation, 0.0)
        actual = DeformableTree(unary, deformation, parents, anchors).max_marginals()
        assert_close(actual, reference.max_marginals(unary, used, anchors, parents), rtol=1e-10, atol=0.0)


def test_ties_go_to_the_first_column_but_at_the_root_to_the_first_row() -> None:
    unary = torch.zeros(1, 2, 3, 4)
    unary[:, :, 0, 3] = unary[:, :, 2, 1] = unary[:, :, 2, 3] = unary[:, :, 1, 1] = 1.0
    assert DeformableTree(unary, torch.zeros(2, 4), torch.tensor([-1, 0])).max()[1].tolist() == [[3, 5]]


def test_the_largest_max_marginal_of_every_node_is_the_maximum() -> None:
    structure = deformable(*random_placements(3, 6, 20, 15, seed=2))
    value, y = structure.max()
    assert_close(structure.max_marginals().flatten(2).max(2).values, value[:, None].expand(3, 6))
    assert torch.equal(structure.max_marginals().flatten(2).argmax(2), y)


def test_stiff_springs_keep_nodes_at_their_anchors() -> None:
    unary, _, _ = random_placements(1, 2, 10, 10, seed=3)
    springs, anchors = torch.tensor([0.0, 1e6, 0.0, 1e6]).double(), torch.tensor([[0.0, 0.0], [2.0, -1.0]]).double()
    structure = DeformableTree(unary, springs.expand(2, 4), torch.tensor([-1, 0]), anchors)
    places = structure.coordinates(structure.max()[1])[0]
    assert (places[1] - places[0]).tolist() == [2, -1]


def test_weights_may_be_shared_by_all_examples() -> None:
    unary, deformation, parents = random_placements(3, 4, 5, 6)
    shared = deformation[0]
    structure, alone = (deformable(unary, d, parents) for d in (shared, shared.expand(3, 4, 4)))
    assert_close(structure.topk(3), alone.topk(3))
    assert structure[1].deformation is shared
    assert len(structure[1].unary) == 1
    assert structure.batched().deformation.shape == (3, 4, 4)
    _, *gradients = values_and_gradients("max", lambda u, d: deformable(u, d, parents), unary, shared)
    _, *expected = values_and_gradients("max", lambda u, d: deformable(u, d, parents), unary, alone.deformation)
    assert_close(gradients, [expected[0], expected[1].sum(0)])


def test_coordinates_and_parts_by_hand() -> None:
    structure = DeformableTree(
        torch.zeros(1, 2, 3, 4), torch.ones(2, 4), torch.tensor([1, -1]), torch.tensor([[0.5, 0.0], [9.0, 9.0]])
    )
    y = torch.tensor([[3, 8]])
    assert structure.coordinates(y).tolist() == [[[3, 0], [0, 2]]]
    positions, springs = structure.parts(y)
    assert positions.nonzero().tolist() == [[0, 0, 0, 3], [0, 1, 2, 0]]
    assert springs.tolist() == [[[-2.5, -6.25, 2.0, -4.0], [0.0] * 4]]
    assert structure.score(y).item() == -2.5 - 6.25 + 2.0 - 4.0


def test_any_unary_cost_can_be_added() -> None:
    unary, deformation, parents = random_placements(2, 4, 6, 5, seed=4)
    structure = deformable(unary, deformation.requires_grad_(), parents)
    y = structure.topk(2)[1][:, 1]
    rows, columns = torch.meshgrid(torch.arange(6), torch.arange(5), indexing="ij")
    places = structure.coordinates(y)[..., None, None, :]
    distances = (columns - places[..., 0]) ** 2 + (rows - places[..., 1]) ** 2
    cost = (distances / 4).clamp_max(1.0).double()
    loss = StructuralHinge(cost=cost)(structure, y)
    expected = tabulated(unary + cost, deformation, parents).max()[0] - tabulated(unary, deformation, parents).score(y)
    assert_close(loss, expected.mean())
    loss.backward()
    assert deformation.grad is not None
    assert deformation.grad.any()


def bad(**changes: Tensor) -> DeformableTree:
    """A structure of which some arguments are wrong."""
    good = {
        "unary": torch.zeros(1, 3, 2, 2),
        "deformation": torch.ones(3, 4),
        "parents": torch.tensor([-1, 0, 0]),
        "anchors": torch.zeros(3, 2),
    }
    return DeformableTree(**good | changes, validate_args=True)


def springs(entry: float, index: int, node: int = 1) -> Tensor:
    weights = torch.ones(3, 4)
    weights[node, index] = entry
    return weights


CASES: Refusals = {
    "NaN among scores": (lambda: bad(unary=torch.full((1, 3, 2, 2), NAN)), ValueError, "unary must not contain NaN"),
    "NaN among weights": (lambda: bad(deformation=springs(NAN, 0)), ValueError, "deformation must not contain NaN"),
    "a negative square": (
        lambda: bad(deformation=springs(-0.5, 3)),
        ValueError,
        "deformation must have weights of dx² and dy² that are not negative, got -0.5",
    ),
    "an infinite weight": (lambda: bad(deformation=springs(-INF, 2)), ValueError, "deformation must be finite"),
    "weights of fewer nodes": (
        lambda: bad(deformation=torch.ones(2, 4)),
        ValueError,
        r"deformation must have shape \[N, 4\] = \(3, 4\) or \[B, N, 4\] = \(1, 3, 4\), got \(2, 4\)",
    ),
    "scores without rows": (
        lambda: bad(unary=torch.zeros(1, 3, 4)),
        ValueError,
        r"unary must have shape \[B, N, H, W\]",
    ),
    "a cycle": (lambda: bad(parents=torch.tensor([1, 2, 0])), ValueError, "parents must not form a cycle"),
    "a parent that is no node": (lambda: bad(parents=torch.tensor([-1, 0, 3])), ValueError, "parents must be from -1"),
    "parents for each example": (
        lambda: bad(parents=torch.tensor([[-1, 0, 0]])),
        ValueError,
        r"parents must have shape \[N\] = \(3,\)",
    ),
    "anchors of fewer nodes": (lambda: bad(anchors=torch.zeros(2, 2)), ValueError, r"anchors must have shape \[N, 2\]"),
    "anchors at infinity": (lambda: bad(anchors=torch.full((3, 2), INF)), ValueError, "anchors must be finite"),
    "integers as anchors": (lambda: bad(anchors=torch.zeros(3, 2).long()), TypeError, "anchors must be floating point"),
    "positions outside the grid": (
        lambda: bad().score(torch.tensor([[0, 4, 0]])),
        ValueError,
        "y must hold labels from 0 to 3, got 0 to 4",
    ),
}
test_refuses = refusing(CASES)


def test_weights_of_roots_may_be_anything() -> None:
    assert bad(deformation=springs(NAN, 1, node=0)).max()[0].tolist() == [0.0]


def test_unchecked_parents_do_no_harm() -> None:
    placements: Placements = random_placements(2, 3, 4, 4)
    structure = DeformableTree(*placements[:2], torch.tensor([1, 0, -1]), validate_args=False)
    assert structure.max()[1][:, :2].tolist() == [[0, 0], [0, 0]]
