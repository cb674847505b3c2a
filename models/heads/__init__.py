"""Heads: score modules over the features of any encoder, one for each kind of output."""

from structsmooth.models.heads.matching import MatchingHead as MatchingHead
from structsmooth.models.heads.parsing import BiaffineParser as BiaffineParser
from structsmooth.models.heads.segments import SegmentHead as SegmentHead
from structsmooth.models.heads.spans import SpanHead as SpanHead
from structsmooth.models.heads.tagging import TaggingHead as TaggingHead
