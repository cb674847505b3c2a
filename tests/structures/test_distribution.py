"""Structures as distributions: every query against enumeration, samples by their frequencies, perturb and max."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from enumeration import FORMS, EnumeratedLabels, random_chains
from hypothesis import given, settings
from hypothesis import strategies as st
from member import Instance, Member, changed, potentials_of, with_potentials
from scipy.stats import chisquare
from structure_members import CANDIDATES, MEMBERS, enumerated, every, plans_when_built
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import Candidates, Hamming, LinearChain, Tree, WeightedHamming
from structsmooth.costs import NormalizedHamming
from structsmooth.structures import PartCosts

INF = math.inf

Query = Callable[[Any, Any, Tensor, PartCosts], Tensor]  # structure, another one, labels, cost
QUERIES: dict[str, Query] = {
    "log_prob": lambda structure, other, y, cost: structure.log_prob(y),
    "log_count": lambda structure, other, y, cost: structure.log_count(),
    "entropy": lambda structure, other, y, cost: structure.entropy(),
    "cross_entropy": lambda structure, other, y, cost: structure.cross_entropy(other),
    "kl": lambda structure, other, y, cost: structure.kl(other),
    "expected_cost": lambda structure, other, y, cost: structure.expected_cost(y, cost),
    "minimum_bayes_risk": lambda structure, other, y, cost: structure.minimum_bayes_risk(cost)[0],
}
every_query = pytest.mark.parametrize("query", QUERIES)
NOTHING = {"log_prob": -INF, "log_count": -INF, "minimum_bayes_risk": INF}  # of an example without outputs; 0 elsewhere


def has_exp_oracle(name: str, member: Member) -> bool:
    return "logsumexp" in member.oracles


def enumerated_with_exp_oracle(name: str, member: Member) -> bool:
    return enumerated(name) and has_exp_oracle(name, member)


def labels(member: Member, instance: Instance) -> Tensor:
    return member.labels(potentials_of(instance)[0])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moved(instance: Instance, forbidden: float = 0.0) -> Instance:
    """Other potentials, which forbid what those of the instance do, and perhaps more."""
    generator = seeded(99)

    def move(scores: Tensor) -> Tensor:
        noise = torch.randn(scores.shape, generator=generator, dtype=scores.dtype)
        return (scores + noise).masked_fill(torch.rand(scores.shape, generator=generator) < forbidden, -INF)

    return changed(instance, move)


class Brute:
    """The queries, output by output, on top of an enumeration."""

    def __init__(self, member: Member, instance: Instance) -> None:
        self.structure, self.twin = member.build(*instance, validate_args=False), member.twin(*instance)

    @property
    def log_p(self) -> list[Tensor]:
        rows = []
        for scores in self.twin.scores:
            allowed = scores > -INF
            log_z = scores[allowed].logsumexp(0) if allowed.any() else torch.zeros(())
            rows.append(torch.where(allowed, scores - log_z, -INF))
        return rows

    def costs(self, cost: PartCosts, b: int) -> Tensor:
        """ℓ(y, y') of all outputs y and y' of an example: [n, n]."""
        y = self.twin.outputs[b]
        if y.dim() == 1:
            batch = len(self.twin.outputs)
            return torch.stack([cost(self.structure, torch.full((batch,), int(j)))[b] for j in y]).double()
        classes, _ = self.structure[torch.full((len(y),), b)].as_classes(y)
        wrong = (classes[:, None] != classes) & self.twin.real[b]
        costs = wrong * cost.mistake_cost(classes, self.twin.real[b].sum()).unsqueeze(1)
        return costs.flatten(2).sum(-1)

    def rows_of(self, y: Tensor) -> list[int]:
        """Where the outputs stand in the enumeration; -1 for none, the zeros of an example without outputs."""
        pairs = zip(self.twin.outputs, self.structure.checked_labels(y), strict=True)
        return [next(iter((own == row).view(len(own), -1).all(1).nonzero()[:, 0].tolist()), -1) for own, row in pairs]

    def log_prob(self, y: Tensor) -> Tensor:
        return torch.stack([log_p[i] for log_p, i in zip(self.log_p, self.rows_of(y), strict=True)])

    def log_count(self) -> Tensor:
        return torch.tensor([float((scores > -INF).sum()) for scores in self.twin.scores]).double().log()

    def entropy(self) -> Tensor:
        return self.cross_entropy(self)

    def cross_entropy(self, other: Brute) -> Tensor:
        return -torch.stack([expected(p, q) for p, q in zip(self.log_p, other.log_p, strict=True)])

    def kl(self, other: Brute) -> Tensor:
        difference = self.cross_entropy(other) - self.entropy()
        return torch.where(difference < INF, difference, INF)

    def expected_cost(self, y: Tensor, cost: PartCosts) -> Tensor:
        rows = zip(self.log_p, self.rows_of(y), strict=True)
        return torch.stack([expected(p, self.costs(cost, b)[i]) for b, (p, i) in enumerate(rows)])

    def risks(self, cost: PartCosts) -> list[Tensor]:
        """Expected costs [n] of all outputs; +inf where they are forbidden."""
        return [torch.where(p > -INF, p.exp() @ self.costs(cost, b), INF) for b, p in enumerate(self.log_p)]

    def minimum_bayes_risk(self, cost: PartCosts) -> tuple[Tensor]:
        return (torch.stack([risk.min() for risk in self.risks(cost)]),)


def expected(log_p: Tensor, values: Tensor) -> Tensor:
    """Σ p · values; what has probability 0 does not count. A sum that is infinite is a constant, without gradient.

    Otherwise its gradient, zero times infinite terms, would be NaN, and all gradients of shared potentials with it.
    """
    allowed = log_p > -INF
    total = (log_p[allowed].exp() * values[allowed]).sum()
    return total if total.isfinite() else total.detach()


def values_and_gradients(
    query: str, build: Callable[..., Any], instance: Instance, other: Instance, y: Tensor, cost: PartCosts
) -> tuple[Tensor, ...]:
    """Values, and the gradients of a weighted sum of those that are finite."""
    potentials = (*potentials_of(instance), *potentials_of(other))

    def run(*potentials: Tensor) -> Tensor:
        half = len(potentials) // 2
        pair = (build(*with_potentials(instance, p)) for p in (potentials[:half], potentials[half:]))
        return QUERIES[query](*pair, y, cost)

    values = run(*potentials)
    weights = torch.where(values.isfinite(), torch.arange(1.0, 1 + len(values)).cos().to(values), 0.0)
    return values, *vjp(run, potentials, weights)[1]


# Against enumeration.


@every(enumerated_with_exp_oracle)
def test_queries_match_enumeration(member: Member) -> None:
    @settings(max_examples=settings.default.max_examples * 2 // 5)
    @given(member.small(None), st.sampled_from([0.0, 0.0, 0.1]))
    def check(instance: Instance, forbidden: float) -> None:
        other, y = moved(instance, forbidden), labels(member, instance)
        arguments = instance, other, y, member.cost
        if max(len(outputs) for outputs in member.twin(*instance).outputs) > 300:
            return
        for query in QUERIES:
            actual, *gradients = values_and_gradients(query, member.build, *arguments)
            expected, *enumerated_gradients = values_and_gradients(query, lambda *i: Brute(member, i), *arguments)
            assert_close(actual, expected, rtol=1e-9, atol=1e-9, msg=query)
            if query != "minimum_bayes_risk":  # among ties any minimizer is a subgradient
                finite = [gradient.nan_to_num() for gradient in enumerated_gradients]
                assert_close(gradients, finite, rtol=1e-9, atol=1e-9, msg=query)

    check()


@pytest.mark.parametrize("forbidden", [0.0, 0.2])
@pytest.mark.parametrize("ties", [False, True])
@every(has_exp_oracle)
def test_no_feasible_output_has_less_risk(member: Member, ties: bool, forbidden: float) -> None:
    classes = member.structure("tiny").class_marginals().shape[-1]
    costs = (member.cost,) if "scores" in member.structure("tiny").potential_names else (
        Hamming(), NormalizedHamming(), WeightedHamming(tuple((1.0, 5.0, 0.3)[j % 3] for j in range(classes)))
    )  # fmt: skip
    for seed in range(4):
        instance = member.random("tiny", seed=seed, ties=ties, forbidden=forbidden)
        structure, brute = member.build(*instance), Brute(member, instance)
        for cost in costs:
            risk, y = structure.minimum_bayes_risk(cost)
            for b, (risks, i) in enumerate(zip(brute.risks(cost), brute.rows_of(y), strict=True)):
                assert_close(risk[b], risks.min())
                if risk[b] < INF:
                    assert_close(risks[i], risks.min())
                else:
                    assert not y[b].any()
        assert_close(structure.minimum_bayes_risk()[0], structure.minimum_bayes_risk(Hamming())[0])


@every(has_exp_oracle)
def test_costs_may_be_of_every_kind_of_part(member: Member) -> None:
    instance, costs = member.random("tiny"), potentials_of(member.random("tiny", seed=9))
    structure, y = member.build(*instance), labels(member, instance)
    pairs = zip(Brute(member, instance).log_p, member.twin(*with_potentials(instance, costs)).scores, strict=True)
    assert_close(structure.expected_cost(y, costs), torch.stack([expected(p, values) for p, values in pairs]))
    with pytest.raises(TypeError, match="cost must decompose over variables: a tensor of costs, got tuple"):
        structure.minimum_bayes_risk(lambda structure, y: costs)


def test_costs_of_masked_candidates_may_be_anything() -> None:
    candidates = Candidates(torch.tensor([[0.0, 5.0, 1.0]]), torch.tensor([[True, False, True]]))
    costs = torch.tensor([[0.0, math.nan, 2.0], [math.nan, math.nan, math.nan], [1.0, math.nan, 0.0]])
    p = candidates.marginals()[0]
    assert_close(candidates.expected_cost(torch.tensor([2]), costs[2:]), p[:, 0])
    risk, y = candidates.minimum_bayes_risk(lambda _, y: costs[y])
    assert_close((risk, y), (2 * p[:, 0], torch.tensor([2])))


def test_masked_candidates_are_forbidden() -> None:
    mask = torch.tensor([[True, False]])
    all_of_them, one = Candidates(torch.zeros(1, 2)), Candidates(torch.zeros(1, 2), mask)
    assert_close((all_of_them.kl(one), one.kl(all_of_them)), (torch.tensor([INF]), torch.tensor([2.0]).log()))


@every_query
@every(has_exp_oracle)
def test_gradcheck(member: Member, query: str) -> None:
    instance = member.random("least")
    other, y = moved(instance), labels(member, instance)
    potentials = [scores.requires_grad_() for scores in (*potentials_of(instance), *potentials_of(other))]

    def finite(*potentials: Tensor) -> Tensor:
        half = len(potentials) // 2
        pair = (member.build(*with_potentials(instance, p)) for p in (potentials[:half], potentials[half:]))
        values = QUERIES[query](*pair, y, member.cost)
        return values[values.isfinite()]

    if query == "log_count":
        assert not finite(*potentials).requires_grad
    else:
        assert torch.autograd.gradcheck(finite, potentials, fast_mode=True)


# What must not matter.


@every_query
@every(enumerated_with_exp_oracle)
def test_an_example_without_outputs_has_no_gradient(member: Member, query: str) -> None:
    instance = member.random("medium")
    other = moved(instance)
    potentials_of(instance)[0][member.block] = -INF
    for first, second in ((instance, other), (instance, instance)):
        values, *gradients = values_and_gradients(
            query, member.build, first, second, labels(member, instance), member.cost
        )
        assert values[0] == NOTHING.get(query, 0.0)
        assert not any(tensor.isnan().any() for tensor in (values, *gradients))
        assert not any(gradient[0].any() for gradient in gradients if len(gradient) == len(values))
    structure = member.build(*instance)
    for y in (structure.sample(5, seeded()), structure.minimum_bayes_risk(member.cost)[1].unsqueeze(1)):
        assert not y[0].any()
    if query in ("cross_entropy", "kl"):
        values, *gradients = values_and_gradients(
            query, member.build, other, instance, labels(member, instance), member.cost
        )
        assert values[0] == INF
        assert not any(gradient.isnan().any() for gradient in gradients)


@pytest.mark.parametrize("garbage", [math.nan, *(pytest.param(g, marks=pytest.mark.long) for g in (INF, -INF))])
@every_query
@every(lambda name, member: has_exp_oracle(name, member) and ("Chain" not in name or FORMS[-1] in name))
def test_padding_may_hold_anything(member: Member, query: str, garbage: float) -> None:
    instance = member.random("medium")

    def dirty(instance: Instance) -> Instance:
        pairs = zip(potentials_of(instance), member.used(*instance), strict=True)
        return with_potentials(instance, [scores.masked_fill(~own, garbage) for scores, own in pairs])

    other, y = moved(instance), labels(member, instance)
    clean = values_and_gradients(query, member.build, instance, other, y, member.cost)
    assert_close(
        values_and_gradients(query, member.build, dirty(instance), dirty(other), y, member.cost), clean, rtol=0, atol=0
    )
    samples = [member.build(*i).sample(9, seeded()) for i in (instance, dirty(instance))]
    assert torch.equal(*samples)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@every(has_exp_oracle)
def test_queries_work_where_gradients_are_off(member: Member, context: Callable[[], Any]) -> None:
    instance = member.random("medium")
    other, y = moved(instance), labels(member, instance)

    def answers(*instances: Instance) -> list[Tensor]:
        pair = [member.build(*(tensor.clone() for tensor in i)) for i in instances]
        return [*(run(*pair, y, member.cost) for run in QUERIES.values()), pair[0].sample(4, seeded())]

    expected = answers(instance, other)
    with context():
        assert_close(answers(instance, other), expected, rtol=0, atol=0)


@every(
    lambda name, member: has_exp_oracle(name, member) and "compiled" not in name and not plans_when_built(name, member)
)
def test_queries_in_torch_never_look_at_values(member: Member) -> None:
    """Tensors on the meta device have none: nothing waits for a GPU."""
    instance = member.random("medium")
    y = labels(member, instance)
    pair = [member.build(*(t.to("meta") for t in i), validate_args=False) for i in (instance, moved(instance))]
    for query in QUERIES.values():
        assert query(*pair, y.to("meta"), Hamming()).shape == (len(y),)
    assert pair[0].sample(7).shape == (len(y), 7, *y.shape[1:])


@every(has_exp_oracle)
def test_float32_is_close_to_float64(member: Member) -> None:
    single = changed(member.random("long", seed=1), Tensor.float)
    pair, y = (single, moved(single)), labels(member, single)
    for query, run in QUERIES.items():
        actual = run(*(member.build(*i) for i in pair), y, Hamming())
        wide = run(*(member.build(*changed(i, Tensor.double)) for i in pair), y, Hamming())
        assert actual.dtype == torch.float32
        assert_close(actual.double(), wide, rtol=1e-5, atol=1e-4, msg=query)


@every(has_exp_oracle)
def test_half_precision_gives_values_in_float32(member: Member) -> None:
    half = changed(member.random("medium"), Tensor.half)
    y = labels(member, half)
    for query, run in QUERIES.items():
        actual, wide = (
            run(member.build(*i), member.build(*i), y, member.cost) for i in (half, changed(half, Tensor.float))
        )
        assert actual.dtype == torch.float32
        assert_close(actual, wide, rtol=0, atol=0, msg=query)


@every(has_exp_oracle)
def test_a_distribution_diverges_from_others_only(member: Member) -> None:
    instance = member.random("medium", forbidden=0.05)
    structure, other = member.build(*instance), member.build(*moved(instance))
    assert_close(structure.kl(structure), torch.zeros_like(structure.entropy()), rtol=0, atol=1e-12)
    feasible = structure.logsumexp() > -INF
    assert (structure.kl(other)[feasible] > 1e-3).all()
    uniform = structure.replace(*(torch.where(scores > -INF, 0.0, -INF) for scores in structure.potentials))
    assert_close(uniform.entropy()[feasible], structure.log_count().float()[feasible])


# Samples.


def assert_frequencies(samples: Tensor, outputs: Tensor, p: Tensor) -> None:
    """Of outputs [n, ...] with probabilities p; by a chi-square test, in which rare outputs share a cell."""
    same = (samples.view(len(samples), 1, -1) == outputs.view(1, len(outputs), -1)).all(-1)
    assert (same.sum(1) == 1).all()
    counts, expected = same.sum(0).double(), p * len(samples)
    assert not counts[p == 0].any()
    often = expected >= 5
    cells = [(counts[often], expected[often])]
    if expected[~often].sum() > 0:
        cells.append((counts[~often].sum()[None], expected[~often].sum()[None]))
    observed, wanted = (torch.cat(column).numpy() for column in zip(*cells, strict=True))
    assert len(wanted) == 1 or chisquare(observed, wanted * (observed.sum() / wanted.sum())).pvalue > 1e-3


def assert_samples(samples: Tensor, brute: Brute) -> None:
    for own, outputs, log_p in zip(samples, brute.twin.outputs, brute.log_p, strict=True):
        if (log_p > -INF).any():
            assert_frequencies(own, outputs, log_p.exp())
        else:
            assert not own.any()


@pytest.mark.parametrize(("ties", "forbidden"), [(False, 0.0), (True, 0.2)])
@every(has_exp_oracle)
def test_samples_have_the_frequencies_of_their_probabilities(member: Member, ties: bool, forbidden: float) -> None:
    for seed in range(3):
        instance = member.random("tiny", seed=seed, ties=ties, forbidden=forbidden)
        structure = member.build(*instance)
        samples = structure.sample(4000, seeded(seed))
        assert samples.dtype == torch.int64
        assert_samples(samples, Brute(member, instance))


@every(lambda name, member: has_exp_oracle(name, member) and "compiled" in name)
@pytest.mark.parametrize("size", ["single", "medium", "long"])
def test_backends_draw_the_same_samples(member: Member, size: str) -> None:
    (name,) = (name for name, other in MEMBERS.items() if other is member)
    instance = member.random(size, forbidden=0.02)
    both = [MEMBERS[name.replace("compiled", b)].build(*instance).sample(50, seeded()) for b in ("compiled", "torch")]
    assert torch.equal(*both)
    assert both[0].any()


@every(has_exp_oracle)
def test_a_seed_determines_the_samples(member: Member) -> None:
    structure = member.structure()
    generator = seeded(1)
    for run in (lambda g: structure.sample(9, g), lambda g: structure.perturb_and_max(9, g)[1]):
        first, second, again = run(generator), run(generator), run(seeded(1))
        generator = seeded(1)
        assert torch.equal(first, again)
        assert not torch.equal(first, second)
        torch.manual_seed(5)
        default = run(None)
        torch.manual_seed(5)
        assert torch.equal(default, run(None))


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_samples_do_not_depend_on_where_scores_stand(backend: Any) -> None:
    """Scores moved from labels to pairs and back would underflow if exponentials of messages were all there is."""
    unary, transition, lengths = random_chains(3, 6, 4, "[B, T-1, S, S]", lengths=[6, 3, 5])
    shift = 900 * torch.randn(3, 5, 4, generator=seeded(3), dtype=torch.float64)
    there = unary.clone()
    there[:, :-1] += shift
    edges = transition - shift.unsqueeze(-1)
    there[1, 2], there[2, 4] = unary[1, 2], unary[2, 4]  # no pair follows the last label
    expected = LinearChain(unary, transition, lengths, backend=backend).sample(200, seeded())
    assert torch.equal(LinearChain(there, edges, lengths, backend=backend).sample(200, seeded()), expected)
    parents, mask = torch.arange(-1, 5).expand(3, 6), torch.arange(6) < lengths[:, None]
    trees = [
        Tree(u, torch.nn.functional.pad(t, (0, 0, 0, 0, 1, 0)), parents, mask, backend=backend).sample(200, seeded())
        for u, t in ((unary, transition), (there, edges))
    ]
    assert torch.equal(*trees)


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_samples_are_zero_where_the_last_variable_forbids_everything(backend: Any) -> None:
    unary = torch.tensor([-INF, 0.0]).repeat(1, 3, 1)
    unary[0, 2] = -INF
    tree = Tree(unary, torch.zeros(1, 3, 2, 2), torch.tensor([[-1, 0, -1]]), backend=backend)
    for structure in (LinearChain(unary, torch.zeros(2, 2), backend=backend), tree):
        assert not structure.sample(4).any()


def test_noise_is_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, generator, **options: torch.zeros(shape, **options))
    assert Candidates(torch.zeros(1, 1)).perturb_and_max(1)[0].isfinite().all()


@every(has_exp_oracle)
def test_samples_of_large_scores_are_the_best_outputs(member: Member) -> None:
    structure = member.build(*changed(member.random("long", seed=2), lambda scores: 1e4 * scores))
    values, y = structure.topk(2)
    clear = values[:, 0] - values[:, 1] > 50
    assert clear.any()
    assert torch.equal(structure.sample(3, seeded())[clear], y[clear, :1].expand_as(structure.sample(3)[clear]))


@pytest.mark.usefixtures("two_threads")
@every(lambda name, member: "compiled" in name)
def test_threads_do_not_change_the_samples(member: Member) -> None:
    structure = member.structure("large", forbidden=0.01)
    shared = structure.sample(20, seeded())
    torch.set_num_threads(1)
    assert torch.equal(shared, structure.sample(20, seeded()))


@every(has_exp_oracle)
def test_an_empty_batch_gives_empty_answers(member: Member) -> None:
    instance = member.random("tiny")
    batch = len(potentials_of(instance)[0])
    structure = member.build(*(tensor[:0] if len(tensor) == batch else tensor for tensor in instance))
    y = labels(member, instance)[:0]
    assert structure.sample(3).shape == (0, 3, *y.shape[1:])
    assert structure.perturb_and_max(3)[0].shape == (0, 3)
    for query in QUERIES.values():
        assert query(structure, structure, y, member.cost).shape == (0,)


# Perturb and max.


@every()
def test_perturbed_values_are_bounds_in_expectation(member: Member) -> None:
    """Without interactions the bound is an equality; pixels of subwindows and pairs are no variables, and have none."""
    instance = changed(member.random("tiny"), lambda scores: 2 * scores)
    structure = member.build(*instance)
    values, y = structure.perturb_and_max(200, seeded())
    assert values.shape == y.shape[:2]
    assert all((structure.score(outputs) > -INF).all() for outputs in y[:, :20].unbind(1))
    gap, error = values.mean(1) - member.twin(*instance).logsumexp(), values.std(1) / 200**0.5
    if "Candidates" in type(structure).__name__ or member.twin is EnumeratedLabels:
        assert (gap.abs() < 4 * error).all()
    elif "Subwindows" not in type(structure).__name__ and getattr(structure, "row_capacities", None) is None:
        assert (gap > -3 * error).all()


def test_perturbed_values_are_above_the_log_partition_where_variables_interact() -> None:
    chain = LinearChain(torch.zeros(1, 6, 3), 4 * torch.eye(3))
    values, _ = chain.perturb_and_max(300, seeded())
    assert 0.5 < values.mean() - chain.logsumexp() < 5


def test_of_candidates_perturbed_maxima_are_exact_samples() -> None:
    for seed in range(3):
        instance = CANDIDATES.random("tiny", seed=seed, forbidden=0.2)
        samples = CANDIDATES.build(*instance).perturb_and_max(4000, seeded(seed))[1]
        assert_samples(samples, Brute(CANDIDATES, instance))


@every()
def test_gradients_of_perturbed_values_are_the_parts_of_their_outputs(member: Member) -> None:
    instance = member.random("tiny", forbidden=0.1)
    build, y = member.on(instance), member.build(*instance).perturb_and_max(4, seeded())[1]
    potentials = potentials_of(instance)
    values, gradients = vjp(
        lambda *p: build(*p).perturb_and_max(4, seeded())[0], potentials, torch.ones(len(y), 4).double()
    )
    feasible = values[:, 0] > -INF
    stand_in = labels(member, instance)
    structure = member.build(*instance)

    def scores(*potentials: Tensor) -> Tensor:
        chosen = torch.where(feasible.view(-1, *[1] * (stand_in.dim() - 1)), y.transpose(0, 1), stand_in)
        total = torch.stack([build(*potentials).score(own) for own in chosen], 1)
        return torch.where(feasible[:, None], total, 0.0)

    assert_close(gradients, vjp(scores, potentials, torch.ones(len(y), 4).double())[1])
    assert not y[~feasible].any()
    assert structure.perturb_and_max(1, seeded())[0].isfinite()[feasible].all()


# Refusals.


@every(lambda name, member: not has_exp_oracle(name, member))
def test_a_missing_oracle_is_named(member: Member) -> None:
    structure = member.structure("tiny")
    y = labels(member, member.random("tiny"))
    name = type(structure).__name__
    runs = [
        lambda: structure.sample(2),
        *(lambda q=q: q(structure, structure, y, member.cost) for q in QUERIES.values()),
    ]
    for run in runs:
        with pytest.raises(NotImplementedError, match=f"{name} has no exact"):
            run()


def test_arguments_are_checked() -> None:
    chain = LinearChain(torch.zeros(2, 3, 2), torch.zeros(2, 2))
    for run in (chain.sample, chain.perturb_and_max):
        for wrong in (2.0, True, "2"):
            with pytest.raises(TypeError, match="n must be an int"):
                run(wrong)
        with pytest.raises(ValueError, match="n must be at least 1, got 0"):
            run(0)
    for run in (chain.kl, chain.cross_entropy):
        with pytest.raises(TypeError, match="other must be a LinearChain, got Candidates"):
            run(Candidates(torch.zeros(2, 3)))
        with pytest.raises(ValueError, match=r"first potentials of shape \(2, 3, 2\), got \(2, 4, 2\)"):
            run(LinearChain(torch.zeros(2, 4, 2), torch.zeros(2, 2)))
        with pytest.raises(ValueError, match="other must have the lengths"):
            run(LinearChain(torch.zeros(2, 3, 2), torch.zeros(2, 2), torch.tensor([3, 2])))
    with pytest.raises(ValueError, match="y must have shape"):
        chain.expected_cost(torch.zeros(2, 4).long(), Hamming())
