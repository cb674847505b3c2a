"""Trees in brackets, and grammars of treebanks: what is read, learned and found again, and the likelihood of EM."""

import gzip
import math
from collections import Counter
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from structsmooth.text.brackets import Phrase, labelled_f1, read_brackets
from structsmooth.text.treebank_grammar import TreebankGrammar

TEXT = """
( (S (NP-SBJ-1 (DT The) (JJ old) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))) (. .)))
(ROOT (S (NP (NN rain)) (VP (VBZ falls)) (. .)))
(ROOT (S (VP (VB Look)) (. .)))
(ROOT (NP (DT The) (JJ old) (JJ grey) (NN cat) (. .)))
(ROOT (S (NP (NP (DT a) (NN dog)) (PP (IN in) (NP (NN rain)))) (VP (VBZ sees)
  (SBAR (WHNP-1 (WDT what)) (S (NP (-NONE- *T*-1)) (VP (VBZ falls))))) (. .)))
"""


def trees(**options: bool) -> list[Phrase]:
    return read_brackets(StringIO(TEXT), **options)


def sentence(tree: Phrase) -> list[str]:
    return [word for word, _ in tree.leaves()]


def test_functions_and_traces_are_left_out_or_kept(tmp_path: Path) -> None:
    first, *_, last = trees()
    assert str(first) == "( (S (NP (DT The) (JJ old) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))) (. .)))"
    assert "(SBAR (WHNP (WDT what)) (S (VP (VBZ falls))))" in str(last)
    assert last.spans()[5, 6, "SBAR"] == 1
    kept = trees(functions=True, traces=True)
    assert "(NP-SBJ-1 " in str(kept[0])
    assert "(S (NP (-NONE- *T*-1)) (VP (VBZ falls)))" in str(kept[-1])
    path = tmp_path / "trees.gz"
    path.write_bytes(gzip.compress("\n".join(map(str, kept)).encode()))
    assert read_brackets(path, functions=True, traces=True) == kept
    assert read_brackets(StringIO("")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S\n(NP (NN a))", "input:2: the file ends inside 1 brackets"),
        ("(S (NP (NN a))))", r"input:1: '\)' must be inside brackets"),
        ("a dog", "input:1: 'a' must be inside brackets"),
        ("(S ())", "must have a label and a word or constituents"),
        ("(NN a dog)", r"a label and one word, got \(NN a dog\)"),
        ("(NP a (NN dog))", "a label and one word"),
        ("(S " * 151, "more than 150 brackets inside each other"),
    ],
)
def test_files_that_are_no_trees_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_brackets(StringIO(text))


@pytest.mark.parametrize("order", [0, 1, 9])
@pytest.mark.parametrize("parents", [False, True])
def test_every_tree_of_a_grammar_is_found_again(order: int, parents: bool) -> None:
    """Binarized and back, with its chains: the best tree of its words alone, if only one is a tree of the grammar."""
    for tree in trees():
        grammar = TreebankGrammar.from_trees([tree], order=order, parents=parents, rare=0)
        words, tags = ([list(part)] for part in zip(*tree.leaves(), strict=True))
        (found,) = grammar.parse(words, tags)
        assert sentence(found) == words[0]
        if order == 9:
            assert found == tree
    grammar = TreebankGrammar.from_trees(trees(), order=order, parents=parents)
    for head in range(len(grammar.symbols)):
        own = [
            float(p) for rule, p in zip(grammar.productions.rules, grammar.rules.exp(), strict=True) if rule[0] == head
        ]
        assert not own or math.isclose(sum(own), 1)
    torch.testing.assert_close(grammar.words.exp().sum(0), torch.ones(8, dtype=torch.float64))


def test_probabilities_are_shares_of_the_trees() -> None:
    grammar = TreebankGrammar.from_trees(trees(), order=0)
    probability = {
        tuple(grammar.symbols[s] for s in rule): float(p)
        for rule, p in zip(grammar.productions.rules, grammar.rules.exp(), strict=True)
    }
    top, content = ("top", "NP", ""), ("phrase", "NP", "")
    assert probability[top, ("tag", "NN")] == pytest.approx(2 / 6)
    assert probability[top, content] == pytest.approx(4 / 6)
    assert float(grammar.start.exp().sum()) == pytest.approx(1)
    (value,) = grammar.log_likelihood([["rain", "falls", "."]])
    assert math.exp(-float(value) / 3) == pytest.approx(grammar.perplexity([["rain", "falls", "."]]))


