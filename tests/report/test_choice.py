"""Which examples a report shows."""

from types import SimpleNamespace
from typing import Any

from structsmooth.report.choice import most_uncertain, most_wrong


def model(costs: dict[str, float], violations: dict[str, float]) -> Any:
    """A model of a task with given costs and losses of examples; those without a loss have no problem."""

    def problem(examples: list[str]) -> Any:
        if examples[0] not in violations:
            raise ValueError("unknown label")
        return SimpleNamespace(loss=lambda _: violations[examples[0]])

    task = SimpleNamespace(mistake=lambda example, _: costs[example], problem=problem)
    return SimpleNamespace(task=task, weights=None)


def test_the_most_wrong_are_sorted_by_cost_and_then_by_margin():
    costs = {"a": 1.0, "b": 2.0, "c": 0.0, "d": 2.0, "e": 2.0, "f": 1.0}
    own, names = model(costs, {"a": 9.0, "b": 3.0, "d": 5.0, "f": 1.0}), [*costs]
    found = most_wrong(own, names, names, 4)
    assert [names[one.index] for one in found] == ["d", "b", "e", "a"]
    assert [one.violation for one in found] == [5.0, 3.0, None, 9.0]
    assert [names[one.index] for one in most_wrong(own, names, names, 10)] == ["d", "b", "e", "a", "f"]


def test_right_outputs_are_not_shown():
    assert most_wrong(model({"a": 0.0}, {}), ["a"], ["a"], 3) == []


def test_the_most_uncertain_have_the_smallest_margins():
    predictions = [[(3.0, "x"), (1.0, "y")], [(2.0, "x")], [(2.0, "x"), (1.5, "y")], [(0.0, "x"), (-9.0, "y")]]
    assert most_uncertain(predictions, 2) == [(2, 0.5), (0, 2.0)]
    assert len(most_uncertain(predictions, 9)) == 3
