"""Fine-tuning of a pretrained encoder under a chain of tags, on the devices and processes of accelerate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from time import perf_counter
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from structsmooth.costs import Cost, Hamming
from structsmooth.encoders.frozen import documents_of
from structsmooth.encoders.pretrained import Pieces, PretrainedEncoder
from structsmooth.encoders.windows import Window
from structsmooth.experiments import RunFolder
from structsmooth.history import History, Row
from structsmooth.losses import StructuralHinge
from structsmooth.messages import tracked
from structsmooth.models import TaggingHead
from structsmooth.models.chains import batches_of, best_labels
from structsmooth.sequences import pad
from structsmooth.smoothing import L2, Max
from structsmooth.structures import LinearChain
from structsmooth.text.corpus import Corpus
from structsmooth.text.tagger import Tags

Precision = Literal["fp32", "bf16"]
TuningLoss = Literal["crf", "softmax-margin", "hinge", "top-k"]
LOSSES: Mapping[TuningLoss, Callable[[Cost], StructuralHinge]] = {
    "crf": lambda cost: StructuralHinge.crf("sum"),
    "softmax-margin": lambda cost: StructuralHinge.softmax_margin(cost, "sum"),
    "hinge": lambda cost: StructuralHinge(Max(), cost, "sum"),
    "top-k": lambda cost: StructuralHinge(L2(1.0, 5), cost, "sum"),
}
"""Losses for the cost of a task, by name: the last one is the hinge, smoothed by the five best taggings."""
# Step sizes of the head and of the scores of pairs of tags, by that of the encoder: the fewer examples a parameter has
# to learn from, the longer its steps. Scores of pairs would not move at the steps of the encoder. Adapters are few.
_HEAD, _PAIRS, _ADAPTERS = 10.0, 100.0, 10.0
_WARM_UP = 0.1  # share of all steps
_CLIP = 5.0  # norm of a gradient
_NEAR = 16  # batches among which sentences are sorted by length
# Pieces, padding included, that are in the network at once. More would leave the cache of a processor.
_PART, _PART_ON_GPU = 1 << 10, 1 << 12


@dataclass(frozen=True)
class Tuning:
    """How an encoder is tuned.

    Args:
        last: number of its last layers that are tuned; all of it if not given.
        epochs: passes over the sentences.
        batch: sentences of a step, of all processes together.
        step_size: largest step size of the encoder.
        precision: of the products in the network.
        seed: of the order of sentences, and of what the network drops.
        loss: its name.
        patience: epochs without a better score after which no other one is made; all are made if not given.
        checkpointing: compute layers again in the backward pass, in place of keeping what they have computed.
        constrained: the outputs of training are the well-formed taggings alone.
        rank: that of low-rank adapters, which are tuned in the place of its weights; none if not given.
    """

    last: int | None
    epochs: int
    batch: int
    step_size: float
    precision: Precision
    seed: int
    loss: TuningLoss = "crf"
    patience: int | None = None
    checkpointing: bool = False
    constrained: bool = False
    rank: int | None = None


class Tagged(NamedTuple):
    """Sentences as the network reads them, with the states of their words."""

    pieces: Pieces
    windows: list[list[Window]]
    states: list[Tensor]

    @classmethod
    def of(cls, encoder: PretrainedEncoder, corpus: Corpus, states: Tensor, context: int) -> "Tagged":
        """Sentences with the states of all words, int64 [words]."""
        pieces = encoder.pieces([token.word for token in corpus.distinct], corpus.tokens)
        seen = encoder.windows(pieces, corpus.offsets, documents_of(corpus), context)
        return cls(pieces, seen, list(states.split(np.diff(corpus.offsets).tolist())))

    def part(self, sentences: range) -> "Tagged":
        """Neighbouring sentences, with all that the network reads around them."""
        kept = slice(sentences.start, sentences.stop)
        return Tagged(self.pieces, self.windows[kept], self.states[kept])

    @property
    def digest(self) -> str:
        """A digest of all that the network is given."""
        total = sha256(self.pieces.ids.tobytes() + self.pieces.first.tobytes())
        for seen, states in zip(self.windows, self.states, strict=True):
            total.update(repr([(w.begin, w.end, w.words.tolist()) for w in seen]).encode())
            total.update(repr(states.tolist()).encode())
        return total.hexdigest()[:16]


class Network(nn.Module):
    """A pretrained encoder under a chain."""

    def __init__(self, encoder: PretrainedEncoder, tags: Tags, settings: Tuning, cost: Cost) -> None:
        super().__init__()
        self.encoder, self.body, self.tags, self.constrained = encoder, encoder.network, tags, settings.constrained
        self.head, self.loss = TaggingHead(encoder.width, len(tags.names)), LOSSES[settings.loss](cost)
        self.body.requires_grad_((last := settings.last) is None)
        if isinstance(pooler := getattr(self.body, "pooler", None), nn.Module):
            pooler.requires_grad_(False)  # of whole texts, which no word asks for: replicas wait for its gradient
        if last is not None:
            if last > encoder.depth:
                raise ValueError(f"the encoder has {encoder.depth} layers, of which last:{last} cannot be tuned")
            nn.ModuleList(list(encoder.layers)[encoder.depth - last :]).requires_grad_(True)
        self.rank = settings.rank
        if self.rank is not None:
            self.body = _adapted(encoder, self.rank)

    def groups(self, step_size: float) -> list[dict[str, Any]]:
        """Parameters with their step sizes."""
        body = [parameter for parameter in self.body.parameters() if parameter.requires_grad]
        groups = (body, list(self.head.linear.parameters()), self.head.transitions())
        factors = (1.0 if self.rank is None else _ADAPTERS, _HEAD, _PAIRS)
        return [{"params": group, "lr": step_size * f} for group, f in zip(groups, factors, strict=True)]

    def chain(self, tagged: Tagged, numbers: Sequence[int]) -> LinearChain:
        """The chain over the tags of some sentences."""
        windows = [window for i in numbers for window in tagged.windows[i]]
        return self._chain(self.encoder.rows(tagged.pieces, windows, [self.encoder.depth]), tagged, numbers)

    def _chain(self, rows: Tensor, tagged: Tagged, numbers: Sequence[int]) -> LinearChain:
        lengths = torch.tensor([len(tagged.states[i]) for i in numbers], device=rows.device)
        return self.head((pad(rows, lengths), lengths))

    def forward(self, tagged: Tagged, numbers: Sequence[int]) -> Tensor:
        """The sum of the losses of some sentences."""
        chain = self.chain(tagged, numbers)
        if self.constrained:
            chain = self._well_formed(chain)
        y = pad_sequence([tagged.states[i] for i in numbers], batch_first=True)
        return self.loss(chain, y.to(chain.unary.device))

    @torch.inference_mode()
    def predicted(self, tagged: Tagged) -> list[list[Any]]:
        """The best tags of sentences, well-formed if the tags are constrained."""
        found = list[list[Any]]()
        for numbers in batches_of([len(states) for states in tagged.states]):
            windows = [window for i in numbers for window in tagged.windows[i]]
            parts = list(self.encoder.features(tagged.pieces, windows, [self.encoder.depth]))
            order = np.argsort(np.concatenate([words for words, _ in parts]))
            rows = torch.cat([found for _, found in parts])[torch.from_numpy(order)]
            chain = self._chain(rows, tagged, numbers)
            exact = LinearChain(chain.unary.double().cpu(), chain.transition.double().cpu(), chain.lengths.cpu())
            found += [self.tags.named(ranked[0][1]) for ranked in best_labels([self._well_formed(exact)], 1)]
        return found

    def _well_formed(self, chain: LinearChain) -> LinearChain:
        """The chain over the taggings that tags allow."""
        if (mask := self.tags.mask) is None:
            return chain
        start, stop, transition = (part.to(chain.unary) for part in (mask.start, mask.stop, mask.transition))
        return LinearChain(chain.unary, chain.transition + transition, chain.lengths, start=start, stop=stop)


class Best(NamedTuple):
    """The parameters that are best so far, with their score and their epoch, from 1."""

    score: float
    epoch: int
    parameters: dict[str, Tensor]


def tune(
    encoder: PretrainedEncoder,
    tags: Tags,
    train: Tagged,
    settings: Tuning,
    folder: RunFolder,
    *,
    cost: Cost = Hamming(),  # noqa: B008 - immutable
    device: str = "cpu",
    resume: bool = False,
    measure: Callable[[Network], tuple[float, dict[str, float]]] | None = None,
) -> History:
    """Tune an encoder in place by a loss of a chain: the history, with a row for each epoch.

    The epoch that measures best is kept, the last one without a measure. AdamW makes the steps: they rise for a
    tenth of them, and fall linearly to zero. The state after each epoch is saved.

    Args:
        encoder: the encoder.
        tags: of words.
        train: sentences to learn.
        settings: how.
        folder: of the run, whose settings it goes on with alone.
        cost: of wrong tags, for losses that have one.
        device: where to compute.
        resume: go on from the state in the folder, if there is one.
        measure: a score of the network, the larger the better and the same in all processes, and metrics, after each
            epoch.

    Raises:
        ImportError: accelerate is not installed.
        ValueError: the state of another run.
    """
    from accelerate import Accelerator

    mixed = "no" if settings.precision == "fp32" else settings.precision
    accelerator = Accelerator(cpu=device == "cpu", mixed_precision=mixed)
    torch.manual_seed(settings.seed)
    network = Network(encoder, tags, settings, cost)
    optimizer = torch.optim.AdamW(network.groups(settings.step_size), fused=True)
    per_epoch = -(-len(train.states) // settings.batch)
    total = settings.epochs * per_epoch
    warm = max(1, round(_WARM_UP * total))
    history, best = (_restored(folder, network, optimizer) if resume else None) or (History(), Best(-inf, 0, {}))
    model, stepped = accelerator.prepare(network, optimizer)
    body: Any = encoder.network
    if settings.checkpointing:
        body.gradient_checkpointing_enable({"use_reentrant": False})
    for epoch in range(len(history), settings.epochs):
        if settings.patience is not None and epoch - best.epoch >= settings.patience:
            break
        network.train()
        # What is dropped depends on the epoch and the process alone, so that a run that goes on drops the same.
        torch.manual_seed((settings.seed << 20) + epoch * accelerator.num_processes + accelerator.process_index)
        loss, started = 0.0, perf_counter()
        batches = tracked(_batches(train, settings, epoch), f"tuning, epoch {epoch + 1} of {settings.epochs}")
        for made, numbers in enumerate(batches, epoch * per_epoch):
            share = min((made + 1) / warm, (total - made) / max(1, total - warm), 1.0)
            for group, first in zip(optimizer.param_groups, network.groups(settings.step_size), strict=True):
                group["lr"] = share * first["lr"]
            loss += _gradient(accelerator, model, train, numbers)
            accelerator.clip_grad_norm_(network.parameters(), _CLIP)
            stepped.step()
            stepped.zero_grad()
        seconds = perf_counter() - started + (history[-1].seconds if history else 0.0)
        score, metrics = (float(epoch), {}) if measure is None else measure(network.eval())
        calls, mean = (epoch + 1) * len(train.states), loss / len(train.states)
        history.append(Row(epoch + 1, calls, seconds, mean, step_size=settings.step_size, metrics=metrics))
        if score > best.score:
            parameters = {name: value.detach().clone() for name, value in network.state_dict().items()}
            best = Best(score, epoch + 1, parameters)
        if accelerator.is_main_process:
            _save(folder, network, optimizer, history, best)
        accelerator.wait_for_everyone()
    network.load_state_dict(best.parameters)
    if settings.rank is not None:
        encoder.network = body = cast(Any, network.body).merge_and_unload()
    if settings.checkpointing:
        body.gradient_checkpointing_disable()
    body.to("cpu").eval().requires_grad_(False)
    return history


def _adapted(encoder: PretrainedEncoder, rank: int) -> nn.Module:
    """The network with low-rank adapters of all products in its layers, which alone are tuned.

    Reference:
        Hu et al. (2022), "LoRA: Low-Rank Adaptation of Large Language Models".
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise ImportError("low-rank adapters need peft: pip install peft") from None
    inside = {id(module) for module in encoder.layers.modules()}
    names = [name for name, one in encoder.network.named_modules() if id(one) in inside and isinstance(one, nn.Linear)]
    adapted: nn.Module = get_peft_model(
        cast(Any, encoder.network), LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names)
    )
    return adapted


