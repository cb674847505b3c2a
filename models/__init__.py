"""Ready score modules."""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names

if TYPE_CHECKING:
    from structsmooth.models.backbones import AlexNetConv4 as AlexNetConv4
    from structsmooth.models.backbones import Backbone as Backbone
    from structsmooth.models.backbones import SqueezeNetFire9 as SqueezeNetFire9
    from structsmooth.models.backbones import crop_boxes as crop_boxes
    from structsmooth.models.bilstm import BiLSTMTagger as BiLSTMTagger
    from structsmooth.models.crf import CRF as CRF
    from structsmooth.models.emissions import CategoricalEmissions as CategoricalEmissions
    from structsmooth.models.emissions import PoissonEmissions as PoissonEmissions
    from structsmooth.models.gaussian_emissions import GaussianEmissions as GaussianEmissions
    from structsmooth.models.gaussian_emissions import GaussianMixtureEmissions as GaussianMixtureEmissions
    from structsmooth.models.heads import BiaffineParser as BiaffineParser
    from structsmooth.models.heads import MatchingHead as MatchingHead
    from structsmooth.models.heads import SegmentHead as SegmentHead
    from structsmooth.models.heads import SpanHead as SpanHead
    from structsmooth.models.heads import TaggingHead as TaggingHead
    from structsmooth.models.hidden_markov import HMM as HMM
    from structsmooth.models.localization import AlexNetConv4ELU as AlexNetConv4ELU
    from structsmooth.models.localization import AlexNetConv4Linear as AlexNetConv4Linear
    from structsmooth.models.localization import BoxELU as BoxELU
    from structsmooth.models.localization import BoxLinear as BoxLinear
    from structsmooth.models.localization import BoxScore as BoxScore
    from structsmooth.models.localization import collate_boxes as collate_boxes
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "structsmooth.models.backbones": "AlexNetConv4 Backbone SqueezeNetFire9 crop_boxes",
            "structsmooth.models.bilstm": "BiLSTMTagger",
            "structsmooth.models.crf": "CRF",
            "structsmooth.models.emissions": "CategoricalEmissions PoissonEmissions",
            "structsmooth.models.gaussian_emissions": "GaussianEmissions GaussianMixtureEmissions",
            "structsmooth.models.heads": "BiaffineParser MatchingHead SegmentHead SpanHead TaggingHead",
            "structsmooth.models.hidden_markov": "HMM",
            "structsmooth.models.localization": (
                "AlexNetConv4ELU AlexNetConv4Linear BoxELU BoxLinear BoxScore collate_boxes"
            ),
        },
    )
