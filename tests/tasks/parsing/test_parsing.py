"""Dependency trees: treebanks, features, scores, and pictures."""

import gzip
import io
import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
import treebanks
from small_parsers import trees
from small_tasks import PARSING, trained

from structsmooth import BCFW, Max, ProjectiveTree, SpanningTree, StructuralHinge, load
from structsmooth.calibration import tempered
from structsmooth.cli import main
from structsmooth.problems import DifferenceProblem, arcs_of
from structsmooth.structures.dependencies import crosses
from structsmooth.tasks import Parsing
from structsmooth.tasks.parsing.data import Sentence, Tree, projectivized, read_trees, write_tree
from structsmooth.tasks.parsing.features import ARCS, RELATIONS, Tokens, all_features, arc_features, relation_features
from structsmooth.tasks.parsing.picture import levels
from structsmooth.tasks.parsing.results import Attachments

SENTENCE = Sentence(("she", "saw", "the", "old", "dog"), ("PRON", "VERB", "DET", "ADJ", "NOUN"), ("_",) * 5)
GOLD = Tree((2, 0, 5, 5, 2), ("nsubj", "root", "det", "amod", "obj"))


@pytest.fixture(scope="module")
def parser(tmp_path_factory):
    return trained(PARSING, tmp_path_factory.mktemp("parsing"))


def text_of(rows: str) -> io.StringIO:
    return io.StringIO(rows.replace(" ", "\t"))


def test_relations_of_roots_are_those_that_training_data_have(parser):
    """``root`` stands where the head is the root and nowhere else, whatever scores say."""
    fitted, generator = parser.fitted, torch.Generator().manual_seed(0)
    assert (fitted.of_root, "root" in fitted.of_words) == (["root"], False)
    stored = replace(fitted, of_root=[], of_words=[])  # as version 0.3 did
    for model in (fitted, stored) * 5:
        weights = torch.randn(fitted.dim, generator=generator, dtype=torch.float64)
        for ranked in model.predict(weights, parser.examples[:4], 3):
            assert all(
                (head == 0) == (name == "root")
                for _, y in ranked
                for head, name in zip(y.heads, y.relations, strict=True)
            )


@pytest.mark.parametrize("order", [1, 2])
def test_sentences_without_words_have_one_tree(parser, order, tmp_path):
    model = (
        trained(replace(PARSING, settings={"bits": 12, "order": order}, passes=2), tmp_path) if order == 2 else parser
    )
    sentences = model.fitted.examples([[], [("the", "DET"), ("dog", "NOUN")]])
    ranked = model.fitted.predict(model.weights, sentences, 2)
    assert ranked[0] == [(0.0, Tree((), ()))]
    assert ranked[1] == model.fitted.predict(model.weights, sentences[1:], 2)[0]
    assert list(model.fitted.probabilities_to_json(model.weights, sentences[:1], ranked[:1])) == [
        [{"probabilities": []}]
    ]
    assert model.fitted.predict(model.weights, []) == []


# Files.


def test_reads_words_parts_of_speech_and_trees():
    first = read_trees(io.StringIO(treebanks.conllu()))[0]
    assert first.words == ("the", "dog", "sees", "the", "dog", ".")
    assert first.upos == ("DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT")
    assert first.xpos == ("det", "noun", "verb", "det", "noun", "punct")
    assert first.tree == Tree((2, 3, 0, 5, 3, 3), ("det", "nsubj", "root", "det", "obj:direct", "punct"))


def test_archives_and_files_without_an_empty_line_at_the_end(tmp_path):
    path = tmp_path / "bank.conllu.gz"
    path.write_bytes(gzip.compress(treebanks.conllu().rstrip("\n").encode()))
    assert read_trees(str(path)) == read_trees(io.StringIO(treebanks.conllu()))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"bank\.conllu\.gz: damaged gzip archive"):
        read_trees(str(path))


