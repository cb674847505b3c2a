"""Fine-tuning of one encoder by this library, by the Trainer of transformers, and by flair: F1, CPU seconds, memory.

All begin with the same encoder, and make as many epochs, in batches of as many sentences, with the same largest step
size, on one thread. This library has a chain by its likelihood, as --tune all does, and no solved head behind it;
transformers has its model for token classification, a softmax at the first piece of each word, and a step size that
falls linearly; flair has a CRF over first pieces, and its own warm-up. Each runs in a process of its own, which imports
nothing of the others, and whose peak of memory is shown. Seconds are those of training alone. Training sentences that
are joined to texts of about as many pieces as the encoder reads (--pieces 510) show memory.

flair 0.15.1 needs transformers 4, so it has an environment of its own, whose interpreter is --flair:

    python -m scripts finetuning --encoder DIR --train eng.train --test eng.testb --flair /other/bin/python
"""

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from scripts.comparisons.encoders import tuned_network
from scripts.shared.harness import RequestError, bio, command, in_processes, memory, option
from structsmooth.encoders import PretrainedEncoder
from structsmooth.encoders.tuning import Tagged, Tuning
from structsmooth.tasks import NER
from structsmooth.text.corpus import Corpus, Sentence
from structsmooth.text.scores import entity_scores

Answer = tuple[list[list[str]], float, float]
"""Tags of test sentences, seconds, and megabytes."""

READ = """
import json, sys, tempfile, time
import torch
torch.set_num_threads(1)
given, how = json.load(sys.stdin)
"""
PEAK = """
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
"""
TRAINER = f"""{READ}
from itertools import pairwise
from transformers import AutoModelForTokenClassification, AutoTokenizer, DataCollatorForTokenClassification
from transformers import Trainer, TrainingArguments

names = sorted({{tag for _, tags in given["train"] for tag in tags}})
tokenizer = AutoTokenizer.from_pretrained(how["encoder"])
model = AutoModelForTokenClassification.from_pretrained(how["encoder"], num_labels=len(names))

def encoded(words, tags):
    read = tokenizer(words, is_split_into_words=True, truncation=True)
    first = [(before, at) for before, at in pairwise([None, *read.word_ids()])]
    labels = [names.index(tags[at]) if at is not None and at != before else -100 for before, at in first]
    return {{"input_ids": read["input_ids"], "attention_mask": read["attention_mask"], "labels": labels}}

data = [encoded(words, tags) for words, tags in given["train"]]
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder, num_train_epochs=how["epochs"], per_device_train_batch_size=how["batch"], learning_rate=how["step"],
        seed=how["seed"], use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no")
    trainer = Trainer(model, settings, DataCollatorForTokenClassification(tokenizer), data)
    started = time.process_time()
    trainer.train()
    seconds = time.process_time() - started
{PEAK}
model.eval()
found = []
for words, _ in given["test"]:
    read = tokenizer([words], is_split_into_words=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        best = model(**read).logits[0].argmax(1).tolist()
    first = {{at: best[i] for i, at in reversed([*enumerate(read.word_ids())])}}
    found.append([names[first[at]] if at in first else "O" for at in range(len(words))])
json.dump([found, seconds, peak], open(how["answers"], "w"))
"""
FLAIR = f"""{READ}
import logging
import flair
from flair.data import Corpus, Sentence
from flair.embeddings import TransformerWordEmbeddings
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer

logging.getLogger("flair").setLevel(logging.ERROR)
flair.set_seed(how["seed"])

def sentence(words, tags=()):
    made = Sentence(words)
    begin = 0
    for end in range(1, len(tags) + 1):
        if end == len(tags) or tags[end][0] != "I":
            if tags[begin] != "O":
                made[begin:end].add_label("ner", tags[begin][2:])
            begin = end
    return made

train = [sentence(words, tags) for words, tags in given["train"]]
corpus = Corpus(train=train, dev=train[:1], test=train[:1], sample_missing_splits=False)
embeddings = TransformerWordEmbeddings(how["encoder"], subtoken_pooling="first", fine_tune=True, layers="-1")
tagger = SequenceTagger(
    hidden_size=256, embeddings=embeddings, tag_type="ner", use_crf=True, use_rnn=False, reproject_embeddings=False,
    tag_dictionary=corpus.make_label_dictionary("ner"))
with tempfile.TemporaryDirectory() as folder:
    trainer = ModelTrainer(tagger, corpus)
    started = time.process_time()
    trainer.fine_tune(folder, learning_rate=how["step"], mini_batch_size=how["batch"], max_epochs=how["epochs"],
                      save_final_model=False)
    seconds = time.process_time() - started
{PEAK}
test = [sentence(words) for words, _ in given["test"]]
tagger.predict(test, mini_batch_size=32)
found = []
for own in test:
    tags = ["O"] * len(own)
    for span in own.get_spans("ner"):
        for token in span:
            tags[token.idx - 1] = ("B-" if token is span[0] else "I-") + span.tag
    found.append(tags)
json.dump([found, seconds, peak], open(how["answers"], "w"))
"""