def _batches(train: Tagged, settings: Tuning, epoch: int) -> list[list[int]]:
    """Numbers of the sentences of each step: neighbours in length among some batches, and these in random order."""
    generator = torch.Generator().manual_seed((settings.seed << 20) + epoch)
    found = list[list[int]]()
    for near in torch.randperm(len(train.states), generator=generator).split(_NEAR * settings.batch):
        numbers = sorted(near.tolist(), key=lambda i: len(train.states[i]))
        found += [numbers[i : i + settings.batch] for i in range(0, len(numbers), settings.batch)]
    return [found[i] for i in torch.randperm(len(found), generator=generator).tolist()]


def _gradient(accelerator: Any, model: nn.Module, train: Tagged, numbers: Sequence[int]) -> float:
    """Adds the gradient of the mean loss of some sentences, of which each process has a share; returns their sum.

    A share goes through the network in parts that bound its memory. Replicas add up their gradients behind the last.
    """
    processes, loss = accelerator.num_processes, 0.0
    share = list(numbers[accelerator.process_index :: processes]) or list(numbers[:1])  # every process must call
    counts = 1.0 if len(numbers) > accelerator.process_index else 0.0
    parts = list(_parts(train, share, _PART if accelerator.device.type == "cpu" else _PART_ON_GPU))
    for part in parts:
        with nullcontext() if part is parts[-1] else accelerator.no_sync(model), accelerator.autocast():
            value = counts * model(train, part)
            accelerator.backward(value * processes / len(numbers))  # replicas take the mean of their gradients
        loss += value.item()
    total: Tensor = accelerator.reduce(torch.tensor(loss, device=accelerator.device))
    return float(total)