def test_trees_are_left_aside_where_they_are_to_be_predicted():
    assert all(sentence.tree is None for sentence in read_trees(io.StringIO(treebanks.conllu()), labelled=False))
    assert all(sentence.tree is None for sentence in read_trees(io.StringIO(treebanks.conllu(labelled=False))))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "1 a _ X X _ 2 dep _ _\n2 b _ X X _ 1 dep _ _\n",
            ":1: expected heads that make a tree",
        ),
        (
            "1 a _ X X _ 0 root _ _\n2 b _ X X _ 2 dep _ _\n",
            ":2: expected another word's number from 0 to 2 as head, got '2'",
        ),
        (
            "1 a _ X X _ 3 root _ _\n2 b _ X X _ 0 dep _ _\n",
            ":1: expected another word's number from 0 to 2 as head, got '3'",
        ),
        (
            "1 a _ X X _ 0 root _ _\n2 b _ X X _ _ _ _ _\n",
            ":2: expected another word's number from 0 to 2 as head, got '_'",
        ),
        ("# no\n\n2 a _ X X _ 0 root _ _\n", ":3: expected word number 1, got '2'"),
        ("a X 0 root\n", ":1: expected a row of CoNLL-U: 10 columns between tabs, the first a number; got 4 from 'a'"),
        ("# nothing\n\n", ": no sentences"),
    ],
)
def test_refuses_what_is_no_treebank(rows, message):
    with pytest.raises(ValueError, match=message):
        read_trees(text_of(rows))


def test_refuses_what_is_no_text(tmp_path):
    path = tmp_path / "bad.conllu"
    path.write_bytes(treebanks.conllu().encode().replace(b"cat", b"c\xfft", 1))
    with pytest.raises(ValueError, match=r"bad.conllu:\d+: byte 0xff is not utf-8"):
        read_trees(str(path))


def test_writes_what_it_read_with_other_trees():
    sentences, stream = read_trees(io.StringIO(treebanks.conllu())), io.StringIO()
    for sentence in sentences:
        write_tree(sentence, sentence.tree, [], stream)
    assert stream.getvalue() == treebanks.conllu()
    stream = io.StringIO()
    write_tree(sentences[0], Tree((0, 1, 1, 1, 1, 1), ("x",) * 6), ["parse = 1 of 2"], stream)
    lines = stream.getvalue().splitlines()
    assert lines[:3] == ["# sent_id = 1", "# parse = 1 of 2", "1-2\tthedog" + "\t_" * 8]
    assert read_trees(io.StringIO(stream.getvalue()))[0].tree == Tree((0, 1, 1, 1, 1, 1), ("x",) * 6)


def test_alternatives_are_written_one_after_the_other(parser):
    stream, examples = io.StringIO(), parser.examples[:2]
    predictions = parser.fitted.predict(parser.weights, examples, 3)
    parser.fitted.write(examples, predictions, stream)
    found = read_trees(io.StringIO(stream.getvalue()))
    assert [sentence.tree for sentence in found] == [tree for ranked in predictions for _, tree in ranked]
    assert f"# parse = 2 of 3\n# score = {predictions[0][1][0]:.6g}\n" in stream.getvalue()


def test_sentences_may_be_pairs(parser):
    pairs = [("the", "DET"), ("dog", "NOUN"), ("sees", "VERB"), ("the", "DET"), ("cat", "NOUN"), (".", "PUNCT")]
    (sentence,) = parser.fitted.examples([pairs])
    ((_, tree),) = parser.fitted.predict(parser.weights, [sentence])[0]
    assert tree.heads == (2, 3, 0, 5, 3, 3)
    stream = io.StringIO()
    parser.fitted.write([sentence], [[(0.0, tree)]], stream)
    assert read_trees(io.StringIO(stream.getvalue()))[0].tree == tree
    for wrong in ("the dog", ["the", "dog"]):
        with pytest.raises(ValueError, match="a sentence must be a list of pairs of a word and its part of speech"):
            parser.fitted.examples([wrong])


# Trees.


def every_tree(words: int) -> list[tuple[int, ...]]:
    """Heads of all trees with one root, projective or not."""
    found = []
    for heads in product(range(words + 1), repeat=words):
        above = list(range(words + 1))
        for _ in heads:
            above = [heads[a - 1] if a else 0 for a in above]
        if heads.count(0) == 1 and not any(above):
            found.append(heads)
    return found


