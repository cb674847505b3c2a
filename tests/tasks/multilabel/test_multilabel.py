"""Sets of labels: files, pairs of labels, metrics, and the model."""

import io
import json
from itertools import product

import numpy as np
import pytest
import torch
from small_tasks import tagged, write_svmlight

from structsmooth import SoftBCFW
from structsmooth.models.label_sets import label_pairs, mutual_information, spanning_tree
from structsmooth.tasks import Multilabel
from structsmooth.tasks.multilabel.data import read_examples
from structsmooth.tasks.multilabel.picture import around
from structsmooth.tasks.multilabel.results import measures


def save(path, **arrays) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_archives_and_text_hold_the_same(tmp_path):
    x, sets = tagged()
    names = np.array(["a", "b", "c", "none"])
    y = np.array([[name in own for name in names] for own in sets])
    archive = read_examples(save(tmp_path / "data.npz", X_train=x, Y_train=y, label_names=names) + "#train")
    text = read_examples(write_svmlight(tmp_path, labelled=True))
    for a, b, own in zip(archive, text, sets, strict=True):
        assert a.labels == b.labels == set(own)
        assert a.indices.tolist() == b.indices.tolist()
        assert a.values.tolist() == b.values.tolist()


def test_some_rows_of_a_part(tmp_path):
    x, _ = tagged()
    path = save(tmp_path / "data.npz", X_train=x, X=x)
    assert [example.values.tolist() for example in read_examples(f"{path}#train:2-3")] == x[1:3].tolist()
    assert len(read_examples(f"{path}#:1")) == 1
    for rows, fault in [("train:3-99", "no rows 3-99"), ("train:0-1", "no rows 0-1"), ("train:a", "after the :")]:
        with pytest.raises(ValueError, match=rf"data\.npz.*{fault}"):
            read_examples(f"{path}#{rows}")


def test_compressed_rows(tmp_path):
    arrays = {"X_indices": np.array([0, 2, 1]), "X_indptr": np.array([0, 2, 2, 3])}
    examples = read_examples(save(tmp_path / "data.npz", **arrays))
    assert [example.indices.tolist() for example in examples] == [[0, 2], [], [1]]
    assert all(example.labels is None and (example.values == 1).all() for example in examples)


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({"X_train": np.ones((2, 2))}, "no array X; it has the parts train: give one as"),
        ({"X": np.ones((2, 2)), "Y": np.full((2, 2), 2)}, "Y must be 2 rows of 0 and 1"),
        ({"X": np.ones((2, 2)), "Y": np.ones((3, 2))}, "Y must be 2 rows of 0 and 1"),
        ({"X": np.full((2, 2), np.nan)}, "X must be a table of finite numbers"),
        ({"X_indices": np.array([0]), "X_indptr": np.array([0, 2])}, "must be compressed rows"),
        (
            {"X": np.ones((1, 1)), "Y": np.ones((1, 2)), "label_names": np.array(["a", "a"])},
            "must be 2 different names",
        ),
    ],
)
def test_faults_of_archives(tmp_path, arrays, fault):
    with pytest.raises(ValueError, match=rf"data\.npz: .*{fault}"):
        read_examples(save(tmp_path / "data.npz", **arrays))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1:0.5 2:1", ":1: a line begins with labels"),
        ("a 2:1 1:1", ":1: indices must rise from 1"),
        ("a 0:1", ":1: indices must rise from 1"),
        ("a 1:inf", ":1: .*values must be finite"),
        ("# nothing", ": no examples"),
    ],
)
def test_faults_of_text(tmp_path, text, fault):
    (tmp_path / "data.svm").write_text(text)
    with pytest.raises(ValueError, match=rf"data\.svm{fault}"):
        read_examples(str(tmp_path / "data.svm"))


