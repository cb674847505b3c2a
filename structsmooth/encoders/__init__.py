"""Pretrained networks under tasks of text: pieces of words, windows of long texts, and features of words."""

from structsmooth.encoders.codes import CodedFeatures
from structsmooth.encoders.frozen import FrozenFeatures, WordsAndFrozen
from structsmooth.encoders.pretrained import PretrainedEncoder

__all__ = ["CodedFeatures", "FrozenFeatures", "PretrainedEncoder", "WordsAndFrozen"]
