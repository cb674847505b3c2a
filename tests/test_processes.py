"""Processes join and leave."""

from two_processes import ended, started

LEAVING = """
import weakref
from torch import distributed
from structsmooth import processes
with processes.joined():
    import torch._dynamo  # imports many modules of torch that use groups
    group = weakref.ref(distributed.group.WORLD)
    processes.wait()
print("left" if group() is None else "kept")
"""

RELEASING = """
import torch
from torch import distributed
from structsmooth import processes
with processes.joined():
    for _ in range(8):
        distributed.all_reduce(torch.ones(1_000_000), async_op=True)
print("left")
"""


def test_nothing_keeps_the_group_alive():
    """The threads of a group that stays alive would run on while the interpreter ends."""
    ends = ended(started(LEAVING))
    assert [(status, output) for status, output, _ in ends] == [(0, "left\n")] * 2, ends


def test_the_group_ends_while_its_threads_release_tensors():
    """They need the interpreter's lock, which the end of the group must not hold."""
    ends = ended(started(RELEASING))
    assert [(status, output) for status, output, _ in ends] == [(0, "left\n")] * 2, ends
