"""Tables of a comparison, cell by cell."""

from structsmooth.cli.comparison import best_settings, comparison_table, gaps_table
from structsmooth.history import History, Row


def run(*objectives, dual=None, seconds=1.0, calls=100, f1=0.5):
    """A history whose lower bound stays."""
    return History(
        Row(i, calls * (i + 1), seconds * (i + 1), value, dual, dual and value - dual, metrics={"test f1": f1})
        for i, value in enumerate(objectives)
    )


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


RUNS = {
    "slow": [run(2.0, 1.5, 1.3, dual=0.9, f1=0.25), run(2.0, 1.4, 1.1, dual=0.8, f1=0.75)],
    "fast": [run(2.0, 1.05, 1.0005, dual=0.999, calls=1000, seconds=0.25)] * 3,
}


def test_what_was_reached():
    final, _ = comparison_table(RUNS, ["test f1"]).split("\n\n")
    header, ruler, slow, fast = cells(final)
    assert header == ["solver", "passes", "oracle calls", "seconds", "objective", "gap", "suboptimality", "test f1"]
    assert ruler == ["---", *["---:"] * 7]
    # The bound is that of the fast solver.
    assert slow == ["slow", "2", "300", "3.00", "1.200000", "0.35", "0.2", "0.5000"]
    assert fast == ["fast", "2", "3,000", "0.75", "1.000500", "0.0015", "0.0015", "0.5000"]


def test_what_it_took():
    _, took = comparison_table(RUNS, []).split("\n\n")
    header, ruler, *body = cells(took)
    assert header[:5] == ["to reach", "solver", "gap: passes", "gap: oracle calls", "gap: seconds"]
    assert header[5:] == ["suboptimality: passes", "suboptimality: oracle calls", "suboptimality: seconds"]
    assert ruler == ["---", "---", *["---:"] * 6]
    never = ["-"] * 3
    assert body == [
        ["0.1", "slow", *never, *never],
        ["0.1", "fast", "1", "2,000", "0.50", "1", "2,000", "0.50"],
        ["0.01", "slow", *never, *never],
        ["0.01", "fast", "2", "3,000", "0.75", "2", "3,000", "0.75"],
        ["0.001", "slow", *never, *never],
        ["0.001", "fast", *never, *never],
    ]


def test_gaps_of_all_objectives_in_one_table():
    easy = {"slow": [run(0.5, 0.3, dual=0.25)], "fast": [run(0.2505, dual=0.25)]}
    table = gaps_table({"λ = 1": RUNS, "λ = 2": easy}, {"slow": "exp", "fast": "max"}, n=50)
    header, ruler, slow, fast = cells(table)
    assert header == ["solver", "oracle", *(f"λ = {lam}: {gap}" for lam in (1, 2) for gap in ("0.1", "0.01", "0.001"))]
    assert ruler == ["---", "---", *["---:"] * 6]
    assert slow == ["slow", "exp", "-", "-", "-", "4, 2 s", "-", "-"]
    assert fast == ["fast", "max", "40, 0.5 s", "60, 0.75 s", "-", "2, 1 s", "2, 1 s", "2, 1 s"]


def test_half_the_runs_are_not_enough():
    some = [run(1.0, 0.05), run(1.0, 0.5)]
    _, took = comparison_table({"a": some, "b": [run(0.01)]}, []).split("\n\n")
    assert cells(took)[2] == ["0.1", "a", "-", "-", "-", "-", "-", "-"]
    _, took = comparison_table({"a": [some[0], *some], "b": [run(0.01)]}, []).split("\n\n")
    assert cells(took)[2] == ["0.1", "a", "-", "-", "-", "1", "200", "2.00"]


def test_without_lower_bounds_the_best_objective_counts():
    final, _ = comparison_table({"a": [run(3.0, 1.0)], "b": [run(3.0, 1.5)]}, ["dev f1"]).split("\n\n")
    _, _, a, b = cells(final)
    assert a[4:] == ["1.000000", "", "0", ""]
    assert b[4:] == ["1.500000", "", "0.5", ""]


def test_best_settings_have_a_good_metric_and_then_the_lowest_objective():
    runs = {
        "sgd:learning_rate=1": [run(2.0, 1.0, f1=0.798)],
        "sgd:learning_rate=2": [run(2.0, 0.5, f1=0.7)],
        "sgd:learning_rate=3": [run(2.0, 1.5, f1=0.8)],
        "bcfw": [run(2.0, 1.75)],
    }
    assert list(best_settings(runs, "test f1")) == ["sgd:learning_rate=1", "bcfw"]
    assert list(best_settings(runs, "test f1", is_error=True)) == ["sgd:learning_rate=2", "bcfw"]
    assert list(best_settings(runs, None)) == ["sgd:learning_rate=2", "bcfw"]
