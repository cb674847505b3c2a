"""Joining other processes and leaving them."""

from two_processes import ended, started

LEAVING = """
import weakref
from torch import distributed
from structsmooth import processes
with processes.joined():
    import torchvision.ops  # imports much of torch that has to do with groups
    group = weakref.ref(distributed.group.WORLD)
    processes.wait()
print("left" if group() is None else "kept")
"""


def test_nothing_keeps_the_group_alive():
    """Its threads would run on while the interpreter ends."""
    ends = ended(started(LEAVING))
    assert [(status, output) for status, output, _ in ends] == [(0, "left\n")] * 2, ends
