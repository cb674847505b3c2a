"""Batches of nothing, examples that are wrong, and scores at the limits of their dtype: one rule for all layers."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth import (
    L2,
    Alignment,
    BinaryGraph,
    Candidates,
    Constituents,
    Entropy,
    FactorGraph,
    Grammar,
    Hamming,
    HiddenMarkov,
    LinearChain,
    Matching,
    Max,
    MinimumRisk,
    ProjectiveTree,
    SemiMarkov,
    SiblingTree,
    SlackRescaledHinge,
    SpanningTree,
    SparseMAP,
    SPOPlus,
    StructuralHinge,
    Structure,
    Subset,
    Tree,
)
from structsmooth.decisions import IMLE, Perturbed, linear_sum_assignment, normalized_regret, regret
from structsmooth.factors import Automaton, Budget
from structsmooth.smoothing import Smoother
from structsmooth.structures import Accepted, LowRankChain
from structsmooth.structures.checks import Backend, ForbiddenLabelsError, NonFiniteScoresError, NoOutputError

INF = math.inf
EDGE, NO_EDGES = torch.tensor([[0, 1]]), torch.zeros(0, 2, dtype=torch.int64)


def of_nothing() -> list[Structure]:
    """A batch of no examples for each kind of structure."""
    z = torch.zeros
    return [
        Candidates(z(0, 3)),
        LinearChain(z(0, 3, 2), z(2, 2)),
        LinearChain(z(0, 3, 2), z(2, 2), backend="torch"),
        Tree(z(0, 2, 2), z(0, 2, 2, 2), z(0, 2).long()),
        BinaryGraph(z(0, 2, 2), EDGE, z(0, 1, 2, 2)),
        Matching(z(0, 2, 2)),
        FactorGraph(z(0, 2, 2), EDGE, z(2, 2)),
        SemiMarkov(z(0, 3, 2), z(2, 2), z(2, 2)),
        Constituents(z(0, 3, 3, 2)),
        ProjectiveTree(z(0, 3, 3), z(0, 3)),
        SpanningTree(z(0, 3, 3), z(0, 3)),
        Alignment(z(0, 2, 2)),
        Subset(z(0, 3, 2), 2),
    ]


@pytest.mark.parametrize("space", of_nothing(), ids=lambda own: type(own).__name__)
def test_losses_of_no_examples_are_zero_with_gradients(space: Structure) -> None:
    structure = space.replace(*(p.clone().requires_grad_() for p in space.potentials))
    y = space.max()[1]
    losses = [
        StructuralHinge(L2(1.0, 2)),
        StructuralHinge.crf(reduction="token"),
        StructuralHinge(SparseMAP(parts="first")),
        StructuralHinge.perturbed(),
        SlackRescaledHinge(),
        MinimumRisk(),
    ]
    for loss in losses:
        try:
            value = loss(structure, y)
        except (NotImplementedError, TypeError) as error:
            assert "exact" in str(error) or "slack rescaling" in str(error)  # noqa: PT017 - not all spaces have all
            continue
        assert value == 0
        assert value.requires_grad
        value.backward()
    assert IMLE(n=2)(structure).shape[0] == 0
    assert SPOPlus()(structure, space) == 0 == normalized_regret(space, space)
    assert not any(bool(p.grad.isnan().any()) for p in structure.potentials if p.grad is not None)


@pytest.mark.parametrize("loss", [StructuralHinge.crf("token"), StructuralHinge(reduction="token")])
@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_the_mean_over_no_tokens_is_zero(loss: StructuralHinge, backend: str) -> None:
    unary, transition = torch.randn(2, 3, 3, requires_grad=True), torch.zeros(3, 3, requires_grad=True)
    chain = LinearChain(unary, transition, mask=torch.zeros(2, 3, dtype=torch.bool), backend=backend)  # type: ignore[arg-type]
    value = loss(chain, torch.full((2, 3), -100))
    value.backward()
    assert value == 0
    assert unary.grad is not None
    assert transition.grad is not None
    assert not unary.grad.any()
    assert not transition.grad.any()


def test_assignments_of_no_examples_and_of_wrong_ones() -> None:
    assert linear_sum_assignment(torch.zeros(0, 3, 2)).shape == (0, 2)
    costs = torch.zeros(3, 3, 2)
    costs[1, 0, 0] = torch.nan
    with pytest.raises(NonFiniteScoresError, match="costs must not contain NaN or -inf, got some in example 1 "):
        linear_sum_assignment(costs)


@pytest.mark.parametrize("call", [lambda s: SPOPlus()(s, s), lambda s: regret(s, s), Perturbed(n=2), IMLE(n=2)])
def test_examples_without_outputs_are_named(call: Callable[[Structure], Tensor]) -> None:
    with pytest.raises(NoOutputError, match="example 1 of the batch must have an output"):
        call(Subset(torch.zeros(2, 3, 2), 2, torch.tensor([3, 1])))


def test_scores_that_are_no_numbers_are_named() -> None:
    unary, transition = torch.zeros(4, 3, 2), torch.zeros(2, 2)
    unary[1, 2, 0], unary[3, 0, 1] = torch.nan, INF
    with pytest.raises(NonFiniteScoresError, match=r"unary must not contain NaN or \+inf, got some in examples 1, 3 "):
        LinearChain(unary, transition)
    LinearChain(unary[:2], transition, torch.tensor([3, 2]))  # at padding anything will do
    with pytest.raises(NonFiniteScoresError, match=r"transition .* got some in all examples"):
        LinearChain(torch.zeros(2, 3, 2), torch.full((2, 2), torch.nan))


def one_wrong(value: float) -> dict[str, Callable[[], tuple[Structure, Tensor]]]:
    """Spaces whose example 1 has a score that is no number, or none but forbidden ones."""
    unary = torch.randn(3, 3, 2, generator=torch.Generator().manual_seed(0))
    unary[1] = value
    y, zero = torch.tensor([[0, 1, 1]] * 3), torch.zeros
    return {
        "candidates": lambda: (Candidates(unary[:, 0], validate_args=False), y[:, 0]),
        "chain": lambda: (LinearChain(unary, zero(2, 2), validate_args=False), y),
        "torch": lambda: (LinearChain(unary, zero(2, 2), validate_args=False, backend="torch"), y),
        "tree": lambda: (Tree(unary, zero(3, 3, 2, 2), torch.tensor([[-1, 0, 0]] * 3), validate_args=False), y),
        "subset": lambda: (Subset(unary, 2, validate_args=False), y),
        "graph": lambda: (
            FactorGraph(unary, torch.tensor([[0, 1], [1, 2], [0, 2]]), zero(2, 2), validate_args=False),
            y,
        ),
    }


LAYERS: dict[str, Callable[[Structure, Tensor], Tensor]] = {
    "hinge": StructuralHinge(reduction="none"),
    "crf": StructuralHinge.crf("none"),
    "top k": StructuralHinge(L2(1.0, 2), reduction="none"),
    "sparse": StructuralHinge(SparseMAP(parts="first"), reduction="none"),
    "perturbed": StructuralHinge(Perturbed(1e-6, n=2, seed=0), None, "none"),
    "spo": lambda space, y: SPOPlus(reduction="none")(space, space.feasible(), y),
    "risk": lambda space, y: MinimumRisk(reduction="none")(space, y),
    "expected cost": lambda space, y: space.expected_cost(y, Hamming()),
    "entropy": lambda space, y: space.entropy(),
    "marginals": lambda space, y: space.marginals()[0].square().flatten(1).sum(1),
    "sparse marginals": lambda space, y: space.sparse_marginals()[0].square().flatten(1).sum(1),
}


@pytest.mark.parametrize("value", [-INF, INF, math.nan])
@pytest.mark.parametrize("name", list(one_wrong(0.0)))
@pytest.mark.parametrize("layer", list(LAYERS))
def test_without_checks_a_wrong_example_leaves_the_others(layer: str, name: str, value: float) -> None:
    structure, y = one_wrong(value)[name]()

    def gradients(rows: slice) -> tuple[Tensor, ...]:
        potentials = [p.clone().requires_grad_() for p in structure.potentials]
        values = LAYERS[layer](structure.replace(*potentials)[rows], y[rows])
        if rows == slice(None) and layer in ("hinge", "crf", "top k", "sparse", "perturbed"):
            assert values[1] == INF
        others = values if rows != slice(None) else values[::2]
        assert bool(others.isfinite().all())
        return torch.autograd.grad(values.sum(), potentials, materialize_grads=True)

    for whole, alone in zip(gradients(slice(None)), gradients(slice(None, None, 2)), strict=True):
        assert_close(whole[::2] if len(whole) == 3 else whole, alone[::2] if len(whole) == 3 else alone)
        assert len(whole) < 3 or not whole[1].any()


@pytest.mark.parametrize("name", list(one_wrong(0.0)))
def test_a_maximum_does_not_pass_over_nan(name: str) -> None:
    structure, y = one_wrong(0.0)[name]()
    first = structure.potentials[0].clone()
    first[1].view(-1)[0] = math.nan  # of a label that is not the best one
    wrong = structure.replace(first, *structure.potentials[1:])
    for smoother in (Max(), L2(1.0, 2), SparseMAP(parts="first"), Entropy()):
        assert (StructuralHinge(smoother, reduction="none")(wrong, y) == INF).tolist() == [False, True, False]
    assert (regret(wrong, structure) == INF).tolist() == [False, True, False]


def one_nan(backend: Backend) -> dict[str, Structure]:
    """Spaces whose example 1 uses NaN in the last of its potentials that are its own."""
    z, nan, rest = torch.zeros, torch.zeros(2, 3, 2), {"validate_args": False, "backend": backend}
    nan[1, 0, 1] = math.nan
    chain, siblings = LinearChain(nan, z(2, 2), **rest), z(2, 3, 3, 3)
    siblings[1, 0, 0, 1] = math.nan
    return {
        "chain": chain,
        "accepted": Accepted(chain, Automaton.from_pattern("A* B A*", ["A", "B"])),
        "grammar": Grammar(z(2, 2, 2), nan, z(2), **rest),
        "hidden Markov": HiddenMarkov(z(2), z(2, 2), nan, **rest),
        "low rank": LowRankChain(nan, z(2, 1), z(1, 2), **rest),
        "semi-Markov": SemiMarkov(nan, z(2, 2), z(2, 2), **rest),
        "siblings": SiblingTree(z(2, 3, 3), siblings, z(2, 3), **rest),
        "tree": ProjectiveTree(siblings[:, 0], z(2, 3), **rest),
        "spanning tree": SpanningTree(siblings[:, 0], z(2, 3), validate_args=False),
    }


@pytest.mark.parametrize("smoother", [Max(), L2(1.0, 2), Entropy(), Entropy(0.5), SparseMAP(parts="first")])
@pytest.mark.parametrize("name", list(one_nan("torch")))
def test_smoothers_of_a_wrong_example_are_those_of_none_with_every_backend(name: str, smoother: Smoother) -> None:
    for backend in ("compiled", "torch"):
        structure = one_nan(backend)[name]
        potentials = [p.clone().requires_grad_() for p in structure.potentials]
        values = smoother(structure.replace(*potentials))
        assert values[1] == -INF < values[0] < INF
        gradients = torch.autograd.grad(values.sum(), potentials, materialize_grads=True)
        assert not any(bool(gradient.isnan().any()) for gradient in gradients)


def test_scores_that_all_examples_share_make_all_wrong() -> None:
    unary, transition = torch.randn(2, 3, 2, requires_grad=True), torch.full((2, 2), math.nan, requires_grad=True)
    values = StructuralHinge(reduction="none")(
        LinearChain(unary, transition, validate_args=False), torch.zeros(2, 3).long()
    )
    values.sum().backward()
    assert values.tolist() == [INF, INF]
    assert unary.grad is not None
    assert transition.grad is not None
    assert not unary.grad.any()
    assert not transition.grad.any()


def test_a_teacher_without_outputs_leaves_the_others() -> None:
    student, teacher = torch.zeros(2, 3, requires_grad=True), torch.tensor([[0.0, 1.0, 2.0], [-INF, -INF, -INF]])
    crf = StructuralHinge.crf("none")
    with pytest.raises(NoOutputError, match="example 1"):
        crf(Candidates(student), Candidates(teacher))
    values = crf(Candidates(student), Candidates(teacher, validate_args=False))
    values.sum().backward()
    assert values[0] < INF == values[1]
    assert student.grad is not None
    assert student.grad[0].any()
    assert not student.grad[1].any()


def test_differences_of_large_sums() -> None:
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        arcs, root = (8e5 * torch.randn(shape, generator=generator) for shape in ((1, 6, 6), (1, 6)))
        tree = SpanningTree(arcs, root)
        assert tree.log_prob(tree.max()[1]) <= 0
        unary, transition = (300 * torch.randn(shape, generator=generator) for shape in ((1, 60, 4), (4, 4)))
        chain = LinearChain(unary, transition, backend="torch")
        y = torch.randint(4, (1, 60), generator=generator)
        exact = StructuralHinge.crf()(LinearChain(unary.double(), transition.double()), y)
        assert_close(StructuralHinge.crf()(chain, y), exact.float(), rtol=1e-6, atol=0.0)
        assert StructuralHinge.crf()(chain, chain.max()[1]) >= 0


@pytest.mark.parametrize("edges", [[[0, 1], [1, 2], [0, 2]], [[1, 0], [1, 2]]], ids=["cycle", "forest"])
def test_entropy_of_a_graph_at_large_scores(edges: list[list[int]]) -> None:
    unary = torch.tensor([[[0.0, 0.0], [0.0, -9e6], [0.0, -9e6]]], dtype=torch.float64) + 3e6 / 7
    graph = FactorGraph(unary, torch.tensor(edges), torch.full((2, 2), 1e6 / 3, dtype=torch.float64))
    assert abs(graph.entropy().item() - math.log(2)) < 1e-8


def test_entropy_of_a_graph_is_that_of_its_outputs() -> None:
    generator = torch.Generator().manual_seed(0)
    for edges in ([[0, 1], [1, 2], [0, 2]], [[0, 1], [1, 2]]):
        unary = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64)
        tables = torch.randn(len(edges), 2, 2, generator=generator, dtype=torch.float64)
        graph = FactorGraph(unary, torch.tensor(edges), tables)
        p = graph.topk(8)[0].softmax(1)
        assert_close(graph.entropy(), -(p * p.log()).sum(1))


class Unsaid(Candidates):
    """Candidates that have not said what their positions are."""

    labels_are_classes = False


def test_hamming_does_not_guess_positions() -> None:
    with pytest.raises(TypeError, match=r"Unsaid does not say what its positions are, so Hamming\(\)"):
        Unsaid(torch.zeros(2, 3)).cost_augmented(torch.tensor([0, 1]), Hamming())
    with pytest.raises(TypeError, match=r"cost=lambda structure, y: costs.* labels_are_classes = True"):
        Unsaid(torch.zeros(2, 3)).minimum_bayes_risk()


def test_alignments_whose_end_is_out_of_reach() -> None:
    for scores in (torch.zeros(1, 1, 2), torch.zeros(1, 1, 3)):
        for backend in ("compiled", "torch"):
            space = Alignment(scores, ((1, 0), (1, 1)), backend=backend)  # type: ignore[arg-type]
            assert space.max()[0] == -INF == space.logsumexp()


def test_no_node_may_have_the_label() -> None:
    graph = FactorGraph(torch.ones(1, 2, 2), NO_EDGES, torch.zeros(2, 2), factors=[Budget(torch.arange(2), 0)])
    assert graph.max()[1].tolist() == [[0, 0]]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # that of torch for jvp
def test_second_derivatives_without_edges() -> None:
    def log_z(unary: Tensor) -> Tensor:
        return FactorGraph(unary, NO_EDGES, torch.zeros(2, 2)).logsumexp().sum()

    hessian = torch.func.hessian(log_z)(torch.zeros(1, 1, 2))
    assert_close(hessian.flatten(), torch.tensor([0.25, -0.25, -0.25, 0.25]))


def test_examples_without_parts() -> None:
    """They have one output, of nothing, whose score is 0."""
    for backend in ("compiled", "torch"):
        unary = torch.randn(2, 3, 2, requires_grad=True)
        chain = LinearChain(unary, torch.zeros(2, 2), torch.tensor([0, 2]), backend=backend)  # type: ignore[arg-type]
        values, y = chain.topk(2)
        assert values[0].tolist() == [0, -INF]
        assert not y[:, :, 2].any()
        assert chain.logsumexp()[0] == 0
        StructuralHinge.crf()(chain, y[:, 0]).backward()
        assert unary.grad is not None
        assert not unary.grad[0].any()
    none, z = torch.tensor([0, 2]), torch.zeros
    trees = torch.randn(2, 3, 3)
    for backend in ("compiled", "torch"):
        own: Any = {"backend": backend}
        spaces: list[Structure] = [
            Tree(trees, z(2, 3, 3, 3), z(2, 3).long() - 1, torch.arange(3) < none[:, None], **own),
            Subset(torch.randn(2, 3, 2), (0, 2), none, **own),
            SemiMarkov(trees, z(3, 3), z(2, 3), lengths=none, **own),
            Constituents(torch.randn(2, 3, 3, 2), none, **own),
            Constituents(torch.randn(2, 3, 3, 2), none, binary=True, **own),
            ProjectiveTree(trees, trees[0, :2], lengths=none, **own),
            ProjectiveTree(trees, trees[0, :2], lengths=none, single_root=False, **own),
            Alignment(trees, lengths=torch.tensor([[0, 2], [2, 2]]), **own),
        ]
        spaces += [SpanningTree(trees, trees[0, :2], lengths=none, single_root=single) for single in (False, True)]
        for space in spaces:
            values, y = space.topk(2)
            assert values[0].tolist() == [0, -INF], type(space)
            assert space.logsumexp()[0] == space.entropy()[0] == 0
            assert_close(space.score(y[:, 0]), values[:, 0])
            assert_close(space.sample(2)[0, 0], y[0, 0])
            assert not any(own[0].any() for own in space.marginals() if own.dim() > 1)
            assert not space.max_marginals()[0].any()
            assert StructuralHinge.crf("none")(space, y[:, 0])[0] == 0
        assert Subset(torch.randn(2, 3, 2), 2, none, **own).max()[0][0] == -INF  # there is no item to take
    weights = torch.randn(3, 2, 2)
    matching = Matching(weights, torch.tensor([[0, 2], [0, 0], [1, 0]]), unmatched_rows=torch.full((3, 2), 0.5))
    values, y = matching.topk(2)
    assert values.tolist() == [[0.0, -INF], [0.0, -INF], [0.5, -INF]]
    assert_close(matching.score(y[:, 0]), values[:, 0])
    assert Matching(weights, torch.tensor([[0, 2], [0, 0], [0, 1]])).max()[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_losses_of_large_scores_in_float32_are_differences_in_float64(backend: str) -> None:
    unary = torch.tensor([[[1e6, 1e6 - 0.5]] * 3])
    chain = LinearChain(unary, torch.zeros(2, 2), backend=backend)
    loss = StructuralHinge.crf()(chain, torch.zeros(1, 3, dtype=torch.int64))
    assert loss.item() == pytest.approx(3 * math.log1p(math.exp(-0.5)), rel=1e-6)


def test_regrets_of_large_scores_are_not_negative() -> None:
    for seed in range(20):
        scores = 1e6 * torch.randn(1, 4, 2, generator=torch.Generator().manual_seed(seed))
        assert SPOPlus()(Subset(scores, 2), Subset(scores / 2, 2)) >= 0


def test_bands_agree_about_examples_without_cells() -> None:
    for lengths, backend in itertools.product(([0, 1], [0, 0], [1, 0]), ("auto", "torch")):
        sizes, zeros = torch.tensor([lengths, [2, 2]]), torch.zeros(2, 2).long()
        space = Alignment(torch.zeros(2, 2, 2), lengths=sizes, band=zeros, backend=backend)  # type: ignore[arg-type]
        value, y = space.max()
        for found in (space.topk(2)[0][:, 0], space.score(y), space.logsumexp()[:1], space.log_prob(y)[:1]):
            assert_close(found, value[: len(found)])
        assert value.tolist() == [0, 0]


def test_forbidden_labels_are_named_with_the_part_that_is() -> None:
    z, y = torch.zeros, torch.zeros(3, 6).long()
    y[2, 4] = 1
    chain, durations = LinearChain(z(3, 6, 2), z(2, 2)), z(3, 2)
    unary, pairs = z(3, 6, 2), z(2, 2)
    unary[2, 4, 1] = pairs[0, 1] = -INF
    segments, durations[2, 1] = torch.tensor([[0, 1, -1, -1, 0, -1]] * 3), -INF
    segments[:2, 1] = 0
    spaces = [
        (LinearChain(unary, z(2, 2)), y, "example 2 of the batch.* label 1 at position 4 is not allowed"),
        (LinearChain(unary, z(2, 2), backend="torch"), y, "label 1 at position 4 is not allowed"),
        (chain.replace(z(3, 6, 2), pairs), y, "label 1 after label 0, from position 3 to 4, is not allowed"),
        (SemiMarkov(z(3, 6, 2), z(2, 2), durations), segments, "3 positions with label 1, from position 1 to 3, is"),
        (SemiMarkov(z(3, 6, 2), pairs, z(3, 2)), segments, "label 1 after label 0, at position 1, is not allowed"),
        (SemiMarkov(unary, z(2, 2), z(3, 2)), y, "label 1 at position 4 is not allowed"),
        (Candidates(unary[:, 4]), y[:, 4], r"the part scores\[1\] is not allowed"),
        (Matching(z(3, 2, 2)), z(3, 2).long(), "no output of Matching, although each of their parts is allowed"),
    ]
    for (space, labels, message), loss in itertools.product(spaces, (StructuralHinge.crf(), StructuralHinge())):
        if isinstance(space, Matching) and loss.cost is None:
            continue  # has no likelihood
        with pytest.raises(ForbiddenLabelsError, match=message):
            loss(space, labels)


def test_nested_tensors_are_refused_by_name() -> None:
    z, own = torch.zeros, torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(3, 3)], layout=torch.jagged)
    makers: list[Callable[[], Any]] = [
        lambda: LinearChain(own, z(3, 3)),
        lambda: SemiMarkov(own, z(3, 3), z(2, 3)),
        lambda: Tree(own, z(2, 3, 3, 3), z(2, 3).long()),
        lambda: Candidates(own),
        lambda: Matching(own),
        lambda: Alignment(own),
        lambda: ProjectiveTree(own, z(2, 3)),
        lambda: Subset(own, 2),
    ]
    for make in makers:
        with pytest.raises(TypeError, match=r"a nested one: take \w+.to_padded_tensor\(0\)"):
            make()