def test_tables_and_text_hold_the_same(tmp_path):
    x, sets = tagged()
    names = sorted({name for own in sets for name in own})
    header = [f"label:{names[0]}", "length", "width", "height", *(f"label:{name}" for name in names[1:])]
    rows = [
        header,
        *([names[0] in own, *row, *(n in own for n in names[1:])] for row, own in zip(x, sets, strict=True)),
    ]
    lines = [",".join(str(int(cell) if isinstance(cell, bool) else cell) for cell in row) for row in rows]
    (tmp_path / "data.csv").write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    text = read_examples(write_svmlight(tmp_path, labelled=True))
    for a, b in zip(read_examples(str(tmp_path / "data.csv")), text, strict=True):
        assert a.labels == b.labels
        assert a.indices.tolist() == b.indices.tolist()
        assert a.values.tolist() == b.values.tolist()
    (tmp_path / "new.csv").write_text("length,width\n1.5,-2\n\n0,3e1\n")
    new = read_examples(str(tmp_path / "new.csv"))
    assert [example.values.tolist() for example in new] == [[1.5, -2.0], [0.0, 30.0]]
    assert all(example.labels is None for example in new)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", ":1: the header must name a feature at least"),
        ("label:a\n1\n", ":1: the header must name a feature at least"),
        ("x,label:a,label:a\n1,0,0\n", ":1: .* labels as in label:NAME, each once"),
        ("x,label:\n1,0\n", ":1: .* labels as in label:NAME, each once"),
        ("x,label:a\n1,0\n1\n", ":3: expected 2 cells, got 1"),
        ("x,label:a\nred,0\n", ":2: could not convert string to float: 'red'"),
        ("x,label:a\n1,yes\n", ":2: features must be finite numbers, and labels 0 or 1"),
        ("x,label:a\nnan,1\n", ":2: features must be finite numbers, and labels 0 or 1"),
        ("x,label:a\n", ": no examples"),
    ],
)
def test_faults_of_tables(tmp_path, text, fault):
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"data\.csv{fault}"):
        read_examples(str(tmp_path / "data.csv"))


def test_a_tree_joins_the_labels_that_depend_on_each_other():
    rng = np.random.default_rng(0)
    first, other = rng.random(400) < 0.5, rng.random(400) < 0.3
    copy = first ^ (rng.random(400) < 0.05)
    far = copy ^ (rng.random(400) < 0.1)
    present = np.stack([far, other, first, copy], 1)
    tree = label_pairs(present, "tree")
    assert len(tree) == 3
    assert {(2, 3), (0, 3)} <= set(tree)
    information = mutual_information(present)
    assert np.allclose(information, information.T)
    assert information[2, 3] == pytest.approx(np.log(2), abs=0.25)
    assert (information > -1e-12).all()
    assert label_pairs(present, "none") == []
    assert label_pairs(present, "auto") == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_a_spanning_tree_has_the_largest_weight():
    weights = np.random.default_rng(0).random((5, 5))
    weights += weights.T
    edges = spanning_tree(weights)
    # Kruskal's algorithm, as a second method.
    parent, total = list(range(5)), 0.0
    for a, b in sorted(zip(*np.tril_indices(5, -1), strict=True), key=lambda pair: -weights[pair]):
        if parent[a] != parent[b]:
            parent = [parent[a] if own == parent[b] else own for own in parent]
            total += weights[a, b]
    assert sum(weights[edge] for edge in edges) == pytest.approx(total)


def test_metrics_by_hand():
    truth = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 1], [1, 0, 0]], dtype=bool)
    found = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 1]], dtype=bool)
    assert measures(truth, found) == pytest.approx(
        {
            "example_f1": (2 / 3 + 1 + 1 + 0) / 4,
            "hamming": 3 / 12,
            "subset_accuracy": 2 / 4,
            "micro_f1": 6 / 9,
            "macro_f1": (2 / 3 + 2 / 3 + 2 / 3) / 3,
            "jaccard": (1 / 2 + 1 + 1 + 0) / 4,
        }
    )


