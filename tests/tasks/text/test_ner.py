"""The tagger end to end on a tiny corpus: schemes, columns and alternatives."""

import io
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_tasks import entities as corpus
from small_tasks import untagged

from structsmooth import CasimirSVRG, Entropy
from structsmooth.problems import DifferenceProblem, SparseChainProblem
from structsmooth.solvers import ConvexConcave
from structsmooth.tasks import NER
from structsmooth.text.conll import read_conll
from structsmooth.text.corpus import Sentence
from structsmooth.text.schemes import FORMS, Entity, entities, entity_tags


@pytest.fixture
def path(tmp_path) -> str:
    (tmp_path / "train.txt").write_text(corpus())
    return str(tmp_path / "train.txt")


def trained(path, **settings):
    """A tagger, its sentences and weights."""
    task = NER(**{"bits": 10, **settings})
    sentences = task.read(path)
    fitted = task.fit(sentences)
    return fitted, sentences, CasimirSVRG().solve(fitted.problem(sentences), lam=1e-3, passes=10).weights


def outputs(predictions):
    return [ranked[0][1] for ranked in predictions]


@pytest.mark.parametrize("settings", [{"bits": 0}, {"rich": False}, {"bits": 0, "rich": False}])
def test_learns_its_training_data(path, settings):
    task, sentences, weights = trained(path, **settings)
    predicted = outputs(task.predict(weights, sentences))
    assert predicted == [sentence.tags for sentence in sentences]
    metrics, table = task.measure(sentences, predicted)
    assert metrics["f1"] == 1.0
    assert "overall" in table


def test_measure_sees_mistakes(path):
    task, sentences, _ = trained(path)
    metrics, _ = task.measure(sentences, [["O"] * len(sentence) for sentence in sentences])
    assert metrics["f1"] == metrics["recall"] == 0.0


@pytest.mark.parametrize("scheme", ["IO", "IOB1", "BIO", "BIOES"])
def test_trains_on_well_formed_taggings_alone(path, scheme):
    free, _, _ = trained(path, scheme=scheme)
    fitted, sentences, weights = trained(path, scheme=scheme, train_constrained=True)
    problem, unconstrained = (own.problem(sentences) for own in (fitted, free))
    chain = problem.structure(weights, torch.arange(problem.n))
    outputs = [
        [fitted.tags[state] for state in y[:length]] for y, length in zip(chain.max()[1], chain.lengths, strict=True)
    ]
    assert outputs == [ranked[0][1] for ranked in fitted.predict(weights, sentences)]
    assert all(entity_tags(entities(tags), len(tags), scheme) == tags for tags in outputs)
    # Fewer outputs have a smaller loss; IO and IOB1 forbid nothing or little.
    losses = [p.loss(-weights, Entropy(1.0)) for p in (problem, unconstrained)]
    assert losses[0] < losses[1] if scheme in ("BIO", "BIOES") else losses[0] <= losses[1] + 1e-12


def test_plain_tags_have_no_constraints():
    with pytest.raises(ValueError, match="plain tags have no scheme: leave train_constrained out"):
        NER(scheme="plain", train_constrained=True)


@pytest.mark.parametrize("scheme", ["IO", "IOB1", "BIO", "BIOES"])
def test_converts_to_a_scheme(path, scheme):
    task, sentences, weights = trained(path, scheme=scheme)
    prefixes = {tag[0] for tag in task.tags}
    assert prefixes == {"IO": {"O", "I"}, "IOB1": {"O", "I"}, "BIO": {*"OBI"}, "BIOES": {*"OBIES"}}[scheme]
    for sentence, predicted in zip(sentences, outputs(task.predict(weights, sentences)), strict=True):
        assert entities(predicted) == entities(sentence.tags)


@given(
    st.lists(st.lists(st.sampled_from(["O", *(f"{p}-{t}" for p in "BIES" for t in "XY")]), min_size=1), min_size=1),
    st.sampled_from(["IO", "IOB1", "BIO", "BIOES"]),
)
def test_labels_are_those_of_the_entities(tags, scheme):
    sentences = [Sentence(["w"] * len(own), [], own) for own in tags]
    task = NER(bits=1, scheme=scheme, rich=False).fit(sentences)
    expected = [tag for own in tags for tag in entity_tags(entities(own), len(own), scheme)]
    assert [task.tags[state] for state in task.problem(sentences).labels] == expected
    assert task.tags == sorted({"O", *expected})