def test_projective_trees_are_those_whose_arcs_do_not_cross():
    for words in range(1, 5):
        assert [heads for heads in every_tree(words) if projectivized(heads) == tuple(heads)] == trees(words)


def test_trees_are_made_projective_by_few_changes():
    for heads in every_tree(4):
        near = projectivized(heads)
        assert projectivized(near) == near
        assert near.count(0) == 1
        assert near in trees(4)
        assert (near == heads) == (not bool(crosses(torch.tensor([heads]), torch.ones(1, 4).bool())))
    assert projectivized((3, 4, 0, 3)) == (3, 3, 0, 3)  # word 2 moves from word 4 to the head of that


# Features.


def test_weights_of_stored_parsers_keep_their_features():
    """The loss under weights that all differ, as version 0.3 had it: hashes may not change."""
    sentence = replace(SENTENCE, tree=GOLD)
    problem = Parsing(bits=10).fit([sentence]).problem([sentence])
    found = problem.full_pass(torch.arange(1024, dtype=torch.float64).sqrt(), Max())
    assert found.smoothed_loss == pytest.approx(504.7837358175011, rel=1e-12)


def test_features_are_those_of_each_part():
    """Parts of a sentence, alone and among others, from other functions: the same features for the same properties."""
    tokens, weights = Tokens.of([SENTENCE, SENTENCE], "upos"), torch.randn(1 << 14, dtype=torch.float64)
    names = ["nsubj", "obj"]
    alone = arc_features(Tokens.of([SENTENCE], "upos"), 14).scores(weights)
    assert torch.equal(arc_features(tokens, 14).scores(weights), alone.repeat(2))
    heads = torch.tensor(GOLD.heads)
    relations = relation_features(Tokens.of([SENTENCE], "upos"), heads, 14, names).scores(weights)
    both = all_features(tokens, heads.repeat(2), 14, names).scores(weights)
    assert torch.equal(both, torch.cat([alone, relations, alone, relations]))
    assert len(relations.unique()) == 10
    assert torch.equal(relation_features(tokens, heads.repeat(2), 14, ["nsubj"]).scores(weights)[:5], relations[::2])


def test_arcs_have_a_feature_of_each_template_and_of_words_between():
    ones = torch.ones(1 << 14, dtype=torch.float64)
    counts = arc_features(Tokens.of([SENTENCE], "upos"), 14).scores(ones).view(5, 5)
    # Row m has the heads 0 to 5 without word m + 1 itself.
    between = torch.tensor([[0, 0, 1, 2, 3], [1, 0, 0, 1, 2], [2, 1, 0, 0, 1], [3, 2, 1, 0, 0], [4, 3, 2, 1, 0]])
    assert torch.equal(counts, len(ARCS) + between.double())
    relations = relation_features(Tokens.of([SENTENCE], "upos"), torch.tensor(GOLD.heads), 14, ["nsubj"])
    assert relations.scores(ones).tolist() == [len(RELATIONS)] * 5


def test_shown_weights_are_those_of_pairs_of_parts_of_speech(parser):
    """A sentence of two words, with and without a change of the weight that is shown."""
    pair = Sentence(("x", "y"), ("DET", "NOUN"), ("_", "_"))
    features = arc_features(Tokens.of([pair], "upos"), parser.task.bits)
    (matrix,) = parser.fitted.show_weights(torch.arange(1 << 12).double(), [])
    row, column = matrix.rows.index("NOUN"), matrix.columns.index("DET")
    bucket = int(matrix.values[row, column])
    single = torch.zeros(1 << 12, dtype=torch.float64).index_fill_(0, torch.tensor(bucket), 1.0)
    heads_of_first = features.scores(single)[:2].tolist()  # the root, and the noun
    assert heads_of_first[1] >= 1


# Scores.