def test_the_model_scores_labels_and_pairs(tmp_path):
    task = Multilabel(pairs="full", scaling="none")
    examples = task.read(write_svmlight(tmp_path, labelled=True))
    fitted = task.fit(examples)
    problem = fitted.problem(examples)
    count = len(fitted.labels)
    assert problem.dim == count * 4 + count * (count - 1) // 2
    w = torch.randn(problem.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    unary, pairwise = w[: 4 * count].view(count, 4), w[4 * count :]
    for example, ranked in zip(examples, fitted.predict(w, examples, k=3), strict=True):
        x = torch.tensor([*example.values, 1.0], dtype=torch.float64)
        for score, labels in ranked:
            own = [fitted.labels.index(label) for label in labels]
            expected = sum(float(unary[i] @ x) for i in own)
            pairs = enumerate(fitted.edges)
            expected += sum(float(pairwise[e]) for e, (a, b) in pairs if a in own and b in own)
            assert score == pytest.approx(expected, abs=1e-9)
        assert [score for score, _ in ranked] == sorted((score for score, _ in ranked), reverse=True)


@pytest.mark.parametrize("pairs", ["full", "tree", "none"])
def test_margins_compare_the_best_sets_with_and_without_a_label(tmp_path, pairs):
    task = Multilabel(pairs=pairs)
    examples = task.read(write_svmlight(tmp_path, labelled=True))[:5]
    fitted = task.fit(examples)
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(fitted.problem(examples).dim, dtype=torch.float64, generator=generator)
    everything = fitted.predict(w, examples, k=2 ** len(fitted.labels))
    written = io.StringIO()
    fitted.write(examples, fitted.predict(w, examples, k=2), written)
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    for line, ranked in zip(lines, everything, strict=True):
        assert len(line["sets"]) == 2
        for label, margin in line["margins"].items():
            on, off = (max(score for score, own in ranked if (label in own) == present) for present in (True, False))
            assert margin == pytest.approx(on - off, abs=1e-9)
        assert {label for label, margin in line["margins"].items() if margin > 0} == set(ranked[0][1])


def test_strong_pairs_are_near_in_the_picture():
    edges = list(product(range(3), range(3, 6)))
    strength = np.array([0.1, 0.9, 0.2, 0.3, 0.1, 0.8, 1.0, 0.1, 0.2])
    order = around(6, edges, strength)
    assert sorted(order) == list(range(6))
    place = {label: i for i, label in enumerate(order)}
    far = {edge: abs(place[edge[0]] - place[edge[1]]) for edge in edges}
    strongest = sorted(edges, key=lambda edge: -strength[edges.index(edge)])[:3]
    assert sum(far[edge] for edge in strongest) < sum(far.values()) / 3


def test_the_label_graph_is_drawn(tmp_path):
    task = Multilabel(pairs="full")
    examples = task.read(write_svmlight(tmp_path, labelled=True))
    fitted = task.fit(examples)
    w = torch.linspace(-1, 1, fitted.problem(examples).dim, dtype=torch.float64)
    assert fitted.draw_model(w, tmp_path) == ["labels.png"]
    assert (tmp_path / "labels.png").read_bytes().startswith(b"\x89PNG")
    assert fitted.draw_model(0 * w, tmp_path) == ["labels.png"]
    assert Multilabel(pairs="none").fit(examples).draw_model(w, tmp_path) == []


def test_labels_and_features_that_are_new_are_left_out(tmp_path):
    task = Multilabel()
    examples = task.read(write_svmlight(tmp_path, labelled=True))
    fitted = task.fit(examples)
    result = SoftBCFW().solve(fitted.problem(examples), lam=1e-3, passes=50)
    (tmp_path / "new.svm").write_text("a,unheard 1:0.9 2:-0.9 3:-0.9 70:5\n")
    new = task.read(str(tmp_path / "new.svm"), "test")
    found = [ranked[0][1] for ranked in fitted.predict(result.weights, new)]
    assert found == [ranked[0][1] for ranked in fitted.predict(result.weights.float(), new)]  # as of half precision
    assert found == [("a",)]
    assert fitted.measure(new, found)[0]["subset_accuracy"] == 1.0
    assert fitted.unseen_labels(new) == {"unheard": 1}


def test_full_graphs_of_many_labels_are_relaxed():
    rng = np.random.default_rng(0)
    lines = [
        ",".join(f"l{i:02}" for i in rng.permutation(18)[: rng.integers(1, 4)]) + f" 1:{rng.normal():.3f}"
        for _ in range(30)
    ]
    task = Multilabel(pairs="full")
    examples = task.read(iter(lines))  # type: ignore[arg-type]
    fitted = task.fit(examples)
    problem = fitted.problem(examples)
    assert problem.inference == "relaxed"
    result = SoftBCFW().solve(problem, lam=0.1, passes=20)
    ranked = fitted.predict(result.weights, examples)
    assert all(len(own) == 1 for own in ranked)
    assert fitted.measure(examples, [own[0][1] for own in ranked])[0]["hamming"] < 0.2
    written = io.StringIO()
    fitted.write(examples, ranked, written)
    assert "margins" not in written.getvalue()


@pytest.mark.parametrize(
    ("asked", "given"), [("auto", "exact"), ("exact", "exact"), ("relaxed", "relaxed"), ("lp", "lp")]
)
def test_inference_of_training_can_be_asked_for(tmp_path, asked, given):
    task = Multilabel(pairs="full", inference=asked)
    examples = task.read(write_svmlight(tmp_path, labelled=True))
    assert task.fit(examples).problem(examples).inference == given


def test_labels_without_biases(tmp_path):
    """A weight fewer for each label; all others score as beside biases of zero."""
    path = write_svmlight(tmp_path, labelled=True)
    tasks = [Multilabel(scaling="none", bias=bias) for bias in (True, False)]
    examples = tasks[0].read(path)
    fitted = [task.fit(examples) for task in tasks]
    dims = [own.problem(examples).dim for own in fitted]
    assert dims[0] - dims[1] == len(fitted[0].labels)
    with_bias, without = (own._model for own in fitted)
    weights = torch.randn(dims[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    unary, pairs = without.split(weights)
    assert not unary[:, -1].any()
    x = fitted[0]._dense(examples)
    same = torch.cat([unary.flatten(), pairs])
    assert list(without.best(weights, x, 3)) == list(with_bias.best(same, x, 3))
    assert fitted[1].problem(examples).loss(weights) == pytest.approx(fitted[0].problem(examples).loss(same), rel=1e-12)