def test_takes_the_scheme_of_the_data(tmp_path):
    (tmp_path / "io.txt").write_text(corpus(lambda _, kind: f"I-{kind}"))
    task, _, _ = trained(str(tmp_path / "io.txt"))
    assert task.task.scheme == "IO"
    assert task.tags == ["I-LOC", "I-ORG", "I-PER", "O"]


@pytest.mark.parametrize(
    ("scheme", "form", "kind"),
    [
        ("BILOU", 0, "PER"),
        ("BIOES", 0, "Name of note"),
        ("BMEWO", 1, "PER"),
        ("BIOES", 2, "PER"),
        ("BIO", 4, ""),
        ("IO", 5, "PER"),
    ],
)
def test_writes_the_scheme_that_it_read(tmp_path, scheme, form, kind):
    """Columns in one scheme and form; what is measured may be in another one."""
    found = [Entity(kind, 0, 3), Entity(kind, 4, 5)]
    words = ["Ada", "van", "Li", "met", "Bo"]
    for name, own, spelling in (("own", scheme, FORMS[form]), ("other", "IOB1", FORMS[form if not kind else 0])):
        rows = zip(words, entity_tags(found, 5, own, spelling), strict=True)
        (tmp_path / name).write_text("\n".join(map("\t".join, rows)) + "\n\nmet\tO\n")
    task, sentences, weights = trained(str(tmp_path / "own"))
    assert task.task.scheme == scheme
    stream = io.StringIO()
    untagged = [Sentence(sentence.words, []) for sentence in sentences]
    task.write(untagged, task.predict(weights, untagged), stream)
    assert (
        stream.getvalue().replace(" " if "\t" not in stream.getvalue() else "\t", "\t")
        == (tmp_path / "own").read_text() + "\n"
    )
    predicted = outputs(task.predict(weights, sentences))
    for name in ("own", "other"):
        measured = task.read(str(tmp_path / name), "test")
        assert set(task.measure(measured, predicted)[0].values()) == {1.0}
        assert task.unseen_labels(measured) == {}
        assert [task.mistake(*pair) for pair in zip(measured, predicted, strict=True)] == [0, 0]


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_every_alternative_is_well_formed(path, scheme):
    task, sentences, weights = trained(path, scheme=scheme)
    for ranked in task.predict(weights, sentences, 8):
        for _, tags in ranked:
            before = ["O", *tags]
            if scheme == "BIO":
                allowed = (b[1:] == a[1:] for a, b in zip(before, tags, strict=False) if b[0] == "I")
            else:
                after = [*before, "O"]
                pairs = pairwise(after)
                allowed = ((b[0] in "IE") == (a[0] in "BI") and (b[0] not in "IE" or a[1:] == b[1:]) for a, b in pairs)
            assert all(allowed)


def test_gives_fewer_alternatives_where_there_are_no_more(tmp_path):
    (tmp_path / "short.txt").write_text("Ada B-PER\n\nvisited O\n")
    task, sentences, weights = trained(str(tmp_path / "short.txt"))
    (first, second) = task.predict(weights, sentences, 7)
    assert sorted(tags for _, tags in first) == sorted(tags for _, tags in second) == [["B-PER"], ["O"]]


def test_written_predictions_keep_all_columns(path):
    task, sentences, weights = trained(path)
    stream = io.StringIO()
    task.write(sentences, task.predict(weights, sentences), stream)
    stream.seek(0)
    for written, sentence in zip(read_conll(stream), sentences, strict=True):
        assert written.words == sentence.words
        assert written.columns == [*sentence.columns, sentence.tags]  # the gold tags, then the predicted ones
        assert written.tags == sentence.tags  # which are right, as the data can be learned


def test_untagged_input_gets_the_missing_column(path):
    task, sentences, weights = trained(path)
    examples = task.read(io.StringIO(untagged(corpus())))
    assert all(example.tags is None for example in examples)
    predictions = task.predict(weights, examples)
    assert outputs(predictions) == outputs(task.predict(weights, sentences))
    with pytest.raises(ValueError, match="these sentences have no tags"):
        task.measure(examples, outputs(predictions))
    stream = io.StringIO()
    task.write(examples, predictions, stream)
    assert stream.getvalue() == corpus() + "\n"


