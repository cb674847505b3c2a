"""Convolutional networks that map crops of images to feature maps, with weights from torchvision or a file."""

import importlib
import warnings
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from structsmooth.files import decoding, load_arrays

PRETRAINED = "pretrained"
"""Weights trained on ImageNet, which torchvision downloads and keeps in its cache."""


class Backbone(nn.Module):
    """A network from crops to feature maps.

    Args:
        layers: the network, named as in torchvision's ``features``.
        weights: ``"pretrained"`` to let torchvision download them; a file with a state dict that has at least the
            layers in use: ``.pt`` or ``.pth`` (read without executing code), ``.safetensors`` or ``.npz``; ``None`` for
            random weights, with a warning.

    Attributes:
        size: height and width of crops.
        shape: channels, height and width of the feature map of a crop.
        torchvision_weights: torchvision's name for its weights.

    Raises:
        ImportError: torchvision is not installed.
        OSError: a missing file, or a failed download.
        ValueError: a file of another kind, or without weights for a layer.
    """

    size: ClassVar[int] = 64
    shape: ClassVar[tuple[int, int, int]]
    torchvision_weights: ClassVar[str]
    mean: Tensor
    scale: Tensor

    def __init__(self, layers: nn.Sequential, weights: str | Path | None) -> None:
        super().__init__()
        self.layers = layers
        self._normalize_by((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        if weights is None:
            warnings.warn(f"{type(self).__name__} has random weights: its features mean little", stacklevel=3)
        else:
            values = self._download() if weights == PRETRAINED else _read(Path(weights))
            _load(layers, values, "torchvision" if weights == PRETRAINED else str(weights))

    def forward(self, crops: Tensor) -> Tensor:
        """Feature maps [N, C, H, W] of crops.

        Args:
            crops: red, green and blue [N, 3, 64, 64]: integers from 0 to 255, or floating point from 0 to 1.

        Raises:
            ValueError: crops of another shape.
        """
        if crops.dim() != 4 or crops.shape[1] != 3:
            raise ValueError(f"crops must have shape [N, 3, H, W], got {tuple(crops.shape)}")
        pixels = crops if crops.is_floating_point() else crops.to(self.mean.dtype) / 255
        maps: Tensor = self.layers((pixels.to(self.mean.dtype) - self.mean) / self.scale)
        return maps

    def _normalize_by(self, mean: tuple[float, ...], scale: tuple[float, ...]) -> None:
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(scale).view(3, 1, 1), persistent=False)

    def _download(self) -> dict[str, Tensor]:
        try:
            pretrained = getattr(_torchvision().models, self.torchvision_weights).IMAGENET1K_V1
            values: dict[str, Tensor] = pretrained.get_state_dict(progress=False, check_hash=True)
        except (OSError, RuntimeError) as error:
            raise OSError(
                f"the weights of {type(self).__name__} could not be downloaded ({error}). Give a file of a state dict "
                "(.pt, .safetensors or .npz) as weights, or None for random ones"
            ) from error
        return values


class AlexNetConv4(Backbone):
    """AlexNet up to its fourth convolution, before the ReLU: maps [N, 256, 3, 3] of crops of 64 × 64 pixels.

    Args:
        weights: see :class:`Backbone`; the weights of ``torchvision.models.alexnet`` fit, and so do the weights of its
            convolutions alone.

    Reference:
        Krizhevsky (2014), "One weird trick for parallelizing convolutional neural networks"; Pillutla et al. (2019),
        section 7.1.2.
    """

    shape = (256, 3, 3)
    torchvision_weights = "AlexNet_Weights"

    def __init__(self, weights: str | Path | None = PRETRAINED) -> None:
        # The first layers of torchvision's alexnet().features; building it whole takes 61 million weights.
        layers = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
        )
        super().__init__(layers, weights)


