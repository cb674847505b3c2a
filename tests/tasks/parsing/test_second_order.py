"""Parsers of the second order: neighbouring siblings among the arcs that a first-order parser leaves."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import treebanks
from small_parsers import trees
from small_tasks import PARSING
from torch import Tensor

from structsmooth import BCFW, load
from structsmooth.cli import main
from structsmooth.problems import DifferenceProblem
from structsmooth.tasks import Parsing
from structsmooth.tasks.parsing import FittedParsing
from structsmooth.tasks.parsing.data import Sentence, Tree, read_trees
from structsmooth.tasks.parsing.features import ARCS, SIBLINGS, Tokens, part_features
from structsmooth.tasks.parsing.parts import Pruner, TreeParts, siblings_of

BITS = 10
SENTENCES = [
    Sentence(
        ("she", "saw", "old", "dogs"), ("PRON", "VERB", "ADJ", "NOUN"), ("_",) * 4, Tree((2, 0, 4, 2), ("x",) * 4)
    ),
    Sentence(("go",), ("VERB",), ("_",), Tree((0,), ("x",))),
    Sentence(("she", "eats", "now"), ("PRON", "VERB", "ADV"), ("_",) * 3, Tree((2, 0, 2), ("x", "x", "y"))),
]


def random_weights(seed: int) -> Tensor:
    return torch.randn(1 << BITS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parser(prune: float, labelled: bool = False, unknown: str | None = None) -> FittedParsing:
    """A parser whose pruner has random weights."""
    task = Parsing(order=2, prune=prune, bits=BITS, labelled=labelled, unknown=unknown)
    relations, pruner = (["x", "y"] if labelled else []), Pruner(random_weights(1).numpy().astype(np.float32))
    return FittedParsing(task, relations, ["ADJ"], True, pruner)


def every_tree(sentence: Sentence, weights: Tensor) -> dict[tuple[int, ...], float]:
    """Scores of all projective trees: of their arcs, and of each word with the modifier before it of the same head."""
    tokens, words = Tokens.of([sentence], "upos"), len(sentence)
    every = torch.ones(1, words + 1, words, dtype=torch.bool)
    every[0, range(1, words + 1), range(words)] = False
    parts = TreeParts.with_siblings(tokens.lengths, [(torch.tensor([0]), every)])
    values = part_features(tokens, parts, BITS).scores(weights).tolist()
    rows = zip(parts.head.tolist(), parts.sibling.tolist(), parts.modifier.tolist(), strict=True)
    table = dict(zip(rows, values, strict=True))

    def score(heads: tuple[int, ...]) -> float:
        total = 0.0
        for m, h in enumerate(heads, 1):
            between = [s for s, other in enumerate(heads, 1) if other == h and (h < s < m or m < s < h)]
            nearest = min(between, key=lambda s: abs(s - m), default=h)
            total += table[h, -1, m] + (table[h, nearest, m] if h else 0.0)
        return total

    return {heads: score(heads) for heads in trees(words)}


def test_predictions_are_the_best_trees_of_all() -> None:
    fitted, weights = parser(prune=0.0), random_weights(0)
    for sentence, ranked in zip(SENTENCES, fitted.predict(weights, SENTENCES, k=4), strict=True):
        expected = sorted(((score, heads) for heads, score in every_tree(sentence, weights).items()), reverse=True)
        assert [tree.heads for _, tree in ranked] == [heads for _, heads in expected[:4]]
        assert [score for score, _ in ranked] == pytest.approx([score for score, _ in expected[:4]])
        (found,) = fitted.part_probabilities(weights, [sentence], [[ranked[0][1]]])
        p = torch.tensor([score for score, _ in expected], dtype=torch.float64).softmax(0).tolist()
        for m, head in enumerate(ranked[0][1].heads):
            assert found[0][m] == pytest.approx(sum(q for q, (_, t) in zip(p, expected, strict=True) if t[m] == head))


@pytest.mark.parametrize("unknown", [False, True])
def test_losses_are_those_of_all_trees(unknown: bool) -> None:
    fitted, weights = parser(prune=0.0, unknown="_" if unknown else None), random_weights(0)
    known = [(2, -1, -1, 2), (-1,), (2, 0, 2)] if unknown else [s.tree.heads for s in SENTENCES if s.tree]
    examples = [
        Sentence(s.words, s.upos, s.xpos, Tree(heads, ("x",) * len(heads)))
        for s, heads in zip(SENTENCES, known, strict=True)
    ]
    problem, losses = fitted.problem(examples), []
    assert isinstance(problem, DifferenceProblem) == unknown
    for sentence, heads in zip(examples, known, strict=True):
        wrong = {t: sum(0 <= h != own for h, own in zip(heads, t, strict=True)) for t in trees(len(heads))}
        scores = every_tree(sentence, weights)
        right = max(score for tree, score in scores.items() if not wrong[tree])
        losses.append(max(score + wrong[tree] for tree, score in scores.items()) - right)
    assert problem.loss(weights) == pytest.approx(sum(losses) / len(losses))


@pytest.mark.parametrize("prune", [0.05, 0.3, 1.0])
def test_pruning_leaves_a_tree(prune: float) -> None:
    """That of the pruner, whatever the threshold; in training one with all known heads."""
    fitted, weights = parser(prune), random_weights(0)
    first = FittedParsing(fitted.task.first_order, [], [], True)
    assert fitted.pruner is not None
    for sentence, ((score, tree),), ((_, other),) in zip(
        SENTENCES,
        fitted.predict(weights, SENTENCES),
        first.predict(torch.from_numpy(fitted.pruner.weights).double(), SENTENCES),
        strict=True,
    ):
        left = every_tree(sentence, weights)
        assert score == pytest.approx(left[tree.heads])
        assert score >= left[other.heads] - 1e-9
        assert prune < 1 or tree.heads == other.heads
    problem = fitted.problem(SENTENCES)
    assert len(problem.part_labels) < len(parser(prune=0.0).problem(SENTENCES).part_labels)
    result = BCFW().solve(problem, lam=0.01, passes=20)
    assert 0 <= result.row.gap <= result.history[0].gap
    metrics, table = fitted.measure(SENTENCES, [sentence.tree for sentence in SENTENCES if sentence.tree])
    assert metrics["uas"] == 1
    assert 0 < metrics["heads_kept"] <= 1
    assert table.startswith("heads_kept")


def test_parts_are_arcs_that_are_left_and_pairs_of_them() -> None:
    tokens = Tokens.of(SENTENCES[:1], "upos")
    left = torch.zeros(1, 5, 4, dtype=torch.bool)
    for head, modifier in ((0, 2), (2, 1), (2, 3), (2, 4), (4, 3)):
        left[0, head, modifier - 1] = True
    parts = TreeParts.with_siblings(tokens.lengths, [(torch.tensor([0]), left)])
    rows = {*zip(parts.head.tolist(), parts.sibling.tolist(), parts.modifier.tolist(), strict=True)}
    firsts = {(2, 2, 1), (2, 2, 3), (2, 2, 4), (4, 4, 3)}
    assert rows == {(0, -1, 2), (2, -1, 1), (2, -1, 3), (2, -1, 4), (4, -1, 3), *firsts, (2, 3, 4)}
    assert siblings_of((2, 0, 2, 2)) == [2, 0, 2, 3]
    counts = part_features(tokens, parts, BITS).scores(torch.ones(1 << BITS, dtype=torch.float64))
    assert counts[~parts.is_arc].unique().tolist() == [len(SIBLINGS)]
    assert counts[parts.is_arc].min() >= len(ARCS)
    # Of the same words in another sentence: the same features.
    again = TreeParts.with_siblings(torch.tensor([1, 4]), [(torch.tensor([1]), left)])
    both = part_features(Tokens.of([SENTENCES[1], SENTENCES[0]], "upos"), again, BITS)
    assert torch.equal(both.scores(random_weights(0)), part_features(tokens, parts, BITS).scores(random_weights(0)))


def test_trains_on_the_command_line_and_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = PARSING.write(tmp_path, True)
    flags = ["--order", "2", "--prune", "0.02", "--bits", "12", "--passes", "8", "--lam", "0.05"]
    assert main(["train", "parsing", "--train", path, "--test", path, *flags, "--out", str(tmp_path / "run")]) == 0
    error = capsys.readouterr().err
    assert "training the first-order parser that prunes" in error
    assert "pruning leaves" in error
    model = load(tmp_path / "run")
    described = json.loads((tmp_path / "run" / "model.json").read_text())
    assert described["metrics"]["test"]["las"] > 0.9
    assert described["metrics"]["test"] == model.score(path)
    examples = read_trees(io.StringIO(treebanks.conllu(labelled=False)), labelled=False)
    assert all(
        tree.relations and len(tree.heads) == len(one)
        for one, tree in zip(examples, model.predict(examples), strict=True)
    )
    again = Parsing.from_dict(json.loads(json.dumps(model.task.to_dict())))
    assert again.predict(model.weights, examples, 2) == model.task.predict(model.weights, examples, 2)
    with pytest.raises(ValueError, match="order 2 needs 1 pruner of 4096 weights"):
        Parsing.from_dict(model.task.to_dict() | {"pruner": None})


def test_refuses_other_orders_and_trees_that_cross() -> None:
    with pytest.raises(ValueError, match="order must be from 1 to 2, got 3"):
        Parsing(order=3)
    with pytest.raises(ValueError, match="order 2 finds projective trees: leave out --no-projective"):
        Parsing(order=2, projective=False)
    with pytest.raises(ValueError, match="prune must be from 0 to 1, got 2"):
        Parsing(prune=2)
