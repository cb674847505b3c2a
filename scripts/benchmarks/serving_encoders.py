"""A tagger with a pretrained encoder in a service, on one core: this library, its ONNX export, and the export in int8.

A tagger of words is trained, exported, and the network of the export quantized by onnxruntime (dynamically). Each way
tags the test file in a process of its own, in batches of sentences of about the same length. Seconds are CPU seconds of
tagging, memory is the peak of the process, and size that of all files which it needs.

    python -m scripts serving_encoders --encoder DIR --train eng.train --test eng.testb
"""

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripts.shared.harness import command, option, words_and_tags
from structsmooth.cli import main as structsmooth
from structsmooth.tasks import NER
from structsmooth.text.scores import entity_scores

BATCH = 32
# A program of its own, which imports nothing but what its way needs.
PROGRAM = """
import json, sys, time
folder, network = sys.argv[1:]
if network:
    sys.path.insert(0, folder)
    import onnxruntime
    from tagger import Tagger
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    answers = Tagger(folder, f"{folder}/{network}", sess_options=options).answers
    tag = lambda sentences: [answer.tags for answer in answers(sentences)]
else:
    import torch
    from structsmooth import load
    torch.set_num_threads(1)
    tag = load(folder).predict
batches = json.load(sys.stdin)
tag(batches[0])
started = time.process_time()
found = [tag(batch) for batch in batches]
seconds = time.process_time() - started
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
json.dump([found, seconds, peak / 1024], sys.stdout)
"""


def quantize(folder: Path) -> None:
    """Put products of integers into the network of an export."""
    quantization: Any = import_module("onnxruntime.quantization")
    quantization.quantize_dynamic(folder / "tagger.onnx", folder / "int8.onnx")


def megabytes(folder: Path, network: str) -> float:
    """Size of the files of a folder, of which other networks than this one are not needed."""
    files = (path for path in folder.rglob("*") if path.is_file() and (path.suffix != ".onnx" or path.name == network))
    return sum(path.stat().st_size for path in files) / 2**20


def measured(folder: Path, network: str, path: str) -> list[str]:
    """F1 in percent, sentences in a second, and megabytes of memory and files."""
    sentences, gold = words_and_tags(path)
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    batches = [order[begin : begin + BATCH] for begin in range(0, len(order), BATCH)]
    given = json.dumps([[sentences[i] for i in batch] for batch in batches])
    places = {"PYTHONPATH": os.pathsep.join(map(str, sys.path)), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), network],
        input=given,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | places,
    )
    found, seconds, peak = json.loads(process.stdout)
    outputs = [tags for batch in found for tags in batch]
    f1 = entity_scores([gold[i] for i in order], outputs).overall.f1
    return [f"{100 * f1:.2f}", f"{len(order) / seconds:.0f}", f"{peak:.0f}", f"{megabytes(folder, network):.0f}"]


@command(
    option("--encoder", None, "a model and tokenizer of transformers", required=True, metavar="DIR"),
    option("--train", NER.default_files()["train"], "columns", metavar="FILE"),
    option("--test", NER.default_files()["test"], "columns", metavar="FILE"),
    option("--passes", NER.passes, "of training", least=1),
    table=("way", "F1", "sentences/s", "memory, MB", "files, MB"),
)
def main(options: Namespace) -> Iterator[list[str]]:
    """The rows of the table."""
    with TemporaryDirectory() as name:
        model, out = str(Path(name) / "model"), Path(name) / "out"
        settings = ["--encoder", options.encoder, "--embed-encoder", "--words-only", "--passes", str(options.passes)]
        structsmooth(["train", "ner", "--train", options.train, *settings, "--out", model, "--quiet"])
        structsmooth(["export", model, "--format", "onnx", "--output", str(out), "--quiet"])
        quantize(out)
        for way, folder, network in (
            ("torch", model, ""),
            ("onnx", out, "tagger.onnx"),
            ("onnx, int8", out, "int8.onnx"),
        ):
            yield [way, *measured(Path(folder), network, options.test)]
