"""The table of docs/layers.md of structures on GPUs, tried without one: on tensors of a device that hold no values.

Whatever reads a value, and so waits for the device, fails on them, and so do operations on tensors of two devices.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from enumeration import FORMS
from member import Member, potentials_of
from structure_members import MEMBERS
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from structsmooth import L2, StructuralHinge
from structsmooth.compiled.gpu import HAS_TRITON

PAGE = Path(__file__).parents[1] / "docs" / "layers.md"

# One of the forms of each structure, and not those of the tests alone.
NAMES = {
    name.removesuffix(" torch").replace(f" {FORMS[0]}", ""): member
    for name, member in MEMBERS.items()
    if not any(word in name for word in ("compiled", "[B", "in Python", "by search", "SearchSpace"))
}


class Operators(TorchDispatchMode):
    """Names of the operators of this library that ran. Tensors on the CPU hold values, which anything may read."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "structsmooth":
            self.names.add(func.name().partition("::")[2])
        kwargs = kwargs or {}
        fake = any(isinstance(own, FakeTensor) for own in tree_leaves((args, kwargs)))
        if fake or torch.device(kwargs.get("device") or "cpu").type != "cpu":
            return func(*args, **kwargs)
        with unset_fake_temporarily():
            return func(*args, **kwargs)


def losses(member: Member) -> Iterator[StructuralHinge]:
    yield StructuralHinge(cost=member.cost)
    yield StructuralHinge(L2(1.0, 3), cost=member.cost)
    if "logsumexp" in member.oracles:
        yield StructuralHinge.crf()


def on_device(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")


def where(name: str) -> str:
    """Where the losses of a structure are computed whose scores are on a GPU, or that they wait for it."""
    member = automatic(NAMES[name])
    instance = member.random("tiny")
    y = member.labels(potentials_of(instance)[0])
    with FakeTensorMode(allow_non_fake_inputs=True), Operators() as operators:
        scores, labels = [on_device(tensor) for tensor in instance], on_device(y)
        if name == "FactorGraph with factors":
            scores[-1] = instance[-1]  # the transitions of automata, which are read
        try:
            for loss in losses(member):
                found = loss(partial(member.build, validate_args=False)(*scores), labels)
                assert found.device.type == "cuda"
        except DataDependentOutputException:
            return "reads values"
    kernels = {name for name in operators.names if "fused" in name}
    if operators.names > kernels or (operators.names and not kernels):
        return "CPU"
    return "kernels" if kernels else "torch"


def table() -> dict[str, str]:
    text = re.search(r"<!-- devices -->\n\n(.*?)\n\n", PAGE.read_text(encoding="utf-8"), re.S)
    assert text, "docs/layers.md has no table of devices"
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text[1].splitlines()[2:]]
    return {name: cell for names, cell in lines for name in names.split(", ")}


def automatic(member: Member) -> Member:
    """The structure with the backend that it would choose itself."""
    build = member.build
    if isinstance(build, partial) and "backend" in build.keywords:
        build = partial(build, backend="auto")
    return Member(**{**vars(member), "build": build})


def test_the_table_has_every_structure() -> None:
    assert sorted(table()) == sorted(NAMES)


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton, which comes with torch on Linux")
@pytest.mark.parametrize("name", NAMES)
def test_cells_are_true(name: str) -> None:
    assert table()[name] == where(name)


if __name__ == "__main__":  # prints the table
    places: dict[str, list[str]] = {}
    for name in NAMES:
        places.setdefault(where(name), []).append(name)
    print("| structures | losses on a GPU |\n| --- | --- |")
    for place, names in places.items():
        print(f"| {', '.join(names)} | {place} |")
