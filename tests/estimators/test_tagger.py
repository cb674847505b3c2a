"""The tagger: kinds of input, losses, decoding, scikit-learn's tools, and files."""

import itertools
import json
import math
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from damaged_folders import damage
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import structsmooth
from structsmooth import BCFW, SGD
from structsmooth.cli import main
from structsmooth.estimators import SequenceTagger
from structsmooth.solvers import SOLVERS
from structsmooth.tasks import NER, Chunking
from structsmooth.tasks.trained import TrainedModel, train
from structsmooth.text.corpus import Sentence
from structsmooth.text.schemes import entities

WORDS = [["Ada", "Li", "met", "Bo"], ["she", "sang"], ["Bo", "sang"], ["they", "met", "Ada"]]
TAGS = [["B-PER", "I-PER", "O", "B-PER"], ["O", "O"], ["B-PER", "O"], ["O", "O", "B-PER"]]
STORED = Path(__file__).parent / "stored"
DICTS = [[{"word": word, "title": word.istitle(), "length": len(word) / 4} for word in words] for words in WORDS]


def matrices(tagger):
    """The features of the dictionaries, as the tagger numbers them: a row for each token."""
    names = tagger.features_.names
    position = {name: i for i, name in enumerate(names)}
    found = [np.zeros((len(tokens), len(names))) for tokens in DICTS]
    for rows, tokens in zip(found, DICTS, strict=True):
        for row, token in zip(rows, tokens, strict=True):
            row[position[f"word={token['word']}"]] = 1
            row[position["title"]], row[position["length"]] = token["title"], token["length"]
    return found


@pytest.fixture(scope="module")
def fitted():
    return SequenceTagger(lam="1/n").fit(DICTS, TAGS)


@pytest.mark.parametrize("loss", ["hinge", "crf", "softmax-margin"])
def test_trains_on_well_formed_taggings_alone(loss):
    settings = {"loss": loss, "lam": "0.1/n", "tol": 1e-4, "train_constrained": True}
    tagger, rows = SequenceTagger(**settings).fit(DICTS, TAGS), SequenceTagger(**settings)
    assert tagger.predict(DICTS) == TAGS
    rows.fit(matrices(tagger), TAGS)  # dense features
    assert rows.objective_ == pytest.approx(tagger.objective_, rel=1e-3)
    free = clone(tagger).set_params(train_constrained=False).fit(DICTS, TAGS)
    assert tagger.objective_ < free.objective_  # of fewer outputs
    if loss == "crf":
        likelihood = 0.0
        for tokens, tags in zip(DICTS, TAGS, strict=True):
            [ranked] = tagger.predict_top_k([tokens], 100)  # all that are well-formed
            scores = np.array([score for score, _ in ranked])
            gold = next(score for score, found in ranked if found == tags)
            likelihood += np.logaddexp.reduce(scores) - gold
        regularizer = 0.05 / len(DICTS) * float(np.square(tagger.weights_).sum())
        assert likelihood / len(DICTS) + regularizer == pytest.approx(tagger.objective_, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "tags", "message"),
    [
        ({}, [["O", "I-PER", "O", "O"], *TAGS[1:]], "scheme BIO, got the sentence O I-PER O O; entity_tags"),
        ({}, [["I-PER", "O", "O", "B-PER"], *TAGS[1:]], "scheme BIO, got the sentence I-PER O O B-PER; entity_tags"),
        ({"constraints": None}, TAGS, "train_constrained needs tags of entities, O among them, and constraints"),
        ({"loss": "slack"}, TAGS, 'train_constrained needs the loss "hinge", "crf" or "softmax-margin", got "slack"'),
    ],
    ids=["inside", "start", "no constraints", "slack"],
)
def test_refuses_to_train_constrained(settings, tags, message):
    with pytest.raises(ValueError, match=message):
        SequenceTagger(train_constrained=True, **settings).fit(DICTS, tags)


def test_words_have_the_attributes_of_the_task():
    """The same problem, solver and seed as the task: the same weights."""
    sentences = [Sentence(words, [], tags) for words, tags in zip(WORDS, TAGS, strict=True)]
    task = NER(bits=0, rich=False, scheme="BIO")
    model = train(task, sentences, solver=BCFW(), lam="1/n", passes=3)
    tagger = SequenceTagger(template="plain", lam="1/n", solver=BCFW(), max_iter=3)
    with pytest.warns(ConvergenceWarning, match="pass limit"):
        tagger.fit(WORDS, TAGS)
    assert np.array_equal(tagger.weights_, model.weights.numpy())
    assert tagger.predict(WORDS) == model.predict(WORDS)


def test_tuples_have_columns():
    tagged = [[(word, word[0]) for word in words] for words in WORDS]
    tagger = SequenceTagger(lam="1/n").fit(tagged, TAGS)
    assert "pos[0]=A" in tagger.features_.names
    assert tagger.predict(tagged) == TAGS
    with pytest.raises(ValueError, match=r"tuples of 2 strings, as in training; got \('Ada',\) in sentence 0"):
        tagger.predict([["Ada"]])


