"""Frozen features of words beside their attributes: a linear model over both is solved with a certificate."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from structsmooth.encoders.pretrained import OWN, PretrainedEncoder, absolute, copy_files, digest_of
from structsmooth.messages import tracked
from structsmooth.plain import PACKED
from structsmooth.sequences import MixedSequences, SparseSequences
from structsmooth.settings import Positive
from structsmooth.text.corpus import Corpus, Sentence
from structsmooth.text.encoders import AttributeEncoder
from structsmooth.text.mapped import mapped, unnamed
from structsmooth.text.templates import Templates

# Factors of standardized features beside attributes, which are 1, that have the best F1 on CoNLL-2003 from 1,000
# sentences on (docs/encoders.md): of a network that was not tuned to the tags, and of one that was.
SCALE, TUNED_SCALE = 0.1, 0.05
# Sentences whose features are in memory at a time, and tokens.
_SENTENCES, _TOKENS = 512, 1 << 12
# Features that are kept in no folder, by their digest: those of the latest corpus, which fitting asks for twice.
_latest: dict[str, NDArray[np.float32]] = {}


@dataclass(frozen=True)
class FrozenFeatures:
    """Hidden layers of a pretrained network at the first piece of each word, which training does not change.

    Features are centered, and divided by their standard deviation, over the tokens of training sentences.

    Args:
        place: of the encoder: a folder, or a name; see :meth:`PretrainedEncoder.open`.
        digest: of its files, which must not change.
        layers: numbers of its layers.
        context: number of pieces of neighbouring sentences in a document that the network reads on either side.
        center: means, float32 [D].
        deviation: standard deviations, float32 [D].
    """

    place: str
    digest: str
    layers: list[int]
    context: int
    center: NDArray[np.float32] = field(metadata=PACKED)
    deviation: NDArray[np.float32] = field(metadata=PACKED)

    @classmethod
    def fit(
        cls,
        place: str,
        layers: Sequence[int] | None,
        context: int,
        sentences: Sequence[Sentence],
        cache: str | None = None,
        gathered: Callable[[Any], list[Any]] = lambda value: [value],
    ) -> "FrozenFeatures":
        """The features of training sentences, kept in a file of the folder ``cache``.

        Args:
            place: of the encoder.
            layers: the middle and the last one if not given.
            context: number of pieces on either side.
            sentences: those of this process.
            cache: a folder; they are kept in none if it is not given.
            gathered: is given what these sentences say, and returns what the sentences of all processes say.

        Raises:
            ImportError: transformers is not installed.
            FileNotFoundError: no such encoder.
            ValueError: no such layers.
        """
        encoder = PretrainedEncoder.open(place)
        layers = [encoder.depth // 2, encoder.depth] if layers is None else list(layers)
        if (wrong := [layer for layer in layers if not 0 <= layer <= encoder.depth]) or not layers:
            raise ValueError(f"{place} has layers 0 to {encoder.depth}, got {', '.join(map(str, wrong)) or 'none'}")
        none = np.empty(0, np.float32)
        features = cls(absolute(place), encoder.digest, layers, context, none, none)
        block = features.raw(Corpus.of(sentences), cache)
        sums = [block[begin : begin + _TOKENS].sum(0, dtype=np.float64) for begin in range(0, len(block), _TOKENS)]
        tokens = sum(gathered(len(block)))
        center = sum(gathered(sum(sums))) / tokens
        squares = [((block[i : i + _TOKENS] - center) ** 2).sum(0) for i in range(0, len(block), _TOKENS)]
        deviation = np.sqrt(sum(gathered(sum(squares))) / tokens)
        deviation[deviation == 0] = 1.0  # of a feature that never varies, which stays 0
        return replace(features, center=center.astype(np.float32), deviation=deviation.astype(np.float32))

    @property
    def size(self) -> int:
        """Number D of features."""
        return len(self.center)

    @property
    def encoder(self) -> PretrainedEncoder:
        """The encoder, which is read once.

        Raises:
            FileNotFoundError: one that is not there any more.
            ValueError: one that has changed.
        """
        encoder = PretrainedEncoder.open(self.place, download=False)
        if encoder.digest != self.digest:
            raise ValueError(
                f"{self.place}: the encoder has changed since the model was trained with it: put the files of then "
                "back, or train anew"
            )
        return encoder

    def in_model(self, folder: Path, embedded: bool) -> "FrozenFeatures":
        """The same with the encoder in the folder of a model, which is there, or was put there later."""
        own = folder / OWN
        put_there = not Path(self.place).is_dir() and own.is_dir() and digest_of(own) == self.digest
        return replace(self, place=str(own)) if embedded or put_there else self

    def copy_encoder(self, folder: Path) -> None:
        """Copy the files of the encoder into a folder, unless it is there."""
        copy_files(self.place, folder)

    def beside(
        self, sparse: SparseSequences, sentences: Sequence[Sentence], scale: float, cache: str | None = None
    ) -> MixedSequences:
        """Attributes of sentences beside their features, ``scale`` times as large as standardized ones."""
        block = torch.from_numpy(self.raw(Corpus.of(sentences), cache))
        center, deviation = torch.from_numpy(self.center).double(), torch.from_numpy(self.deviation).double()
        return MixedSequences(sparse, block, center, scale / deviation)

    def raw(self, corpus: Corpus, cache: str | None = None) -> NDArray[np.float32]:
        """The hidden layers at all words of a corpus, [tokens, D], mapped from a file that is written once.

        Without a folder ``cache``, a process keeps those of the latest corpus alone.

        Raises:
            ValueError: an encoder that is not there any more, or has changed.
        """
        encoder = self.encoder
        shape = (len(corpus.tokens), len(self.layers) * encoder.width)
        if not shape[0]:
            return np.empty(shape, np.float32)
        key, parts = self._key(corpus), self._blocks(encoder, corpus, shape[1])
        if cache is not None:
            return mapped(Path(cache) / f"features-{key}.npy", shape, np.float32, parts)
        if (block := _latest.get(key)) is None:
            block = unnamed(shape, np.float32, parts)
            _latest.clear()
            _latest[key] = block
        return block

    def _blocks(self, encoder: PretrainedEncoder, corpus: Corpus, width: int) -> Iterator[NDArray[np.float32]]:
        """The features of some sentences at a time, in order."""
        whole, numbers = self._read(corpus)
        pieces = encoder.pieces([token.word for token in whole.distinct], whole.tokens)
        seen = encoder.windows(pieces, whole.offsets, documents_of(whole), self.context)
        moved = (corpus.offsets[:-1] - whole.offsets[numbers]).tolist()
        for begin in tracked(range(0, len(corpus), _SENTENCES), "encoding"):
            end = min(begin + _SENTENCES, len(corpus))
            some = zip(numbers[begin:end].tolist(), moved[begin:end], strict=True)
            of_part = [window._replace(words=window.words + by) for i, by in some for window in seen[i]]
            first, last = corpus.offsets[begin], corpus.offsets[end]
            rows = np.empty((last - first, width), np.float32)
            with torch.inference_mode():
                for words, features in encoder.features(pieces, of_part, self.layers):
                    rows[words - first] = features.numpy()
            yield rows

    def _key(self, corpus: Corpus) -> str:
        """A digest of the encoder, of what is read of it, and of the words of a corpus."""
        total = sha256(f"{self.digest} {self.layers} {self.context}".encode())
        whole, chosen = self._read(corpus)
        total.update("\n".join(token.word for token in whole.distinct).encode())
        documents = (documents_of(whole), chosen) if self.context else ()
        for numbers in (whole.tokens, whole.offsets, *documents):
            total.update(np.ascontiguousarray(numbers).tobytes())
        return total.hexdigest()[:32]

    def _read(self, corpus: Corpus) -> tuple[Corpus, NDArray[np.int64]]:
        """What the network reads for the sentences of a corpus, and their numbers there: neighbours are context."""
        return corpus.whole if self.context else (corpus, np.arange(len(corpus)))


@dataclass(frozen=True)
class WordsAndFrozen(AttributeEncoder):
    """Attributes of words beside frozen features: what a tagger reads of a sentence.

    Args:
        words: the encoder of attributes.
        frozen: the features.
        scale: by which standardized features count beside attributes, which are 1.
    """

    words: AttributeEncoder
    frozen: FrozenFeatures
    scale: Positive

    name: ClassVar[str] = "words and frozen"

    @property
    def size(self) -> int:
        """Number of attributes and features."""
        return self.words.size + self.frozen.size

    def integer(self, attribute: str) -> int:
        """The integer of an attribute."""
        return self.words.integer(attribute)

    def encode(
        self, sentences: Sequence[Sentence], templates: Templates, cache: str | Path | None = None
    ) -> MixedSequences:
        """Attributes and features of all tokens, in files of the folder ``cache`` if there is one."""
        sparse = self.words.encode(sentences, templates, cache)
        assert isinstance(sparse, SparseSequences)
        return self.frozen.beside(sparse, sentences, self.scale, None if cache is None else str(cache))

    def names(self, sentences: Sequence[Sentence], templates: Templates) -> dict[int, str]:
        """Attributes as the encoder of words names them, and features by layer and number."""
        width = self.frozen.size // max(1, len(self.frozen.layers))
        columns = [f"layer {layer}[{j}]" for layer in self.frozen.layers for j in range(width)]
        return self.words.names(sentences, templates) | dict(enumerate(columns, self.words.size))


def documents_of(corpus: Corpus) -> NDArray[np.int64]:
    """The number of the document of each sentence; each is one of its own where documents are not known."""
    return np.arange(len(corpus)) if corpus.documents is None else corpus.documents
