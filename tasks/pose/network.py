"""Features of the cells of an image by a convolutional network that is not trained further.

Needs OpenCV and torchvision: ``pip install structsmooth[images]``.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from structsmooth.models.backbones import SqueezeNetFire9
from structsmooth.tasks.images import cv2

NETWORK_FEATURES = 512 + 1
"""Features of a cell: channels of the network, and whether it is outside the image."""

# Layers up to the module whose maps are used, and how much images are enlarged for it: its cells are of 8 pixels.
_LAYERS, _ENLARGED = 11, 2


def network_features(image: NDArray[np.uint8], side: int, weights: str) -> NDArray[np.float32]:
    """Features of the cells of an image whose sides are multiples of ``side``: float32 [H, W, NETWORK_FEATURES].

    They are the maps of the eighth module of SqueezeNet 1.0, over the image at twice its size, in the mean of their
    norms; and 0, since the cell is inside the image.

    Args:
        image: BGR, uint8.
        side: of a cell in pixels.
        weights: file of weights, trained on ImageNet by Caffe; see :class:`~structsmooth.models.SqueezeNetFire9`.
    """
    network, (height, width) = _network(weights), image.shape[:2]
    large = cv2.resize(image, (_ENLARGED * width, _ENLARGED * height), interpolation=cv2.INTER_LINEAR)
    with torch.no_grad():
        maps: Tensor = network(torch.from_numpy(large[:, :, ::-1].copy()).permute(2, 0, 1).unsqueeze(0))
        cells = nn.functional.interpolate(maps, (height // side, width // side), mode="area")[0].permute(1, 2, 0)
    cells = cells / cells.norm(dim=2).mean().clamp_min(1e-6)
    return np.asarray(nn.functional.pad(cells, (0, 1)).numpy())


@lru_cache(maxsize=1)
def _network(weights: str) -> nn.Module:
    network = SqueezeNetFire9(weights, normalization="caffe").eval()
    network.layers = network.layers[:_LAYERS]
    return network
