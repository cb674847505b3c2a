"""Text for taggers: tokens, templates, encoders, tag schemes, files of columns and CoNLL-U, and the tagger itself."""

from structsmooth.text.corpus import Corpus, Sentence, Token

__all__ = ["Corpus", "Sentence", "Token"]
