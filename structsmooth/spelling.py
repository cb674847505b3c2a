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
    bare = {other.lstrip("-"): other for other in known}  # what all flags begin with does not make them similar
    near = get_close_matches(str(name).lstrip("-"), list(bare), n=1)
    return f" (did you mean {bare[near[0]]}?)" if near else ""
