"""Ready score modules."""

from structsmooth.models.bilstm import BiLSTMTagger

__all__ = ["BiLSTMTagger"]
