"""Time of what training a deep model consists of: inner steps, full passes by several processes, features of boxes.

The model is the ELU score of the localization task, a 1 × 1 convolution and a linear map, over random feature maps;
the network that describes boxes has random weights. Inner steps are those of the prox-linear algorithm, on linearized
scores. Of full passes and of SGD steps, which processes share, the table has the time of the slowest process, how many
times as long the first number of processes took, and the CPU seconds of each. Numbers of processes take turns, so that
load of the machine meets all, and these times are the least; others are medians. There are rows for the GPU if there is
one; processes share it.
"""

import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch

from scripts.shared.harness import command, in_processes, option
from structsmooth import L2, Max, ModuleProblem, processes
from structsmooth.models import BoxELU, collate_boxes
from structsmooth.models.backbones import SqueezeNetFire9
from structsmooth.problems import sharded
from structsmooth.tasks.localization.box_features import BoxFeatures

_SMOOTHER = L2(1.0, 5)
# Pixels of the sides of the image whose boxes are described.
_HEIGHT, _WIDTH = 375, 500

Times = dict[str, list[Sequence[tuple[float, float]]]]
"""Wall-clock and CPU seconds of each process, for each call of each kind of work."""


def deep_problem(options: Namespace, device: str, batch_size: int = 1) -> ModuleProblem:
    """Images with the feature maps of their boxes and 1 − IoU at random; the label is the best box."""
    torch.manual_seed(0)
    shape = (options.channels, 3, 3)
    data = []
    for _ in range(options.n):
        iou = torch.rand(options.boxes)
        data.append((torch.randn(options.boxes, *shape), (iou.argmax(), iou.max() - iou)))
    module = BoxELU(shape).to(device)
    return ModuleProblem(module, data, cost=None, batch_size=batch_size, collate=collate_boxes)


def timed(call: Callable[[], object], device: str) -> tuple[float, float]:
    """Wall-clock and CPU seconds of a call, its work on the device included."""
    started, cpu = time.perf_counter(), time.process_time()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started, time.process_time() - cpu


def inner_steps(options: Namespace, device: str) -> Iterator[list[str]]:
    """A row for each batch size: one SVRG step on linearized scores."""
    for size in options.batch_sizes:
        problem = deep_problem(options, device, size)
        linear = problem.linearize(problem.start())
        snapshot = linear.full_pass(linear.start(), _SMOOTHER)
        batch, w = torch.arange(size) % problem.n, linear.start() * 1.01
        times = [timed(lambda: linear.gradient_change(w, snapshot, batch), device) for _ in range(options.repeats + 1)]  # noqa: B023
        step = median(wall for wall, _ in times[1:])
        yield _row(f"inner step, {size} images", device, 1e3 * step, f"{1e3 * step / size:.2f} ms an image", "")


def shared(options: Namespace, device: str) -> Iterator[list[str]]:
    """A row for each number of processes, for one full pass with gradient, and for the gradient of one step."""
    found: dict[int, list[Times]] = {count: [] for count in options.processes}
    for _ in range(options.turns):
        for count in options.processes:
            found[count].append(in_processes(worker, vars(options), device, count=count))
    for name in _shared_work(deep_problem(options, device), options):
        calls = {count: [call for turn in turns for call in turn[name]] for count, turns in found.items()}
        walls = {count: min(max(wall for wall, _ in call) for call in run) for count, run in calls.items()}
        for count, run in calls.items():
            ratio = walls[options.processes[0]] / walls[count]
            each = zip(*([cpu for _, cpu in call] for call in run), strict=True)
            cpu = " + ".join(f"{min(seconds):.3f}" for seconds in each)
            row = f"{name}, {count} processes"
            yield _row(row, device, 1e3 * walls[count], f"{ratio:.2f} times as fast", cpu)


def box_features(options: Namespace, device: str) -> Iterator[list[str]]:
    """One row: features of the boxes of an image."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # random weights are what we want
        features = BoxFeatures(SqueezeNetFire9(None), "")
    features.device = torch.device(device)
    features.backbone.to(device)
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (_HEIGHT, _WIDTH, 3)).astype(np.uint8)
    corners = rng.uniform(0, 0.6, (options.boxes, 2)) * [_WIDTH, _HEIGHT]
    boxes = torch.tensor(np.hstack([corners, corners + rng.uniform(20, 150, corners.shape)]), dtype=torch.float32)
    times = [timed(lambda: features.compute(image, boxes), device) for _ in range(options.repeats + 1)][1:]
    wall = median(wall for wall, _ in times)
    yield _row(f"features of {options.boxes} boxes", device, 1e3 * wall, f"{options.boxes / wall:.0f} boxes/s", "")


def worker(settings: dict[str, Any], device: str) -> Times:
    """One of several processes: wall-clock and CPU seconds of all, for each repetition."""
    options = Namespace(**settings)
    torch.set_num_threads(options.threads)
    with processes.joined():
        times: Times = {}
        for name, work in _shared_work(sharded(deep_problem(options, device)), options).items():
            pairs = []
            for _ in range(options.repeats + 1):
                processes.wait()
                pairs.append(timed(work, device))
            times[name] = list(zip(*processes.gathered(pairs[1:]), strict=True))
    return times


def _shared_work(problem: ModuleProblem, options: Namespace) -> dict[str, Callable[[], object]]:
    w, size = problem.start(), max(options.batch_sizes)
    batch = torch.arange(size) % problem.n
    return {
        f"full pass, {problem.n} images": lambda: problem.full_pass(w, _SMOOTHER),
        f"SGD step, {size} images": lambda: problem.batch_loss_and_grad(w, batch, Max()),
    }


def _row(name: str, device: str, milliseconds: float, rate: str, cpu: str) -> list[str]:
    return [name, device, f"{milliseconds:.2f}", rate, cpu]


@command(
    option("--n", 64, "images"),
    option("--boxes", 300, "boxes of an image"),
    option("--channels", 256, "of 3x3 feature maps"),
    option("--batch-sizes", [1, 4, 16], "of steps"),
    option("--processes", [1, 2], "that share work"),
    option("--repeats", 7, "calls in a turn"),
    option("--turns", 3, "of each number of processes"),
    option("--threads", 1, "of torch in each process"),
    table=["what", "device", "ms", "rate", "CPU seconds"],
    text_columns=5,
)
def main(options: Namespace) -> Iterator[list[str]]:
    """The rows of each device."""
    torch.set_num_threads(options.threads)
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        for part in (inner_steps, shared, box_features):
            yield from part(options, device)