def test_alternatives_are_written_with_their_scores(path):
    task, sentences, weights = trained(path)
    stream = io.StringIO()
    predictions = task.predict(weights, sentences[:1], 3)
    task.write(sentences[:1], predictions, stream)
    comment, *rows = stream.getvalue().splitlines()
    assert comment.startswith("# scores ")
    assert [float(score) for score in comment.split()[2:]] == pytest.approx([s for s, _ in predictions[0]], rel=1e-5)
    assert {len(row.split()) for row in rows if row} == {3 + 3}


@pytest.mark.parametrize("columns", [1, 4])
def test_refuses_another_number_of_columns(path, tmp_path, columns):
    task = NER(bits=10).fit(NER().read(path))
    (tmp_path / "other.txt").write_text(" ".join(["B-PER"] * columns) + "\n")
    expected = f"other.txt: expected 3 columns, as in training, or 2 without tags; got {columns}"
    with pytest.raises(ValueError, match=expected):
        task.read(str(tmp_path / "other.txt"))
    with pytest.raises(ValueError, match="standard input: expected 3 columns"):
        task.read(io.StringIO("cell\n"))
    with pytest.raises(
        ValueError, match=r"other\.txt(:1)?: expected (3 columns, as in training; got 4|a word and a tag)"
    ):
        task.read(str(tmp_path / "other.txt"), "test")


def test_training_needs_tags(tmp_path):
    (tmp_path / "words.txt").write_text("just\nwords\n")
    with pytest.raises(ValueError, match=r"words\.txt:1: expected a word and a tag"):
        NER().read(str(tmp_path / "words.txt"))


def test_default_files():
    task = NER()
    sizes = {split: len(task.read(file)) for split, file in task.default_files().items()}
    assert sizes == {"train": 1164, "test": 303}  # as the README beside the data says


@pytest.mark.parametrize("bits", [-1, 31])
def test_refuses_bits_out_of_range(bits):
    with pytest.raises(ValueError, match=f"bits must be from 0 to 30, got {bits}"):
        NER(bits=bits)


@pytest.mark.parametrize("scheme", [None, "IO", "BIO", "plain"])
def test_unknown_tags(tmp_path, scheme):
    """Every third tag is unknown: sentences train by the taggings that agree with the others."""
    lines = corpus().splitlines()
    rows = [i for i, line in enumerate(lines) if line.strip() and not line.startswith("-DOCSTART-")]
    for i in rows[::3]:
        lines[i] = " ".join([*lines[i].split()[:-1], "_"])
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "whole.txt").write_text(corpus())
    path = str(tmp_path / "train.txt")
    with pytest.raises(ValueError, match=r"train\.txt:\d+: bad tag '_'"):
        NER().read(path)
    task = NER(bits=10, unknown="_", scheme=scheme)
    sentences, whole = task.read(path), task.read(str(tmp_path / "whole.txt"))
    fitted = task.fit(sentences)
    assert "_" not in fitted.tags
    assert fitted.unseen_labels(sentences) == {}
    problem = fitted.problem(sentences)
    assert isinstance(problem, DifferenceProblem)
    known = torch.tensor([tag != "_" for sentence in sentences for tag in sentence.tags])
    assert torch.equal(problem.agreeing.data.costs == -torch.inf, known)
    assert isinstance(fitted.problem(whole), SparseChainProblem)
    weights = ConvexConcave().solve(problem, lam=1e-3, passes=40).weights
    predicted = outputs(fitted.predict(weights, whole))
    metrics, _ = fitted.measure(whole, predicted)
    assert metrics["accuracy" if scheme == "plain" else "f1"] > 0.7
    with pytest.raises(ValueError, match="some tags are unknown, _: give data with all tags to measure on"):
        fitted.measure(sentences, predicted)
    sentence = next(sentence for sentence in sentences if "_" in sentence.tags)
    assert fitted.mistake(sentence, ["O"] * len(sentence)) <= sum(tag != "_" for tag in sentence.tags)
    assert fitted.show_example(sentence, [(0.0, ["O"] * len(sentence))])
