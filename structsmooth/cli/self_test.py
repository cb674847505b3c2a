"""Small computations with known results, which show that an installation works."""

from itertools import product

import torch

from structsmooth.solvers import BCFW
from structsmooth.structures import LinearChain
from structsmooth.tasks import NER

# Scores of compiled loops and of enumeration may differ by rounding.
_TOLERANCE = 1e-9
_SENTENCES, _PASSES = 100, 4


def check_oracles() -> str:
    """Compare the oracles of a linear chain with sums and maxima over all of its outputs: what was found.

    Raises:
        RuntimeError: they differ.
    """
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(1, 4, 3, generator=generator, dtype=torch.float64)
    chain = LinearChain(unary, torch.randn(3, 3, generator=generator, dtype=torch.float64))
    outputs = torch.tensor(list(product(range(3), repeat=4)))
    scores = torch.stack([chain.score(y[None])[0] for y in outputs]).sort(descending=True).values
    expected = {"max": scores[:1], "top-5": scores[:5], "exp": scores.logsumexp(0, keepdim=True)}
    found = {"max": chain.max()[0], "top-5": chain.topk(5)[0][0], "exp": chain.logsumexp()}
    for name, values in found.items():
        if not torch.allclose(values, expected[name], rtol=0, atol=_TOLERANCE):
            raise RuntimeError(f"the {name} oracle of a chain gives {values.tolist()}, not {expected[name].tolist()}")
    return f"{', '.join(found)} agree with the enumeration of {len(outputs)} outputs"


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
