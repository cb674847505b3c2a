"""Features of boxes in images from a network that is not trained, computed once and kept on disk."""

import copy
import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from structsmooth import processes
from structsmooth.checkpoint import write_atomic
from structsmooth.files import DATA_VARIABLE, data_file, decoding, keep
from structsmooth.messages import tracked
from structsmooth.models.backbones import PRETRAINED, AlexNetConv4, SqueezeNetFire9
from structsmooth.settings import check_settings
from structsmooth.tasks.localization.images import Faults, ImageFile, decode
from structsmooth.tasks.localization.proposals import Proposals

FeatureType = Literal["float16", "float32"]

# Pixels of a side of a crop (Pillutla et al. 2019, section 7.1.2).
_CROP = 64
# Crops that pass the network at once: more do not fit the processor's cache.
_BATCH = 32

_CAFFE = "squeezenet-caffe"
_WEIGHTS = "squeezenet_v10/squeezenet1_0_imagenet_rgb.npz"

BACKBONES: dict[str, Callable[[str], nn.Module]] = {
    _CAFFE: partial(SqueezeNetFire9, normalization="caffe"),
    "squeezenet": SqueezeNetFire9,
    "alexnet": AlexNetConv4,
}
"""Networks by name, each built from a file of weights."""


@dataclass
class BoxFeatures:
    """Features of boxes: each is cropped, resized to 64 × 64 pixels, and mapped by a network that is not trained.

    A folder keeps the features, one memory-mapped array for each image, channels last, named by image, boxes, network
    and type. Each file is written atomically: an interrupted or killed run goes on where it was. Processes of one run
    share the images out.

    Args:
        backbone: maps crops [M, 3, 64, 64], RGB from 0 to 1, to features [M, C, H, W]; left in ``eval()`` mode.
        cache: folder for the results; made when needed.
        dtype: ``"float16"`` takes half the space of ``"float32"``.

    Raises:
        ValueError: another type.

    Reference:
        Girshick et al. (2014), "Rich Feature Hierarchies for Accurate Object Detection and Semantic Segmentation".
    """

    backbone: nn.Module
    cache: str | Path
    dtype: FeatureType = "float16"

    def __post_init__(self) -> None:
        check_settings(self)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.backbone = self.backbone.eval().to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.folder = Path(self.cache) / "features" / f"{fingerprint(self.backbone)}-{self.dtype}-nhwc"

    def run(self, proposals: Mapping[ImageFile, Proposals]) -> tuple[dict[ImageFile, Path], Faults]:
        """Files for :func:`load_features` of all images, and what is wrong with images that have none.

        Raises:
            ValueError: features that overflow float16.
        """
        faults = Faults()
        paths: dict[ImageFile, Path] = {}
        for image, found in proposals.items():
            with faults.noting(image):
                key = sha256(image.read_bytes() + found.boxes.numpy().tobytes()).hexdigest()
                paths[image] = self.folder / f"{key}.npy"
        missing = {path: image for image, path in processes.share_out(paths.items()) if not path.is_file()}
        if missing:
            self.folder.mkdir(parents=True, exist_ok=True)
        for path, image in tracked(missing.items(), "features of boxes"):
            self._save(path, self.compute(decode(image.read_bytes()), proposals[image].boxes))
        processes.wait()
        return paths, faults

    @torch.inference_mode()
    def compute(self, image: np.typing.NDArray[np.uint8], boxes: Tensor) -> Tensor:
        """Features [M, C, H, W] of ``boxes`` [M, 4] in an RGB image [height, width, 3], in the array's type."""
        pixels = torch.from_numpy(image.copy()).to(self.device).permute(2, 0, 1) / 255.0
        crops = (crop(pixels, batch) for batch in boxes.to(self.device).split(_BATCH))
        features = [self.backbone(batch.contiguous(memory_format=torch.channels_last)) for batch in crops]
        return torch.cat(features).to(getattr(torch, self.dtype)).cpu()

    def _save(self, path: Path, features: Tensor) -> None:
        if not features.isfinite().all():
            raise ValueError(f"features that {self.dtype} cannot hold; use float32")
        stream = io.BytesIO()
        np.save(stream, features.permute(0, 2, 3, 1).contiguous().numpy())
        keep(path, lambda file: write_atomic(file, stream.getvalue()))


def crop(image: Tensor, boxes: Tensor, size: int = _CROP) -> Tensor:
    """Crops of an image [C, height, width] at ``boxes`` [M, 4], resized to squares: [M, C, size, size].

    Each pixel of a crop is the mean of bilinear samples, one for each pixel of the image that it covers.
    """
    from torchvision.ops import roi_align

    crops: Tensor = roi_align(image.unsqueeze(0), [boxes.to(image.dtype)], size, sampling_ratio=-1, aligned=True)
    return crops


def load_features(path: Path) -> Tensor:
    """The features [M, C, H, W] of an image, mapped into memory channels last."""
    # Copy on write: torch asks for memory that may be written.
    with decoding(path, "features that were kept; remove the damaged file"):
        return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False)).permute(0, 3, 1, 2)


def load_backbone(name: str, weights: str | None = None) -> nn.Module:
    """One of :data:`BACKBONES`: a network from crops [M, 3, 64, 64], RGB from 0 to 1, to features [M, C, H, W].

    Without a file of weights, torchvision downloads them; but ``squeezenet-caffe`` takes them from the folder that
    ``STRUCTSMOOTH_DATA`` names.

    Raises:
        ValueError: no such network, or no weights.
        OSError: weights that cannot be read or downloaded.
    """
    if name not in BACKBONES:
        raise ValueError(f"backbone must be one of {', '.join(BACKBONES)}, got {name!r}")
    if weights is None and name == _CAFFE:
        if not os.environ.get(DATA_VARIABLE):
            raise ValueError(
                f"{name} needs weights: give --backbone-weights, or set {DATA_VARIABLE} to a folder that has "
                f"{_WEIGHTS}; or take --backbone squeezenet, whose weights torchvision downloads"
            )
        weights = data_file("localization", _WEIGHTS)
    return BACKBONES[name](PRETRAINED if weights is None else weights)


def parted(backbone: nn.Module, last: int) -> tuple[nn.Module, nn.Sequential]:
    """A network without its last layers that have weights, and these with what is between them and behind.

    Raises:
        ValueError: the network has no such layers.
    """
    layers: nn.Sequential = cast(Any, getattr(backbone, "layers", backbone))
    trained = [i for i, layer in enumerate(layers) if any(True for _ in layer.parameters())]
    if last >= len(trained):
        raise ValueError(f"the backbone has {len(trained)} layers, of which last:{last} leaves none: take fewer")
    begin = trained[-last]
    if layers is backbone:
        return layers[:begin], layers[begin:]
    first = copy.deepcopy(backbone)
    first.register_module("layers", layers[:begin])
    return first, layers[begin:]


def fingerprint(module: nn.Module) -> str:
    """A text that changes with the layers of the network and with their weights."""
    digest = sha256(str(module).encode())
    # The state dict may lack buffers, such as a mean that is subtracted.
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
