"""Small computations with known results, which show that an installation works."""

import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from structsmooth.solvers import BCFW
from structsmooth.structures import (
    Alignment,
    BinaryGraph,
    Candidates,
    Constituents,
    FactorGraph,
    LinearChain,
    Matching,
    ProjectiveTree,
    SemiMarkov,
    SpanningTree,
    Subset,
    Tree,
)
from structsmooth.structures.base import Structure
from structsmooth.tasks import NER

# Scores of loops or kernels and of enumeration may differ by rounding.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_SENTENCES, _PASSES = 100, 4


class Kind(NamedTuple):
    """A structure with one example, and the number of its outputs."""

    structure: Structure
    outputs: int

    @property
    def name(self) -> str:
        """The class of the structure."""
        return type(self.structure).__name__


def kinds() -> Iterator[Kind]:
    """One small structure of each kind."""
    generator = torch.Generator().manual_seed(0)

    def scores(*shape: int) -> Tensor:
        return torch.randn(1, *shape, generator=generator, dtype=torch.float64)

    edges = torch.tensor([[0, 1], [1, 2], [0, 2]])
    agreeing = scores(3, 2, 2).abs() * torch.eye(2, dtype=torch.float64)
    yield Kind(LinearChain(scores(4, 3), scores(3, 3)[0]), 3**4)
    yield Kind(SemiMarkov(scores(4, 2), scores(2, 2)[0], scores(2, 2)[0]), 44)
    yield Kind(ProjectiveTree(scores(3, 3), scores(3)), 7)
    yield Kind(Constituents(scores(3, 3, 1)), 48)
    yield Kind(Alignment(scores(3, 3)), 13)
    yield Kind(Subset(scores(5, 2), 2), 10)
    yield Kind(SpanningTree(scores(3, 3), scores(3)), 9)
    yield Kind(Tree(scores(4, 3), scores(4, 3, 3), torch.tensor([[-1, 0, 0, 1]])), 3**4)
    yield Kind(Candidates(scores(6)), 6)
    yield Kind(Matching(scores(3, 3)), 6)
    yield Kind(BinaryGraph(scores(3, 2), edges, agreeing), 2**3)
    yield Kind(FactorGraph(scores(3, 2), edges, scores(3, 2, 2)), 2**3)


def check_oracles(device: str = "cpu") -> str:
    """Compare the oracles of each kind of structure on a device with all of its outputs: what was found.

    Raises:
        RuntimeError: they differ, or there is another number of outputs.
        RuntimeWarning: a kernel does not run, and plain torch takes its place.
    """
    places: dict[str, list[str]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for kind in kinds():
            places.setdefault(_checked(kind, device), []).append(kind.name)
    found = "; ".join(f"{place}: {', '.join(names)}" for place, names in places.items())
    return f"equal to all outputs, by {found}"


def _checked(kind: Kind, device: str) -> str:
    """Where the oracles of a structure are computed, if they agree with its outputs."""
    dtype = torch.float64 if device == "cpu" else torch.float32
    _, outputs = kind.structure.topk(kind.outputs + 1)
    here = [p.clone().requires_grad_() for p in kind.structure.potentials]
    each = kind.structure.replace(*here)[torch.zeros(kind.outputs, dtype=torch.int64)]
    scores = each.score(outputs[0, : kind.outputs]).sort(descending=True).values
    expected = {"max": scores[0], "top-2": scores[:2].sum(), "exp": scores.logsumexp(0)}

    there = [p.detach().to(device, dtype).requires_grad_() for p in here]
    operators = _Operators()
    with operators:
        structure = kind.structure.to(device, dtype).replace(*there)
        last, found = structure.topk(kind.outputs + 1)[0][0, -1], {}
        found["max"], found["top-2"] = structure.max()[0].sum(), structure.topk(2)[0].sum()
        with suppress(NotImplementedError):
            found["exp"] = structure.logsumexp().sum()
        pairs = {name: (_with_gradients(found[name], there), _with_gradients(expected[name], here)) for name in found}
    if last > -torch.inf:
        raise RuntimeError(f"{kind.name} finds more than {kind.outputs} outputs")
    for name, (computed, right) in pairs.items():
        if not torch.allclose(computed, right, rtol=_TOLERANCE[dtype], atol=_TOLERANCE[dtype]):
            raise RuntimeError(f"the {name} oracle of {kind.name} gives {computed.tolist()}, not {right.tolist()}")
    return operators.place


def _with_gradients(value: Tensor, potentials: list[Tensor]) -> Tensor:
    """A value and its gradients, on the CPU in float64."""
    gradients = torch.autograd.grad(value, potentials, retain_graph=True)
    return torch.cat([t.detach().flatten() for t in (value, *gradients)]).to("cpu", torch.float64)


class _Operators(TorchFunctionMode):
    """What operators of this library run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    @property
    def place(self) -> str:
        """What computes most."""
        if any("fused" in name for name in self.names):
            return "kernels"
        return "compiled loops on the CPU" if self.names else "plain torch"

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "namespace", "") == "structsmooth":
            self.names.add(func.name())
        return func(*args, **(kwargs or {}))


def check_training() -> str:
    """Train a tagger on a part of the embedded data: the duality gaps.

    Raises:
        RuntimeError: the gap does not fall, or is negative.
    """
    task = NER(rich=False)
    sentences = task.read(task.default_files()["train"])[:_SENTENCES]
    problem = task.fit(sentences).problem(sentences)
    result = BCFW(gap_tolerance=0.0).solve(problem, lam=10 / problem.n, passes=_PASSES)
    gaps = result.history.column("gap")
    if not 0 <= gaps[-1] < gaps[0]:
        raise RuntimeError(f"the duality gap of a tagger goes from {gaps[0]:.4g} to {gaps[-1]:.4g}: it must fall")
    return f"in {_PASSES} passes over {problem.n} sentences the duality gap falls from {gaps[0]:.3g} to {gaps[-1]:.3g}"