def test_scores_are_those_of_the_conll_evaluation():
    other = Tree((2, 0, 5, 3, 2), ("nsubj:pass", "root", "det", "amod", "iobj"))
    labelled = Sentence(SENTENCE.words, SENTENCE.upos, SENTENCE.xpos, GOLD)
    scores = Attachments.of([labelled], [other], subtypes=False)
    assert scores.as_dict(labelled=True) == {"uas": 0.8, "las": 0.6, "whole_trees": 0.0}
    assert Attachments.of([labelled], [other], subtypes=True).as_dict(labelled=True)["las"] == pytest.approx(0.4)
    assert ("amod", "0.0%", "0.0%", "1") in scores.rows(labelled=True)
    assert ("obj", "100.0%", "1") in scores.rows(labelled=False)
    assert "las" not in scores.as_dict(labelled=False)


def test_relations_that_training_data_lack_are_counted(parser):
    rows = treebanks.conllu().replace("\tpunct\t_", "\tflat\t_")
    unseen = parser.fitted.unseen_labels(read_trees(io.StringIO(rows)))
    assert unseen == {"flat": len(parser.examples)}


def test_several_roots_are_learned_where_treebanks_have_them(tmp_path):
    path = tmp_path / "roots.conllu"
    path.write_text(treebanks.conllu().replace("\t3\tpunct", "\t0\tpunct").replace("\t4\tpunct", "\t0\tpunct"))
    task = Parsing(labelled=False, bits=10)
    fitted = task.fit(task.read(str(path)))
    assert not fitted.single_root
    assert fitted.problem(task.read(str(path))).n == len(treebanks.sentences())


