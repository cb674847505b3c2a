"""Probabilities of links between words, beside all matchings, and predictions by a threshold."""

import json
from itertools import product
from math import exp

import numpy as np
import pytest
import torch
from small_tasks import write_pairs

from structsmooth import train
from structsmooth.cli import main
from structsmooth.tasks import Alignment
from structsmooth.tasks.alignment.data import read_pairs
from structsmooth.tasks.alignment.probabilities import MOST_EXACT, link_probabilities


def enumerated(scores: np.ndarray) -> np.ndarray:
    """Probabilities of links, by all matchings."""
    (rows, columns), found, total = scores.shape, np.zeros(scores.shape), 0.0
    for y in product(range(-1, columns), repeat=rows):
        links = [(i, j) for i, j in enumerate(y) if j >= 0]
        if len({j for _, j in links}) == len(links):
            weight = exp(sum(scores[link] for link in links))
            total += weight
            for link in links:
                found[link] += weight
    return found / total


@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (5, 3), (4, 4), (0, 2)])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_probabilities_are_those_of_all_matchings(shape, scale):
    scores = scale * np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(link_probabilities(scores / scale), enumerated(scores / scale), atol=1e-12)
    assert np.isfinite(link_probabilities(scores)).all()  # of scores whose exponentials are not


def test_belief_propagation_is_exact_where_links_are_a_tree_and_near_elsewhere():
    draw, many = np.random.default_rng(1), MOST_EXACT + 2
    path = [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]
    tree, dense = np.full((4, 4), -60.0), draw.normal(size=(4, 4))
    for link in path:
        tree[link] = draw.normal()
    for small, most in ((tree, 1e-9), (dense, 0.05)):
        padded = np.full((many, many), -60.0)  # other words link with none
        padded[:4, :4] = small
        np.testing.assert_allclose(link_probabilities(padded)[:4, :4], enumerated(small), atol=most)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aligner")
    file = write_pairs(folder, True)
    trained = train(Alignment(), file, passes=5)
    trained.save(folder / "model")
    return folder / "model", file, trained


def test_lines_of_json_have_the_probability_of_each_link(model, capsys):
    folder, file, trained = model
    assert main(["predict", str(folder), file, "--json", "--quiet"]) == 0
    lines = list(map(json.loads, capsys.readouterr().out.splitlines()))
    short = [number for number, pair in enumerate(read_pairs(file)) if len(pair.source) == len(pair.target) == 3]
    every = trained.alternatives([read_pairs(file)[number] for number in short], 34)  # all matchings of three words
    for number, ranked in zip(short, every, strict=True):
        assert len(ranked) == 34
        shares = torch.tensor([score for score, _ in ranked]).softmax(0).tolist()
        (output,) = lines[number]["outputs"]
        for (i, j), probability in zip(output["links"], output["probabilities"], strict=True):
            expected = sum(share for share, (_, links) in zip(shares, ranked, strict=True) if (i, j) in links)
            assert probability == pytest.approx(expected, rel=1e-6)


def test_a_threshold_takes_all_links_that_are_as_probable(model, capsys):
    folder, file, trained = model
    pairs = read_pairs(file)
    assert main(["predict", str(folder), file, "--threshold", "1e-100", "--quiet"]) == 0
    everything = capsys.readouterr().out.splitlines()
    assert [len(line.split()) for line in everything] == [len(p.source) * len(p.target) for p in pairs]
    assert main(["predict", str(folder), file, "--threshold", "0.3", "--json", "--quiet"]) == 0
    for line in map(json.loads, capsys.readouterr().out.splitlines()):
        assert min(line["outputs"][0]["probabilities"], default=1) >= 0.3
    loose = train(Alignment(threshold=1e-100), file, passes=1)
    assert loose.score(file)["recall"] == 1
    assert trained.score(file)["recall"] <= 1


def test_thresholds_that_cannot_be_are_refused(model, capsys):
    folder, file, _ = model
    assert main(["predict", str(folder), file, "--threshold", "2"]) == 2
    assert "threshold must be from 0 to 1" in capsys.readouterr().err
    assert main(["predict", str(folder), file, "--threshold", "0.5", "--top", "2"]) == 2
    assert "--threshold gives one alignment, and --top several" in capsys.readouterr().err
