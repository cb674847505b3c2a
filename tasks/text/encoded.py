"""Pretrained encoders under tasks of text: frozen beside attributes of words, or tuned first."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import torch

from structsmooth import __version__, processes
from structsmooth.encoders import FrozenFeatures, PretrainedEncoder, WordsAndFrozen
from structsmooth.encoders.frozen import SCALE, TUNED_SCALE
from structsmooth.encoders.pretrained import digest_of
from structsmooth.encoders.tuning import Network, Precision, Tagged, Tuning, TuningLoss, tune
from structsmooth.experiments import RunFolder
from structsmooth.history import History, Row
from structsmooth.settings import Interval, Positive, PositiveInt
from structsmooth.tasks.base import Task
from structsmooth.text.corpus import Corpus, Sentence
from structsmooth.text.encoders import AttributeEncoder
from structsmooth.text.texts import TextSentence

E = TypeVar("E", bound="Encoded")
_OF_ENCODER, _OF_TUNING = {"needs": "encoder"}, {"needs": "tune"}


@dataclass(frozen=True)
class Encoded(Task):
    """A task whose words may have features of a pretrained encoder.

    Args:
        encoder: a pretrained encoder of transformers, a folder or a name: features of its layers stand beside
            attributes, and all is still linear, with a certificate.
        layers: of the encoder, counted from 1, with 0 for its embeddings; the middle and the last one by default, the
            last one alone of a tuned encoder.
        context: number of pieces of neighbouring sentences in a document that the encoder reads on either side.
        encoder_scale: factor of its standardized features; the larger it is, the less they are regularized. 0.1 by
            default, and 0.05 for those of an encoder that was tuned first.
        tune: tune the encoder first: all of it, last:K for its last K layers, or lora:R for low-rank adapters of rank
            R, which need peft; the model then has a copy of it.
        epochs: passes over the sentences that tune the encoder.
        batch: sentences of a step that tunes it.
        encoder_step: largest step size of the encoder; those of its head are 10 and 100 times as large.
        precision: fp32 or bf16, of products while it is tuned.
        tune_loss: loss while it is tuned: crf, softmax-margin or hinge, or top-k for a hinge that the five best outputs
            smooth.
        tune_patience: end tuning after so many epochs without a better score on development data.
        recompute: gradient checkpointing: compute layers of the encoder again in backward passes, in place of keeping
            what they have computed. It takes less memory and a third more time.
        embed_encoder: put a copy of the encoder into the folder of the model, as tuned ones are, so that no other
            folder is needed.
    """

    encoder: str | None = field(default=None, metadata={"metavar": "DIR"})
    layers: list[int] | None = None
    context: Annotated[int, Interval(0)] = 0
    encoder_scale: Positive | None = field(default=None, metadata=_OF_ENCODER)
    tune: str | None = field(default=None, metadata={"metavar": "all|last:K|lora:R"})
    epochs: PositiveInt = field(default=3, metadata=_OF_TUNING)
    batch: PositiveInt = field(default=16, metadata=_OF_TUNING)
    encoder_step: Positive = field(default=2e-4, metadata=_OF_TUNING)
    precision: Precision = field(default="fp32", metadata=_OF_TUNING)
    tune_loss: TuningLoss = field(default="crf", metadata=_OF_TUNING)
    tune_patience: PositiveInt | None = None
    recompute: bool = False
    embed_encoder: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder is None and (self.layers is not None or self.context or self.tune or self.embed_encoder):
            raise ValueError("layers, context, tune and embed_encoder are about an encoder: give encoder")
        if self.tune is None and (self.tune_loss != "crf" or self.tune_patience or self.recompute):
            raise ValueError("tune_loss, tune_patience and recompute are about tuning: give tune")
        _ = self.tuned_part  # which refuses others

    @property
    def tuned_part(self) -> dict[str, int | None]:
        """How many of the ``last`` layers are tuned, and the ``rank`` of adapters; ``None`` for all and none."""
        part: dict[str, int | None] = {"last": None, "rank": None}
        if self.tune is None or self.tune == "all":
            return part
        kind, _, number = self.tune.partition(":")
        if kind not in ("last", "lora") or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"tune must be all, last:K or lora:R, such as last:2 or lora:8, got {self.tune!r}")
        return part | {"last" if kind == "last" else "rank": int(number)}

    def beside_encoder(
        self,
        attributes: AttributeEncoder,
        corpus: Corpus,
        cache: str | None,
        gathered: Callable[[Any], list[Any]],
    ) -> AttributeEncoder:
        """Attributes of training sentences beside the features of the encoder, if there is one.

        Raises:
            ValueError: an encoder that is to be tuned first.
        """
        if self.tune is not None:
            raise ValueError(
                "tune: structsmooth train tunes an encoder, and other commands take the one in the folder of its "
                "model, --encoder DIR/encoder; in Python, the task that task.tuned(...) returns has the tuned encoder"
            )
        if self.encoder is None:
            return attributes
        frozen = FrozenFeatures.fit(self.encoder, self.layers, self.context, corpus, cache, gathered)
        return WordsAndFrozen(attributes, frozen, self.encoder_scale or SCALE)

    def tuned(
        self: E,
        train: Sequence[Sentence],
        dev: Sequence[Sentence] | None,
        folder: str | Path,
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

        Raises:
            ValueError: tags that are not all known, tune_patience without ``dev``, or the folder of another run.
        """
        assert self.encoder is not None
        if self.tune_patience is not None and dev is None:
            raise ValueError("tune_patience is about scores on development data: give --dev")
        encoder, fitted = PretrainedEncoder.own(self.encoder), cast(Any, self._untuned().fit(train))
        tags, states = fitted.tagger.tags, fitted.states(train)
        if states.lt(0).any():
            raise ValueError("an encoder is tuned to tags that are all known: without tune, some may be unknown")
        known = Tagged.of(encoder, Corpus.of(train), states, self.context)
        scored = None if dev is None else _Scored.of(fitted, encoder, dev, self.context)
        settings = self._tuning(seed)
        sources = {"encoder": encoder.digest[:16], "training sentences": known.digest}
        sources |= {} if scored is None else {"development sentences": scored.digest}
        how = asdict(settings) | {"device": device, "version": __version__, "tags": tags.names}
        run = RunFolder(folder := Path(folder), how | {f"digest of {name}": value for name, value in sources.items()})
        if not resume and processes.rank() == 0:
            run.restart()
        record = run.finished() if resume else None
        if record is None:
            options: Any = {"cost": fitted.task.cost, "device": device, "resume": resume, "measure": scored}
            history = tune(encoder, tags, known, settings, run, **options)
            if processes.rank() == 0:
                encoder.save(folder)
                rows = [row.as_dict() for row in history]
                run.finish({"tuned": digest_of(folder), "history": rows})
        else:
            history = History(map(Row.from_dict, record["history"]))
            if digest_of(folder) != record["tuned"]:
                raise ValueError(
                    f"{folder}: the tuned encoder has changed since it was saved: start anew, in another --out"
                )
        processes.wait()  # until the first one has saved it
        layers = [encoder.depth] if self.layers is None else self.layers
        where: dict[str, Any] = {
            "encoder": str(folder),
            "layers": layers,
            "context": self.context,
            "encoder_scale": self.encoder_scale or TUNED_SCALE,
            "embed_encoder": True,
        }
        return replace(self._untuned(), **where), history

    def _untuned(self: E) -> E:
        """The task of words alone."""
        tuning: dict[str, Any] = {
            "tune": None,
            "tune_loss": "crf",
            "tune_patience": None,
            "recompute": False,
        }
        return replace(self, encoder=None, layers=None, context=0, embed_encoder=False, **tuning)

    def _tuning(self, seed: int) -> Tuning:
        """How the encoder is tuned."""
        part = self.tuned_part
        steps = part["last"], self.epochs, self.batch, self.encoder_step, self.precision, seed
        how = self.tune_loss, self.tune_patience, self.recompute, self._constrained
        return Tuning(*steps, *how, part["rank"])

    @property
    def _constrained(self) -> bool:
        """Whether the outputs of training are the well-formed taggings alone."""
        return bool(getattr(self, "train_constrained", False))


