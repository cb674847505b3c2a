"""Operators load nothing that eager code does not need, and stay closed to ``torch.compile``."""

import subprocess
import sys

import torch
from torch import Tensor, fx

from structsmooth.structures import LinearChain
from structsmooth.structures.chain import operators as compiled

ORACLE_AND_GRADIENT = """
import sys, torch
from structsmooth.structures import BinaryGraph, LinearChain, Matching, Subwindows, Tree
unary, pairwise = torch.zeros(2, 3, 2, requires_grad=True), torch.zeros(2, 3, 2, 2)
structures = [
    LinearChain(unary, pairwise[0, 0]),
    Tree(unary, pairwise, torch.tensor([[-1, 0, 0]] * 2)),
    BinaryGraph(unary, torch.tensor([[0, 1]]), pairwise[:, :1]),
    Matching(unary.mT),
    Subwindows(unary),
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
        return compiled.top_k(unary, transition, lengths, 1)[0]

    torch.compiler.reset()
    values = torch.compile(lambda unary: eager(unary), backend=record)(unary)
    assert torch.equal(values, LinearChain(unary, transition[0, 0], lengths).topk(1)[0])
    assert not [node for graph in graphs for node in graph.graph.nodes if node.op == "call_function"]
