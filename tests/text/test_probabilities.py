"""Probabilities of entities against sums over all taggings."""

from itertools import product

import pytest
import torch

from structsmooth import LinearChain
from structsmooth.text.probabilities import EntityProbabilities
from structsmooth.text.schemes import entities, transition_mask

TAGS = {
    "BIO": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "IOB1": ["O", "I-X", "B-X", "I-Y"],
    "IO": ["I-X", "O", "I-Y"],
    "BIOES": ["O", "B-X", "I-X", "E-X", "S-X"],
}


@pytest.mark.parametrize("scheme", TAGS)
@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_are_those_of_the_enumeration(scheme, constrained, seed):
    generator = torch.Generator().manual_seed(seed)
    tags, length = TAGS[scheme], 4
    unary = torch.randn(1, length, len(tags), generator=generator, dtype=torch.float64)
    transition = torch.randn(len(tags), len(tags), generator=generator, dtype=torch.float64)
    mask = transition_mask(tags, scheme)
    ends = {"start": mask.start.double(), "stop": mask.stop.double()} if constrained else {}
    chain = LinearChain(unary, transition + mask.transition.double() if constrained else transition, **ends)
    nodes, edges = (part.numpy() for part in chain.marginals())
    outputs = [[tags[state] for state in path] for path in product(range(len(tags)), repeat=length)]
    states = torch.tensor(list(product(range(len(tags)), repeat=length)))
    scores = torch.cat([chain.log_prob(row[None]) for row in states]).exp()
    best = [tags[state] for state in chain.max()[1][0].tolist()]
    ((found, again),) = EntityProbabilities(tags).of([[best, best]], nodes, edges)
    assert found == again
    assert [(e.label, e.start, e.end) for e in found] == [tuple(e) for e in entities(best)]
    for entity in found:
        key = (entity.label, entity.start, entity.end)
        expected = sum(
            p for p, output in zip(scores.tolist(), outputs, strict=True) if key in map(tuple, entities(output))
        )
        assert entity.probability == pytest.approx(expected, abs=1e-10)


def test_single_tokens_at_the_ends():
    chain = LinearChain(torch.tensor([[[0.0, 1.0]]], dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64))
    nodes, edges = (part.numpy() for part in chain.marginals())
    (((entity,),),) = EntityProbabilities(["O", "B-X"]).of([[["B-X"]]], nodes, edges)
    assert entity.probability == pytest.approx(torch.tensor(1.0).sigmoid().item())