class _Scored(NamedTuple):
    """Tagged sentences by which epochs of tuning are measured; processes share them.

    Attributes:
        fitted: the task of words, which measures.
        sentences: with their tags.
        held_out: as the network reads them.
    """

    fitted: Any
    sentences: Corpus
    held_out: Tagged

    @classmethod
    def of(cls, fitted: Any, encoder: PretrainedEncoder, sentences: Sequence[Sentence], context: int) -> "_Scored":
        """Sentences as an encoder reads them."""
        read = Corpus.of(fitted.examples(sentences))
        nothing = torch.zeros(len(read.tokens))  # the network is not told their tags
        return cls(fitted, read, Tagged.of(encoder, read, nothing, context))

    @property
    def digest(self) -> str:
        """A digest of what the network reads, and of what is right."""
        gold = [(s.tags, s.spans if isinstance(s, TextSentence) else None) for s in self.sentences]
        return sha256(f"{self.held_out.digest} {gold!r}".encode(errors="backslashreplace")).hexdigest()[:16]

    def __call__(self, network: Network) -> tuple[float, dict[str, float]]:
        """The metric to watch, and all of them."""
        own = network.predicted(self.held_out.part(processes.share(len(self.sentences))))
        metrics, _ = self.fitted.measure(self.sentences, processes.concatenated(own))
        return metrics[self.fitted.task.headline], metrics
