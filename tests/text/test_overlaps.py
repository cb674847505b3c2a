"""The four measures of MUC and SemEval 2013 by hand, and by their properties."""

from hypothesis import given
from hypothesis import strategies as st

from structsmooth.text.overlaps import MISSED, SPURIOUS, OverlapScores, matched
from structsmooth.text.schemes import Entity, entities
from structsmooth.text.scores import entity_scores

GOLD = [Entity("PER", 0, 2), Entity("ORG", 3, 6), Entity("LOC", 7, 8), Entity("LOC", 9, 10)]
FOUND = [Entity("PER", 0, 2), Entity("ORG", 4, 6), Entity("ORG", 7, 8), Entity("PER", 11, 12)]


def test_counts_by_hand():
    scores = OverlapScores.of([GOLD], [FOUND])
    counts = {name: (c.correct, c.predicted, c.gold) for name, c in scores.measures().items()}
    assert counts == {"strict": (1, 4, 4), "exact": (2, 4, 4), "partial": (2.5, 4, 4), "type": (2, 4, 4)}
    assert scores.confusions() == {("LOC", "ORG"): 1, ("LOC", MISSED): 1, (SPURIOUS, "PER"): 1}
    assert "partial     62.50%  62.50%  62.50%       4          4      2.5" in str(scores)


def test_an_entity_is_in_one_pair_alone():
    whole, halves = [Entity("PER", 0, 4)], [Entity("ORG", 0, 2), Entity("PER", 2, 4)]
    assert matched(whole, halves) == [(whole[0], halves[1]), (None, halves[0])]
    assert matched(halves, whole) == [(halves[1], whole[0]), (halves[0], None)]
    assert matched([Entity("PER", 0, 2)], [Entity("PER", 2, 3)]) == [
        (Entity("PER", 0, 2), None),
        (None, Entity("PER", 2, 3)),
    ]


tags = st.lists(st.tuples(*[st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"])] * 2), max_size=8)


@given(rows=tags)
def test_strict_is_the_score_of_conll_and_all_entities_are_counted_once(rows):
    gold, found = ([row[side] for row in rows] for side in (0, 1))
    scores = OverlapScores.of([entities(gold)], [entities(found)])
    measures = scores.measures()
    assert measures["strict"] == entity_scores([gold], [found]).overall
    assert sorted(right for right, _ in scores.pairs if right) == sorted(entities(gold))
    assert sorted(guess for _, guess in scores.pairs if guess) == sorted(entities(found))
    assert measures["strict"].correct <= min(measures["exact"].correct, measures["type"].correct)
    assert measures["exact"].correct <= measures["partial"].correct
