"""Pretrained encoders under tasks of text: frozen beside attributes of words, or tuned first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
from torch import Tensor

from structsmooth import processes
from structsmooth.checkpoint import write_atomic
from structsmooth.encoders import FrozenFeatures, PretrainedEncoder, WordsAndFrozen
from structsmooth.encoders.tuning import Network, Precision, Tagged, Tuning, tune
from structsmooth.history import History
from structsmooth.settings import Interval, Positive, PositiveInt
from structsmooth.tasks.base import Task
from structsmooth.text.corpus import Corpus, Sentence
from structsmooth.text.encoders import AttributeEncoder

E = TypeVar("E", bound="Encoded")


@dataclass(frozen=True)
class Encoded(Task):
    """A task whose words may have features of a pretrained encoder.

    Args:
        encoder: a pretrained encoder of transformers, a folder or a name: features of its layers stand beside
            attributes, and all is still linear, with a certificate.
        layers: of the encoder, counted from 1, with 0 for its embeddings; the middle and the last one by default, the
            last one alone of a tuned encoder.
        context: number of pieces of neighbouring sentences in a document that the encoder reads on either side.
        encoder_scale: factor of its standardized features; the larger it is, the less they are regularized.
        tune: tune the encoder first: all of it, or last:K for its last K layers; the model then has a copy of it.
        epochs: passes over the sentences that tune the encoder.
        batch: sentences of a step that tunes it.
        encoder_step: largest step size of the encoder; those of its head are 10 and 100 times as large.
        precision: fp32 or bf16, of products while it is tuned.
        embed_encoder: put a copy of the encoder into the folder of the model, as tuned ones are, so that no other
            folder is needed.
    """

    encoder: str | None = field(default=None, metadata={"metavar": "DIR"})
    layers: list[int] | None = None
    context: Annotated[int, Interval(0)] = 0
    encoder_scale: Positive = 0.1
    tune: str | None = field(default=None, metadata={"metavar": "all|last:K"})
    epochs: PositiveInt = 3
    batch: PositiveInt = 16
    encoder_step: Positive = 2e-4
    precision: Precision = "fp32"
    embed_encoder: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder is None and (self.layers is not None or self.context or self.tune or self.embed_encoder):
            raise ValueError("layers, context, tune and embed_encoder are about an encoder: give encoder")
        _ = self.last_layers  # which refuses others

    @property
    def last_layers(self) -> int | None:
        """How many of the last layers are tuned; ``None`` for all."""
        if self.tune is None or self.tune == "all":
            return None
        kind, _, number = self.tune.partition(":")
        if kind != "last" or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"tune must be all or last:K, such as last:2, got {self.tune!r}")
        return int(number)

    def beside_encoder(
        self,
        attributes: AttributeEncoder,
        corpus: Corpus,
        cache: str | None,
        gathered: Callable[[Any], list[Any]],
    ) -> AttributeEncoder:
        """Attributes of training sentences beside the features of the encoder, if there is one."""
        if self.encoder is None:
            return attributes
        frozen = FrozenFeatures.fit(self.encoder, self.layers, self.context, corpus, cache, gathered)
        return WordsAndFrozen(attributes, frozen, self.encoder_scale)

    def tuned(
        self: E,
        train: Sequence[Sentence],
        dev: Sequence[Sentence] | None,
        folder: Path,
        *,
        device: str = "cpu",
        seed: int = 0,
        resume: bool = False,
    ) -> tuple[E, History]:
        """The task with the encoder tuned to sentences, and kept in a folder; and the history, a row for each epoch.

        Args:
            train: sentences to learn.
            dev: those by which the best epoch is chosen; the last one without any.
            folder: of the tuned encoder.
            device: where to compute.
            seed: same seed, same encoder, on the same machine.
            resume: go on after the last complete epoch; a tuned encoder that is there is taken.
        """
        assert self.encoder is not None
        done = folder / "tuning.jsonl"
        if not (resume and done.exists()):
            encoder = PretrainedEncoder.own(self.encoder)
            settings = Tuning(self.last_layers, self.epochs, self.batch, self.encoder_step, self.precision, seed)
            history = self._tune(encoder, train, dev, settings, folder, device, resume)
            if processes.rank() == 0:
                encoder.save(folder)
                write_atomic(done, history.to_json_lines())
                (folder / "tuning.safetensors").unlink(missing_ok=True)
        layers = [PretrainedEncoder.open(str(folder)).depth] if self.layers is None else self.layers
        history = History.from_json_lines(done.read_text(encoding="utf-8").splitlines())
        return replace(self, encoder=str(folder), layers=layers), history

    def _tune(
        self,
        encoder: PretrainedEncoder,
        train: Sequence[Sentence],
        dev: Sequence[Sentence] | None,
        settings: Tuning,
        folder: Path,
        device: str,
        resume: bool,
    ) -> History:
        fitted: Any = replace(self, encoder=None, layers=None, context=0, tune=None, embed_encoder=False).fit(train)
        tags = fitted.tagger.tags

        def tagged(sentences: Sequence[Sentence], states: Tensor) -> Tagged:
            return Tagged.of(encoder, Corpus.of(sentences), states, self.context)

        def measure(network: Network) -> tuple[float, dict[str, float]]:
            assert held_out is not None
            metrics, _ = fitted.measure(read, network.predicted(tags, held_out))
            return metrics[self.headline], metrics

        if (states := fitted.states(train)).lt(0).any():
            raise ValueError("an encoder is tuned to tags that are all known: without tune, some may be unknown")
        read = None if dev is None else Corpus.of(fitted.examples(dev))
        held_out = None if read is None else tagged(read, torch.zeros(len(read.tokens)))  # its tags are measured alone
        known, checkpoint = tagged(train, states), folder / "tuning.safetensors"
        scored = None if dev is None else measure
        return tune(encoder, tags, known, settings, checkpoint, device=device, resume=resume, measure=scored)
