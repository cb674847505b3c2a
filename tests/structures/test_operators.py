"""Operators are registered correctly, load nothing that eager code does not need, and stay closed to the compiler."""

import pkgutil
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
import torch
from enumerated_factor_graphs import random_factor_graphs
from enumeration import (
    FORMS,
    random_chains,
    random_graphs,
    random_matchings,
    random_placements,
    random_scores,
    random_trees,
    rest_positions,
)
from member import changed
from structure_members import MEMBERS
from torch import Tensor, fx
from traced import traced

from structsmooth import structures
from structsmooth.structures import (
    Alignment,
    FactorGraph,
    HiddenMarkov,
    LinearChain,
    LocalPolytope,
    SlackRescaled,
    Subset,
)
from structsmooth.structures.chain import operators as chain
from structsmooth.structures.deformable_tree import operators as deformable_tree
from structsmooth.structures.factor_graph import operators as factor_graph
from structsmooth.structures.factor_graph import relaxed_operators as relaxed
from structsmooth.structures.graph_cut import operators as graph_cut
from structsmooth.structures.grids import operators as grids
from structsmooth.structures.inside_outside import operators as inside_outside
from structsmooth.structures.matching import operators as matching
from structsmooth.structures.operators import OPERATORS
from structsmooth.structures.productions import derivations
from structsmooth.structures.programs import operators as programs
from structsmooth.structures.segments import operators as segments
from structsmooth.structures.segments import segmentations
from structsmooth.structures.subwindows import operators as subwindows
from structsmooth.structures.tree import operators as tree


def differentiable(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.requires_grad_() for tensor in tensors)


