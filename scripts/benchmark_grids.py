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
from torch.nn.functional import ctc_loss

from scripts.harness import command, in_turns, option, sizes
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
        lengths, symbols = torch.full((batch,), frames), torch.full((batch,), labels)
        cells = batch * frames * (2 * labels + 1)

        def ours(logits: torch.Tensor = logits, targets: torch.Tensor = targets) -> torch.Tensor:
            return -Alignment.ctc(logits.log_softmax(2), targets).logsumexp().sum()

        def theirs(
            logits: torch.Tensor = logits,
            targets: torch.Tensor = targets,
            lengths: torch.Tensor = lengths,
            symbols: torch.Tensor = symbols,
        ) -> torch.Tensor:
            return ctc_loss(logits.log_softmax(2).transpose(0, 1), targets, lengths, symbols, reduction="sum")

        def gradient(loss: Callable[[], torch.Tensor]) -> None:
            loss().backward()

        name = f"CTC {batch}x{frames}x{labels}"
        yield _row(f"{name}, loss", cells, options, ours, theirs)
        yield _row(f"{name}, gradient", cells, options, partial(gradient, ours), partial(gradient, theirs))
        log_probs = logits.detach().log_softmax(2)
        yield _row(f"{name}, path", cells, options, partial(_path, log_probs, targets))
    for batch, size in options.alignments:
        scores = torch.randn(batch, size, size, requires_grad=True)
        cells = batch * size * size
        name = f"alignment {batch}x{size}x{size}"
        yield _row(f"{name}, gradient", cells, options, partial(_gradient, scores))
        yield _row(f"{name}, path", cells, options, Alignment(scores.detach()).path)


def _path(log_probs: torch.Tensor, targets: torch.Tensor) -> object:
    return Alignment.ctc(log_probs, targets).path()


def _gradient(scores: torch.Tensor) -> None:
    Alignment(scores).logsumexp().sum().backward()


def _row(name: str, cells: int, options: Namespace, *calls: Callable[[], object]) -> list[object]:
    """The medians of our call and, if there is one, of torch's."""
    for call in calls:
        call()
    times = in_turns(dict(enumerate(calls)), options.repeats, time.process_time)
    ours, *theirs = (median(taken) for taken in times.values())
    beside = [f"{1e3 * theirs[0]:.2f}", f"{theirs[0] / ours:.1f}"] if theirs else ["", ""]
    return [name, f"{1e3 * ours:.2f}", f"{1e9 * ours / cells:.1f}", *beside]


if __name__ == "__main__":
    raise SystemExit(main())
