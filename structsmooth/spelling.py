"""What names that were not found may have been meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(name: object, known: Iterable[str]) -> str:
    """A question in parentheses, to follow a name: the known name that is nearest in spelling, if any is near.

    Example:
        >>> suggestion("bfcw", ["bcfw", "sgd"])
        ' (did you mean bcfw?)'
        >>> suggestion("newton", ["bcfw", "sgd"])
        ''
    """
    near = get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""
