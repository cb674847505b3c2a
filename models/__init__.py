"""Ready score modules."""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names

if TYPE_CHECKING:
    from structsmooth.models.backbones import AlexNetConv4, Backbone, SqueezeNetFire9, crop_boxes
    from structsmooth.models.bilstm import BiLSTMTagger
    from structsmooth.models.crf import CRF
    from structsmooth.models.heads import BiaffineParser, MatchingHead, SegmentHead, SpanHead, TaggingHead
    from structsmooth.models.hidden_markov import HMM, CategoricalEmissions, GaussianEmissions
    from structsmooth.models.localization import (
        AlexNetConv4ELU,
        AlexNetConv4Linear,
        BoxELU,
        BoxLinear,
        BoxScore,
        collate_boxes,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "CRF",
    "HMM",
    "AlexNetConv4",
    "AlexNetConv4ELU",
    "AlexNetConv4Linear",
    "Backbone",
    "BiLSTMTagger",
    "BiaffineParser",
    "BoxELU",
    "BoxLinear",
    "BoxScore",
    "CategoricalEmissions",
    "GaussianEmissions",
    "MatchingHead",
    "SegmentHead",
    "SpanHead",
    "SqueezeNetFire9",
    "TaggingHead",
    "collate_boxes",
    "crop_boxes",
]
