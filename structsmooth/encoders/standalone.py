"""A trained tagger with a pretrained encoder, without torch: it needs Python, numpy, onnxruntime and tokenizers.

``structsmooth export DIR --format onnx`` copies it beside the network. In Python, ``Tagger(folder).tag(words)`` gives
the tags of a sentence, ``probabilities(words)`` those of all tags, and ``answers(sentences)`` both, and scores, of
several; ``python tagger.py < lines.txt`` tags lines of text, a word and its tag in each line.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

from structsmooth.encoders.windows import windows
from structsmooth.text.standalone import Attributes, Sentence


class Answer(NamedTuple):
    """The best tags of a sentence, their score, and probabilities [T, S] of all tags, in the order of ``labels``."""

    tags: list[str]
    score: float
    probabilities: Any


class Tagger:
    """A linear chain over tags, from a folder that ``structsmooth export`` wrote.

    Args:
        folder: with ``tagger.json`` and ``tokenizer.json``.
        network: file of the network, ``tagger.onnx`` in the folder by default; others may be quantized ones.
        options: of ``onnxruntime.InferenceSession``, such as ``providers``.
    """

    def __init__(self, folder: str | Path, network: str | Path | None = None, **options: Any) -> None:
        self.model: dict[str, Any] = json.loads(Path(folder, "tagger.json").read_text(encoding="utf-8"))
        self.session = InferenceSession(network or Path(folder, "tagger.onnx"), **options)
        self.labels: list[str] = json.loads(self.session.get_modelmeta().custom_metadata_map["labels"])
        self.attributes = Attributes(self.model)
        self.tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def tag(self, sentence: Sentence) -> list[str]:
        """The best tags of a line of text, of words, or of tuples of words and their other columns."""
        return self.answers([sentence])[0].tags

    def probabilities(self, sentence: Sentence) -> Any:
        """Probabilities [T, S] of the tags at each token; calibrated if ``model["temperature"]`` is a number."""
        return self.answers([sentence])[0].probabilities

    def answers(self, sentences: Sequence[Sentence]) -> list[Answer]:
        """What is found of some sentences, which the network reads together: take those of about the same length."""
        found = [Answer([], 0.0, np.zeros((0, len(self.labels))))] * len(sentences)
        known = {i: own for i, sentence in enumerate(sentences) if (own := self.attributes.tokens(sentence))}
        if known:
            outputs = self.session.run(["tags", "score", "probabilities"], self.inputs([*known.values()]))
            for (i, own), tags, score, probabilities in zip(known.items(), *outputs, strict=True):
                names = [self.labels[state] for state in tags[: len(own)]]
                found[i] = Answer(names, float(score), probabilities[: len(own)])
        return found

    def inputs(self, sentences: Sequence[list[tuple[str, ...]]]) -> dict[str, Any]:
        """What the network reads of sentences with tokens."""
        before, after, rows, places = self.model["before"], self.model["after"], list[list[int]](), list[Any]()
        size = max(map(len, sentences))
        for tokens in sentences:
            pieces, first = self._pieces([token[0] for token in tokens])
            place = np.zeros((size, 2), np.int64)
            for seen in windows(first, range(len(tokens)), range(len(pieces)), self.model["room"]):
                place[seen.words, 0], place[seen.words, 1] = len(rows), seen.places + len(before)
                rows.append([*before, *pieces[seen.begin : seen.end], *after])
            places.append(place)
        attributes = [self.attributes.rows(tokens) for tokens in sentences]
        most = max(len(own) for of_sentence in attributes for own in of_sentence)
        missing = [-1] * most
        table = [[(own + missing)[:most] for own in found] + [missing] * (size - len(found)) for found in attributes]
        longest = max(map(len, rows))
        return {
            "ids": np.array([row + [0] * (longest - len(row)) for row in rows]),
            "mask": np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows]),
            "places": np.array(places),
            "attributes": np.array(table, np.int64).reshape(len(sentences), size, most),
            "lengths": np.array(list(map(len, sentences))),
        }

    def _pieces(self, words: list[str]) -> tuple[list[int], Any]:
        """The pieces of words, and the number of the first piece of each, and behind the last one."""
        encodings = self.tokenizer.encode_batch([[word] for word in words], True, False)
        found = [encoding.ids or [self.model["unknown"]] for encoding in encodings]
        return [piece for ids in found for piece in ids], np.cumsum([0, *map(len, found)])


if __name__ == "__main__":
    tagger = Tagger(Path(__file__).parent)
    for line in sys.stdin:
        words = tagger.attributes.splitter.words(line)
        print(*map("\t".join, zip(words, tagger.tag(words), strict=True)), "", sep="\n")