def test_dictionaries_arrays_and_sparse_matrices_are_the_same_problem(fitted):
    assert {"word=Ada", "title", "length"} <= {*fitted.features_.names}
    for kind in (np.asarray, torch.as_tensor, sparse.csr_array, sparse.coo_matrix):
        X = [kind(rows) for rows in matrices(fitted)]
        other = SequenceTagger(lam="1/n").fit(X, TAGS)
        np.testing.assert_allclose(other.objective_, fitted.objective_, rtol=0.02)
        assert other.predict(X) == fitted.predict(DICTS) == TAGS


def test_dictionaries_may_hold_several_strings_and_unknown_features(fitted):
    X = [[{"has": {"a", "b"}}, {"has": ["b"]}]]
    tagger = SequenceTagger(lam="1/n").fit(X, [["x", "y"]])
    assert {*tagger.features_.names} == {"has=a", "has=b"}
    known, more = [[{"title": True, "length": 0.75}]], [[{"title": True, "length": 0.75, "word": "Eve", "new": 3}]]
    assert fitted.predict_top_k(known, 3) == fitted.predict_top_k(more, 3)


def test_bytes_are_strings(fitted):
    """As values, in lists of values, and as names, as in CRFsuite."""
    as_bytes = [
        [{b"word": token["word"].encode(), "title": token["title"], "length": token["length"]} for token in tokens]
        for tokens in DICTS
    ]
    tagger = SequenceTagger(lam="1/n").fit(as_bytes, TAGS)
    assert tagger.features_.names == fitted.features_.names
    assert tagger.predict_top_k(as_bytes, 2) == fitted.predict_top_k(DICTS, 2) == fitted.predict_top_k(as_bytes, 2)
    several = SequenceTagger(lam="1/n").fit([[{"has": [b"a", "\u0436".encode()]}, {"has": (b"b",)}]], [["x", "y"]])
    assert {*several.features_.names} == {"has=a", "has=\u0436", "has=b"}
    assert SequenceTagger(lam="1/n").fit([[{"empty": b""}, {}]], [["x", "y"]]).features_.names == ["empty="]


CORNERS = np.array(list(itertools.product([0.0, 1.0], repeat=2)))


def test_a_kernel_learns_what_no_linear_scores_can():
    X, y = [CORNERS[[i]] for i in range(4)], [[0], [1], [1], [0]]
    assert SequenceTagger(lam="0.1/n").fit(X, y).predict(X) != y
    assert SequenceTagger(kernel="rbf", gamma=2.0, lam="0.1/n").fit(X, y).predict(X) == y


@pytest.mark.parametrize("landmarks", [None, 3])
def test_scores_by_kernel_values_are_those_by_features(landmarks):
    X = [CORNERS, CORNERS[::-1]]
    tagger = SequenceTagger(kernel="rbf", gamma=2.0, landmarks=landmarks, lam="1/n").fit(X, [[0, 1, 1, 0]] * 2)
    assert len(tagger.features_.names) == (landmarks or 4)
    expected = tagger.features_.encode(X).features.numpy() @ tagger.feature_weights_
    found, _ = tagger.features_.scored(X, torch.from_numpy(tagger.weights_), 2)
    np.testing.assert_allclose(found.features.numpy(), expected, atol=1e-9)


def test_scale_is_that_of_scikit_learn():
    X = [np.array([[0.0, 1.0], [3.0, 1.0]])]
    tagger = SequenceTagger(kernel="rbf", lam="1/n").fit(X, [["a", "b"]])
    assert tagger.features_.kernel.kernel.gamma == pytest.approx(1 / (2 * X[0].var()))


def taggings(tagger, X):
    """Scores of all taggings of one sentence."""
    (ranked,) = tagger.predict_top_k(X, 100)
    return {tuple(tags): score for score, tags in ranked}


def test_crf_is_a_likelihood():
    X, y = [WORDS[1], WORDS[2]], [TAGS[1], TAGS[2]]
    tagger = SequenceTagger(loss="crf", lam=0.1, constraints=None).fit(X, y)
    losses = []
    for sentence, tags in zip(X, y, strict=True):
        scores = taggings(tagger, [sentence])
        assert len(scores) == 4
        losses.append(math.log(sum(map(math.exp, scores.values()))) - scores[tuple(tags)])
    objective = np.mean(losses) + 0.05 * tagger.weights_ @ tagger.weights_
    assert tagger.objective_ == pytest.approx(objective)
    assert 0 <= tagger.gap_ <= 0.01 * objective


def test_softmax_margin_has_the_cost():
    X, y = [WORDS[2]], [TAGS[2]]
    tagger = SequenceTagger(loss="softmax-margin", lam=0.1, constraints=None).fit(X, y)
    scores = taggings(tagger, X)
    wrong = {tags: sum(a != b for a, b in zip(tags, y[0], strict=True)) for tags in scores}
    loss = math.log(sum(math.exp(score + wrong[tags]) for tags, score in scores.items())) - scores[tuple(y[0])]
    assert tagger.objective_ == pytest.approx(loss + 0.05 * tagger.weights_ @ tagger.weights_)