def _parts(train: Tagged, share: Sequence[int], most: int) -> Iterator[list[int]]:
    """Sentences of at most so many pieces, padding included, but at least one."""
    part, longest = list[int](), 0
    for i in share:
        longest = max(longest, *(window.end - window.begin for window in train.windows[i]))
        if part and longest * (len(part) + 1) > most:
            yield part
            part, longest = [], max(window.end - window.begin for window in train.windows[i])
        part.append(i)
    yield part


def _save(folder: RunFolder, network: Network, optimizer: torch.optim.Optimizer, history: History, best: Best) -> None:
    state = optimizer.state_dict()["state"]
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.parameters.items()}
    tensors |= {f"adam.{i}.{name}": value for i, values in state.items() for name, value in values.items()}
    folder.save_state(tensors, {"score": best.score, "epoch": best.epoch}, history)


def _restored(folder: RunFolder, network: Network, optimizer: torch.optim.Optimizer) -> tuple[History, Best] | None:
    """Puts the state of a run into a network and its optimizer: its history, and the best parameters."""
    if (saved := folder.load_state()) is None:
        return None
    tensors, numbers, history = saved
    parts: dict[str, dict[str, Tensor]] = {"network": {}, "best": {}, "adam": {}}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        parts[kind][rest] = value
    network.load_state_dict(parts["network"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in parts["adam"].items():
        number, _, rest = name.partition(".")
        state.setdefault(int(number), {})[rest] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    return history, Best(numbers["score"], numbers["epoch"], parts["best"])
