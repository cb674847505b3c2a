"""Word alignment: files, counts and Model 1, features, costs, metrics and pictures."""

import io
from itertools import product

import numpy as np
import pytest
import torch
from small_tasks import TEXTS, sentence_pairs, write_pairs

from structsmooth.tasks import Alignment
from structsmooth.tasks.alignment.data import SentencePair, read_pairs
from structsmooth.tasks.alignment.features import common_subsequence, pair_features
from structsmooth.tasks.alignment.lexicon import Lexicon
from structsmooth.tasks.alignment.results import measures

LINKS = {
    "test.align": "0-0 1-1-P 1-1 0-1-P\n\n",
    "test.wa": "1 1 1 S\n1 2 2 P\n0001 2 2 S 0.5\n1 2 1 P\n",
}


def pair(source: str, target: str, sure: set = frozenset(), possible: set = frozenset()) -> SentencePair:
    return SentencePair(tuple(source.split()), tuple(target.split()), frozenset(sure), frozenset(possible))


def folder(path, **files: str) -> str:
    (path / "test.f").write_text("la maison\n\n")
    (path / "test.e").write_text("the house\nhello\n")
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text)
    return f"{path}#test"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> list[SentencePair]:
    return read_pairs(write_pairs(tmp_path_factory.mktemp("pairs"), True))


@pytest.mark.parametrize("ending", ["align", "wa"])
def test_folders_hold_links_of_both_formats(tmp_path, ending):
    path = folder(tmp_path, **{f"test_{ending}": LINKS[f"test.{ending}"]})
    first, second = read_pairs(path)
    assert first == pair("la maison", "the house", {(0, 0), (1, 1)}, {(0, 1)})
    assert second == pair("", "hello")
    assert read_pairs(path + ":2-2+test:1-1") == [second, first]


def test_folders_without_links_and_lines_of_text(tmp_path):
    without = [SentencePair(("la", "maison"), ("the", "house")), SentencePair((), ("hello",))]
    assert read_pairs(folder(tmp_path)) == without
    text = io.StringIO("la maison ||| the house\n||| hello\n")
    assert read_pairs(text) == without
    assert read_pairs(io.StringIO("a b ||| c ||| 0-0 1?0\n")) == [pair("a b", "c", {(0, 0)}, {(1, 0)})]