@pytest.mark.parametrize("X", [WORDS[2:3], [np.eye(2)]], ids=["words", "numbers"])
def test_slack_rescaling_multiplies_by_the_cost(X):
    y = TAGS[2:3]
    tagger = SequenceTagger(loss="slack", lam=0.5, constraints=None).fit(X, y)
    scores = taggings(tagger, X)
    losses = {
        tags: sum(a != b for a, b in zip(tags, y[0], strict=True)) * (1 + score - scores[tuple(y[0])])
        for tags, score in scores.items()
    }
    assert tagger.objective_ == pytest.approx(max(losses.values()) + 0.25 * tagger.weights_ @ tagger.weights_)
    assert tagger.certify(X, y).suboptimality_lower_bound <= tagger.gap_ <= 0.01 * tagger.objective_


@pytest.mark.parametrize(("loss", "rule"), [("hinge", 3), ("slack", 3), ("crf", 0.3), ("softmax-margin", 0.3)])
def test_the_default_lam_goes_by_the_loss_and_the_number_of_sentences(loss, rule):
    tagger = SequenceTagger(loss=loss, max_iter=0, tol=0.0).fit(WORDS, TAGS)
    assert tagger.lam_ == pytest.approx(rule / 4)
    assert clone(tagger).set_params(lam="1/n").fit(WORDS, TAGS).lam_ == 0.25


def test_marginals_are_those_of_the_scores(fitted):
    X = [DICTS[0][:2]]
    scores = taggings(fitted, X)
    assert ("O", "I-PER") not in scores  # not well-formed
    total = sum(map(math.exp, scores.values()))
    with pytest.warns(UserWarning, match="a hinge has trained these scores"):
        found = fitted.predict_marginals(X)[0]
    for position, marginals in enumerate(found):
        for tag, probability in marginals.items():
            own = sum(math.exp(score) for tags, score in scores.items() if tags[position] == tag)
            assert probability == pytest.approx(own / total)


def test_predictions_are_well_formed_unless_asked_otherwise():
    X, y = [[{"a": True}, {"i": True}]] * 3 + [[{"o": True}]], [["B-X", "I-X"]] * 3 + [["O"]]
    tagger = SequenceTagger(lam="0.01/n").fit(X, y)
    assert tagger.scheme_ == "BIO"
    assert tagger.predict([[{"i": True}]]) != [["I-X"]]
    free = clone(tagger).set_params(constraints=None).fit(X, y)
    assert free.predict([[{"i": True}]]) == [["I-X"]]
    assert clone(tagger).set_params(constraints="BIO").fit(X, y).predict(X) == y


def test_tags_may_be_any_strings_or_integers():
    X = [[{"a": True}, {"b": True}]]
    for y, classes in ((np.array([[7, 3]]), [3, 7]), ([np.array(["VB", "NN"])], ["NN", "VB"])):
        tagger = SequenceTagger(lam="1/n").fit(X, y)
        assert tagger.scheme_ is None
        assert tagger.classes_.tolist() == classes
        assert tagger.predict(X) == [list(row) for row in y]
        assert tagger.score(X, y) == 1.0
    assert tagger.score(X, [["VB", "VB"]]) == 0.5


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("B-X L-X O U-X", "BILOU"),
        ("B-X E-X O S-X", "BIOES"),
        ("X-B X-E O X-W", "BMEWO"),
        ("B_X I_X O B_X", "BIO"),
        ("B I O B", "BIO"),
        ("PER PER O LOC", "IO"),
        ("B-X I-X B-Y B-Y", "BIO"),
    ],
)
def test_tags_of_any_scheme_are_those_of_entities(tags, scheme):
    X, y = [["Ada", "Li", "met", "Bo"]] * 3, [tags.split()] * 3
    tagger = SequenceTagger(lam="0.01/n").fit(X, y)
    assert tagger.scheme_ == scheme
    assert tagger.tags_.mask is not None
    assert tagger.predict(X) == y
    assert tagger.score(X, y) == 1.0
    found = len(entities(y[0]))
    assert tagger.score(X, [["O", "O", "O", y[0][3]]] * 3) == pytest.approx(2 / (found + 1))


def test_tags_that_look_like_those_of_entities_are_named():
    with pytest.warns(UserWarning, match="taken for plain tags: bad tag 'X-PER': expected O, or such tags as B-PER$"):
        tagger = SequenceTagger(lam="1/n").fit([["Ada", "met", "Bo"]], [["B-PER", "O", "X-PER"]])
    assert tagger.scheme_ is None


