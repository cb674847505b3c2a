"""Time of paths through grids, beside torch's CTC loss, one thread.

CTC has random logits of B examples, T frames, L labels and 40 classes, in float32: its loss, the loss with the gradient
of the logits, and the best path, or forced alignment. Alignments of two sequences have random scores of T × T cells and
the moves of time warping. Cells are medians of milliseconds of processor time; then nanoseconds for each cell of the
grid, of which CTC has T (2 L + 1).
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from scripts.shared.harness import command, in_turns, option, sizes
from structsmooth import Alignment

_CLASSES = 40


@command(
    option("--ctc", ["1x100x10", "16x200x30", "4x2000x300"], type=sizes(3), nargs="*", metavar="BxTxL"),
    option("--alignments", ["16x200", "1x1000"], type=sizes(2), nargs="*", metavar="BxT"),
    option("--repeats", 15, "calls of each, which take turns"),
    table=["case", "ours", "ns per cell", "torch", "times as long"],
)
def main(options: Namespace) -> Iterator[list[object]]:
    """Measure every case."""
    torch.manual_seed(0)
    for batch, frames, labels in options.ctc:
        logits = torch.randn(batch, frames, _CLASSES, requires_grad=True)
        targets = torch.randint(1, _CLASSES, (batch, labels))
        lengths = torch.full((batch,), frames), torch.full((batch,), labels)
        cells = batch * frames * (2 * labels + 1)
        loss = partial(_loss, logits, targets), partial(_loss_of_torch, logits, targets, *lengths)
        name = f"CTC {batch}x{frames}x{labels}"
        yield _row(f"{name}, loss", cells, options, *loss)
        yield _row(f"{name}, gradient", cells, options, *(partial(_gradient, call) for call in loss))
        yield _row(f"{name}, path", cells, options, partial(_path_of_labels, logits.detach().log_softmax(2), targets))
    for batch, size in options.alignments:
        scores = torch.randn(batch, size, size, requires_grad=True)
        cells, name = batch * size * size, f"alignment {batch}x{size}x{size}"
        yield _row(f"{name}, gradient", cells, options, partial(_gradient, partial(_log_sum, scores)))
        yield _row(f"{name}, path", cells, options, Alignment(scores.detach()).path)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return -Alignment.ctc(logits.log_softmax(2), targets).logsumexp().sum()


def _loss_of_torch(logits: Tensor, targets: Tensor, frames: Tensor, labels: Tensor) -> Tensor:
    return ctc_loss(logits.log_softmax(2).transpose(0, 1), targets, frames, labels, reduction="sum")


def _path_of_labels(log_probs: Tensor, targets: Tensor) -> object:
    return Alignment.ctc(log_probs, targets).path()


def _log_sum(scores: Tensor) -> Tensor:
    return Alignment(scores).logsumexp().sum()


def _gradient(value: Callable[[], Tensor]) -> None:
    torch.autograd.backward(value())


def _row(name: str, cells: int, options: Namespace, *calls: Callable[[], object]) -> list[object]:
    """The medians of our call and, if there is one, of torch's."""
    for call in calls:
        call()
    times = in_turns(dict(enumerate(calls)), options.repeats, time.process_time)
    ours, *theirs = (median(taken) for taken in times.values())
    beside = [f"{1e3 * theirs[0]:.2f}", f"{theirs[0] / ours:.1f}"] if theirs else ["", ""]
    return [name, f"{1e3 * ours:.2f}", f"{1e9 * ours / cells:.1f}", *beside]