def test_trees_may_cross_if_they_need_not_be_projective(parser):
    """Random weights, so that some of the best trees cross."""
    weights = torch.randn(1 << 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    within, free = (
        Parsing(labelled=False, projective=projective, bits=12).fit(parser.examples).predict(weights, parser.examples)
        for projective in (True, False)
    )
    assert all(projectivized(tree.heads) == tree.heads for ((_, tree),) in within)
    assert not all(projectivized(tree.heads) == tree.heads for ((_, tree),) in free)
    for ((score, _),), ((highest, tree),) in zip(within, free, strict=True):
        assert score == pytest.approx(highest) if projectivized(tree.heads) == tree.heads else score < highest


@pytest.mark.parametrize("projective", [True, False])
def test_probabilities_of_heads_are_marginals(parser, projective):
    """Of every tree of the sentence, by enumeration; they are written to the last column, and kept in JSON."""
    weights = torch.randn(1 << 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    task = Parsing(labelled=False, projective=projective, bits=12, probabilities=True)
    fitted, sentence = task.fit(parser.examples), Sentence(("a", "b", "c"), ("DET", "NOUN", "VERB"), ("_",) * 3)
    (ranked,) = fitted.predict(weights, [sentence], k=2)
    (every,) = fitted.predict(weights, [sentence], k=20)
    scores = torch.tensor([score for score, _ in every], dtype=torch.float64).softmax(0)
    for _, tree in ranked:
        expected = [
            sum(float(p) for p, (_, other) in zip(scores, every, strict=True) if other.heads[m] == head)
            for m, head in enumerate(tree.heads)
        ]
        assert tree.probabilities == pytest.approx(expected, abs=1e-9)
        assert fitted.output_from_json(fitted.output_to_json(tree)) == tree
    stream = io.StringIO()
    fitted.write([sentence], [ranked[:1]], stream)
    last = stream.getvalue().splitlines()[0].split("\t")[9]
    assert last == f"HeadProb={ranked[0][1].probabilities[0]:.4f}"


def test_probabilities_are_calibrated_by_trees_that_can_be_predicted(parser):
    weights = torch.randn(1 << 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    fitted = Parsing(labelled=False, bits=12).fit(parser.examples)
    crossing = replace(parser.examples[0], tree=Tree((3, 4, 0, 3, 3, 3, 3)[: len(parser.examples[0])], ("x",) * 7))
    for examples in (parser.examples, [*parser.examples, crossing]):
        calibrated = fitted.calibrated(weights, examples)
        batches = list(fitted.known_outputs(weights, examples))
        assert sum(len(y) for _, y in batches) == len(parser.examples)
        best = sum(float(tempered(trees, calibrated.temperature).log_prob(y).sum()) for trees, y in batches)
        for factor in (0.95, 1.05):
            other = tempered(batches[0][0], factor * calibrated.temperature).log_prob(batches[0][1])
            assert float(other.sum()) <= best
    outputs = calibrated.predict(weights, parser.examples)
    found = calibrated.part_probabilities(weights, parser.examples, [[tree for _, tree in r] for r in outputs])
    asked = replace(calibrated, task=replace(calibrated.task, probabilities=True)).predict(weights, parser.examples)
    assert [list(ranked[0][1].probabilities) for ranked in asked] == [parts for (parts,) in found]
    right = calibrated.right_parts(crossing, Tree((2, 4, 0, 3, 3, 3, 3)[: len(crossing)], ()))
    assert right == [False, *[True] * (len(crossing) - 1)]


def test_training_searches_trees_that_may_cross(tmp_path):
    """Of a sentence whose tree crosses: its arcs stay, and weights find them."""
    rows = ["1 a _ DET _ _ 3 x _ _", "2 b _ ADV _ _ 4 x _ _", "3 c _ NOUN _ _ 0 root _ _", "4 d _ VERB _ _ 3 x _ _"]
    path = tmp_path / "crossing.conllu"
    path.write_text("\n".join(rows).replace(" ", "\t") + "\n\n")
    for projective, heads in ((True, (3, 3, 0, 3)), (False, (3, 4, 0, 3))):
        task = Parsing(projective=projective, bits=10)
        examples = task.read(str(path))
        fitted = task.fit(examples)
        problem = fitted.problem(examples)
        result = BCFW().solve(problem, lam=0.01, passes=30)
        assert 0 <= result.row.gap < 0.1 * result.history[0].gap
        ((_, tree),) = fitted.predict(result.weights, examples)[0]
        assert tree.heads == heads


# Unknown heads.


def with_unknown(text: str, every: int) -> str:
    """A treebank in which one word of so many has no head."""
    lines = text.splitlines()
    words = [number for number, line in enumerate(lines) if line[:1].isdigit() and "-" not in line.split("\t")[0]]
    for number in words[::every]:
        row = lines[number].split("\t")
        lines[number] = "\t".join([*row[:6], "_", "_", *row[8:]])
    return "\n".join(lines) + "\n\n"


@pytest.mark.parametrize("projective", [True, False])
def test_losses_of_unknown_heads_sum_over_the_trees_that_agree(projective):
    task = Parsing(labelled=False, projective=projective, bits=8, unknown="_")
    examples = task.read(io.StringIO(with_unknown(treebanks.conllu(), 2)))[:6]
    assert examples[0].tree.heads == (-1, 3, -1, 5, -1, 3)
    fitted = task.fit(examples)
    assert fitted.single_root
    problem = fitted.problem(examples)
    assert isinstance(problem, DifferenceProblem)
    w = torch.randn(problem.dim, generator=torch.Generator().manual_seed(0)).double()
    losses = []
    for sentence in examples:
        tokens, words = Tokens.of([sentence], "upos"), len(sentence)
        heads, modifiers, _ = arcs_of(tokens.lengths)
        scores = torch.zeros(1, words + 1, words).double()
        scores[0, heads, modifiers - 1] = arc_features(tokens, 8).scores(w)
        y = torch.tensor([sentence.tree.heads])
        trees = (ProjectiveTree if projective else SpanningTree)(scores[:, 1:], scores[:, 0])
        losses.append(float(StructuralHinge()(trees, y.clamp_min(0), y >= 0)))
    assert problem.loss(w) == pytest.approx(sum(losses) / len(losses), rel=1e-10)


def test_parsers_learn_from_a_part_of_the_heads(tmp_path):
    """The command takes the solver for partial labels, and relations are learned from the words that have heads."""
    for name, text in (("part", with_unknown(treebanks.conllu(), 2)), ("whole", treebanks.conllu())):
        (tmp_path / f"{name}.conllu").write_text(text)
    files = ["--train", str(tmp_path / "part.conllu"), "--test", str(tmp_path / "whole.conllu")]
    assert main(["train", "parsing", *files, "--unknown", "_", "--bits", "12", "--out", str(tmp_path / "run")]) == 0
    assert load(tmp_path / "run").score(str(tmp_path / "whole.conllu"))["las"] > 0.95
    with pytest.raises(ValueError, match="expected another word's number from 0 to 6 as head, got '_'"):
        Parsing(unknown="_").read(str(tmp_path / "part.conllu"), "test")


def test_heads_that_no_projective_tree_has_move_up_or_are_forgotten():
    """And only those: what a tree agrees with stays, and what is left agrees with a tree."""

    def agree(part, tree):
        return all(head in (-1, own) for own, head in zip(tree, part, strict=True))

    generator = random.Random(0)
    for words in (2, 3, 4):
        projective = trees(words)
        for tree in trees(words, projective=False):
            part = tuple(head if generator.random() < 0.6 else -1 for head in tree)
            own = projectivized(part)
            assert any(agree(own, other) for other in projective)
            assert own == part or not any(agree(part, other) for other in projective)


def test_arcs_that_cross_move_up_or_are_forgotten():
    assert projectivized((3, 4, -1, 1)) == (-1, 4, -1, 1)
    assert projectivized((-1, 4, -1, 1)) == (-1, 4, -1, 1)
    assert read_trees(text_of("1 a _ X X _ _ _ _ _\n2 b _ X X _ 1 dep _ _\n"), unknown="_")[0].tree.heads == (-1, 1)
    with pytest.raises(ValueError, match=":1: expected heads that make a tree"):
        read_trees(text_of("1 a _ X X _ 2 _ _ _\n2 b _ X X _ 1 dep _ _\n3 c _ X X _ _ _ _ _\n"), unknown="_")


def test_refuses_bits_without_buckets():
    with pytest.raises(ValueError, match="bits must be from 1 to 30, got 0"):
        Parsing(bits=0)


# Pictures.


def test_arcs_are_drawn_above_those_under_them():
    for heads in every_tree(4):
        height = levels(heads)
        for a, b in product(range(4), repeat=2):
            spans = [sorted((heads[m], m + 1)) if heads[m] else [m + 1, m + 1] for m in (a, b)]
            if a != b and heads[a] and heads[b] and spans[0][0] <= spans[1][0] and spans[1][1] <= spans[0][1]:
                assert height[a] > height[b] or spans[0] == spans[1]


def test_draws_a_picture_of_each_sentence(parser, tmp_path, monkeypatch):
    examples = parser.examples[:2]
    wrong = Tree((0, *[1] * (len(examples[1]) - 1)), ("dep",) * len(examples[1]))
    parser.fitted.draw(examples, [[(0.0, examples[0].tree)], [(0.0, wrong)]], tmp_path)
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["0001.png", "0002.png"]
    figures = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: figures.append(figure))
    parser.fitted.draw(examples, [[(0.0, examples[0].tree)], [(0.0, wrong)]], tmp_path)
    missed = sum(a != b for a, b in zip(examples[1].tree.heads, wrong.heads, strict=True))
    for figure, example, below in zip(figures, examples, (0, missed), strict=True):
        [panel], arcs = figure.axes, len(example) - 1  # and the root, with an arrow
        assert len(panel.lines) == arcs  # their tips
        assert len(panel.patches) == arcs + below


def test_shows_wrong_arcs_and_those_that_are_missed(parser):
    example = parser.examples[0]
    wrong = Tree((2, 3, 0, 3, 3, 3), ("det", "nsubj", "root", "det", "obj", "punct"))
    shown = parser.fitted.show_example(example, [(2.0, wrong), (1.0, example.tree)])
    assert shown.count("#D55E00") == 3  # line, tip and text of one arc
    assert shown.count("4 3") == 1  # the dashed one below
    assert "the (word 4) ← dog (word 5)" in shown
    right = parser.fitted.show_example(example, [(2.0, example.tree)])
    assert "#D55E00" not in right