def test_blank_lines_are_pairs_without_words_and_tabs_stand_for_bars(tmp_path, capsys):
    read = read_pairs(io.StringIO("la maison\tthe house\t0-0\n\nchien\tdog\t0-0\n"))
    assert read == [pair("la maison", "the house", {(0, 0)}), pair("", ""), pair("chien", "dog", {(0, 0)})]
    fitted, written = Alignment().fit(read), io.StringIO()
    fitted.write(read, fitted.predict(torch.ones(fitted.dim, dtype=torch.float64), read), written)
    first, second, third, end = written.getvalue().split("\n")
    assert (second, end) == ("", "")  # a line for each that was read
    assert len(first.split()) == 2
    assert third == "0-0"
    assert "no words" not in capsys.readouterr().err
    read_pairs(io.StringIO("a\tb\na\t\n\n\tb\n"))
    assert (
        "standard input: one of the sentences has no words, and so no links, in line 2, 4:" in capsys.readouterr().err
    )
    read_pairs(folder(tmp_path))
    assert "test: one of the sentences has no words, and so no links, in line 2:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"test_align": "0-0\n"}, r"test\.align has 1 lines, but there are 2 sentences"),
        ({"test_e": "the house\n"}, r"test\.f has 2 lines, but .*test\.e has 1"),
        ({"test_align": "0-0\n0-0\n"}, r"test\.align:2: link 0-0 is outside sentences of 0 and 1 words"),
        ({"test_align": "0-0 1_1\n\n"}, r"test\.align:1: expected links such as 3-5 or 3-5-P, got '1_1'"),
        ({"test_wa": "1 1 1 S\n3 1 1 S\n"}, r"test\.wa:2: expected a pair from 1 to 2"),
        ({"test_wa": "1 0 1 S\n"}, r"test\.wa:1: expected a pair"),
    ],
)
def test_malformed_folders_are_refused(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        read_pairs(folder(tmp_path, **files))


def test_links_that_count_from_1_are_refused():
    text = "la maison ||| the house ||| 1-1 2-2\n"
    with pytest.raises(ValueError, match=r":1: link 2-2 is outside .* positions count from 0; take 1 off all of them"):
        read_pairs(io.StringIO(text))
    with pytest.raises(ValueError, match=r"no link of 10 pairs has a first word: positions count from 0"):
        read_pairs(io.StringIO(text.replace(" 2-2", "") * 10))
    assert len(read_pairs(io.StringIO(text.replace(" 2-2", "") * 9))) == 9


@pytest.mark.parametrize(
    ("part", "message"),
    [("", "a folder needs a name, such as .*#test"), ("#test:2-9", "there are 2 pairs, got 2-9"), ("#test:x", "NAME")],
)
def test_parts_of_folders(tmp_path, part, message):
    folder(tmp_path)
    with pytest.raises(ValueError, match=message):
        read_pairs(f"{tmp_path}{part}")


def test_lines_need_two_sentences():
    with pytest.raises(ValueError, match=r"standard input:2: expected source \|\|\| target"):
        read_pairs(io.StringIO("a ||| b\na b\n"))
    with pytest.raises(ValueError, match=r"standard input:1: expected source .* or tabs between them"):
        read_pairs(io.StringIO("a\tb\t0-0\tc\n"))
    with pytest.raises(ValueError, match="no sentences"):
        read_pairs(io.StringIO(""))


def test_model_1_is_that_of_plain_loops(pairs):
    """Five iterations of EM, word by word."""
    texts = [(p.source, (None, *p.target)) for p in pairs]
    words = {f for source, _ in texts for f in source}
    t = {(f, e): 1 / (len(words) + 1) for source, target in texts for f, e in product(source, target)}
    for _ in range(5):
        counts, totals = dict.fromkeys(t, 0.0), {}
        for source, target in texts:
            for f in source:
                z = sum(t[f, e] for e in target)
                for e in target:
                    counts[f, e] += t[f, e] / z
                    totals[e] = totals.get(e, 0.0) + t[f, e] / z
        t = {key: count / totals[key[1]] for key, count in counts.items()}
    forward, _ = Lexicon.of(pairs).posteriors(pairs[4])
    for i, f in enumerate(pairs[4].source):
        z = sum(t[f, e] for e in (None, *pairs[4].target))
        assert forward[i] == pytest.approx([t[f, e] / z for e in pairs[4].target], abs=1e-6)


def test_directions_of_model_1_are_alike(pairs):
    flipped = [SentencePair(p.target, p.source) for p in pairs]
    one, other = Lexicon.of(pairs), Lexicon.of(flipped)
    for p, q in zip(pairs, flipped, strict=True):
        (forward, backward), (also_backward, also_forward) = one.posteriors(p), other.posteriors(q)
        np.testing.assert_allclose(forward, also_forward.T, atol=1e-6)
        np.testing.assert_allclose(backward, also_backward.T, atol=1e-6)
        np.testing.assert_allclose(one.dice(p), other.dice(q).T)


def test_dice_counts_words_of_the_same_pair():
    lexicon = Lexicon.of([pair("a a b", "X y"), pair("b", "y y"), pair("", "z")])
    # Once with both, of two and one; once, of two and three; and so on.
    expected = [[2 / 3, 2 / 5], [2 / 3, 4 / 5], [0, 0]]
    np.testing.assert_allclose(lexicon.dice(pair("A b q", "x y")), expected)
    assert lexicon.posteriors(pair("q", "w"))[0].tolist() == [[0.0]]


def test_a_lexicon_without_words_knows_none():
    lexicon = Lexicon.of([])
    assert not pair_features(lexicon, pair("a", "b c"))[..., :4].any()


@pytest.mark.parametrize(
    ("words", "length"), [(("chat", "cat"), 3), (("", "a"), 0), (("abcbdab", "bdcaba"), 4), (("x", "y"), 0)]
)
def test_common_subsequence(words, length):
    assert common_subsequence(*words) == length


def test_groups_of_features_can_be_left_out(pairs):
    lexicon = Lexicon.of(pairs)
    whole = pair_features(lexicon, pairs[0])
    assert np.isfinite(whole).all()
    assert (np.abs(whole) <= 1.0 + 1e-9).all()
    groups = ("dice", "model1", "position", "spelling", "frequency", "neighbours")
    sizes = [pair_features(lexicon, pairs[0], [group]).shape[2] - 1 for group in groups]
    assert sum(sizes) + 1 == whole.shape[2]
    assert min(sizes) > 0
    with pytest.raises(ValueError, match=r"leave_out must be of .*, got colour"):
        Alignment(leave_out="dice,colour")


def test_costs_are_those_of_links_that_are_not_possible_and_of_sure_ones_that_are_missed():
    example = pair("a b c", "x y", {(0, 0), (0, 1), (1, 1)}, {(2, 0)})
    problem = Alignment(false_positive=2.0, missed=3.0).fit([example]).problem([example])
    structure, (y, costs) = problem.example(0).structure, problem.dataset[0][1]
    assert y.tolist() == [0, 1, -1]  # as many sure links as a matching can have
    augmented = structure.cost_augmented(y[None], tuple(own[None] for own in costs))
    for other, expected in (
        ([0, 1, -1], 0),
        ([-1, -1, -1], 6),  # two words without a sure link
        ([1, -1, 0], 3),  # another sure link, a possible one, and a word without its sure link
        ([-1, 0, -1], 2 + 6),  # a link that is not possible, twice without a sure one
        ([0, -1, 1], 2 + 3),
    ):
        assert augmented.score(torch.tensor([other])).item() == expected


def test_measures_are_those_of_och_and_ney():
    example = pair("a b c", "x y z", {(0, 0), (1, 1)}, {(2, 2)})
    metrics = measures([example], [((0, 0), (2, 2), (2, 1))])
    assert metrics == pytest.approx({"aer": 1 - (1 + 2) / (3 + 2), "precision": 2 / 3, "recall": 1 / 2})
    assert measures([pair("", "")], [()]) == {"aer": 0.0, "precision": 0.0, "recall": 0.0}


def test_sentences_without_words_have_no_links(pairs):
    empty = pair("", "the")
    fitted = Alignment().fit([*pairs, empty])
    problem = fitted.problem([*pairs, empty])
    assert problem.n == len(pairs)
    assert fitted.predict(torch.zeros(problem.dim, dtype=torch.float64), [empty]) == [[(0.0, ())]]
    with pytest.raises(ValueError, match="no sentence pairs with words"):
        fitted.problem([empty])


def test_a_corpus_adds_words(tmp_path, pairs):
    (tmp_path / "more.txt").write_text("chien ||| dog\n")
    task = Alignment(corpus=str(tmp_path / "more.txt"))
    assert set(task.fit(pairs).lexicon.sources) - set(Alignment().fit(pairs).lexicon.sources) == {"chien"}


def test_alternatives_and_both_formats(pairs):
    ranked = [[(2.0, ((0, 0), (1, 2))), (1.0, ())]]
    for link_format, text in (("pharaoh", "0-0 1-2\n\n"), ("naacl", "0001 1 1\n0001 3 2\n")):
        stream = io.StringIO()
        Alignment(link_format=link_format).fit(pairs).write(pairs[:1], ranked, stream)
        assert stream.getvalue() == "# scores 2 1\n" + text


def test_pictures_of_alignments(tmp_path, pairs):
    fitted = Alignment().fit(pairs)
    examples = [pairs[0], pair("", "a"), pair("a", "b c", {(0, 0)}, {(0, 1)})]
    fitted.draw(examples, [[(0.0, tuple(p.sure))] for p in examples], tmp_path / "drawn")
    assert sorted(file.name for file in (tmp_path / "drawn").iterdir()) == ["0001.png", "0003.png"]
    assert (tmp_path / "drawn" / "0001.png").read_bytes().startswith(b"\x89PNG")


def test_small_data_is_what_it_seems(pairs):
    assert [" ".join(p.source) for p in pairs] == list(TEXTS)
    assert sentence_pairs(False)[0] == "la maison bleue ||| the blue house"
    assert pairs[0].sure == {(0, 0), (1, 2), (2, 1)}
