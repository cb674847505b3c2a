"""Fine-tuning of an encoder under a chain: one run by every way, and runs that were cut off."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_encoders
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from two_processes import ended, free_port, started

import structsmooth
from structsmooth.cli import main
from structsmooth.encoders import tuning
from structsmooth.encoders.pretrained import PretrainedEncoder
from structsmooth.estimators import SequenceTagger
from structsmooth.experiments import RunFolder
from structsmooth.tasks import NER
from structsmooth.tasks.trained import train
from structsmooth.text.corpus import Corpus, Sentence

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::torch")
SENTENCES = [["Smith", "lent", "money"], ["the", "dogs", "see", "Ohio", "."], ["\x01", "Jones"]]
TAGS = [["B-PER", "O", "O"], ["O", "O", "O", "B-LOC", "O"], ["O", "B-PER"]]
EXAMPLES = [Sentence(words, [], tags) for words, tags in zip(SENTENCES, TAGS, strict=True)] * 4
OPTIONS = "--words-only --bits 8 --passes 3 --tune all --epochs 3 --batch 4 --encoder-step 0.01 --quiet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_encoders.write(tmp_path_factory.mktemp("encoder"), layers=2, pieces=12)


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder that drops nothing."""
    return small_encoders.write(tmp_path_factory.mktemp("steady"), layers=2, pieces=12, dropout=0.0)


def task(encoder: str, **settings: Any) -> NER:
    steps: dict[str, Any] = {"epochs": 3, "batch": 4, "encoder_step": 0.01}
    return NER(words_only=True, bits=8, encoder=encoder, **{"tune": "all", **steps, **settings})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same(folder: Path, other: Path) -> None:
    left, right = weights(folder), weights(other)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def columns(path: Path, more: str = "") -> str:
    rows = ("".join(f"{word} {tag}\n" for word, tag in zip(s.words, s.tags or (), strict=True)) for s in EXAMPLES)
    path.write_text("\n".join(rows) + more, encoding="utf-8")
    return str(path)


def command(tmp_path: Path, encoder: str, out: str) -> list[str]:
    files = ["--train", columns(tmp_path / "train.txt"), "--dev", columns(tmp_path / "dev.txt", "\nRhine B-RIVER\n")]
    return ["train", "ner", *files, "--encoder", encoder, *OPTIONS.split(), "--out", str(tmp_path / out)]


def killing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, *, after: bool) -> None:
    """Let a function end the run, as Ctrl-C does, before or after a call; later calls are as they were."""
    original: Callable[..., Any] = getattr(owner, name)
    made: list[int] = []

    def called(*arguments: Any) -> Any:
        made.append(1)
        if len(made) == call and not after:
            raise KeyboardInterrupt
        result = original(*arguments)
        if len(made) == call:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, called)


def test_a_tuned_model_goes_on_moves_and_says_what_its_head_gains(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path, folder, "whole")) == 0
    described = json.loads((tmp_path / "whole" / "model.json").read_text(encoding="utf-8"))["metrics"]
    before, after = described["dev, network as tuned"]["f1"], described["dev"]["f1"]
    said = f"dev f1: {before:.4f} by the network as epoch"
    shown = " ".join(capsys.readouterr().out.split())
    assert said in shown
    assert f"{after:.4f} ({after - before:+.4f}) by the head that was solved, whose objective is at most" in shown
    killing(monkeypatch, tuning, "_save", 2, after=True)
    assert main(command(tmp_path, folder, "killed")) == 130
    assert main([*command(tmp_path, folder, "killed"), "--resume"]) == 0
    assert_same(tmp_path / "whole" / "encoder", tmp_path / "killed" / "encoder")
    predicted = structsmooth.load(tmp_path / "whole").predict(SENTENCES)
    shutil.move(tmp_path / "whole", tmp_path / "moved")
    assert structsmooth.load(tmp_path / "moved").predict(SENTENCES) == predicted == TAGS
    assert SequenceTagger.load(tmp_path / "moved").predict(SENTENCES) == TAGS


