"""Entity scores against counts by hand and against seqeval; average precision against its definition."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score

from structsmooth.metrics import MatchCounts, average_precision
from structsmooth.text.schemes import entities, entity_tags
from structsmooth.text.scores import EntityScores, entity_matches, entity_scores

TAGS = ["O", *(f"{prefix}-{type_}" for prefix in "BIES" for type_ in ("PER", "LOC"))]
GOLD = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC", "I-LOC", "B-ORG"]]
PREDICTED = [["B-PER", "I-PER", "O", "B-PER"], ["O", "B-LOC", "O", "B-ORG"]]


@st.composite
def tagged_pairs(draw: st.DrawFn) -> tuple[list[list[str]], list[list[str]]]:
    lengths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))

    def sentences() -> list[list[str]]:
        return [draw(st.lists(st.sampled_from(TAGS), min_size=n, max_size=n)) for n in lengths]

    return sentences(), sentences()


def test_scores_by_hand() -> None:
    scores = entity_scores(GOLD, PREDICTED)
    assert scores.by_type == {
        "LOC": MatchCounts(correct=0, predicted=1, gold=2),
        "ORG": MatchCounts(correct=1, predicted=1, gold=1),
        "PER": MatchCounts(correct=1, predicted=2, gold=1),
    }
    assert scores.overall == MatchCounts(correct=2, predicted=4, gold=4)
    assert scores.tokens == MatchCounts(correct=4, predicted=5, gold=6)
    assert scores.accuracy == 6 / 8
    assert scores.by_type["PER"].f1 == pytest.approx(2 / 3)
    assert scores.as_dict() == pytest.approx(
        {"f1": 0.5, "precision": 0.5, "recall": 0.5, "token_f1": 8 / 11, "accuracy": 0.75}
    )


def test_precision_recall_and_f1_differ() -> None:
    counts = MatchCounts(correct=3, predicted=4, gold=6)
    assert (counts.precision, counts.recall) == (0.75, 0.5)
    assert counts.f1 == pytest.approx(2 * 0.75 * 0.5 / (0.75 + 0.5))


@pytest.mark.parametrize(
    "predicted", ["B-PER E-PER S-PER O", "B_PER L_PER U_PER O", "PER-B PER-E PER-W O", "I-PER E-PER E-PER O"]
)
def test_schemes_do_not_matter(predicted: str) -> None:
    scores = entity_scores([["I-PER", "I-PER", "B-PER", "O"]], [predicted.split()])
    assert scores.f1 == scores.token_f1 == scores.accuracy == 1.0


def test_tokens_are_compared_in_the_scheme_that_is_given() -> None:
    gold, predicted = [["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]]
    found = {scheme: entity_scores(gold, predicted, scheme=scheme) for scheme in ("BIO", "BIOES")}
    assert {scheme: (own.tokens.correct, own.accuracy) for scheme, own in found.items()} == {
        "BIO": (1, 2 / 3),
        "BIOES": (0, 1 / 3),  # S-PER is not B-PER
    }


def test_marks_and_types_alone() -> None:
    assert entity_scores([["B", "I", "O", "B"]], [["B", "I", "O", "O"]]).by_type == {"entity": MatchCounts(1, 1, 2)}
    assert entity_scores([["PER", "PER", "O"]], [["PER", "O", "O"]]).by_type == {"PER": MatchCounts(0, 1, 1)}
    assert entity_matches([["PER", "O"], ["O"]], [["B-PER", "O"], ["S-X"]]) == [
        MatchCounts(1, 1, 1),
        MatchCounts(0, 1, 0),
    ]


def test_entities_do_not_reach_into_the_next_sentence() -> None:
    assert entity_scores([["I-PER"], ["I-PER"]], [["I-PER"], ["I-PER"]]).overall.gold == 2


@pytest.mark.parametrize(
    ("gold", "predicted"), [([], []), ([["O"]], [["O"]]), ([["O"]], [["B-PER"]]), ([["B-PER"]], [["O"]])]
)
def test_division_by_zero_gives_zero(gold: list[list[str]], predicted: list[list[str]]) -> None:
    scores = entity_scores(gold, predicted)
    assert (scores.precision, scores.recall, scores.f1, scores.token_f1) == (0, 0, 0, 0)
    assert scores.accuracy == (1.0 if gold and gold == predicted else 0.0)


@given(tagged_pairs())
def test_scores_agree_with_seqeval(pair: tuple[list[list[str]], list[list[str]]]) -> None:
    gold, predicted = pair
    scores = entity_scores(gold, predicted)
    assert scores.precision == pytest.approx(precision_score(gold, predicted, zero_division=0))
    assert scores.recall == pytest.approx(recall_score(gold, predicted, zero_division=0))
    assert scores.f1 == pytest.approx(f1_score(gold, predicted, zero_division=0))
    in_scheme = [[entity_tags(entities(tags), len(tags), "BIOES") for tags in side] for side in pair]
    assert entity_scores(gold, predicted, scheme="BIOES").accuracy == pytest.approx(accuracy_score(*in_scheme))


@given(tagged_pairs())
def test_gold_against_itself_is_perfect(pair: tuple[list[list[str]], list[list[str]]]) -> None:
    gold, _ = pair
    scores = entity_scores(gold, gold)
    has_entities = any(tag != "O" for sentence in gold for tag in sentence)
    assert scores.f1 == scores.token_f1 == float(has_entities)
    assert scores.accuracy == 1.0


@given(tagged_pairs())
def test_swapping_the_sides_swaps_precision_and_recall(pair: tuple[list[list[str]], list[list[str]]]) -> None:
    gold, predicted = pair
    scores, swapped = entity_scores(gold, predicted), entity_scores(predicted, gold)
    assert (scores.precision, scores.recall, scores.f1) == (swapped.recall, swapped.precision, swapped.f1)


def test_table() -> None:
    expected = """\
