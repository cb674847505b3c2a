"""Processes join and leave."""

from two_processes import ended, started

LEAVING = """
import weakref
from torch import distributed
from structsmooth import processes
with processes.joined():
    import torchvision.ops  # imports many modules of torch that use groups
    group = weakref.ref(distributed.group.WORLD)
    processes.wait()
print("left" if group() is None else "kept")
"""


def test_nothing_keeps_the_group_alive():
    """The threads of a group that stays alive would run on while the interpreter ends."""
    ends = ended(started(LEAVING))
    assert [(status, output) for status, output, _ in ends] == [(0, "left\n")] * 2, ends
