"""Where solvers, problems and losses keep tensors, read from their sources.

What has the size of the data, of the weights or of an output lies with the data: weights, potentials, statistics and
outputs. What steps are chosen by lies on the CPU: numbers of examples and blocks, weights and marks of active sets, and
sums over processes. So new tensors take their device from another one, unless they are such numbers.
"""

import ast
from collections.abc import Iterator

from source_tree import ROOT

# What works on problems that keep their data on the CPU, wherever these came from, or has taken them there.
ON_HOST = (
    *("compiled", "chain_loop", "bcfw/loops", "linear/chain/", "linear/factor_graph/"),
    *("linear/programs/", "soft_bcfw/", "baselines/dlpw.py", "baselines/smo.py", "dual/path/solution.py"),
)
MAKERS = {f"torch.{name}" for name in ("empty", "eye", "full", "linspace", "ones", "rand", "randn", "tensor", "zeros")}
# Where numbers are made that stay on the CPU, or single numbers, which go with any tensor.
NUMBERS = {
    ("problems/affine.py", "pairing"),
    ("problems/base.py", "normalized_weights"),
    ("problems/linear/base.py", "label_sets"),
    ("problems/linear/base.py", "start"),  # of problems that are not on a device
    ("problems/linear/base.py", "with_labels"),
    ("problems/linear/module.py", "_prepared"),
    ("problems/linear/module.py", "expected_cost"),
    ("problems/module.py", "partial"),
    ("problems/reductions.py", "mean"),
    ("problems/sharding.py", "sharded"),
    ("solvers/bcfw/__init__.py", "_curvatures"),
    ("solvers/convex_concave.py", "_kept"),
    ("solvers/dual/cocoa.py", "_of_all"),
    ("solvers/baselines/exponentiated/__init__.py", "_taus"),
    ("solvers/primal/adam.py", "advance"),
    ("solvers/primal/gradient.py", "_largest_row"),
    ("solvers/state.py", "_split"),
    ("solvers/state.py", "empty"),
}


def calls() -> Iterator[tuple[str, str, ast.Call, bool]]:
    """File and function of every call of a method, the call, and whether its result is taken to another tensor."""
    library = ROOT / "structsmooth"
    rooms = [path for room in ("solvers", "problems") for path in sorted((library / room).rglob("*.py"))]
    losses = [library / f"{name}.py" for name in ("costs", "losses", "perturbation", "risk", "smoothing")]
    for path in [*rooms, *losses]:
        file = path.relative_to(library).as_posix()
        functions = [] if any(part in file for part in ON_HOST) else ast.walk(ast.parse(path.read_text("utf-8")))
        for function in functions:
            if isinstance(function, ast.FunctionDef):
                found = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
                methods = [(call, call.func) for call in found if isinstance(call.func, ast.Attribute)]
                moved = [own.value for _, own in methods if own.attr == "to"]
                yield from ((file, function.name, call, call in moved) for call, _ in methods)


def test_new_tensors_have_the_device_of_another_one() -> None:
    found = set()
    for file, function, call, moved in calls():
        is_index = any(kind in ast.unparse(call) for kind in ("int64", "int32", "torch.bool"))
        placed = moved or is_index or any(keyword.arg == "device" for keyword in call.keywords)
        if ast.unparse(call.func) in MAKERS and not placed:
            found.add((file, function))
    assert found == NUMBERS


def test_numpy_reads_tensors_of_the_cpu() -> None:
    found = [f"{file}: {ast.unparse(call)}" for file, _, call, _ in calls() if ast.unparse(call).endswith(".numpy()")]
    assert [call for call in found if ".cpu()" not in call] == []
