"""CPU time and memory of taggers in a service, one core each: one sentence at a time, and batches by length.

A tagger of the embedded data is trained by its words and exported; a network with a chain is exported to ONNX. Rows are
the exported program in Python and numpy, this library, and onnxruntime, where that is installed. Milliseconds are those
of single calls; sentences in a second are those of batches where the way has batches. Memory is how much the process
grows from the first tenth of ``--growth`` sentences to the last.

    python -m scripts serving --growth 1000000
"""

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scripts.shared.harness import command, in_turns, installed, option, timings, words_and_tags
from structsmooth import LinearChain, load
from structsmooth.cli import main as structsmooth
from structsmooth.export import Decoder, Exported
from structsmooth.tasks import NER

WIDTH, STATES, BATCH = 64, 9, 32


class Way(NamedTuple):
    """A way to answer: a name, one example after the other, and a batch of them if there are batches."""

    name: str
    one: Callable[[Any], Any]
    batch: Callable[[list[Any]], Any] | None
    examples: Sequence[Any]


def taggers(folder: Path, passes: int) -> Iterator[Way]:
    """A tagger by its words: the exported program, and this library."""
    model, program, path = str(folder / "model"), folder / "program", NER.default_files()["test"]
    structsmooth(["train", "ner", "--words-only", "--passes", str(passes), "--out", model, "--quiet"])
    structsmooth(["export", model, "--format", "numpy", "--output", str(program), "--quiet"])
    spec = spec_from_file_location("standalone_tagger", program / "tagger.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sentences, trained = words_and_tags(path)[0], load(model)
    yield Way("tagger, Python and numpy", module.Tagger(program).tag, None, sentences)
    yield Way("tagger, this library", lambda words: trained.predict([words]), trained.predict, sentences)


def networks(folder: Path, lengths: Sequence[int]) -> Iterator[Way]:
    """A layer with a chain on top, on random inputs: this library, and onnxruntime."""
    torch.manual_seed(0)
    layer, transition = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, STATES)), torch.randn(9, 9)
    decoder = Decoder(lambda x: LinearChain(layer(x), transition, validate_args=False))
    decoder.layer = layer
    inputs = [torch.randn(1, length, WIDTH) for length in lengths]

    @torch.inference_mode()
    def decode(x: Tensor) -> Tensor:
        y: Tensor = decoder(x)[1]
        return y

    def padded(xs: list[Tensor]) -> Tensor:
        return nn.utils.rnn.pad_sequence([x[0] for x in xs], batch_first=True)

    yield Way("network, this library", decode, lambda xs: decode(padded(xs)), inputs)
    runtime = installed("onnxruntime")
    if runtime is None or installed("onnxscript") is None:
        return
    path = folder / "network.onnx"
    Exported(decoder, (torch.randn(3, 5, WIDTH),), ({0: "batch", 1: "length"},)).save(path, "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    run: Callable[[Tensor], Any] = lambda x: session.run(None, {name: x.numpy()})  # noqa: E731
    yield Way("network, onnxruntime", run, lambda xs: run(padded(xs)), inputs)


def batches(examples: Sequence[Any]) -> list[list[Any]]:
    """Examples of about equal lengths together."""

    def length(example: Any) -> int:
        return int(example.shape[1]) if isinstance(example, Tensor) else len(example)

    ordered = sorted(examples, key=length)
    return [ordered[begin : begin + BATCH] for begin in range(0, len(ordered), BATCH)]


def resident() -> int:
    """Bytes of memory that the process holds; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text(encoding="ascii").split()[1]) * 4096 if status.exists() else 0


def growth(way: Way, count: int) -> float:
    """Megabytes that the process has grown by, from the first tenth of so many examples to the last."""
    held, done, groups = 0, 0, batches(way.examples)
    while done < count:
        for group in groups:
            if way.batch is not None:
                way.batch(group)
            else:
                for example in group:
                    way.one(example)
            done += len(group)
            if not held and done >= count // 10:
                held = resident()
    return (resident() - held) / 2**20


def row(way: Way, repeats: int, count: int) -> list[str]:
    """Latencies in milliseconds, sentences in a second, and growth in megabytes."""
    times = np.array([timings(partial(way.one, x), repeats, time.process_time) for x in way.examples]) * 1e3
    groups = batches(way.examples)
    if way.batch is None:
        rate = 1e3 / float(times.mean())
    else:
        calls = {number: partial(way.batch, group) for number, group in enumerate(groups)}
        rate = len(way.examples) / sum(map(min, in_turns(calls, repeats, time.process_time).values()))
    grown = f"{growth(way, count):.1f}" if count else ""
    return [way.name, *(f"{np.percentile(times, q):.2f}" for q in (50, 99)), f"{rate:,.0f}", grown]


@command(
    option("--repeats", 5, "calls for each sentence"),
    option("--passes", 3, "of training"),
    option("--growth", 0, "sentences over which to measure memory; 0 for none"),
    table=["way", "p50 ms", "p99 ms", "sentences/s", "MB grown"],
)
def main(options: Namespace) -> Iterator[list[str]]:
    """The rows of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lengths = [len(words) for words in words_and_tags(NER.default_files()["test"])[0]]
        for ways in (taggers(folder, options.passes), networks(folder, lengths)):
            for way in ways:
                yield row(way, options.repeats, options.growth)
