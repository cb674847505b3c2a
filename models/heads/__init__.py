"""Heads: score modules over the features of any encoder, one for each kind of output."""

from structsmooth.models.heads.matching import MatchingHead
from structsmooth.models.heads.parsing import BiaffineParser
from structsmooth.models.heads.segments import SegmentHead
from structsmooth.models.heads.spans import SpanHead
from structsmooth.models.heads.tagging import TaggingHead

__all__ = ["BiaffineParser", "MatchingHead", "SegmentHead", "SpanHead", "TaggingHead"]
