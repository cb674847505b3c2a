"""Taggers for services without torch: weights, or a graph with an encoder, beside files of plain Python."""

import json
import shutil
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from structsmooth import __version__
from structsmooth.calibration import tempered
from structsmooth.checkpoint import write_atomic
from structsmooth.encoders import WordsAndFrozen
from structsmooth.export import Exported
from structsmooth.files import writing
from structsmooth.structures import SemiMarkov
from structsmooth.text import standalone
from structsmooth.text.encoders import AttributeEncoder, DictionaryEncoder, HashingEncoder
from structsmooth.text.tagger import Tagger
from structsmooth.text.templates import Template, Templates

# What is written beside a graph, by the name that it has there.
_PROGRAMS = {
    "tagger": "structsmooth.encoders.standalone",
    "windows": "structsmooth.encoders.windows",
    "words": "structsmooth.text.standalone",
}
INPUTS = ("ids", "mask", "places", "attributes", "lengths")
OUTPUTS = ("tags", "score", "probabilities")


class Weights(NamedTuple):
    """What a tagger has learned, in float64.

    Attributes:
        rows: of the attributes that have weights, [used, S].
        used: their numbers.
        features: rows of the features of an encoder, [D, S]; none without one.
        transition: scores of pairs of tags, with those that are forbidden, [S, S].
        ends: scores of the first and the last tag, likewise, [2, S].
    """

    rows: Tensor
    used: list[int]
    features: Tensor
    transition: Tensor
    ends: Tensor

    @classmethod
    def of(cls, tagger: Tagger, weights: Tensor, features: int = 0) -> "Weights":
        """Those of a tagger with so many features of an encoder."""
        states = len(tagger.tags.names)
        sizes = [tagger.features - features, features, states, 2]
        rows, of_features, transition, ends = weights.detach().double().view(-1, states).split(sizes)
        transition = tagger.transition_scale * transition
        if (mask := tagger.tags.mask) is not None:
            transition, ends = transition + mask.transition, ends + torch.stack([mask.start, mask.stop])
        used = rows.any(1).nonzero()[:, 0]
        return cls(rows[used], used.tolist(), of_features, transition, ends)


