"""Ready score modules."""

from structsmooth.models.backbones import AlexNetConv4, Backbone, SqueezeNetFire9, crop_boxes
from structsmooth.models.bilstm import BiLSTMTagger
from structsmooth.models.localization import (
    AlexNetConv4ELU,
    AlexNetConv4Linear,
    BoxELU,
    BoxLinear,
    BoxScore,
    collate_boxes,
)

__all__ = [
    "AlexNetConv4",
    "AlexNetConv4ELU",
    "AlexNetConv4Linear",
    "Backbone",
    "BiLSTMTagger",
    "BoxELU",
    "BoxLinear",
    "BoxScore",
    "SqueezeNetFire9",
    "collate_boxes",
    "crop_boxes",
]