def calls() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Operators of each kind with arguments."""
    unary, transition, lengths = random_chains(2, 3, 2, FORMS[2], lengths=[3, 2])
    cases: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    no_labels = lengths.new_empty(2, 0, 3)
    for edges in (1, 2):
        inputs = *differentiable(unary.clone(), transition[:edges, :edges].clone()), lengths
        cases |= {
            f"chain top_k {edges}": (chain.top_k, (*(own.detach() for own in inputs), 3)),
            f"chain marginals {edges}": (chain.log_partition_and_marginals, (*inputs, no_labels, edges > 1)),
            f"chain marginals without those of labels {edges}": (
                chain.log_partition_and_marginals,
                (*inputs, torch.ones(2, 1, 3, dtype=torch.int64), edges > 1),
            ),
            f"chain max_marginals {edges}": (chain.max_marginals, inputs),
            f"chain log_partition {edges}": (OPERATORS["chain_log_partition"], inputs),
        }
    unary, pairwise, parents, mask = random_trees(2, 3, 2)
    inputs = *differentiable(unary, pairwise), parents, mask
    cases |= {
        "tree top_k": (tree.top_k, (unary.detach(), pairwise.detach(), parents, mask, 3)),
        "tree marginals": (tree.log_partition_and_marginals, inputs),
        "tree max_marginals": (tree.max_marginals, inputs),
    }
    unary, deformation, parents = random_placements(2, 3, 2, 4)
    used = torch.where((parents >= 0)[:, None], deformation, 0.0)
    constants = unary.clone(), used.clone(), rest_positions(3), parents
    cases |= {
        "deformable_tree top_k": (deformable_tree.top_k, (*constants, 3)),
        "deformable_tree max_marginals": (
            deformable_tree.max_marginals,
            (*differentiable(unary, used), *constants[2:]),
        ),
    }
    unary, edges, pairwise = random_graphs(2, 5, 6)
    constants = unary.clone(), pairwise.clone(), edges, torch.ones(2, 5, 2, dtype=torch.float64)
    inputs = *differentiable(unary, pairwise), edges
    cases |= {
        "graph_cut top_k": (graph_cut.top_k, (*constants[:3], 3)),
        "graph_cut max_marginals": (graph_cut.max_marginals, inputs),
        "graph_cut max_marginals_gradient": (OPERATORS["graph_cut_max_marginals_gradient"], constants),
    }
    weights, sizes = random_matchings([(3, 4), (3, 3)])
    constants = weights.clone(), sizes, torch.ones(2, 3, 4)
    inputs = *differentiable(weights), sizes
    cases |= {
        "matching top_k": (matching.top_k, (*constants[:2], 3)),
        "matching max_marginals": (matching.max_marginals, inputs),
        "matching max_marginals_gradient": (OPERATORS["matching_max_marginals_gradient"], constants),
    }
    absent = [-1, -1, -1]
    for name, extra, scope in (("forests", 0, absent), ("cycles", 2, absent), ("tables", 0, [2, 0, 3])):
        unary, edges, pairwise, *masks = random_factor_graphs(2, 4, extra, 2, padding=False)
        finals = torch.linspace(-1.0, 1.0, 8, dtype=torch.float64).view(2, 1, 4)
        layout = edges, *masks, torch.tensor(scope).expand(2, 1, 3), (torch.arange(8) % 4).view(1, 1, 4, 2)
        inputs = *differentiable(unary, pairwise, finals), *layout
        uniform = torch.full((2, 3, 4), 0.4, dtype=torch.float64)
        constants = unary.detach(), pairwise.detach(), finals.detach(), *layout
        cases |= {
            f"factor_graph top_k of {name}": (factor_graph.top_k, (*constants, 3, 2**18, 1000, 4)),
            f"factor_graph marginals of {name}": (factor_graph._marginals, (*inputs, 2**18)),
            f"factor_graph max_marginals of {name}": (factor_graph.max_marginals, (*inputs, 2**18)),
            f"factor_graph max_marginals_gradient of {name}": (
                factor_graph.max_marginals_gradient,
                (*constants, torch.ones_like(unary), 2**18),
            ),
            f"factor_graph weighted_hessian of {name}": (
                factor_graph.weighted_hessian,
                (*constants, *map(torch.ones_like, constants[:3]), 2**18),
            ),
            f"factor_graph sample of {name}": (factor_graph.sample, (*constants, uniform, 2**18)),
            f"local_polytope largest of {name}": (
                relaxed.largest,
                (*inputs[:2], *inputs[3:6], [], "messages", 1e-6, 100),
            ),
            f"local_polytope logsumexp of {name}": (relaxed.logsumexp, (*constants[:2], *constants[3:6], 100)),
        }
    program = segmentations(3, 2, 2, False)
    which, directions = torch.tensor([2, 1]), torch.ones(2, program.scores, dtype=torch.float64)
    (theta,) = differentiable(random_scores(torch.Generator().manual_seed(1), False, 0.0)(2, program.scores))
    uniform = torch.rand(2, 4, program.depth, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    cases |= {
        "program top_k": (programs.top_k, (theta.detach(), which, program.handle, 3)),
        "program marginals": (programs.log_partition_and_marginals, (theta, which, program.handle)),
        "program log_partition": (OPERATORS["program_log_partition"], (theta, which, program.handle)),
        "program tangents": (programs.tangents, (theta.detach(), directions, which, program.handle)),
        "program max_marginals": (programs.max_marginals, (theta, which, program.handle)),
        "program max_marginals_gradient": (
            OPERATORS["program_max_marginals_gradient"],
            (theta.detach(), which, program.handle, directions),
        ),
        "program sample": (programs.sample, (theta.detach(), which, program.handle, uniform)),
    }
    program = derivations(3, 2, 4, ((2, 0, 1), (3, 1, 2), (2, 1, 0), (3, 2)))
    (theta,) = differentiable(random_scores(torch.Generator().manual_seed(1), False, 0.0)(2, program.scores))
    cases |= {
        "grammar marginals": (inside_outside.sums, (theta, which, program.handle)),
        "grammar log_partition": (OPERATORS["grammar_log_partition"], (theta, which, program.handle)),
    }
    unary, transition, lengths = random_chains(2, 3, 2, lengths=[3, 2])
    inputs = (
        *differentiable(unary, transition.view(1, 1, 2, 2), unary[:1, :2].clone(), unary.new_zeros(2, 0, 0, 0)),
        lengths,
    )
    sums = [own.detach() for own in segments.log_partition(*inputs)[1:]]
    cases |= {
        "segments marginals": (segments.marginals, (*inputs, *sums)),
        "grid log_partition": (grids.log_partition, (*Alignment(unary)._grid(), 1)),
    }
    scores = random_scores(torch.Generator().manual_seed(0), False, 0.0)(1, 5, 6)
    return cases | {"subwindows top_k": (subwindows.top_k, (scores, 3, 1000))}


CALLS = calls()
# Members whose oracles and their gradients run nearly all operators.
TRACED = [
    "LinearChain [B, T-1, S, S] compiled",
    "Tree compiled",
    "DeformableTree",
    "BinaryGraph",
    "FactorGraph",
    "Matching",
    "Matching with unmatched",
    "Subwindows",
    "SemiMarkov compiled",
    "SpanningTree",
    "Grammar compiled",
    "Alignment compiled",
    "Subset compiled",
]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # by opcheck
@pytest.mark.parametrize("name", CALLS)
def test_operators_are_registered_correctly(name: str) -> None:
    operator, arguments = CALLS[name]
    torch.library.opcheck(operator.registered, arguments)


@pytest.mark.parametrize("name", CALLS)
def test_the_short_way_answers_as_the_registered_operator(name: str) -> None:
    operator, arguments = CALLS[name]
    scores = [part for own in arguments for part in (own if isinstance(own, list) else [own])]
    asked = [part for part in scores if isinstance(part, Tensor) and part.requires_grad]
    answers = []
    for way in (operator, operator.registered):
        values = way(*arguments)
        first = values if isinstance(values, Tensor) else values[0]
        gradients = torch.autograd.grad(first.sum(), asked, allow_unused=True) if first.requires_grad else ()
        answers.append([first, *gradients])
    torch.testing.assert_close(*answers, rtol=0, atol=0, equal_nan=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("query", [LinearChain.logsumexp, lambda chain: chain.max()[1]])
def test_traced_calls_answer_for_new_scores(query: Any) -> None:
    unary, transition, new = torch.randn(2, 4, 3), torch.randn(3, 3), torch.randn(2, 4, 3)

    def answer(unary: Tensor) -> Tensor:
        found: Tensor = query(LinearChain(unary, transition))
        return found

    traced_answer = torch.jit.trace(answer, (unary,), check_trace=False)
    torch.testing.assert_close(traced_answer(new), answer(new))


def test_a_profiler_names_operators() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        LinearChain(torch.randn(2, 4, 3), torch.randn(3, 3)).max()
    assert any("structsmooth::" in event.name for event in profiler.events())


@pytest.mark.parametrize(
    "name", ["chain log_partition 1", "chain log_partition 2", "program log_partition", "grammar log_partition"]
)
def test_values_alone_have_derivatives(name: str) -> None:
    """Those who ask for none, as exported graphs may, get them all the same."""
    operator, (*scores, last) = CALLS[name]
    count = sum(own.requires_grad for own in scores)
    others = (*scores[count:], last)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda *potentials: operator(*potentials, *others), tuple(scores[:count]))


def test_traced_results_have_the_shapes_of_real_ones() -> None:
    """Those of kernels have such tests in ``tests/interpreted``."""
    for module in pkgutil.walk_packages(structures.__path__, "structsmooth.structures."):
        with suppress(ImportError):  # without Triton
            import_module(module.name)
    with traced() as names:
        for member in map(MEMBERS.__getitem__, TRACED):
            instance = changed(member.random("medium"), Tensor.float)
            for oracle in member.oracles:
                member.values_and_gradients(oracle, instance)
            if "logsumexp" in member.oracles:
                structure = member.build(*instance)
                structure.logsumexp()
                structure.sample(3)
                structure.entropy()
        unary, lengths = torch.randn(3, 4, 3), torch.tensor([[4, 3]] * 3)
        Alignment(unary, lengths=lengths, band=Alignment.diagonal(lengths, 4, 3)).bound_outside(torch.zeros(3, 4))
        for structure in (LinearChain(unary, unary[0, :3]), Subset(unary[..., :2], 2)):
            SlackRescaled(structure, structure.max()[1], torch.ones(3)).max()
        HiddenMarkov(unary[0, 0], unary[0, :3], unary).filtered_marginals()
        graph = LocalPolytope(FactorGraph(unary, torch.tensor([[0, 1], [1, 2], [1, 3]]), torch.zeros(3, 3, 3)))
        graph.max()
        graph.logsumexp()
    assert names == {name for name in OPERATORS if "fused" not in name}


ORACLE_AND_GRADIENT = """
import sys, torch
from structsmooth.structures import BinaryGraph, DeformableTree, LinearChain, Matching, SemiMarkov, Subwindows, Tree
unary, pairwise = torch.zeros(2, 3, 2, requires_grad=True), torch.zeros(2, 3, 2, 2)
structures = [
    LinearChain(unary, pairwise[0, 0]),
    Tree(unary, pairwise, torch.tensor([[-1, 0, 0]] * 2)),
    BinaryGraph(unary, torch.tensor([[0, 1]]), pairwise[:, :1]),
    Matching(unary.mT),
    DeformableTree(unary.unsqueeze(2), torch.zeros(3, 4), torch.tensor([-1, 0, 0])),
    Subwindows(unary),
    SemiMarkov(unary, pairwise[0, 0], pairwise[0, 0]),
]
sum(structure.max()[0].sum() for structure in structures).backward()
print(*sys.modules)
"""


def test_calls_do_not_load_the_compiler() -> None:
    command = [sys.executable, "-c", ORACLE_AND_GRADIENT]
    imported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "torch._C" in imported
    assert "torch._dynamo" not in imported


def test_the_compiler_does_not_look_inside() -> None:
    unary, transition, lengths = torch.randn(2, 4, 3), torch.zeros(1, 1, 3, 3), torch.tensor([4, 3])
    graphs: list[fx.GraphModule] = []

    def record(graph: fx.GraphModule, _: list[Tensor]) -> fx.GraphModule:
        graphs.append(graph)
        return graph

    @torch.compiler.disable(recursive=False)  # what this calls is compiled, frame by frame
    def eager(unary: Tensor) -> Tensor:
        return chain.top_k.registered(unary, transition, lengths, 1)[0]

    torch.compiler.reset()
    values = torch.compile(lambda unary: eager(unary), backend=record)(unary)
    assert torch.equal(values, LinearChain(unary, transition[0, 0], lengths).topk(1)[0])
    assert not [node for graph in graphs for node in graph.graph.nodes if node.op == "call_function"]