class EncodedTagger(nn.Module):
    """All that prediction does with sentences whose pieces, and numbers of attributes, are known.

    Args:
        both: attributes and features.
        learned: their weights.
        temperature: of the probabilities.
    """

    rows: Tensor
    features: Tensor
    center: Tensor
    scale: Tensor
    transition: Tensor
    ends: Tensor

    def __init__(self, both: WordsAndFrozen, learned: Weights, temperature: float | None) -> None:
        super().__init__()
        self.network, self.layers = both.frozen.encoder.network, both.frozen.layers
        self.temperature = temperature
        center, deviation = (torch.from_numpy(x).double() for x in (both.frozen.center, both.frozen.deviation))
        tensors = {"rows": pad(learned.rows, (0, 0, 0, 1)), "center": center, "scale": both.scale / deviation}
        named = {name: getattr(learned, name) for name in ("features", "transition", "ends")}
        for name, tensor in (tensors | named).items():
            self.register_buffer(name, tensor.clone())

    def forward(
        self, ids: Tensor, mask: Tensor, places: Tensor, attributes: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best tags.

        Args:
            ids: pieces of windows, with those around a text: int64 [R, P].
            mask: 1 for these and 0 behind them: int64 [R, P].
            places: the window of each word, and where its first piece is there: int64 [B, W, 2].
            attributes: numbers of attributes of each word, among those that have weights; -1 for others and for
                padding: int64 [B, W, A].
            lengths: number of words of each sentence, at least 1: int64 [B].

        Returns:
            The numbers of tags, int64 [B, W]; their scores [B]; and the probabilities of all tags, [B, W, S].
        """
        out: Any = self.network(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        hidden = torch.cat([out.hidden_states[layer] for layer in self.layers], 2)
        numbers = (hidden[places[..., 0], places[..., 1]] - self.center) * self.scale
        known = torch.where(attributes < 0, self.rows.shape[0] - 1, attributes)
        unary = embedding(known, self.rows).sum(2) + numbers @ self.features
        start, stop = self.ends.unbind()
        # Segments of a single word each are a chain, whose graph also has marginals.
        one = torch.zeros_like(self.ends[:1])
        chain = SemiMarkov(unary, self.transition, one, None, lengths, start=start, stop=stop, validate_args=False)
        score, tags = chain.max()
        marginals = tempered(chain, self.temperature).marginals()[0]
        return tags, score, marginals.flatten(2)


class Standalone(NamedTuple):
    """A tagger as programs without this library have it.

    Attributes:
        tagger: its chain.
        words: its encoder of attributes.
        templates: which attributes tokens have.
        clitics: that are split from words of text.
        weights: what it has learned.
        temperature: of the probabilities.
    """

    tagger: Tagger
    words: AttributeEncoder
    templates: Templates
    clitics: list[str]
    weights: Tensor
    temperature: float | None

    def write(self, folder: Path) -> None:
        """Write ``tagger.py``, ``tagger.json`` and ``weights.npz`` into a folder, which is made if need be.

        Attributes without weights are left out.

        Raises:
            ValueError: a pretrained encoder, or templates with functions of their own, which the program does not have.
        """
        if isinstance(self.words, WordsAndFrozen):
            raise ValueError(
                "the program in numpy has attributes of words, and no pretrained encoder: give --format onnx"
            )
        learned = Weights.of(self.tagger, self.weights)
        model = self._described(self.words, learned.used)
        folder.mkdir(parents=True, exist_ok=True)
        rows, transition, ends = (values.numpy() for values in (learned.rows, learned.transition, learned.ends))
        with writing(folder / "weights.npz"):
            np.savez(folder / "weights.npz", rows=rows, transition=transition, ends=ends)
        write_atomic(folder / "tagger.json", json.dumps(model, ensure_ascii=False))
        shutil.copyfile(standalone.__file__, folder / "tagger.py")

    def graph(self, both: WordsAndFrozen) -> Exported:
        """From pieces and attributes to tags, as :class:`EncodedTagger` says."""
        learned = Weights.of(self.tagger, self.weights, both.frozen.size)
        ids, mask = torch.ones(3, 7, dtype=torch.int64), torch.ones(3, 7, dtype=torch.int64)
        places, attributes = torch.zeros(2, 5, 2, dtype=torch.int64), torch.full((2, 5, 11), -1)
        inputs = ids, mask, places, attributes, torch.tensor([5, 4])
        pieces, words = {0: "windows", 1: "pieces"}, {0: "batch", 1: "words"}
        sizes = pieces, pieces, words, words | {2: "attributes"}, {0: "batch"}
        says = {"labels": self.tagger.tags.names, "calibrated": self.temperature is not None}
        return Exported(EncodedTagger(both, learned, self.temperature), inputs, sizes, INPUTS, OUTPUTS, says)

    def write_with_encoder(self, both: WordsAndFrozen, folder: Path) -> None:
        """Write ``tagger.onnx``, and what text goes through before, into a folder, which is made if need be.

        Raises:
            ValueError: templates with functions of their own.
            ImportError: onnx and onnxscript are not installed.
        """
        encoder = both.frozen.encoder
        model = self._described(both.words, Weights.of(self.tagger, self.weights, both.frozen.size).used)
        model |= {name: getattr(encoder, name) for name in ("before", "after", "unknown", "room")}
        folder.mkdir(parents=True, exist_ok=True)
        self.graph(both).save(folder / "tagger.onnx", "onnx")
        write_atomic(folder / "tokenizer.json", encoder.tokenizer.backend_tokenizer.to_str())
        write_atomic(folder / "tagger.json", json.dumps(model, ensure_ascii=False))
        for name, module in _PROGRAMS.items():
            found = find_spec(module)  # which does not import what it needs
            assert found is not None
            source = Path(str(found.origin)).read_text(encoding="utf-8")
            for other, imported in _PROGRAMS.items():
                source = source.replace(f"from {imported} import", f"from {other} import")
            write_atomic(folder / f"{name}.py", source)

    def _described(self, words: AttributeEncoder, used: list[int]) -> dict[str, Any]:
        """What programs know of attributes, of which these are used, and of tags, in plain JSON."""
        if unknown := sorted({_spelling(template)[0] for template in self.templates} - {*standalone.SPELLINGS}):
            raise ValueError(
                f"templates: the program in numpy lacks what spells their attributes, {', '.join(unknown)}"
            )
        known = words.attributes if isinstance(words, DictionaryEncoder) else None
        return {
            "structsmooth": __version__,
            "temperature": self.temperature,
            "tags": self.tagger.tags.names,
            "bits": words.bits if isinstance(words, HashingEncoder) else None,
            "attributes": used if known is None else [known[i] for i in used],
            "templates": [(template.cells, *_spelling(template)) for template in self.templates],
            "clitics": self.clitics,
        }


def _spelling(template: Template) -> tuple[str, tuple[object, ...]]:
    """The name of the function that spells the attributes of a template, and its first arguments."""
    spell = template.spell
    function, arguments = (spell.func, spell.args) if isinstance(spell, partial) else (spell, ())
    return function.__name__, arguments
