"""Checks of arguments that structures share. Messages name the argument, the requirement and what was received."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from structsmooth.compiled.gpu import HAS_TRITON, runs_kernels
from structsmooth.settings import Interval, check_number
from structsmooth.structures.transforms import in_transform

Backend = Literal["auto", "compiled", "triton", "torch"]
MU = Interval(above=True, remedy="; for no smoothing use Max()")
Mu = Annotated[float, MU]
"""The values that a level of smoothing μ may have."""

# Wrong examples that a message names.
_SHOWN = 5
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class ExampleError(ValueError):
    """Examples that are wrong; the message names the first of them.

    Args:
        examples: the numbers of the examples in their batch, or among all; none if all examples share what is wrong.
        among: what they are some of: ``"the batch"`` or ``"the problem"``.
        name: the argument that is wrong, or the reason.
    """

    message: ClassVar[str]

    def __init__(self, examples: int | Sequence[int], among: str = "the batch", name: str = "") -> None:
        self.examples = [examples] if isinstance(examples, int) else list(examples)
        self.among, self.name = among, name
        shown = ", ".join(map(str, self.examples[:_SHOWN])) + ", ..." * (len(self.examples) > _SHOWN)
        named = f"example{'s' * (len(self.examples) > 1)} {shown} of {among}" if self.examples else "all examples"
        super().__init__(self.message.format(name=name, examples=named))


class NonFiniteScoresError(ExampleError):
    """Scores with NaN or +inf, such as those of weights that have exploded."""

    message = "{name} must not contain NaN or +inf, got some in {examples}"


class ForbiddenLabelsError(ExampleError):
    """Labels that no output may have: their score is -inf."""

    message = (
        "labels of {examples} are forbidden: their score is -inf{name}. "
        "Correct them, leave the example out, or allow the parts that they have"
    )


class NoOutputError(ExampleError):
    """Examples without any output: all are forbidden."""

    message = "{examples} must have an output, got none: all are forbidden. Leave the example out, or allow more parts"


@contextmanager
def numbered(examples: Tensor) -> Iterator[None]:
    """Name wrong examples by their numbers among all, if the batch has these ``examples`` [b]."""
    try:
        yield
    except ExampleError as error:
        if error.among != "the batch" or not error.examples:
            raise
        raise type(error)([int(examples[i]) for i in error.examples], "the problem", error.name) from None


def first_examples(wrong: Tensor) -> list[int]:
    """The numbers of the examples of a batch in which something [B, ...] is wrong."""
    found: list[int] = wrong.unsqueeze(-1).flatten(1).any(1).nonzero()[:, 0].tolist()
    return found


def require_tensor(name: str, value: Any) -> None:
    """Raise ``TypeError`` unless the value is a tensor, with the same sizes for all examples."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if value.is_nested:
        raise TypeError(
            f"{name} must be a padded tensor, got a nested one: take {name}.to_padded_tensor(0), and give the number "
            "of positions of each example as lengths, sizes or a mask"
        )


def require_scores(name: str, value: Any) -> None:
    """Raise ``TypeError`` unless the value is a floating point tensor."""
    require_tensor(name, value)
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {value.dtype}")


def require_count(name: str, value: int) -> int:
    """The value as an int if it is a positive one; raises ``TypeError`` or ``ValueError`` otherwise."""
    return int(check_number(name, value, Interval(1), integer=True))


def require_integers(name: str, value: Any, wanted: str = "be integers") -> None:
    """Raise ``TypeError`` unless the value is a tensor of integers; ``wanted`` is the requirement in the message."""
    require_tensor(name, value)
    if value.dtype not in _INTEGERS:
        raise TypeError(f"{name} must {wanted}, got {value.dtype}")


_FEW = 32  # numbers that Python compares in less time than torch
IGNORED = -100
"""The label of positions that are masked out, as in ``torch.nn.functional.cross_entropy``."""


def as_mask(name: str, value: Any) -> Tensor:
    """A mask as booleans; integers 0 and 1, as tokenizers give them, are taken for such.

    Raises:
        TypeError: no tensor, or one of another dtype.
        ValueError: other integers, where they can be read without waiting for a device.
    """
    require_tensor(name, value)
    mask: Tensor = value
    if mask.dtype == torch.bool:
        return mask
    if mask.is_floating_point() or mask.is_complex():
        raise TypeError(f"{name} must be boolean, got {mask.dtype}")
    found = mask.bool()
    if mask.device.type == "cpu" and can_read_values() and not torch.equal(found.to(mask.dtype), mask):
        raise ValueError(f"{name} must be boolean, or integers 0 and 1, got {int(mask.min())} to {int(mask.max())}")
    return found


