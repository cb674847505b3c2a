"""Graphs in UAI files, beside products of their tables for all outputs."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from enumerated_factor_graphs import factor_graph_with_factors, random_factor_graphs, with_random_factors
from torch.testing import assert_close

from structsmooth import FactorGraph
from structsmooth.factors import AtMostOne, read_uai, write_uai

# The example of the format's page, whose three variables have 2, 2 and 3 states.
THREE = """MARKOV
3
2 2 3
2
2 0 1
3 0 1 2

4
 4.000 2.400
 1.000 0.000

12
 2.2500 3.2500 3.7500
 0.0000 0.0000 10.0000
 1.8750 4.0000 3.3330
 2.0000 2.0000 3.4000
"""


def products(text: str) -> dict[tuple[int, ...], float]:
    """The product of all tables for each output of a file, in plain numpy."""
    words = text.split()[1:]
    numbers = iter(words)
    sizes = [int(next(numbers)) for _ in range(int(next(numbers)))]
    scopes = [[int(next(numbers)) for _ in range(int(next(numbers)))] for _ in range(int(next(numbers)))]
    tables = []
    for scope in scopes:
        values = [float(next(numbers)) for _ in range(int(next(numbers)))]
        tables.append(np.array(values).reshape([sizes[v] for v in scope]))
    return {
        y: float(np.prod([table[tuple(y[v] for v in scope)] for scope, table in zip(scopes, tables, strict=True)]))
        for y in product(*map(range, sizes))
    }


def same_as_products(graph: FactorGraph, values: dict[tuple[int, ...], float]) -> None:
    best = max(values, key=values.__getitem__)
    value, y = graph.max()
    assert tuple(y[0].tolist()) == best
    assert_close(value.exp().item(), values[best])
    assert_close(graph.logsumexp().exp().item(), sum(values.values()))
    for output, expected in values.items():
        assert_close(graph.score(torch.tensor([output])).exp().item(), expected)
        assert (expected == 0) == (graph.score(torch.tensor([output])).item() == -torch.inf)


def test_the_example_of_the_format(tmp_path: Path) -> None:
    path = tmp_path / "three.uai"
    path.write_text(THREE)
    graph = read_uai(path)
    same_as_products(graph, products(THREE))
    assert graph.unary.dtype == torch.float64


def test_tables_of_the_same_variables_in_any_order_are_one(tmp_path: Path) -> None:
    text = """MARKOV 4
    2 3 1 2   9
    0  1 1  2 1 0  2 0 1  1 1  3 3 0 1  3 0 1 3  1 2  2 2 3
    1 2.5   3 1 0 2   6 1 2 3 4 5 6   6 6 5 4 3 2 1   3 .5 .25 0.125
    12 1 2 3 4 5 6 7 8 9 10 11 12   12 .1 .2 .3 .4 .5 .6 .7 .8 .9 1 1.1 1.2   1 3   2 1e-3 1e2"""
    path = tmp_path / "repeated.uai"
    path.write_text(text)
    graph = read_uai(path)
    assert graph.edges.tolist() == [[0, 1], [2, 3]]
    assert graph.factors is not None
    assert graph.factors.shape[1] == 1
    same_as_products(graph, products(text))


@pytest.mark.parametrize("evidence", ["1 2 1", "1 1 2 1", "2 2 1 0 1", "1\n2 0 1 2 1", "0", "1 0"])
def test_evidence_leaves_the_observed_states(tmp_path: Path, evidence: str) -> None:
    (tmp_path / "three.uai").write_text(THREE)
    (tmp_path / "three.uai.evid").write_text(evidence)
    observed = {"1 2 1": {2: 1}, "1 1 2 1": {2: 1}, "0": {}, "1 0": {}}.get(evidence, {2: 1, 0: 1})
    graph = read_uai(tmp_path / "three.uai", tmp_path / "three.uai.evid")
    kept = {y: v for y, v in products(THREE).items() if all(y[v] == state for v, state in observed.items())}
    assert_close(graph.logsumexp().exp().item(), sum(kept.values()))
    assert tuple(graph.max()[1][0].tolist()) == max(kept, key=kept.__getitem__)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_written_is_read(tmp_path: Path, seed: int) -> None:
    instance = with_random_factors(random_factor_graphs(3, 5, 3, 3, seed, forbidden=0.1), 2, 3, seed)
    graph = factor_graph_with_factors(*instance)
    for b in range(3):
        write_uai(graph, tmp_path / "graph.uai", example=b)
        back = read_uai(tmp_path / "graph.uai")
        assert_close(back.topk(9)[0], graph[b].topk(9)[0].double(), rtol=1e-6, atol=1e-6)
        assert_close(back.logsumexp(), graph[b].logsumexp().double(), rtol=1e-6, atol=1e-6)
        values = products((tmp_path / "graph.uai").read_text())
        assert_close(np.log(max(sum(values.values()), 1e-300)), max(back.logsumexp().item(), np.log(1e-300)))


def test_counters_and_nodes_of_fewer_states_are_written(tmp_path: Path) -> None:
    unary = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
    unary[0, 1, 2] = unary[0, 3, 1:] = -torch.inf
    mask = torch.tensor([[True, True, False, True]])
    rule = AtMostOne(torch.tensor([0, 1, 3]), label=0)
    graph = FactorGraph(unary, torch.tensor([[1, 0]]), torch.eye(3), node_mask=mask, factors=[rule])
    write_uai(graph, tmp_path / "counted.uai")
    text = (tmp_path / "counted.uai").read_text()
    assert text.split("\n")[1:3] == ["3", "3 2 1"]
    assert_close(np.log(max(products(text).values())), graph.max()[0].double().item(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "the file ends where 1 more numbers are due"),
        ("CNF 1 2", "begins with MARKOV or BAYES, got 'CNF'"),
        ("MARKOV 1 0", "word 3 must be an integer from 1, got '0'"),
        ("MARKOV 1 2 1 1 1 2 1 1", "must be an integer from 0 to 0, got '1'"),
        ("MARKOV 2 2 2 1 2 1 1 4 1 1 1 1", r"the variables of a table must differ, got \(1, 1\)"),
        ("MARKOV 1 2 1 1 0 3 1 1 1", r"the table of \(0,\) must have 2 entries, got 3"),
        ("MARKOV 1 2 1 1 0 2 1 -1", "it must have numbers from 0"),
        ("MARKOV 1 2 1 1 0 2 1 nan", "it must have numbers from 0"),
        ("MARKOV 1 2 1 1 0 2 1 x", "could not convert string to float: .*'x'"),
        ("MARKOV 1 2 1 1 0 2 1 1 1", "1 words are left behind the last table"),
        ("MARKOV 1 2 1 1 0 2 1", "the file ends where 1 more numbers are due"),
    ],
)
def test_files_of_another_form(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "wrong.uai"
    path.write_text(text)
    with pytest.raises(ValueError, match=fault) as raised:
        read_uai(path)
    assert str(path) in str(raised.value)


def test_what_files_and_graphs_do_not_hold(tmp_path: Path) -> None:
    graph = FactorGraph(torch.tensor([[[0.0, 800.0]]]), torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2, 2))
    with pytest.raises(ValueError, match=r"scores must be within 700, as their exp is written, got 800\.0"):
        write_uai(graph, tmp_path / "large.uai")
    scope = " ".join(map(str, range(26)))
    (tmp_path / "wide.uai").write_text(f"MARKOV 26 {'1 ' * 25} 2  1  26 {scope}  2 1 1")
    with pytest.raises(MemoryError, match=r"the table of .* needs 134,217,728 entries"):
        read_uai(tmp_path / "wide.uai")


@pytest.mark.parametrize("evidence", ["1 3 0", "1 2 3", "2 0 1 1", "1 0 1 7", "1 0 x"])
def test_evidence_of_another_form(tmp_path: Path, evidence: str) -> None:
    (tmp_path / "three.uai").write_text(THREE)
    (tmp_path / "wrong.evid").write_text(evidence)
    with pytest.raises(ValueError, match=r"wrong\.evid: "):
        read_uai(tmp_path / "three.uai", tmp_path / "wrong.evid")
