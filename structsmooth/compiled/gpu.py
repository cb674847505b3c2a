"""Where Triton kernels can run. Triton comes with torch for Linux; without it, oracles on GPUs are plain torch."""

import functools
import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from torch import Tensor

R = TypeVar("R")

HAS_TRITON = find_spec("triton") is not None
"""Whether Triton is installed; it is imported with the first kernel."""

# Triton decides at its import whether it interprets kernels, in numpy, where their tensors are.
_INTERPRETS = os.environ.get("TRITON_INTERPRET") == "1"


def runs_kernels(device: torch.device) -> bool:
    """Whether kernels run on tensors of a device: those of GPUs, or any in Triton's interpreter."""
    return HAS_TRITON and (device.type == "cuda" or _INTERPRETS)


def power_of_two(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def launch(tile: int, bytes_of_a_thread: int) -> dict[str, int]:
    """How to launch a kernel with tiles of so many bytes, of which each thread keeps as many as given in registers."""
    warps = min(16, max(1, tile // (32 * bytes_of_a_thread)))
    # Without a limit, ptxas spills a few registers for the sake of programs that run beside; AMD's compiler has none.
    limit = {} if torch.version.hip else {"maxnreg": 255 if warps <= 8 else 128}
    return {"num_warps": warps, **limit}


class LaunchError(RuntimeError):
    """A kernel that does not compile or launch where it is to run; the error behind it says why."""


def run(kernel: Any, programs: int, first: Tensor, *arguments: Any, **options: Any) -> None:
    """Run a kernel on the device of its first argument, as so many programs of a grid of one dimension.

    The other dimensions of a grid end at 65,535 programs, this one at 2³¹.

    Raises:
        LaunchError: it does not compile or launch.
    """
    try:
        with torch.cuda.device_of(first):
            # Products and sums are one operation, which was the default until Triton 3.9, which warns of another one.
            kernel[(programs,)](first, *arguments, enable_fp_fusion=True, **options)
    except Exception as error:  # compilers, Triton and drivers have errors of their own
        raise LaunchError(kernel.__name__) from error


_fallen: set[tuple[Any, ...]] = set()


def or_plain(plain: Callable[..., R]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Where a kernel of a function does not run, let plain torch compute the same, with a warning.

    From then on it does for all functions of the same room, for scores on that device, of that type and as many states:
    what one of them keeps for another one is the work of kernels.

    Args:
        plain: of the same arguments; what is kept for kernels may be anything.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        room = function.__module__.rpartition(".")[0]

        @functools.wraps(function)
        def call(scores: Tensor, *others: Any) -> R:
            use = (room, scores.device, scores.dtype, scores.shape[2:])
            if use not in _fallen:
                try:
                    return function(scores, *others)
                except LaunchError as error:
                    _fallen.add(use)
                    cause, kernel = error.__cause__, f"{room.removeprefix('structsmooth.structures.')}.{error}"
                    text = str(cause).strip().partition("\n")[0]
                    told = f"the kernel {kernel} does not run on {scores.device} ({type(cause).__name__}: {text})"
                    warnings.warn(f"{told}; plain torch takes its place", RuntimeWarning, stacklevel=2)
            return plain(scores, *others)

        return call

    return decorate