def test_a_scheme_goes_by_any_of_its_names():
    tagger = SequenceTagger(lam="1/n", constraints="IOB2").fit(WORDS, TAGS)
    assert tagger.scheme_ == "IOB2"
    assert tagger.predict(WORDS) == SequenceTagger(lam="1/n").fit(WORDS, TAGS).predict(WORDS)


@pytest.mark.parametrize(
    ("weights", "cost"), [(None, 1.0), ({"x": 0.5}, 2 / 3), ({"x": 0.5, "y": 5.0}, 2.0), ("balanced", 1.0)]
)
def test_weights_of_classes_are_costs(weights, cost):
    """The objective at weights of zero is the mean cost."""
    X, y = [[{"a": True}]] * 3, [["x"], ["x"], ["y"]]
    assert SequenceTagger(class_weight=weights, max_iter=0, tol=0.0).fit(X, y).objective_ == pytest.approx(cost)


def test_balanced_weights_are_inverse_to_counts():
    X, y = [[{"a": True}]] * 3, [["x"], ["x"], ["y"]]
    objectives = [
        SequenceTagger(lam="1/n", class_weight=weights).fit(X, y).objective_
        for weights in ("balanced", {"x": 0.75, "y": 1.5})
    ]
    assert objectives[0] == pytest.approx(objectives[1])


def test_empty_sentences_have_no_tags(fitted):
    assert fitted.predict([[], DICTS[0], []]) == [[], TAGS[0], []]
    with pytest.warns(UserWarning, match="a hinge has trained these scores"):
        assert fitted.predict_marginals([[]]) == [[]]
    assert fitted.predict([]) == []
    more = SequenceTagger(lam="1/n").fit([[], *DICTS], [[], *TAGS])
    assert np.array_equal(more.weights_, fitted.weights_)


def test_score_is_the_f1_of_entities(fitted):
    wrong = [["B-PER", "O", "O", "B-PER"], *TAGS[1:]]
    assert fitted.score(DICTS, TAGS) == 1.0
    assert fitted.score(DICTS, wrong) == pytest.approx(3 / 4)


def test_the_gap_bounds_the_distance_from_the_optimum(fitted):
    certificate = fitted.certify(DICTS, TAGS)
    assert certificate.objective == pytest.approx(fitted.objective_)
    assert certificate.suboptimality_lower_bound <= fitted.gap_
    assert fitted.history_[-1].passes == fitted.n_iter_
    assert fitted.lam_ == 0.25


def test_weights_have_names(fitted):
    (best, _), *_ = fitted.top_features(1)["O"]
    rows = dict(zip(fitted.features_.names, fitted.feature_weights_, strict=True))
    state = fitted.classes_.tolist().index("O")
    assert rows[best][state] == max(row[state] for row in rows.values())
    assert fitted.state_features_[best, "O"] == rows[best][state]
    first = fitted.classes_.tolist().index("B-PER")
    assert fitted.transition_features_["B-PER", "O"] == fitted.transition_weights_[first, state]
    assert set(fitted.transition_features_.values()) <= {*fitted.transition_weights_.ravel().tolist()}
    assert fitted.end_weights_.shape == (2, 3)