class SqueezeNetFire9(Backbone):
    """SqueezeNet 1.0 up to its last fire module: maps [N, 512, 3, 3] of crops of 64 × 64 pixels.

    Args:
        weights: see :class:`Backbone`; the weights of ``torchvision.models.squeezenet1_0`` fit.
        normalization: of the pixels that the weights were trained on: ``"imagenet"`` for torchvision's mean and
            deviation, ``"caffe"`` for pixels from 0 to 255 minus (123, 117, 104), as in Han et al. (2016).

    Reference:
        Iandola et al. (2016), "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters".
    """

    shape = (512, 3, 3)
    torchvision_weights = "SqueezeNet1_0_Weights"

    def __init__(
        self, weights: str | Path | None = PRETRAINED, normalization: Literal["imagenet", "caffe"] = "imagenet"
    ) -> None:
        if normalization not in ("imagenet", "caffe"):
            raise ValueError(f'normalization must be "imagenet" or "caffe", got {normalization!r}')
        super().__init__(_torchvision().models.squeezenet1_0(weights=None).features, weights)
        if normalization == "caffe":
            self._normalize_by((123 / 255, 117 / 255, 104 / 255), (1 / 255, 1 / 255, 1 / 255))


def crop_boxes(image: Tensor, boxes: Tensor, size: int = 64) -> Tensor:
    """Boxes of an image, each cropped and resized to a square (bilinear, antialiased).

    Args:
        image: [3, H, W], integers from 0 to 255 or floating point from 0 to 1.
        boxes: int64 x1, y1, x2, y2 of each, [M, 4], with 0 ≤ x1 < x2 ≤ W and 0 ≤ y1 < y2 ≤ H.
        size: height and width of the crops.

    Raises:
        ValueError: an image or boxes of another shape, or boxes that are empty or not within the image.

    Returns:
        Floating point crops from 0 to 1, [M, 3, size, size].
    """
    if image.dim() != 3 or image.shape[0] != 3:
        raise ValueError(f"image must have shape [3, H, W], got {tuple(image.shape)}")
    if boxes.dim() != 2 or boxes.shape[1] != 4:
        raise ValueError(f"boxes must have shape [M, 4], got {tuple(boxes.shape)}")
    pixels = image if image.is_floating_point() else image.float() / 255
    crops = pixels.new_empty(len(boxes), 3, size, size)
    for crop, (x1, y1, x2, y2) in zip(crops, boxes.tolist(), strict=True):
        if not (0 <= x1 < x2 <= image.shape[2] and 0 <= y1 < y2 <= image.shape[1]):
            raise ValueError(f"boxes must lie within the image of {tuple(image.shape[1:])}, got {[x1, y1, x2, y2]}")
        part = pixels[None, :, y1:y2, x1:x2]
        crop.copy_(nn.functional.interpolate(part, (size, size), mode="bilinear", antialias=True)[0])
    return crops


def _torchvision() -> Any:
    try:
        return importlib.import_module("torchvision")
    except ImportError as error:
        raise ImportError("this network needs torchvision: pip install structsmooth[images]") from error


def _read(path: Path) -> dict[str, Tensor]:
    """A state dict from a file; no code in it is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of weights; or take {PRETRAINED!r}, or None for random ones")
    if path.suffix == ".npz":
        return {name: torch.from_numpy(array) for name, array in load_arrays(str(path)).items()}
    with decoding(path, "weights of a network"):
        if path.suffix in (".pt", ".pth"):
            values: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
            return values
        if path.suffix == ".safetensors":
            return load_file(path)
    raise ValueError(f"{path}: weights must be a .pt, .pth, .safetensors or .npz file")


def _load(layers: nn.Sequential, values: dict[str, Tensor], source: str) -> None:
    """Load the entries of a state dict that layers need; their names may begin with ``features``."""
    values = {name.removeprefix("features."): value for name, value in values.items()}
    wanted = layers.state_dict()
    for name, tensor in wanted.items():
        if name not in values:
            raise ValueError(f"{source}: no weights for features.{name}")
        if values[name].shape != tensor.shape:
            found = tuple(values[name].shape)
            raise ValueError(f"{source}: features.{name} must have shape {tuple(tensor.shape)}, got {found}")
    layers.load_state_dict({name: values[name] for name in wanted})