@pytest.mark.parametrize("finished", [False, True])
def test_another_run_is_not_gone_on_with(
    folder: str, tmp_path: Path, finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not finished:
        killing(monkeypatch, tuning, "_save", 1, after=True)
        with pytest.raises(KeyboardInterrupt):
            task(folder).tuned(EXAMPLES, EXAMPLES, tmp_path)
    else:
        task(folder).tuned(EXAMPLES, EXAMPLES, tmp_path)
    other = small_encoders.write(tmp_path.with_name(f"{tmp_path.name}-other"), layers=2, pieces=12, seed=1)
    fewer, untagged = EXAMPLES[:-1], [*EXAMPLES[:-1], Sentence(["a", "b"], [], ["O", "O"])]
    retagged = [*EXAMPLES[:-1], Sentence(EXAMPLES[-1].words, [], ["B-PER", "O"])]
    refused = [
        (task(other), EXAMPLES, EXAMPLES, "digest of encoder"),
        (task(folder), fewer, EXAMPLES, "digest of training sentences"),
        (task(folder), untagged, EXAMPLES, "digest of training sentences"),
        (task(folder), retagged, EXAMPLES, "digest of training sentences"),
        (task(folder), EXAMPLES, retagged, "digest of development sentences"),
        (task(folder), EXAMPLES, None, "digest of development sentences"),
        (task(folder, epochs=4), EXAMPLES, EXAMPLES, "epochs = 3, not 4"),
        (task(folder, tune_loss="hinge"), EXAMPLES, EXAMPLES, "loss = 'crf', not 'hinge'"),
        (task(folder, scheme="BIOES"), EXAMPLES, EXAMPLES, "tags = "),
    ]
    for given, known, dev, told in refused:
        with pytest.raises(ValueError, match=f"is of a run with {told}.*start anew in another --out"):
            given.tuned(known, dev, tmp_path, resume=True)
    taken, history = task(folder).tuned(EXAMPLES, EXAMPLES, tmp_path, resume=True)
    assert len(history) == 3
    assert (taken.encoder, taken.tune, taken.embed_encoder) == (str(tmp_path), None, True)
    assert taken.encoder_scale == 0.05  # and as it was asked for otherwise
    assert (
        replace(task(folder), encoder_scale=0.1).tuned(EXAMPLES, EXAMPLES, tmp_path, resume=True)[0].encoder_scale
        == 0.1
    )
    broken = weights(tmp_path)
    save_file({name: value + 1 for name, value in broken.items()}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="the tuned encoder has changed since it was saved"):
        task(folder).tuned(EXAMPLES, EXAMPLES, tmp_path, resume=True)


def test_neighbours_that_are_read_are_a_part_of_the_run(folder: str) -> None:
    encoder = PretrainedEncoder.open(folder)
    corpora = [Corpus.of(EXAMPLES) for _ in range(2)]
    vars(corpora[1])["documents"] = torch.arange(len(EXAMPLES)).numpy() // 2
    states = torch.zeros(len(corpora[0].tokens))
    alone, near = ([tuning.Tagged.of(encoder, corpus, states, n).digest for corpus in corpora] for n in (0, 3))
    assert alone[0] == alone[1] == near[0] != near[1]


def test_a_run_that_is_made_anew_is_the_one_that_goes_on(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier run left in the folder is not taken for what was cut off."""
    task(folder, epochs=1).tuned(EXAMPLES, None, tmp_path)
    killing(monkeypatch, tuning, "_gradient", 2, after=True)
    with pytest.raises(KeyboardInterrupt):
        task(folder, epochs=2).tuned(EXAMPLES, None, tmp_path)
    _, history = task(folder, epochs=2).tuned(EXAMPLES, None, tmp_path, resume=True)
    assert len(history) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "call", "after"),
    [
        *((tuning, "_gradient", int(call), False) for call in torch.randint(1, 10, (3,)).unique()),
        *((RunFolder, "save_state", call, after) for call in (1, 2, 3) for after in (False, True)),
        (PretrainedEncoder, "save", 1, False),
        (PretrainedEncoder, "save", 1, True),
        (RunFolder, "finish", 1, False),
        (RunFolder, "finish", 1, True),
    ],
)
def test_a_run_that_is_cut_off_anywhere_ends_with_the_same_weights(
    owner: Any, name: str, call: int, after: bool, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task(folder).tuned(EXAMPLES, EXAMPLES, tmp_path / "whole")
    killing(monkeypatch, owner, name, call, after=after)
    with pytest.raises(KeyboardInterrupt):
        task(folder).tuned(EXAMPLES, EXAMPLES, tmp_path / "killed")
    task(folder).tuned(EXAMPLES, EXAMPLES, tmp_path / "killed", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "killed")


COMMAND = """
import sys, os
from structsmooth.cli import main
from structsmooth.encoders import tuning
gradient, steps = tuning._gradient, []
def counted(*arguments):
    steps.append(1)
    if str(len(steps)) == os.environ.get("DIES_AT") and os.environ["RANK"] == "1":
        os.kill(os.getpid(), 9)
    return gradient(*arguments)
tuning._gradient = counted
sys.exit(main(sys.argv[1:]))
"""


LAUNCHED = """
import os, sys
from pathlib import Path
from structsmooth.cli import main
Path(f"rank{os.environ['RANK']}").touch()
sys.exit(main(sys.argv[1:]))
"""


def launch(folder: Path, *arguments: str) -> None:
    """Two processes of the command, by accelerate."""
    (folder / "launched.py").write_text(LAUNCHED)
    how = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--main_process_port", free_port()]
    code = [sys.executable, "-m", "accelerate.commands.launch", *how, "launched.py", *arguments]
    subprocess.run(code, check=True, cwd=folder, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert {path.name for path in folder.glob("rank*")} == {"rank0", "rank1"}


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_two_processes_tune_as_one_does(launcher: str, steady: str, tmp_path: Path) -> None:
    """Biases of keys are left out: softmax does not see them, and Adam makes steps of the noise of their gradients."""
    assert main(command(tmp_path, steady, "one")) == 0
    if launcher == "accelerate":
        launch(tmp_path, *command(tmp_path, steady, "two"))
    else:
        ends = ended(started(COMMAND, *command(tmp_path, steady, "two")))
        assert [status for status, *_ in ends] == [0, 0], ends
    one, two = (weights(tmp_path / name / "encoder") for name in ("one", "two"))
    seen = [name for name in one if not name.endswith("key.bias")]
    for name in seen:
        assert_close(two[name], one[name], rtol=1e-5, atol=1e-5)
    models = [structsmooth.load(tmp_path / name) for name in ("one", "two")]
    scores, others = (model.alternatives(SENTENCES, 1)[0][0][0] for model in models)
    assert others == pytest.approx(scores, abs=1e-4)


@pytest.mark.long
def test_two_processes_of_which_one_dies_go_on(folder: str, tmp_path: Path) -> None:
    ends = ended(started(COMMAND, *command(tmp_path, folder, "whole")))
    assert [status for status, *_ in ends] == [0, 0], ends
    ended(started(COMMAND, *command(tmp_path, folder, "killed"), DIES_AT="5"))
    ends = ended(started(COMMAND, *command(tmp_path, folder, "killed"), "--resume"))
    assert [status for status, *_ in ends] == [0, 0], ends
    assert_same(tmp_path / "whole" / "encoder", tmp_path / "killed" / "encoder")


def test_tuning_ends_when_no_epoch_is_better(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = task(folder, epochs=6, tune_patience=2, encoder_step=1e-9)  # no step changes a tag
    _, history = given.tuned(EXAMPLES, EXAMPLES, tmp_path / "whole")
    assert len(history) == 3
    killing(monkeypatch, tuning, "_save", 2, after=True)
    with pytest.raises(KeyboardInterrupt):
        given.tuned(EXAMPLES, EXAMPLES, tmp_path / "killed")
    _, history = given.tuned(EXAMPLES, EXAMPLES, tmp_path / "killed", resume=True)
    assert len(history) == 3
    assert_same(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize("way", ["again", "parts"])
def test_less_memory_has_the_same_gradients(
    way: str, folder: str, steady: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that are computed again drop the same; parts of batches do not. Biases of keys are noise (see above)."""
    given = task(folder if way == "again" else steady, epochs=1)
    given.tuned(EXAMPLES, None, tmp_path / "usual")
    monkeypatch.setattr(tuning, "_PART", 8 if way == "parts" else 1024)
    replace(given, recompute=way == "again").tuned(EXAMPLES, None, tmp_path / "less")
    left, right = weights(tmp_path / "usual"), weights(tmp_path / "less")
    for name in left:
        if not name.endswith("key.bias"):
            assert_close(right[name], left[name], rtol=1e-5, atol=1e-5)


def test_adapters_are_merged_into_the_products_of_layers(
    steady: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = task(steady, tune="lora:2")
    given.tuned(EXAMPLES, EXAMPLES, tmp_path / "whole")
    killing(monkeypatch, tuning, "_save", 2, after=True)
    with pytest.raises(KeyboardInterrupt):
        given.tuned(EXAMPLES, EXAMPLES, tmp_path / "killed")
    given.tuned(EXAMPLES, EXAMPLES, tmp_path / "killed", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "killed")
    before, after = weights(Path(steady)), weights(tmp_path / "whole")
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {n for n in before if ".layer." in n and n.endswith("weight") and "LayerNorm" not in n}
    assert all(torch.linalg.matrix_rank((after[n] - before[n]).double(), rtol=1e-5) == 2 for n in moved)


@pytest.mark.parametrize(
    "loss", ["hinge", *(pytest.param(name, marks=pytest.mark.long) for name in ("softmax-margin", "top-k"))]
)
def test_encoders_learn_by_each_loss(loss: str, steady: str, tmp_path: Path) -> None:
    tuned, history = task(steady, tune_loss=loss, epochs=8, train_constrained=loss == "hinge").tuned(
        EXAMPLES, EXAMPLES, tmp_path
    )
    assert history[-1].objective < 0.5 * history[0].objective
    assert max(row.metrics["f1"] for row in history) == 1.0
    assert train(tuned, EXAMPLES, passes=3).predict(SENTENCES) == TAGS


def test_what_tuning_cannot_do_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the encoder has 2 layers"):
        task(folder, tune="last:3").tuned(EXAMPLES, None, tmp_path)
    with pytest.raises(ValueError, match="tags that are all known"):
        task(folder, unknown="O").tuned(EXAMPLES, None, tmp_path)
    with pytest.raises(ValueError, match="tune_patience is about scores on development data"):
        task(folder, tune_patience=1).tuned(EXAMPLES, None, tmp_path)
    with pytest.raises(ValueError, match="are about tuning: give tune"):
        task(folder, tune=None, tune_patience=1)
    with pytest.raises(ValueError, match="structsmooth train tunes an encoder"):
        train(task(folder), EXAMPLES)
