"""Where Triton kernels can run. Triton comes with torch for Linux; without it, oracles on GPUs are plain torch."""

import os
from importlib.util import find_spec

import torch

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