type     precision  recall      F1    gold  predicted  correct
LOC          0.00%   0.00%   0.00%       2          1        0
ORG        100.00% 100.00% 100.00%       1          1        1
PER         50.00% 100.00%  66.67%       1          2        1
overall     50.00%  50.00%  50.00%       4          4        2
tokens      80.00%  66.67%  72.73%       6          5        4
accuracy 75.00%"""
    assert str(entity_scores(GOLD, PREDICTED)) == expected


def test_table_makes_room_for_long_types() -> None:
    counts = MatchCounts(1, 1, 1)
    lines = str(EntityScores({"WORK_OF_ART": counts}, counts, 1.0)).splitlines()
    assert len({len(line) for line in lines[:-1]}) == 1


def test_refuses_another_number_of_sentences() -> None:
    with pytest.raises(ValueError, match="gold has 2 sentences, predicted has 1"):
        entity_scores(GOLD, PREDICTED[:1])


def test_refuses_another_number_of_tags_and_names_the_sentence() -> None:
    with pytest.raises(ValueError, match=r"gold\[1\] has 4 tags, predicted\[1\] has 3"):
        entity_scores(GOLD, [PREDICTED[0], PREDICTED[1][:3]])


def test_refuses_bad_tags() -> None:
    with pytest.raises(ValueError, match="bad tag 'PER'"):
        entity_scores([["B-LOC", "PER"]], [["O", "O"]])


# Average precision.


def defined_precision(scores, correct, positives, points):
    """Precision and recall of the k best detections, for every k, and the definition on them."""
    ranked = [right for _, right in sorted(zip(scores, correct, strict=True), key=lambda pair: -pair[0])]
    hits = [sum(ranked[:k]) for k in range(1, len(ranked) + 1)]
    curve = [(Fraction(h, positives), h / k) for k, h in enumerate(hits, 1)]

    def best_at(recall):
        return max((p for r, p in curve if r >= recall), default=0.0)

    if points is not None:
        return sum(best_at(Fraction(t, points - 1)) for t in range(points)) / points
    steps = sorted({Fraction(0), *(r for r, _ in curve)})
    return sum(float(b - a) * best_at(b) for a, b in pairwise(steps))


@given(
    detections=st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=12, unique_by=lambda pair: pair[0]),
    missed=st.integers(0, 5),
    points=st.sampled_from([None, 11, 2, 101]),
)
def test_average_precision_is_as_defined(detections, missed, points):
    scores, correct = [float(s) for s, _ in detections], [right for _, right in detections]
    positives = max(1, sum(correct) + missed)
    expected = defined_precision(scores, correct, positives, points)
    assert average_precision(scores, correct, positives, points=points) == pytest.approx(expected)


def test_average_precision_by_hand():
    assert average_precision([3, 2, 1], [True, True, True], 3) == 1.0
    assert average_precision([3, 2, 1], [True, True, True], 3, points=11) == pytest.approx(1.0)
    assert average_precision([], [], 3) == average_precision([], [], 3, points=11) == 0.0
    # Precision 1 up to recall 1/2, and 2/3 up to recall 1: six of the eleven recalls, then five.
    assert average_precision([9, 8, 7], [True, False, True], 2, points=11) == pytest.approx((6 + 5 * 2 / 3) / 11)


@pytest.mark.parametrize(
    ("arguments", "points", "message"),
    [
        (([1.0], [], 1), None, "scores has 1 detections, correct has 0"),
        (([1.0], [False], 0), None, "positives must be at least 1"),
        (([1.0, 2.0], [True, True], 1), None, "the 2 correct detections, got 1"),
        (([1.0], [True], 1), 1, "points must be at least 2, got 1"),
    ],
)
def test_average_precision_refuses(arguments, points, message):
    with pytest.raises(ValueError, match=message):
        average_precision(*arguments, points=points)
