"""Names that were spelled nearly right."""

import pytest

from structsmooth.solvers import SOLVERS
from structsmooth.spelling import suggestion


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bfcw", "bcfw"),
        ("casimir-svg", "casimir-svrg"),
        ("proximal_bcfw", "proximal-bcfw"),
        ("newton", None),
        (3, None),
    ],
)
def test_near_names_are_suggested(name: object, meant: str | None) -> None:
    assert suggestion(name, SOLVERS) == (f" (did you mean {meant}?)" if meant else "")


def test_hyphens_of_flags_make_no_similarity() -> None:
    flags = ["--out", "--solver", "--lam"]
    assert suggestion("--t0", flags) == ""
    assert suggestion("--lamb", flags) == " (did you mean --lam?)"
