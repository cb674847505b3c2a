"""The table of docs/layers.md: which structure works with which part of torch. Every cell is tried."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from enumeration import FORMS
from member import Instance, Member, potentials_of, with_potentials
from structure_members import MEMBERS, plans_when_built
from torch import Tensor, nn
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import L2, Entropy, LinearChain, Structure, Tree
from structsmooth.factors import LocalPolytope
from structsmooth.smoothing import Smoother

PAGE = Path(__file__).parents[1] / "docs" / "layers.md"


class Row(NamedTuple):
    """A structure as a function of its potentials, and its smoothest smoother."""

    build: Callable[..., Structure]
    potentials: tuple[Tensor, ...]
    smoother: Smoother

    def value(self, *potentials: Tensor) -> Tensor:
        return self.smoother(self.build(*potentials)).sum()

    def answers(self, *potentials: Tensor) -> tuple[Tensor, ...]:
        """Of the oracles."""
        structure = self.build(*potentials)
        answers = [*structure.max(), self.smoother(structure)]
        if isinstance(self.smoother, L2):
            answers += structure.topk(2)
        elif not isinstance(structure, LocalPolytope):
            answers += [*structure.marginals(), structure.entropy()]
        return tuple(answers)


def row(build: Callable[..., Structure], instance: Instance, smoother: Smoother, outside: bool = False) -> Row:
    """``outside``: built before potentials are known, which then take the place of others."""

    def bind(*potentials: Tensor) -> Structure:
        return build(*with_potentials(instance, potentials))

    if outside:
        bind = build(*instance).replace
    return Row(bind, potentials_of(instance), smoother)


def rows() -> dict[str, Callable[[], Row]]:
    """By the names that the table has; made when they are asked for."""
    chain, tree = MEMBERS[f"LinearChain {FORMS[0]} torch"], MEMBERS["Tree torch"]
    graph = MEMBERS["FactorGraph"]
    found: dict[str, Callable[[], Row]] = {
        "LinearChain": lambda: row(LinearChain, chain.random("tiny"), L2(4.0, 3)),
        "Tree": lambda: row(Tree, tree.random("tiny"), L2(4.0, 3)),
        "LocalPolytope": lambda: row(lambda *own: LocalPolytope(graph.build(*own)), graph.random("tiny"), Entropy()),
    }
    for name, member in MEMBERS.items():  # of the forms of a structure, one
        short = name.replace(f" {FORMS[0]}", "")
        if "[" not in short and "in Python" not in name and "search" not in name:
            outside = plans_when_built(name)

            def make(member: Member = member, outside: bool = outside) -> Row:
                return row(member.build, member.random("tiny"), L2(4.0, 3), outside)

            found[short] = make
    return found


ROWS = rows()


def compiles(own: Row) -> None:
    torch.compiler.reset()
    compiled = torch.compile(own.value, fullgraph=True, backend="aot_eager")
    assert_close(vjp(compiled, own.potentials), vjp(own.value, own.potentials))


class Program(nn.Module):
    """What ``torch.export`` takes."""

    def __init__(self, own: Row) -> None:
        super().__init__()
        self.own = own

    def forward(self, *potentials: Tensor) -> tuple[Tensor, ...]:
        return self.own.answers(*potentials)


def exports(own: Row) -> None:
    own.answers(*own.potentials)  # numba compiles what is new to this machine while torch.export changes nothing
    program = torch.export.export(Program(own), own.potentials).module()
    other = tuple(scores * 0.9 for scores in own.potentials)
    answers = program(*other)
    assert {type(answer) for answer in answers} == {Tensor}
    assert_close(answers, own.answers(*other))


def has_functional_gradients(own: Row) -> None:
    argnums = tuple(range(len(own.potentials)))
    _, expected = vjp(own.value, own.potentials)
    assert_close(torch.func.grad(own.value, argnums)(*own.potentials), expected)


def maps(own: Row) -> None:
    batches = [torch.stack([scores, scores * 0.9]) for scores in own.potentials]
    expected = torch.stack([own.value(*scores) for scores in zip(*batches, strict=True)])
    assert_close(torch.func.vmap(own.value)(*batches), expected)


def has_directional_derivatives(own: Row) -> None:
    _, gradients = vjp(own.value, own.potentials)
    directions = tuple(gradient.cos() for gradient in gradients)  # any
    _, found = torch.func.jvp(own.value, own.potentials, directions)
    pairs = zip(directions, gradients, strict=True)
    assert_close(found, torch.stack([(direction * gradient).sum() for direction, gradient in pairs]).sum())


def has_hessians(own: Row) -> None:
    first, *others = own.potentials

    def value(scores: Tensor) -> Tensor:
        return own.value(scores, *others)

    assert_close(torch.func.hessian(value)(first), torch.autograd.functional.hessian(value, first))


def differentiates_twice(own: Row) -> None:
    inputs = [scores.clone().requires_grad_() for scores in own.potentials]
    assert torch.autograd.gradgradcheck(own.value, inputs, fast_mode=True)


FEATURES: dict[str, Callable[[Row], None]] = {
    "compile": compiles,
    "export": exports,
    "func.grad": has_functional_gradients,
    "func.vmap": maps,
    "func.jvp": has_directional_derivatives,
    "func.hessian": has_hessians,
    "double backward": differentiates_twice,
}


def works(name: str, feature: str) -> bool:
    """Whether a feature does; what does not, says so."""
    try:
        FEATURES[feature](ROWS[name]())
    except (NotImplementedError, ValueError, torch._dynamo.exc.TorchDynamoException):
        return False
    return True


def table() -> dict[str, dict[str, str]]:
    """Cells of the document, by structure and feature; a row or a column of it may be for several."""
    text = re.search(r"<!-- features -->\n\n(.*?)\n\n", PAGE.read_text(encoding="utf-8"), re.S)
    assert text, "docs/layers.md has no table of features"
    head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text[1].splitlines()]
    return {
        name: {feature: cell for names, cell in zip(head[1:], cells, strict=True) for feature in names.split(", ")}
        for own, *cells in lines
        for name in own.split(", ")
    }


def test_the_table_has_every_structure_and_feature() -> None:
    cells = table()
    assert sorted(cells) == sorted(ROWS)
    assert {tuple(own) for own in cells.values()} == {tuple(FEATURES)}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # that of torch for jvp
@pytest.mark.filterwarnings("ignore:torch.searchsorted:UserWarning")  # of tensors under vmap, which are not contiguous
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("name", ROWS)
def test_cells_are_true(name: str, feature: str) -> None:
    assert {"yes": True, "no": False}[table()[name][feature]] == works(name, feature)


@pytest.mark.parametrize("name", ["LinearChain torch", "Tree torch", "Candidates"])
def test_plain_operators_are_exported(name: str) -> None:
    own = ROWS[name]()
    graph = torch.export.export(Program(own), own.potentials).graph
    called = {str(node.target) for node in graph.nodes if node.op == "call_function"}
    assert called
    assert not any("structsmooth" in operator for operator in called)


def test_what_cannot_be_exported_says_so() -> None:
    own = ROWS["SearchSpace"]()
    with pytest.raises(NotImplementedError, match=r"Bits searches in Python, which torch.export does not trace"):
        torch.export.export(Program(own), own.potentials)


def test_searches_in_python_know_no_transforms() -> None:
    own = ROWS["SearchSpace"]()
    with pytest.raises(NotImplementedError, match=r"Bits does not work under .* structures are batched already"):
        torch.func.grad(own.value)(*own.potentials)


def test_samples_can_be_mapped() -> None:
    """Over scores, where each slice has draws of its own."""
    own = ROWS["LinearChain compiled"]()
    certain = tuple(torch.stack([scores * 100, scores * -100]) for scores in own.potentials)

    def drawn(*potentials: Tensor) -> Tensor:
        return own.build(*potentials).sample(2)

    found = torch.func.vmap(drawn, randomness="different")(*certain)
    expected = [own.build(*scores).max()[1] for scores in zip(*certain, strict=True)]
    assert torch.equal(found, torch.stack(expected).unsqueeze(2).expand_as(found))


if __name__ == "__main__":  # prints the table
    print("|".join(["", " structure ", *(f" {feature} " for feature in FEATURES), ""]))
    print("|".join(["", *[" --- "] * (1 + len(FEATURES)), ""]))
    for own in ROWS:
        print("|".join(["", f" {own} ", *(" yes " if works(own, feature) else " no " for feature in FEATURES), ""]))