def data_of(how: dict[str, Any]) -> tuple[list[Sentence], list[Sentence]]:
    """Training and test sentences, with tags in BIO; the first ones may be joined to texts."""
    task = NER(words_only=True)
    train, test = (
        [Sentence(one.words, [], bio(one)) for one in task.read(how[name], "test")] for name in ("train", "test")
    )
    train = train[: how["sentences"]]
    return (joined(train, how["encoder"], how["pieces"]) if how["pieces"] else train), test


def joined(sentences: Sequence[Sentence], encoder: str, pieces: int) -> list[Sentence]:
    """Neighbouring sentences as texts of at most so many pieces, or of a single sentence."""
    corpus = Corpus.of(sentences)
    first = PretrainedEncoder.open(encoder).pieces([token.word for token in corpus.distinct], corpus.tokens).first
    texts, room = list[list[Sentence]](), 0
    for one, size in zip(sentences, np.diff(first[corpus.offsets]).tolist(), strict=True):
        if size > room:
            texts.append([])
            room = pieces
        texts[-1].append(one)
        room -= size
    return [
        Sentence([word for one in text for word in one.words], [], [tag for one in text for tag in one.tags or ()])
        for text in texts
    ]


def ours(how: dict[str, Any]) -> Answer:
    """A chain over an encoder, as --tune all trains it."""
    torch.set_num_threads(1)
    train, test = map(Corpus.of, data_of(how))
    fitted: Any = NER(words_only=True).fit(train)
    encoder = PretrainedEncoder.own(how["encoder"])
    tagged = Tagged.of(encoder, train, fitted.states(train), 0)
    settings = Tuning(None, how["epochs"], how["batch"], how["step"], "fp32", how["seed"])
    network, seconds = tuned_network(encoder, fitted, tagged, settings)
    peak = memory()["VmHWM"]
    found = network.predicted(Tagged.of(encoder, test, torch.zeros(len(test.tokens)), 0))
    return found, seconds, peak


def by_program(program: str, how: dict[str, Any], python: str) -> Answer:
    """A peer, in a process that imports nothing of this library."""
    train, test = data_of(how)
    given = {name: [(one.words, one.tags) for one in part] for name, part in (("train", train), ("test", test))}
    with TemporaryDirectory() as folder:
        answers = Path(folder) / "answers.json"
        subprocess.run(
            [python, "-c", program],
            input=json.dumps([given, how | {"answers": str(answers)}]),
            stdout=subprocess.DEVNULL,
            text=True,
            check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        found: Answer = json.loads(answers.read_text())
    return found


@command(
    option("--encoder", None, "a model and tokenizer of transformers", required=True, metavar="DIR"),
    option("--train", NER.default_files()["train"], "columns", metavar="FILE"),
    option("--test", NER.default_files()["test"], "columns", metavar="FILE"),
    option("--sentences", 2000, "first sentences to train on", least=1),
    option("--pieces", 0, "join training sentences to texts of so many pieces", least=0),
    option("--ways", ["structsmooth", "transformers"], "who trains", choices=["structsmooth", "transformers", "flair"]),
    option("--flair", None, "the interpreter of an environment with flair", metavar="PYTHON"),
    option("--epochs", 2, "passes of fine-tuning", least=1),
    option("--batch", 16, "sentences of a step", least=1),
    option("--step", 2e-4, "largest step size of the encoder", least=0, above=True),
    option("--seeds", [0], "of orders and dropout, a row each", least=0),
    table=("way", "seed", "F1", "CPU s", "memory, MB"),
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each way and seed."""
    if "flair" in options.ways and options.flair is None:
        raise RequestError("flair has an environment of its own: give its interpreter by --flair")
    how = vars(options)
    gold = [one.tags or [] for one in data_of(how | {"pieces": 0})[1]]
    programs = {"transformers": (TRAINER, sys.executable), "flair": (FLAIR, options.flair)}
    for way, seed in product(options.ways, options.seeds):
        how |= {"seed": seed}
        if way in programs:
            program, python = programs[way]
            found, seconds, peak = by_program(program, how, python)
        else:
            found, seconds, peak = in_processes(ours, how, environment={"OMP_NUM_THREADS": "1"})
        f1 = 100 * entity_scores(gold, found).overall.f1
        yield [way, str(seed), f"{f1:.1f}", f"{seconds:.0f}", f"{peak:,.0f}"]