def test_unknown_words_and_sentences_without_a_tree() -> None:
    grammar = TreebankGrammar.from_trees(trees())
    (tree,) = grammar.parse([["The", "young", "dog", "sees", "a", "cat", "."]])
    assert [tag for _, tag in tree.leaves()][:2] == ["DT", "JJ"]
    assert tree.spans()[0, 2, "NP"] == 1
    (none,) = grammar.parse([[".", "."]])
    assert none.label == ""
    assert not none.spans().keys() - {(0, 1, "")}
    assert grammar.perplexity([[".", "."]]) == math.inf
    assert grammar.parse([]) == []
    with pytest.raises(ValueError, match=r"tags must be parts of speech of the trees, got \['XX'\]"):
        grammar.parse([["a"]], [["XX"]])
    with pytest.raises(ValueError, match="sentences must be at least one"):
        grammar.grammar([])
    with pytest.raises(ValueError, match="trees must be constituents"):
        TreebankGrammar.from_trees([])


def test_em_never_makes_sentences_less_likely() -> None:
    sentences = [sentence(tree) for tree in trees()] + [["The", "cat", "sees", "a", "grey", "dog", "."]]
    generator = torch.Generator().manual_seed(0)
    grammar = TreebankGrammar.from_trees(trees(), order=0)
    for _ in range(3):
        noise = [
            torch.rand(t.shape, generator=generator, dtype=t.dtype)
            for t in (grammar.rules, grammar.start, grammar.words)
        ]
        own, reached = grammar._with_counts(*noise), list[float]()
        for _ in range(6):
            own, value = own.em_step(sentences)
            reached.append(value)
        assert all(after >= before - 1e-9 for before, after in pairwise(reached))
        assert reached[-1] > reached[0] + 1


def test_labelled_f1_counts_constituents() -> None:
    gold = trees()
    assert labelled_f1(gold, gold) == (1, 1, 1)
    none = [Phrase("", tuple(Phrase(tag, (word,)) for word, tag in tree.leaves())) for tree in gold]
    assert labelled_f1(none, gold) == (0, 0, 0)
    assert labelled_f1([], []) == (0, 0, 0)
    assert Counter(span[2] for span in gold[1].spans()) == Counter(ROOT=1, S=1, NP=1, VP=1)
    with pytest.raises(ValueError, match="predicted must have a tree for each of 5 sentences, got 1"):
        labelled_f1(gold[:1], gold)


def test_the_deepest_trees_are_written() -> None:
    text = "(S " * 149 + "(N a)" + ")" * 149
    assert str(read_brackets(StringIO(text))[0]) == text


def test_sentences_without_words_or_trees() -> None:
    grammar = TreebankGrammar.from_trees(read_brackets(StringIO("(S (N a))")), rare=0)
    parsed = grammar.parse([["a"], [], ["a", "a"]])
    assert list(map(str, parsed)) == ["(S (N a))", "( )", "( ( a) ( a))"]
    with pytest.raises(TypeError, match="lists of words, got a text"):
        grammar.parse(["a"])
    assert list(map(str, grammar.parse([["b"], [], ["b", "a"]], [["N"], [], ["N", "N"]]))) == [
        "(S (N b))",
        "( )",
        "( (N b) (N a))",
    ]
    for words, tags, message in (
        ([["a"], ["a"]], [["N"], ["N", "N"]], "sentence 1 has 1 words and 2 tags"),
        ([["a", "a"]], [["N"]], "sentence 0 has 2 words and 1 tags"),
        ([["a"]], [], "tags must be a list for each of 1 sentences, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            grammar.parse(words, tags)
        with pytest.raises(ValueError, match=message):
            grammar.grammar(words, tags)
