"""Slack rescaling against enumeration: values, gradients and K best outputs; as a layer, and in problems."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from enumerated_programs import EnumeratedSegmentations, random_segmentations
from enumeration import (
    EnumeratedChain,
    EnumeratedTree,
    Enumeration,
    Potentials,
    TreePotentials,
    random_chains,
    random_trees,
    small_chains,
    small_trees,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from member import Member, potentials_of, with_potentials
from program_members import PROGRAMS
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import (
    BCFW,
    L2,
    BinaryGraph,
    Entropy,
    Hamming,
    LinearChain,
    LinearModuleProblem,
    LinearScore,
    Max,
    ModuleProblem,
    SemiMarkov,
    SlackRescaledHinge,
    StructuralHinge,
    Tree,
    WeightedHamming,
)
from structsmooth.costs import Cost, NormalizedHamming, RescaledMargin
from structsmooth.programs import DynamicProgram
from structsmooth.scores import SlackRescaledScores
from structsmooth.smoothing import Smoother, simplex_projection
from structsmooth.structures import SlackRescaled

INF = torch.inf
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def top_3(z: Tensor) -> Tensor:
    z = z.topk(min(3, len(z))).values
    z = z[z > -INF]
    u = simplex_projection(z.detach() / 0.7)
    return (u * z).sum() - 0.35 * (u.square().sum() - 1)


# Smoothers, and what they make of the rescaled scores of all outputs.
SMOOTHERS: dict[str, tuple[Smoother, Callable[[Tensor], Tensor]]] = {
    "max": (Max(), torch.amax),
    "top-K": (L2(0.7, 3), top_3),
    "exp": (Entropy(0.7), lambda z: 0.7 * (z[z > -INF] / 0.7).logsumexp(0)),
}
every_smoother = pytest.mark.parametrize("name", SMOOTHERS)


def labels(unary: Tensor, seed: int = 0) -> Tensor:
    return torch.randint(unary.shape[2], unary.shape[:2], generator=torch.Generator().manual_seed(seed))


def rescaled(twin: Enumeration, y: Tensor, cost: Cost, lengths: Tensor, mask: Tensor) -> list[Tensor]:
    """Rescaled scores of all outputs of each example."""
    units, gold = cost.mistake_cost(y, lengths[:, None]), twin.score(y)
    scores = []
    for b, outputs in enumerate(twin.outputs):
        mistakes = ((outputs != y[b]) & mask[b]).sum(1)
        allowed = (twin.scores[b] > -INF) & (gold[b] > -INF)
        slack = 1 + torch.where(allowed, twin.scores[b], 0.0) - torch.where(gold[b] > -INF, gold[b], 0.0)
        scores.append(torch.where(allowed, mistakes * units[b, 0] * slack, -INF))
    return scores


def assert_matches(
    name: str,
    structure: Callable[..., LinearChain | Tree],
    twin: Callable[..., Enumeration],
    scores: tuple[Tensor, ...],
) -> None:
    """Values and gradients of both costs are those of enumeration."""
    smoother, of_all = SMOOTHERS[name]
    y, example = labels(scores[0]), structure(*scores)
    weights = torch.arange(1.0, len(y) + 1, dtype=torch.float64)
    for cost in (Hamming(), NormalizedHamming()):
        loss = SlackRescaledHinge(smoother, cost, reduction="none")

        def enumerated(*scores: Tensor, cost: Cost = cost) -> Tensor:
            return torch.stack([*map(of_all, rescaled(twin(*scores), y, cost, example.lengths, example.mask))])

        actual = vjp(lambda *scores, loss=loss: loss(structure(*scores), y), scores, weights)
        assert_close(actual, vjp(enumerated, scores, weights), **EXACT)


@every_smoother
@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_chains_match_enumeration(name: str, backend: str) -> None:
    @settings(max_examples=15)
    @given(small_chains(ties=False, forbidden=0.0))
    def check(potentials: Potentials) -> None:
        *scores, lengths = potentials
        assert_matches(
            name,
            lambda *scores: LinearChain(*scores, lengths, backend=backend),
            lambda *scores: EnumeratedChain(*scores, lengths),
            tuple(scores),
        )

    check()


@every_smoother
@settings(max_examples=15)
@given(potentials=small_trees(outputs=4**4, ties=False, forbidden=0.0))
def test_trees_match_enumeration(name: str, potentials: TreePotentials) -> None:
    unary, pairwise, parents, mask = potentials
    assert_matches(
        name,
        lambda *scores: Tree(*scores, parents, mask),
        lambda *scores: EnumeratedTree(*scores, parents, mask),
        (unary, pairwise),
    )


PROGRAM_MEMBERS = {name: member for name, member in PROGRAMS.items() if name != "SpanningTree"}
every_program = pytest.mark.parametrize("member", PROGRAM_MEMBERS.values(), ids=PROGRAM_MEMBERS)


def mistakes_of_all(structure: DynamicProgram, twin: Enumeration, y: Tensor) -> list[Tensor]:
    """Numbers of variables in which the outputs of each example differ from ``y``."""
    numbers = []
    for b, outputs in enumerate(twin.outputs):
        many = structure[torch.full((len(outputs),), b)]
        classes, correct = (many.as_classes(own)[0] for own in (outputs, y[b].expand_as(outputs)))
        wrong = (classes != correct) & twin.real[b]
        numbers.append(wrong.flatten(1).sum(1))
    return numbers


@every_smoother
@every_program
def test_programs_match_enumeration(member: Member, name: str) -> None:
    """Values and gradients, of outputs of every example."""
    smoother, of_all = SMOOTHERS[name]
    instance = member.random("least" if name == "exp" else "tiny")
    y, weights = member.labels(potentials_of(instance)[0]), torch.arange(1.0, 3, dtype=torch.float64)
    wrong = mistakes_of_all(member.build(*instance), member.twin(*instance), y)
    loss = SlackRescaledHinge(smoother, reduction="none")

    def enumerated(*potentials: Tensor) -> Tensor:
        twin = member.twin(*with_potentials(instance, potentials))
        gold = twin.score(y)
        return torch.stack([of_all(n * (1 + s - g)) for n, s, g in zip(wrong, twin.scores, gold, strict=True)])

    actual = vjp(lambda *p: loss(member.on(instance)(*p), y), potentials_of(instance), weights)
    assert_close(actual, vjp(enumerated, potentials_of(instance), weights), **EXACT)


@every_program
def test_the_best_outputs_of_programs(member: Member) -> None:
    """Whatever ties and forbidden scores there are."""
    for seed in range(4):
        instance = member.random("tiny", seed=seed, ties=seed % 2 == 0, forbidden=0.1 if seed > 1 else 0.0)
        structure, twin = member.build(*instance), member.twin(*instance)
        y = member.labels(potentials_of(instance)[0])
        rescaled = SlackRescaled(structure, y, torch.ones(len(y), dtype=torch.float64))
        values, outputs = rescaled.cost_augmented(y, RescaledMargin()).topk(5)
        for b, (wrong, scores) in enumerate(zip(mistakes_of_all(structure, twin, y), twin.scores, strict=True)):
            gold = twin.score(y)[b]
            allowed = (scores > -INF) & (gold > -INF)
            expected = torch.where(allowed, wrong * (1 + scores.clamp_min(-99) - gold.clamp_min(-99)), -INF)
            best = expected.sort(descending=True).values[:5]
            assert_close(values[b], torch.nn.functional.pad(best, (0, 5 - len(best)), value=-INF), **EXACT)
            found = outputs[b][values[b] > -INF]
            assert len(found.unique(dim=0)) == len(found)


@every_program
def test_outputs_by_the_number_of_mistakes(member: Member) -> None:
    """Of every number, the best ones and sums."""
    for seed, most in ((0, 3), (1, 20)):
        instance = member.random("tiny", seed=seed, forbidden=0.1 * seed)
        structure, twin = member.build(*instance), member.twin(*instance)
        y = member.labels(potentials_of(instance)[0])
        costs = Hamming()(structure, y)
        zeros = [torch.zeros(())] * len(structure.potentials)
        counts = costs if isinstance(costs, tuple) else (costs, *zeros[1:])
        values, outputs = structure.topk_by_count(counts, most, 2)
        sums = structure.logsumexp_by_count(counts, most)
        for b, (wrong, scores) in enumerate(zip(mistakes_of_all(structure, twin, y), twin.scores, strict=True)):
            for c in range(most + 1):
                some = scores[(wrong == c) & (scores > -INF)].sort(descending=True).values
                assert_close(values[b, c], torch.nn.functional.pad(some, (0, 2), value=-INF)[:2], **EXACT)
                assert_close(sums[b, c], some.logsumexp(0) if len(some) else torch.tensor(-INF).double(), **EXACT)
        for c in range(most + 1):
            found = values[:, c, 0] > -INF
            scored = torch.where(found.view(-1, *[1] * (y.dim() - 1)), outputs[:, c, 0], y)
            assert_close(structure.score(scored)[found], values[:, c, 0][found], **EXACT)
            assert not outputs[:, c, 0][~found].any()


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_exactly_k_segments(backend: str) -> None:
    """With gradients: marginals under the condition."""
    instance = random_segmentations(1, 5, 2, 4, lengths=[5])
    structure, twin = SemiMarkov(*instance, backend=backend), EnumeratedSegmentations(*instance)
    zero = torch.zeros(())
    counts = (zero, zero, torch.ones(4, 2), zero)
    values, y = structure.topk_by_count(counts, 3)
    number = (twin.outputs[0] >= 0).sum(1)
    for k in range(4):
        assert_close(values[0, k, 0], torch.where(number == k, twin.scores[0], -INF).max())
        assert k < 2 or int((y[0, k] >= 0).sum()) == k
    unary = instance[0].clone().requires_grad_()
    two = SemiMarkov(unary, *instance[1:], backend=backend).logsumexp_by_count(counts, 3)[0, 2]
    (probability,) = torch.autograd.grad(two, unary)
    p = twin.scores[0][number == 2].softmax(0)
    classes = structure[[0] * len(p)].as_classes(twin.outputs[0][number == 2])[0]
    assert_close(probability[0], (torch.nn.functional.one_hot(classes, 2) * p[:, None, None]).sum(0))


def test_counts_must_fit() -> None:
    structure = SemiMarkov(*random_segmentations(1, 5, 2, 4, lengths=[5]))
    with pytest.raises(ValueError, match="counts must have one tensor for each of 4 potentials, got 1"):
        structure.topk_by_count((torch.zeros(()),), 3)
    negative = (torch.full((), -1.0), *[torch.zeros(())] * 3)
    with pytest.raises(ValueError, match="counts of an output must not be negative in all"):
        structure.topk_by_count(negative, 3)


def assert_lists_the_best(structure: LinearChain | Tree, twin: Enumeration, k: int) -> None:
    """Distinct outputs with the k best rescaled scores, whatever ties and forbidden scores there are."""
    y = labels(structure.unary)
    loss = SlackRescaled(structure, y, torch.ones(len(y), dtype=torch.float64))
    loss = loss.cost_augmented(y, RescaledMargin())
    values, outputs = loss.topk(k)
    allowed = twin.score(y) > -INF
    expected = rescaled(twin, y, Hamming(), structure.lengths, structure.mask)
    for b, scores in enumerate(expected):
        best = scores.sort(descending=True).values[:k]
        assert_close(values[b], torch.nn.functional.pad(best, (0, k - len(best)), value=-INF), **EXACT)
        found = outputs[b][values[b] > -INF]
        assert len(found.unique(dim=0)) == len(found)
        assert bool((values[b] > -INF).any()) == bool(allowed[b])
    for j in range(k):
        found = values[:, j] > -INF
        assert_close(loss.score(outputs[:, j])[found], values[:, j][found], **EXACT)
    if allowed.all():
        assert SlackRescaledHinge(reduction="none")(structure, y).isfinite().all()
        sums = torch.stack([scores.logsumexp(0) for scores in expected])
        assert_close(StructuralHinge.crf("none")(loss, outputs[:, 0]), sums - values[:, 0], **EXACT)
    else:
        example = int((~allowed).long().argmax())
        message = rf"labels of examples? {example}(, .*)? of the batch are forbidden: .*, because .+ is not allowed"
        for given_loss, space in ((SlackRescaledHinge(), structure), (StructuralHinge.crf(), loss)):
            with pytest.raises(ValueError, match=message):
                given_loss(space, y)


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_the_best_outputs_of_chains(backend: str) -> None:
    @settings(max_examples=30)
    @given(small_chains(), st.integers(1, 6))
    def check(potentials: Potentials, k: int) -> None:
        assert_lists_the_best(LinearChain(*potentials, backend=backend), EnumeratedChain(*potentials), k)

    check()


@settings(max_examples=20)
@given(small_trees(outputs=4**4), st.integers(1, 6))
def test_the_best_outputs_of_trees(potentials: TreePotentials, k: int) -> None:
    assert_lists_the_best(Tree(*potentials), EnumeratedTree(*potentials), k)


@every_smoother
def test_losses_of_forbidden_scores_have_finite_gradients(name: str) -> None:
    """Among these examples are some whose labels are forbidden, and some without other outputs."""
    loss = SlackRescaledHinge(SMOOTHERS[name][0], reduction="none")
    for seed in range(20):
        unary, transition, lengths = random_chains(3, 3, 2, seed=seed, forbidden=0.4)
        y = labels(unary)
        for backend in ("compiled", "torch"):
            scores = unary.clone().requires_grad_(), transition.clone().requires_grad_()
            values = loss(LinearChain(*scores, lengths, backend=backend, validate_args=False), y)
            assert (values >= 0).all()
            values[values < INF].sum().backward()
            assert all(score.grad is None or score.grad.isfinite().all() for score in scores)


@every_smoother
def test_gradcheck(name: str) -> None:
    loss = SlackRescaledHinge(SMOOTHERS[name][0], reduction="none")
    unary, transition, lengths = random_chains(3, 3, 2, lengths=[3, 2, 1])
    inputs = unary.requires_grad_(), transition.requires_grad_()
    y = labels(unary)
    for backend in ("compiled", "torch"):
        assert torch.autograd.gradcheck(lambda *s, b=backend: loss(LinearChain(*s, lengths, backend=b), y), inputs)
    unary, pairwise, parents, mask = random_trees(2, 3, 2)
    inputs = unary.requires_grad_(), pairwise.requires_grad_()
    assert torch.autograd.gradcheck(lambda *s: loss(Tree(*s, parents, mask), labels(unary)), inputs)


def test_second_derivatives_of_the_exp_oracle() -> None:
    unary, transition, lengths = random_chains(2, 3, 2, lengths=[3, 2])
    inputs = unary.requires_grad_(), transition.requires_grad_()
    loss = SlackRescaledHinge(Entropy(0.7), reduction="none")
    assert torch.autograd.gradgradcheck(lambda *s: loss(LinearChain(*s, lengths), labels(unary)), inputs)


@every_smoother
@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_masked_positions_do_not_count(name: str, backend: str) -> None:
    unary, transition, _ = random_chains(3, 5, 3)
    y = labels(unary)
    mask = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 1, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    loss = SlackRescaledHinge(SMOOTHERS[name][0], NormalizedHamming(), reduction="none")
    values = loss(LinearChain(unary, transition, mask=mask, backend=backend), torch.where(mask, y, -100))
    for b in range(2):
        alone = LinearChain(unary[b : b + 1, mask[b]], transition, backend=backend)
        assert_close(values[b : b + 1], loss(alone, y[b : b + 1, mask[b]]), **EXACT)
    assert values[2] == 0  # a single output
    chain = LinearChain(unary, transition, mask=mask, backend=backend)
    _, found = SlackRescaled(chain, y, torch.ones(3)).max()
    assert torch.equal(found == -100, ~mask)


def test_a_single_position_is_the_multiclass_hinge() -> None:
    unary = torch.randn(6, 1, 4, generator=torch.Generator().manual_seed(0))
    chain, y = LinearChain(unary, torch.zeros(4, 4)), torch.arange(6)[:, None] % 4
    for smoother, _ in SMOOTHERS.values():
        assert_close(SlackRescaledHinge(smoother)(chain, y), StructuralHinge(smoother)(chain, y))


def test_a_chain_is_a_tree() -> None:
    unary, transition, lengths = random_chains(2, 5, 3, lengths=[5, 3])
    mask = torch.arange(5) < lengths[:, None]
    parents = torch.arange(-1, 4).expand(2, 5)
    chain = LinearChain(unary, transition, lengths)
    tree = Tree(unary, transition.expand(2, 5, 3, 3), parents, mask)
    for smoother, _ in SMOOTHERS.values():
        loss, y = SlackRescaledHinge(smoother, reduction="none"), labels(unary)
        assert_close(loss(chain, y), loss(tree, y), **EXACT)


def test_an_output_that_scores_low_does_not_matter_however_wrong_it_is() -> None:
    chain, y = LinearChain(torch.tensor([[[0.0, -1.5], [0.0, -1.5]]]), torch.zeros(2, 2)), torch.tensor([[0, 0]])
    assert SlackRescaledHinge()(chain, y) == 0 == StructuralHinge()(chain, y)
    chain = LinearChain(torch.tensor([[[0.0, -0.75], [0.0, -0.75]]]), torch.zeros(2, 2))
    assert StructuralHinge()(chain, y) == 0.5  # 2 - 1.5, of two mistakes
    assert SlackRescaledHinge()(chain, y) == 0.25  # 1 - 0.75, of one


def test_the_statistics_of_outputs_are_gradients_of_their_scores() -> None:
    unary, transition, lengths = random_chains(2, 4, 3, "[B, T-1, S, S]")
    y, wrong = labels(unary), labels(unary, 1)
    structure = SlackRescaled(LinearChain(unary, transition, lengths), y, torch.tensor([1.0, 0.5]))
    structure = structure.replace(*(p.clone().requires_grad_() for p in structure.potentials))
    gradients = torch.autograd.grad(structure.score(wrong).sum(), structure.potentials)
    assert_close(structure.parts(wrong), gradients)
    assert not any(part.any() for part in structure.parts(y))


def test_examples_can_be_taken_out_moved_and_detached() -> None:
    unary, transition, lengths = random_chains(3, 4, 3)
    chain, y = LinearChain(unary.requires_grad_(), transition, lengths), labels(unary)
    structure = SlackRescaled(chain, y, torch.tensor([1.0, 0.5, 2.0])).cost_augmented(y, RescaledMargin())
    values = structure.max()[0]
    assert_close(structure[1:].max()[0], values[1:])
    assert_close(structure[2].max()[0], values[2:])
    assert_close(structure.to(torch.float32).max()[0], values.float())
    assert not structure.detach().max()[0].requires_grad
    assert len(structure) == 3


def test_it_is_a_layer() -> None:
    """Compiled to one graph, copied and pickled, with half precision and every reduction."""
    unary, transition, lengths = random_chains(3, 4, 3)
    y = labels(unary)
    for smoother, _ in SMOOTHERS.values():
        loss = SlackRescaledHinge(smoother, reduction="none")
        expected = loss(LinearChain(unary, transition, lengths), y)
        for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
            assert torch.equal(other(LinearChain(unary, transition, lengths), y), expected)
        half = loss(LinearChain(unary.bfloat16(), transition.bfloat16(), lengths), y)
        rounded = loss(LinearChain(unary.bfloat16().float(), transition.bfloat16().float(), lengths), y)
        assert_close(half, rounded)
        summed = SlackRescaledHinge(smoother, reduction="token")(LinearChain(unary, transition, lengths), y)
        assert_close(summed, expected.sum() / lengths.sum())


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_training_steps_compile_as_one_graph(backend: str) -> None:
    unary, transition, lengths = random_chains(2, 3, 2)
    y = labels(unary)

    losses = [SlackRescaledHinge(smoother) for smoother, _ in SMOOTHERS.values()]

    def run(unary: Tensor) -> Tensor:
        chain = LinearChain(unary, transition, lengths, backend=backend)
        return torch.stack([loss(chain, y) for loss in losses])

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert_close(vjp(compiled, unary, weights), vjp(run, unary, weights))


def test_transforms_of_torch_func() -> None:
    unary, transition, _ = random_chains(2, 3, 2)
    y, loss = labels(unary), SlackRescaledHinge(L2(0.7, 3))

    def example(unary: Tensor, y: Tensor) -> Tensor:
        return loss(LinearChain(unary[None], transition), y[None])

    gradients = torch.func.vmap(torch.func.grad(example))(unary, y)
    scores = unary.requires_grad_()
    (expected,) = torch.autograd.grad(2 * loss(LinearChain(scores, transition), y), scores)
    assert_close(gradients, expected)


DATA = [
    (
        torch.randn(3, 4, generator=torch.Generator().manual_seed(i), dtype=torch.float64),
        torch.tensor([i % 2, 1, i % 3]),
    )
    for i in range(8)
]
PAIRS = [((x, y), y) for x, y in DATA]


def test_a_linear_problem_has_a_dual() -> None:
    """BCFW closes the gap, and an unrelated solver of the primal finds no smaller objective than the dual."""
    module = SlackRescaledScores(LinearScore(4, 3), NormalizedHamming())
    problem = LinearModuleProblem(module, PAIRS, RescaledMargin())
    for steps in ("fw", "pairwise"):
        result = BCFW(gap_tolerance=0.0, steps=steps).solve(problem, lam=1.0, passes=40)
        last = result.row
        assert last.gap is not None
        assert 0 <= last.gap < 0.05 * last.objective
    problem.load(result.weights)
    x, y = (torch.stack(column) for column in zip(*DATA, strict=True))
    loss = SlackRescaledHinge(cost=NormalizedHamming())(module.module(x), y) + 0.5 * result.weights.square().sum()
    assert_close(loss.item(), last.objective)
    w = result.weights.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        objective = problem.batch_losses(w, torch.arange(8), Entropy(0.01)).mean() + 0.5 * w.square().sum()
        objective.backward()
        optimizer.step()
        now = w.detach()
        assert problem.loss(now) + 0.5 * float(now @ now) >= last.objective - last.gap - 1e-12


@every_smoother
def test_problems_are_means_of_losses(name: str) -> None:
    smoother = SMOOTHERS[name][0]
    module = SlackRescaledScores(LinearScore(4, 3), NormalizedHamming())
    w = torch.randn(27, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    x, y = (torch.stack(column) for column in zip(*DATA, strict=True))
    linear = LinearModuleProblem(module, PAIRS, RescaledMargin())
    linear.load(w)
    loss = SlackRescaledHinge(smoother, NormalizedHamming())(module.module(x), y)
    expected = loss.item(), torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*module.parameters()])])
    for problem in (linear, ModuleProblem(module, PAIRS, RescaledMargin())):
        value, gradient = problem.loss_and_grad(w, smoother)
        assert_close((value, gradient), expected)


@pytest.mark.parametrize(
    ("cost", "message"),
    [(WeightedHamming((1.0, 2.0, 1.0)), "same for all mistakes"), (WeightedHamming((0.0, 0.0, 0.0)), "positive")],
)
def test_costs_that_differ_are_refused(cost: Cost, message: str) -> None:
    unary, transition, _ = random_chains(2, 3, 3)
    y = torch.tensor([[0, 0, 0], [0, 1, 2]])
    with pytest.raises(ValueError, match=message):
        SlackRescaledHinge(cost=cost)(LinearChain(unary, transition), y)
    unchecked = LinearChain(unary, transition, validate_args=False)
    assert SlackRescaledHinge(cost=cost, reduction="none")(unchecked, y)[1] == INF


def test_equal_weights_are_a_multiple() -> None:
    unary, transition, lengths = random_chains(2, 3, 3)
    chain, y = LinearChain(unary, transition, lengths), labels(unary)
    assert_close(SlackRescaledHinge(cost=WeightedHamming((2.0,) * 3))(chain, y), 2 * SlackRescaledHinge()(chain, y))


def test_other_structures_and_costs_are_refused() -> None:
    graph = BinaryGraph(torch.zeros(1, 2, 2), torch.tensor([[0, 1]]), torch.zeros(1, 1, 2, 2))
    with pytest.raises(TypeError, match=r"for LinearChain, Tree and structures that are programs, .* got BinaryGraph"):
        SlackRescaledHinge()(graph, torch.zeros(1, 2, dtype=torch.int64))
    chain, y = LinearChain(torch.zeros(1, 2, 2), torch.zeros(2, 2)), torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(TypeError, match="needs a Cost"):
        SlackRescaledHinge(cost=torch.zeros(1, 2, 2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cost of SlackRescaled"):
        StructuralHinge(cost=RescaledMargin())(chain, y)
    with pytest.raises(ValueError, match="mistake_cost must have shape"):
        SlackRescaled(chain, y, torch.ones(2))