def has_shape(tensor: Tensor, *shapes: tuple[int, ...]) -> bool:
    """Whether a tensor has one of these shapes; sizes of another number of dimensions are not compared.

    Every comparison holds for all sizes of a graph that leaves them open.
    """
    return any(tensor.dim() == len(shape) and tensor.shape == shape for shape in shapes)


def require_shape(name: str, tensor: Tensor, dimensions: str, shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` unless the tensor has exactly this shape; ``dimensions`` are its names in the message."""
    if not has_shape(tensor, shape):
        raise ValueError(f"{name} must have shape {dimensions} = {shape}, got {tuple(tensor.shape)}")


def require_device(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise ``ValueError`` unless the tensor is on the device of another argument."""
    if tensor.device != other.device:
        raise ValueError(f"{name} must be on the device of {other_name}, {other.device}, got {tensor.device}")


def require_outputs(y: Any, dimensions: str, name: str, scores: Tensor) -> None:
    """Raise unless outputs are integers, shaped as the first dimensions of the scores ``name`` and on their device."""
    require_integers("y", y, "hold integer labels")
    require_shape("y", y, dimensions, tuple(scores.shape[: 1 + dimensions.count(",")]))
    require_device("y", y, name, scores)


def require_chain(unary: Tensor, transition: Tensor) -> None:
    """Raise unless scores are [B, T, S] and [S, S], [B, S, S] or [B, T-1, S, S], floating point and on one device."""
    require_scores("unary", unary)
    require_scores("transition", transition)
    if unary.dim() != 3 or 0 in unary.shape[1:]:
        raise ValueError(f"unary must have shape [B, T, S] with T, S >= 1, got {tuple(unary.shape)}")
    batch, steps, states = unary.shape
    pairs = (states, states)
    if not has_shape(transition, pairs, (batch, *pairs), (batch, steps - 1, *pairs)):
        raise ValueError(
            f"transition must have shape [S, S], [B, S, S] or [B, T-1, S, S] with B, T, S = "
            f"{batch}, {steps}, {states}, got {tuple(transition.shape)}"
        )
    require_device("transition", transition, "unary", unary)


def lengths_or_all(lengths: Any, name: str, scores: Tensor) -> Tensor:
    """Lengths [B] as int64 for scores [B, T, ...] called ``name``, all T if there are none; raises unless they fit."""
    batch, steps = scores.shape[:2]
    if lengths is None:
        return torch.full((batch,), steps, dtype=torch.int64, device=scores.device)
    require_integers("lengths", lengths)
    require_shape("lengths", lengths, "[B]", (batch,))
    require_device("lengths", lengths, name, scores)
    long: Tensor = lengths.to(torch.int64)
    return long


def check_lengths(lengths: Tensor, steps: int, name: str = "T", least: int = 1) -> None:
    """Lengths from 1, or ``least``, to T, or what it is called: compiled loops would go beyond their arrays."""
    # An empty batch has no least length; 1 passes.
    found = lengths.tolist() if lengths.numel() <= _FEW else list(lengths.aminmax())
    smallest, largest = (min(found), max(found)) if found else (1, 1)
    if not least <= int(smallest) <= int(largest) <= steps:
        raise ValueError(f"lengths must be from {least} to {name} = {steps}, got {lengths.tolist()}")


def length_mask(lengths: Tensor, steps: int) -> Tensor:
    """Mask [B, T], true on the first ``lengths`` positions."""
    return torch.arange(steps, device=lengths.device) < lengths[:, None]


def require_labels(y: Tensor, states: int) -> None:
    """Raise ``ValueError`` unless labels are from 0 to ``states`` - 1; reads their values."""
    if y.numel() and not 0 <= int(y.min()) <= int(y.max()) < states:
        ignored = "; -100 stands where a position is left out: give mask=" if int(y.min()) == IGNORED else ""
        raise ValueError(f"y must hold labels from 0 to {states - 1}, got {int(y.min())} to {int(y.max())}{ignored}")


def checked_classes(structure: Any, y: Any, dimensions: str, states: int, mask: Tensor | None = None) -> Tensor:
    """Labels as int64, with 0 where a mask is false.

    Raises ``TypeError`` or ``ValueError`` unless they are shaped as the first dimensions of the first potential and, if
    the structure checks values, from 0 to ``states`` - 1.
    """
    name = structure.potential_names[0]
    require_outputs(y, dimensions, name, getattr(structure, name))
    labels: Tensor = (y if mask is None else torch.where(mask, y, 0)).to(torch.int64)
    if structure.validate_args:
        require_labels(labels, states)
    return labels


def require_below_infinity(name: str, scores: Tensor, *, shared: bool = False) -> None:
    """Raise ``NonFiniteScoresError`` for NaN or +inf among scores [B, ...], or of any shape if examples share them."""
    if not is_below_infinity(scores):
        raise NonFiniteScoresError([] if shared else first_examples(~(scores < torch.inf)), name=name)


def inside(mask: Tensor, scores: Tensor) -> Tensor:
    """Scores [B, ..., S], zero where a mask of their first dimensions is false."""
    return torch.where(mask.view(*mask.shape, *[1] * (scores.dim() - mask.dim())), scores, 0.0)


def require_feasible(structure: Any, *values: Tensor) -> None:
    """Raise ``NoOutputError`` for examples of which a value [B] is -inf, if the structure checks values."""
    if not structure.validate_args:
        return
    impossible = torch.stack([value.detach() for value in values]) == -torch.inf
    if bool(impossible.any()):
        raise NoOutputError(first_examples(impossible.T))


def is_below_infinity(scores: Tensor) -> bool:
    """Whether there is no NaN and no +inf among scores; reads their values."""
    scores, strides = scores.detach(), scores.stride()
    if 0 in strides:  # of entries that are the same in memory, one is enough
        sizes = [min(size, 1) if stride == 0 else size for size, stride in zip(scores.shape, strides, strict=True)]
        scores = scores.as_strided(sizes, strides)
    # The maximum of anything with a NaN is NaN, and NaN < inf is false.
    return not scores.numel() or float(scores.amax()) < torch.inf


def can_read_values() -> bool:
    """Whether Python may read values: neither under ``torch.compile`` nor under transforms of ``torch.func``."""
    return not torch.compiler.is_compiling() and not in_transform()


_TRANSFORMS = "transforms of torch.func, such as vmap and grad, and forward-mode derivatives"


def refuse_transforms(structure: str) -> None:
    """Raise ``NotImplementedError`` under ``torch.func.grad``, ``vmap`` and the like, and in forward mode."""
    if in_transform():
        raise NotImplementedError(
            f"{structure} does not work under {_TRANSFORMS}: structures are batched already, so stack potentials along "
            "their first dimension, and differentiate with torch.autograd"
        )


def check_backend(backend: Any, device: torch.device, kernels: bool = False) -> None:
    """Raise ``ValueError`` unless the backend exists and runs on the device; ``"triton"`` does if there are kernels."""
    known = ("auto", "compiled", *["triton"] * kernels, "torch")
    if backend not in known:
        names = ", ".join(f'"{name}"' for name in known[:-1])
        raise ValueError(f'backend must be {names} or "torch", got {backend!r}')
    if backend == "triton" and not HAS_TRITON:
        raise ValueError('backend="triton" needs Triton, which comes with torch on Linux: use backend="torch"')
    if backend == "triton" and not runs_kernels(device):
        raise ValueError(f"the Triton backend runs on GPUs only, got tensors on {device}")
    if backend == "compiled" and device.type != "cpu":
        raise ValueError(f"the compiled backend runs on the CPU only, got tensors on {device}")


def is_exporting() -> bool:
    """Whether ``torch.export`` traces the call; torch 2.5 tells of exports that are not strict alone."""
    if hasattr(torch.compiler, "is_exporting"):
        return torch.compiler.is_exporting()
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


plain_torch_exported = ContextVar("plain_torch_exported", default=False)
"""Whether exported programs are to have no operators of this library; see :func:`structsmooth.export.exporting`."""


def exports_plain_torch() -> bool:
    """Whether a graph is traced that may have no operators of this library: by choice, or since it becomes ONNX."""
    return is_exporting() and (plain_torch_exported.get() or torch.onnx.is_in_onnx_export())


def without_parameters(scores: Tensor) -> Tensor:
    """Scores, copied if they lie where a parameter does: wrappers free it after its module, or count it twice."""
    if not isinstance(scores, Tensor):  # which is refused later, by its name
        return scores
    # A view, such as a transposed one, lies where its base does.
    whole = scores if torch.compiler.is_compiling() or scores._base is None else scores._base
    return scores.clone() if isinstance(whole, Parameter) else scores