def test_grid_search_pipelines_and_pickles(fitted, tmp_path):
    def tokens(X):
        return [[{"word": word} for word in words] for words in X]

    pipeline = make_pipeline(FunctionTransformer(tokens), SequenceTagger())
    grid = {"sequencetagger__lam": ["1/n", 1000.0], "sequencetagger__loss": ["hinge", "crf"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(WORDS * 2, TAGS * 2)
    assert search.best_params_["sequencetagger__lam"] == "1/n"
    assert search.predict(WORDS) == TAGS
    joblib.dump(fitted, tmp_path / "tagger.joblib")
    assert joblib.load(tmp_path / "tagger.joblib").predict(DICTS) == TAGS


@pytest.mark.parametrize("cv", [2, 4], ids=["two folds", "one sentence each"])
def test_cross_validated_predictions_are_lists_of_tags(cv):
    """In one fold all sentences may be equally long, in another not."""
    X, y = [WORDS[i] for i in (1, 2, 0, 3)], [TAGS[i] for i in (1, 2, 0, 3)]
    tagger = SequenceTagger(lam="1/n")
    found = cross_val_predict(tagger, X, y, cv=cv)
    expected = [
        own
        for train, test in KFold(cv).split(X)
        for own in tagger.fit([X[i] for i in train], [y[i] for i in train]).predict([X[i] for i in test])
    ]
    assert found.shape == (4,)
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("settings", "X"),
    [
        ({}, WORDS),
        ({"class_weight": {"O": 2.0}, "solver": BCFW(gap_tolerance=0.1), "random_state": np.int64(1)}, DICTS),
        ({"constraints": None}, [np.eye(4)[: len(words)] for words in WORDS]),
        ({"kernel": "polynomial", "degree": 2}, [np.eye(4)[: len(words)] for words in WORDS]),
    ],
    ids=["words", "dictionaries", "numbers", "kernel"],
)
def test_saved_taggers_are_the_same(settings, X, tmp_path):
    tagger = SequenceTagger(lam="1/n", **settings).fit(X, TAGS)
    tagger.save(tmp_path / "model")
    loaded = SequenceTagger.load(tmp_path / "model")
    assert loaded.get_params() == tagger.get_params()
    assert loaded.predict_top_k(X, 2) == tagger.predict_top_k(X, 2)
    for name in ("objective_", "gap_", "lam_", "n_iter_", "scheme_", "history_"):
        assert getattr(loaded, name) == getattr(tagger, name)
    assert clone(loaded).fit(X, TAGS).predict(X) == tagger.predict(X)


@pytest.mark.parametrize(
    ("settings", "X"),
    [
        ({}, WORDS),
        ({"template": "plain", "constraints": None}, [[(word, "NN", "B-NP") for word in words] for words in WORDS]),
        ({"template": "chunking", "loss": "crf"}, [[(word, word[-1]) for word in words] for words in WORDS]),
    ],
    ids=["words", "three columns", "chunking"],
)
def test_a_saved_tagger_of_words_is_a_model_of_a_task(settings, X, tmp_path, capsys):
    tagger = SequenceTagger(lam="1/n", **settings).fit(X, TAGS)
    tagger.save(tmp_path / "tagger")
    model = structsmooth.load(tmp_path / "tagger")
    assert isinstance(model.task.task, Chunking if "template" in settings and tagger.loss == "crf" else NER)
    assert model.alternatives(X, 2) == tagger.predict_top_k(X, 2)
    assert main(["info", str(tmp_path / "tagger")]) == 0
    assert "'warm_start'" not in capsys.readouterr().err
    model.save(tmp_path / "model")
    loaded = SequenceTagger.load(tmp_path / "model")
    assert loaded.get_params() == tagger.get_params()
    assert loaded.predict_top_k(X, 2) == tagger.predict_top_k(X, 2)
    assert (loaded.scheme_, loaded.history_) == (tagger.scheme_, tagger.history_)


@pytest.mark.parametrize(
    "task",
    [NER(), NER(bits=0, rich=False, transition_scale=2.0), NER(words_only=True, scheme="plain"), Chunking()],
    ids=["hashed", "scaled", "plain tags", "chunking"],
)
def test_the_model_of_a_task_is_a_tagger(task, tmp_path):
    sentences = [[(word, word[-1], "B-NP") for word in words] for words in WORDS]
    lines = [
        "".join(f"{' '.join(cells)} {tag}\n" for cells, tag in zip(*pair, strict=True))
        for pair in zip(sentences, TAGS, strict=True)
    ]
    (tmp_path / "train.txt").write_text("\n".join(lines))
    model = train(task, tmp_path / "train.txt", passes=3)
    model.save(tmp_path / "model")
    tagger = SequenceTagger.load(tmp_path / "model")
    assert tagger.predict_top_k(sentences, 3) == model.alternatives(sentences, 3)
    if task.words_only:
        assert tagger.predict(WORDS) == model.predict(WORDS)
    assert tagger.lam_ == model.description["lam"]
    assert math.isnan(tagger.gap_)
    assert not tagger.history_
    tagger.save(tmp_path / "tagger")
    assert structsmooth.load(tmp_path / "tagger").alternatives(sentences, 3) == model.alternatives(sentences, 3)


def test_a_tagger_of_version_0_3_loads():
    tagger = SequenceTagger.load(STORED)
    expected = json.loads((STORED / "predicted.json").read_text())
    assert [[score, tags] for ((score, tags),) in tagger.predict_top_k(WORDS, 1)] == expected
    assert tagger.get_params()["lam"] == "1/n"
    with pytest.raises(ValueError, match=r"open it by structsmooth.estimators.SequenceTagger.load"):
        structsmooth.load(STORED)


def test_the_models_of_other_tasks_are_no_taggers(fitted, tmp_path):
    fitted.save(tmp_path)
    with pytest.raises(ValueError, match="an estimator whose tokens no task reads"):
        structsmooth.load(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text()) | {"task": "ocr", "trained": {}}
    del description["digest"]
    (tmp_path / "model.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match="expected a SequenceTagger: it is a model of the task ocr"):
        SequenceTagger.load(tmp_path)


def test_damaged_folders_load_or_are_refused_by_name(tmp_path):
    tagger, rng = SequenceTagger(lam="1/n", max_iter=3, tol=1.0).fit(WORDS, TAGS), np.random.default_rng(0)
    tagger.save(tmp_path / "model")
    for number in range(40):
        copy = Path(shutil.copytree(tmp_path / "model", tmp_path / "copy", dirs_exist_ok=True))
        damage(copy, rng, forged=number % 2 == 0)
        for load in (SequenceTagger.load, structsmooth.load):
            with suppress(ValueError, OSError):
                assert isinstance(load(copy), SequenceTagger | TrainedModel)


def test_other_files_are_refused(fitted, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model\.json"):
        SequenceTagger.load(tmp_path)
    fitted.save(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**description, "estimator": "Other"}))
    with pytest.raises(ValueError, match="it has changed since the model was saved"):
        SequenceTagger.load(tmp_path)
    del description["digest"]
    own = description["estimator"]
    newton = {**own, "parameters": {**own["parameters"], "solver": {"solver": "newton"}}}
    for changed in ([1], {}, *({**description, "estimator": other} for other in ("Other", {"name": "Other"}, newton))):
        (tmp_path / "model.json").write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=r"expected a SequenceTagger|not the description of a model"):
            SequenceTagger.load(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(ValueError, match="expected JSON"):
        SequenceTagger.load(tmp_path)
    function = SequenceTagger(kernel=lambda x, z: x @ z.T, lam="1/n").fit([np.eye(2)], [["a", "b"]])
    with pytest.raises(ValueError, match="take joblib"):
        function.save(tmp_path / "function")


@pytest.mark.parametrize(
    ("settings", "X", "y", "message"),
    [
        ({}, "a sentence", TAGS, "X must be a list of sentences, got str"),
        ({}, ["a sentence"], [["O"]], "a sentence must be a list of tokens, got 'a sentence'"),
        ({}, WORDS, TAGS[:2], "X has 4 sentences and y has 2"),
        ({}, WORDS[:1], [["O"]], "sentence 0 has 4 tokens in X and 1 tags in y"),
        ({}, [["a"]], ["O"], "the tags of a sentence must be a list, got 'O'"),
        ({}, [[]], [[]], "a sentence with a token at least"),
        ({}, [[3.0]], [["O"]], "got list of float"),
        ({}, [["a"], [{"b": 1}]], [["O"], ["O"]], r"tokens must be words, as in training; got \({'b': 1},\)"),
        (
            {},
            [[{"b": 1}], ["a"]],
            [["O"], ["O"]],
            "tokens must be dictionaries or lists of features, as in training; got 'a'",
        ),
        (
            {},
            [np.eye(2), np.eye(3)],
            [["a", "b"], ["a"] * 3],
            r"sentence 1 must be a matrix \[tokens, 2\], got \(3, 3\)",
        ),
        (
            {},
            [np.eye(2), np.array([[0, 0], [0, np.inf]])],
            [["a", "b"], ["a", "b"]],
            "features must be finite numbers, got inf for 'x1' of token 1 in sentence 1: leave out what is unknown",
        ),
        (
            {},
            [[{"b": 1}, {"b": 2}], [{"a": 1}, {"a": 2, "b": None}]],
            [["a", "b"], ["a", "b"]],
            "features must be finite numbers, got nan for 'b' of token 1 in sentence 1: leave out what is unknown",
        ),
        ({}, WORDS[:1], [["a", 1, "a", 1]], "all strings or all integers"),
        ({"constraints": "IO"}, WORDS, TAGS, "does not belong to the scheme IO"),
        ({"constraints": "BIO"}, [["a"]], [["NN"]], "needs the tag O"),
        ({"constraints": "bilou"}, WORDS, TAGS, "one of auto, IO, BIO, IOB1, .* got 'bilou'"),
        ({"template": "poor"}, WORDS, TAGS, "template must be one of rich, plain, chunking, got 'poor'"),
        ({"loss": "squared"}, WORDS, TAGS, "loss must be one of hinge, slack, crf, softmax-margin, got 'squared'"),
        ({"solver": "newton"}, WORDS, TAGS, "solver must be auto, a Solver or one of casimir-svrg, .*, got 'newton'"),
        ({"lam": "x"}, WORDS, TAGS, "lam must be a number or c/n"),
        ({"kernel": "rbf"}, WORDS, TAGS, r"a kernel needs sentences that are matrices \[tokens, features\], got words"),
        ({"kernel": "rbf", "gamma": "auto"}, [np.eye(2)], [["a", "b"]], 'gamma must be a number or "scale"'),
        ({"loss": "crf", "class_weight": "balanced"}, WORDS, TAGS, 'needs the loss "hinge" or "softmax-margin"'),
        ({"loss": "slack", "class_weight": {"O": 2}}, WORDS, TAGS, 'needs the loss "hinge" or "softmax-margin"'),
        ({"class_weight": "equal"}, WORDS, TAGS, 'a dictionary or "balanced", got'),
        ({"class_weight": {"X": 1.0}}, WORDS, TAGS, r"class_weight has tags that training sentences lack: \['X'\]"),
    ],
)
def test_bad_input_is_named(settings, X, y, message):
    with pytest.raises(ValueError, match=message):
        SequenceTagger(**settings).fit(X, y)


def test_tags_that_training_lacks_are_named(fitted):
    with pytest.raises(ValueError, match="tag 'B-ORG' is not among those of training"):
        fitted.certify(DICTS[:1], [["B-ORG", "O", "O", "O"]])


def test_taggers_that_are_not_fitted_say_so():
    for method in (SequenceTagger().predict, SequenceTagger().predict_marginals):
        with pytest.raises(NotFittedError):
            method(WORDS)


@pytest.mark.parametrize("solver", ["bcfw", "sgd"])
def test_solvers_have_names(solver, capsys):
    tagger = SequenceTagger(solver=solver, lam="1/n", max_iter=2, tol=0.0, verbose=1).fit(WORDS, TAGS)
    assert tagger.history_[-1].passes == 2
    assert tagger.gap_ > 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["pass 0 of 2", "pass 1 of 2", "pass 2 of 2"]
    assert solver in SOLVERS


def test_without_a_bound_the_gap_is_unknown():
    solver = SGD(gap_tolerance=0.0, schedule="inverse")
    tagger = SequenceTagger(solver=solver, lam=0.0, max_iter=1).fit(WORDS, TAGS)
    assert np.isnan(tagger.gap_)


def test_arrays_of_sentences_are_lists_of_them():
    X, y = np.eye(4).reshape(2, 2, 4), np.array([["a", "b"], ["b", "a"]])
    assert SequenceTagger(lam="0.1/n").fit(X, y).predict(X) == y.tolist()
    words = np.array([["red", "car"], ["old", "cat"]])
    assert SequenceTagger(lam="0.1/n").fit(words, y).predict(words) == y.tolist()


def test_random_states_are_those_of_scikit_learn():
    taggers = [SequenceTagger(lam="1/n", random_state=state).fit(DICTS, TAGS) for state in (3, None)]
    taggers += [SequenceTagger(lam="1/n", random_state=np.random.RandomState(3)).fit(DICTS, TAGS) for _ in range(2)]
    assert np.array_equal(taggers[2].weights_, taggers[3].weights_)
    assert not np.array_equal(taggers[0].weights_, taggers[2].weights_)


@pytest.mark.parametrize(
    ("first", "second", "is_taken"), [("auto", "bcfw", True), ("bcfw", "sgd", True), ("sgd", "auto", False)]
)
def test_warm_starts_begin_where_the_last_fit_ended(first, second, is_taken):
    """A solver of the dual cannot take weights: it begins at zero, where the objective is the mean cost."""
    settings = {"lam": "1/n", "tol": 0.0, "warm_start": True}
    tagger = SequenceTagger(solver=first, max_iter=10, **settings).fit(WORDS, TAGS)
    tagger.set_params(solver=second, max_iter=0).fit(WORDS, TAGS)
    assert (tagger.objective_ < 1.0) == is_taken
    assert is_taken or tagger.objective_ == pytest.approx(11 / 4)
    assert tagger.fit(WORDS[:2], TAGS[:2]).objective_ == pytest.approx(6 / 2)  # other data


def test_early_stopping_keeps_the_best_weights():
    X, y = WORDS * 5, TAGS * 5
    tagger = SequenceTagger(lam="0.01/n", tol=0.0, early_stopping=True, n_iter_no_change=3, max_iter=50).fit(X, y)
    scores = tagger.history_.column("validation_score")
    best = scores.index(max(scores))
    assert max(scores) == 1.0
    assert len(scores) == best + 4  # then three passes without a rise
    assert tagger.n_iter_ == best + 3
    assert tagger.objective_ == tagger.history_[best].objective
    with pytest.raises(ValueError, match="n_iter_no_change must be at least 1, got 0"):
        tagger.set_params(n_iter_no_change=0).fit(X, y)
    with pytest.raises(ValueError, match="the resulting train set will be empty"):
        tagger.set_params(n_iter_no_change=3).fit(X[:1], y[:1])


def test_dev_sentences_are_scored_after_every_pass(capsys):
    tagger = SequenceTagger(lam="1/n", tol=0.0, max_iter=3, solver="sgd", verbose=1)
    tagger.fit(WORDS, TAGS, WORDS[:1], TAGS[:1])
    scores = tagger.history_.column("validation_score")
    assert len(scores) == 4
    assert scores[-1] == tagger.score(WORDS[:1], TAGS[:1]) == 1.0
    assert ", validation_score 1, " in capsys.readouterr().out.splitlines()[-1]
    plain = SequenceTagger(lam="1/n", tol=0.0, max_iter=3, solver="sgd").fit(WORDS, TAGS)
    assert np.array_equal(plain.weights_, tagger.weights_), "scores alone change nothing"


def test_dev_sentences_choose_the_weights_with_early_stopping():
    settings = {"lam": "0.01/n", "tol": 0.0, "n_iter_no_change": 3, "max_iter": 50}
    tagger = SequenceTagger(early_stopping=True, **settings).fit(WORDS, TAGS, X_dev=WORDS[2:], y_dev=TAGS[2:])
    scores = tagger.history_.column("validation_score")
    assert len(scores) == scores.index(max(scores)) + 4
    assert tagger.history_[0].objective == pytest.approx(11 / 4), "all sentences train"


def test_dev_sentences_need_their_tags():
    for arguments in ((WORDS,), (None, TAGS), (np.ones(4),)):
        with pytest.raises(ValueError, match="X_dev and y_dev must be given both or not at all; weights go by name"):
            SequenceTagger().fit(WORDS, TAGS, *arguments)
    with pytest.raises(ValueError, match="X has 4 sentences and y has 2"):
        SequenceTagger().fit(WORDS, TAGS, WORDS, TAGS[:2])


def test_an_interrupt_ends_the_program_too(monkeypatch):
    """A grid search must not go on after Ctrl-C."""

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(BCFW, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SequenceTagger(solver=BCFW()).fit(DICTS, TAGS)


def test_scikit_learn_is_asked_for_by_name(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("structsmooth.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'structsmooth\[sklearn\]'"):
        import structsmooth.estimators  # noqa: F401


def test_spans_are_entities_with_their_probabilities():
    X, y = [["Ada", "Love", "left"], ["they", "left"]] * 3, [["B-PER", "I-PER", "O"], ["O", "O"]] * 3
    tagger = SequenceTagger(loss="crf", lam=0.01).fit(X, y)
    (span,), none, empty = tagger.predict_spans([["Ada", "Love", "left"], ["they", "left"], []])
    assert none == empty == []
    scores, taggings = zip(*tagger.predict_top_k([["Ada", "Love", "left"]], 100)[0], strict=True)
    weights = np.exp(np.array(scores) - scores[0])
    ends = {("B-PER", "I-PER", "O"), ("B-PER", "I-PER", "B-PER")}
    right = sum(w for w, tags in zip(weights, taggings, strict=True) if tuple(tags) in ends)
    assert (span.start, span.end, span.label) == (0, 2, "PER")
    assert span.probability == pytest.approx(right / weights.sum(), abs=1e-12)
    with pytest.raises(ValueError, match="predict_spans needs tags of entities"):
        SequenceTagger().fit([["a", "b"]], [["X", "Y"]]).predict_spans([["a"]])


def test_tokens_of_older_code():
    y = [["A", "B"], ["B", "A"]] * 4
    lists = [[["bias", "w=ada"], ["bias", "w=sang", "last"]], [["bias", "w=sang"], ["bias", "w=ada", "last"]]] * 4
    tagger = SequenceTagger(lam="0.1/n").fit(lists, y)
    assert tagger.predict(lists) == y
    dictionaries = [[dict.fromkeys(token, True) for token in sentence] for sentence in lists]
    assert tagger.predict(dictionaries) == y
    nested = [[{"emb": {"a": np.float32(1)}, "up": np.bool_(True)}, {"emb": {"a": -1.0}, "up": np.bool_(False)}]] * 4
    assert set(SequenceTagger().fit(nested, [["A", "B"]] * 4).features_.names) == {"emb:a", "up"}
    columns = [[["Ada", "NNP"], ["sang", "VBD"]]] * 4
    as_tuples = [[*map(tuple, sentence)] for sentence in columns]
    taggers = [SequenceTagger().fit(X, [["B-PER", "O"]] * 4) for X in (columns, as_tuples)]
    assert taggers[0].features_.names == taggers[1].features_.names
    assert taggers[0].predict(as_tuples) == taggers[1].predict(columns)


def test_allowed_tags_are_a_constraint_of_decoding():
    X, y = [["Ada", "met", "Bo"], ["Bo", "left"]] * 3, [["B-PER", "O", "B-PER"], ["B-PER", "O"]] * 3
    tagger = SequenceTagger(loss="crf", lam=0.01).fit(
        [*X, ["Rome"], ["New", "York"]], [*y, ["B-LOC"], ["B-LOC", "I-LOC"]]
    )
    some, none = [{"O", "I-LOC", "B-LOC"}, None, {"I-LOC", "O"}], [None, None]
    found = tagger.predict([X[0], X[1], []], allowed=[some, None, []])
    ranked = tagger.predict_top_k([X[0]], 10**3)[0]
    fitting = [tags for _, tags in ranked if tags[0] in some[0] and tags[2] in some[2]]
    assert found == [fitting[0], y[1], []]
    assert tagger.predict([X[1]], allowed=[none]) == [y[1]]
    for allowed, message in (
        ([some, None], "an entry for each of 1 sentences"),
        ([none], "an entry for each of 3 tokens"),
        ([[{"X"}, None, None]], "no tag of the training data for token 0"),
        ([[{"I-LOC"}, None, None]], "sentence 0 has no allowed tagging"),
        (iter([some]), "allowed must be a list with an entry for each sentence, got"),
        (["OOO"], "allowed must be a list with a set of tags, or None, for each token, got 'OOO'"),
        ([iter([None, None, None])], "allowed must be a list with a set of tags, or None, for each token"),
        ([["B-PER", None, None]], "allowed must have a set of tags or None for token 0, got 'B-PER'"),
        ([[None, iter(["O"]), None]], "allowed must have a set of tags or None for token 1"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            tagger.predict([X[0]], allowed=allowed)
