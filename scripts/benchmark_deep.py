"""Time of what training a deep model consists of: inner steps, full passes by several processes, features of boxes.

The model is the ELU score of the localization task, a 1 × 1 convolution and a linear map, over random feature maps;
the network that describes boxes has random weights. Inner steps are those of the prox-linear algorithm, on linearized
scores. Of full passes the table has the time of the slowest process, how many times as long the first number of
processes took, and the CPU seconds of each. Numbers of processes take turns, so that load of the machine meets all, and
times of full passes are the least; others are medians. There are rows for the GPU if there is one; processes share it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import warnings
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import numpy as np
import torch

from structsmooth import L2, ModuleProblem, processes
from structsmooth.models import BoxELU, collate_boxes
from structsmooth.models.backbones import SqueezeNetFire9
from structsmooth.problems import sharded
from structsmooth.tasks.localization.box_features import BoxFeatures

_SMOOTHER = L2(1.0, 5)
_WORKER = "STRUCTSMOOTH_BENCHMARK_WORKER"
# Pixels of the sides of the image whose boxes are described.
_HEIGHT, _WIDTH = 375, 500


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


def inner_steps(options: Namespace, device: str) -> Iterator[str]:
    """A row for each batch size: one SVRG step on linearized scores."""
    for size in options.batch_sizes:
        problem = deep_problem(options, device, size)
        linear = problem.linearize(problem.start())
        snapshot = linear.full_pass(linear.start(), _SMOOTHER)
        batch, w = torch.arange(size) % problem.n, linear.start() * 1.01
        times = [timed(lambda: linear.gradient_change(w, snapshot, batch), device) for _ in range(options.repeats + 1)]  # noqa: B023
        step = median(wall for wall, _ in times[1:])
        yield _row(f"inner step, {size} images", device, 1e3 * step, f"{1e3 * step / size:.2f} ms an image", "")


def full_passes(options: Namespace, device: str) -> Iterator[str]:
    """A row for each number of processes: one full pass with gradient."""
    walls: dict[int, list[float]] = {count: [] for count in options.processes}
    cpus: dict[int, list[list[float]]] = {count: [] for count in options.processes}
    for _ in range(options.turns):
        for count in options.processes:
            for turn in _in_processes(options.arguments, count, device):
                walls[count].append(max(wall for wall, _ in turn))
                cpus[count].append([cpu for _, cpu in turn])
    first = min(walls[options.processes[0]])
    for count in options.processes:
        ratio = first / min(walls[count])
        cpu = " + ".join(f"{min(each):.3f}" for each in zip(*cpus[count], strict=True))
        name = f"full pass, {options.n} images, {count} processes"
        yield _row(name, device, 1e3 * min(walls[count]), f"{ratio:.2f} times as fast", cpu)


def box_features(options: Namespace, device: str) -> Iterator[str]:
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


def worker(options: Namespace, device: str) -> None:
    """One of several processes: the first prints wall-clock and CPU seconds of all, for each repetition."""
    with processes.joined():
        problem = sharded(deep_problem(options, device))
        w, times = problem.start(), []
        for _ in range(options.repeats + 1):
            processes.wait()
            times.append(timed(lambda: problem.full_pass(w, _SMOOTHER), device))
        everyone = processes.gathered(times[1:])
        if processes.rank() == 0:
            print(json.dumps(list(zip(*everyone, strict=True))))


def _in_processes(arguments: Sequence[str], count: int, device: str) -> list[list[tuple[float, float]]]:
    """What the first of so many workers prints."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = str(listener.getsockname()[1])
    shared = {_WORKER: device, "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_PORT": port}
    environment = {**os.environ, **shared, "MASTER_ADDR": "localhost"}
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, "RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in map(str, range(count))
    ]
    outputs = [process.communicate()[0] for process in workers]
    if any(process.returncode for process in workers):
        raise RuntimeError("a process of the benchmark failed")
    times: list[list[tuple[float, float]]] = json.loads(outputs[0])
    return times


def _row(name: str, device: str, milliseconds: float, rate: str, cpu: str) -> str:
    return f"| {name:38} | {device:6} | {milliseconds:10.2f} | {rate:22} | {cpu:24} |"


def _options(arguments: Sequence[str]) -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=64, help="images (default: 64)")
    parser.add_argument("--boxes", type=int, default=300, help="boxes of an image (default: 300)")
    parser.add_argument("--channels", type=int, default=256, help="of 3x3 feature maps (default: 256)")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 16], help="of steps (default: 1 4 16)")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="of full passes (default: 1 2)")
    parser.add_argument("--repeats", type=int, default=7, help="calls in a turn (default: 7)")
    parser.add_argument("--turns", type=int, default=3, help="of each number of processes (default: 3)")
    parser.add_argument("--threads", type=int, default=1, help="of torch in each process (default: 1)")
    return Namespace(**vars(parser.parse_args(arguments)), arguments=arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = _options(arguments)
    torch.set_num_threads(options.threads)
    if device := os.environ.get(_WORKER):
        worker(options, device)
        return 0
    print(_row("what", "device", float("nan"), "rate", "CPU seconds").replace("       nan", "        ms"))
    print("| " + " | ".join("-" * width for width in (38, 6, 10, 22, 24)) + " |")
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        for part in (inner_steps, full_passes, box_features):
            for row in part(options, device):
                print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
