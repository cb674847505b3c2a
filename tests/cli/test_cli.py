"""The commands on a tiny corpus: in this process, but for those that are killed or interrupted."""

import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from socket import gethostname

import pytest
import torch
import two_processes

import structsmooth
from structsmooth import processes
from structsmooth.checkpoint import load_state
from structsmooth.cli import main
from structsmooth.cli.data import HeldOut
from structsmooth.history import History
from structsmooth.solvers import BCFW, SGD, SOLVERS, SVRG, CasimirSVRG, ProximalBCFW, ProxLinear
from structsmooth.text.conll import read_conll
from structsmooth.text.encoders import HashingEncoder

COMPILING = "structsmooth: compiling inner loops"
NAMES = ["John Smith/PER", "Ada/PER", "Acme Corp/ORG", "New York City/LOC", "Paris/LOC", "Initech/ORG"]

# Of factor graphs, and of smooth losses.
OF_OTHER_PROBLEMS = ("soft-bcfw", "dlpw", "lbfgs")
OF_MORE_PASSES = ("prox-linear", "excessive-gap", "extragradient", "batch-exponentiated-gradient")


def corpus(verb: str) -> str:
    """36 sentences of two columns."""
    lines = []
    for first in NAMES:
        for second in NAMES:
            for name in (first, second):
                words, kind = name.split("/")
                lines += [f"{word} {'BI'[i > 0]}-{kind}" for i, word in enumerate(words.split())]
                lines.append(f"{verb} O" if name is first else ". O")
            lines.append("")
    return "\n".join(lines)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, blank_pictures) -> Path:
    """A working directory with data files, and none of the options of other tests."""
    (tmp_path / "train.txt").write_text(corpus("visited"))
    (tmp_path / "test.txt").write_text(corpus("met"))
    (tmp_path / "words.txt").write_text("Ada\nmet\nJohn\nSmith\n.\n\nParis\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def training(*options: object, out: str = "model", passes: int = 3) -> list[str]:
    data = ["--train", "train.txt", "--bits", "10"]
    return ["train", "ner", *data, "--out", out, "--passes", str(passes), *map(str, options)]


def train(*options: object, out: str = "model", passes: int = 3) -> None:
    assert main(training(*options, out=out, passes=passes)) == 0


def weights(model: str = "model") -> torch.Tensor:
    return load_state(Path(model) / "model.safetensors")[0]["weights"]


def history(model: str = "model") -> History:
    return History.load(Path(model) / "history.jsonl")


def described(model: str = "model") -> dict:
    return json.loads((Path(model) / "model.json").read_text())


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The only line that a refused command writes."""
    capsys.readouterr()
    assert main(arguments) == 2
    captured = capsys.readouterr()
    (line,) = (line for line in captured.err.splitlines() if not is_stage(line))
    assert captured.out == ""
    assert line.startswith("structsmooth: error: ")
    return line


def is_stage(line: str) -> bool:
    """Whether a line says what a command is doing, or has read."""
    told = (": read as ", " words, scheme ", " words, plain tags")
    return line.startswith(COMPILING) or line.endswith(" ...") or any(words in line for words in told)


def assert_same_run(one: str, other: str) -> None:
    """Bitwise the same weights and the same rows, but for the time they took."""
    assert torch.equal(weights(one), weights(other))
    rows = [[row.as_dict() | {"seconds": 0} for row in history(model)] for model in (one, other)]
    assert rows[0] == rows[1]


# Training.


def test_train_writes_a_model_directory(capsys):
    train("--dev", "test.txt", "--test", "test.txt")
    names = {path.name for path in Path("model").iterdir()}
    assert names == {"model.safetensors", "model.json", "history.jsonl", "curves.png", "checkpoint.safetensors"}
    rows, description = history(), described()
    assert [row.passes for row in rows] == [0, 1, 2, 3]
    assert rows[-1].objective < rows[0].objective
    assert rows[-1].gap == pytest.approx(rows[-1].objective - rows[-1].dual)
    assert 0 <= rows[-1].metrics["f1"] <= 1
    assert (description["task"], description["n"], description["status"]) == ("ner", 36, "pass limit")
    assert description["lam"] == 10 / 36
    assert description["settings"]["train"] == "train.txt"
    assert set(description["metrics"]) == {"dev", "test"}
    output = capsys.readouterr().out
    assert all(text in output for text in ("objective", "dev: test.txt", "test: test.txt", "saved in model"))


def test_a_terminal_shows_what_takes_long(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    train("--test", "test.txt", passes=1)
    written = capsys.readouterr().err
    assert all(text in written for text in ("reading train.txt", "attributes", "predicting", "training"))


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name not in OF_OTHER_PROBLEMS])
def test_every_solver_trains(solver):
    train("--solver", solver, passes=15 if solver in OF_MORE_PASSES else 4)
    objectives = history().column("objective")
    assert objectives[-1] < 0.5 * objectives[0]
    assert described()["settings"]["solver"] == solver
    assert main(["predict", "model", "words.txt", "--output", "out.txt"]) == 0


def test_a_solver_inside_a_solver_is_saved_and_resumed():
    train("--solver", "prox-linear", "--inner", "bcfw", passes=2)
    assert described()["settings"]["inner"] == "bcfw"
    train("--solver", "prox-linear", "--inner", "bcfw", "--resume", passes=4)
    assert history()[-1].passes == 4


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], ProximalBCFW()),
        (
            "--solver casimir-svrg --mu 0.5 --k 3 --schedule constant --kappa 0.25 --warm-start extrapolation "
            "--inner-stop gradient --max-inner 2 --learning-rate 0.125 --gap-tolerance 0",
            CasimirSVRG(
                learning_rate=0.125,
                gap_tolerance=0.0,
                mu=0.5,
                k=3,
                schedule="constant",
                kappa=0.25,
                warm_start="extrapolation",
                inner_stop="gradient",
                max_inner=2,
            ),
        ),
        (
            "--solver casimir-svrg --lipschitz 40 --smoothing entropy --batch-size 2",
            CasimirSVRG(lipschitz=40.0, smoothing="entropy", batch_size=2),
        ),
        ("--solver bcfw --sampling uniform --refresh 5 --average", BCFW(sampling="uniform", refresh=5, average=True)),
        ("--solver proximal-bcfw --kappa 0.5 --cache", ProximalBCFW(kappa=0.5, cache=True)),
        ("--solver svrg --mu 0.5 --smoothing entropy", SVRG(mu=0.5, smoothing="entropy")),
        (
            "--solver prox-linear --inner svrg:mu=0.5,k=3 --inner-passes 2 --accept always --learning-rate 0.5",
            ProxLinear(inner=SVRG(mu=0.5, k=3), inner_passes=2, accept="always", learning_rate=0.5),
        ),
        ("--solver sgd --schedule inverse --t0 2 --no-average", SGD(schedule="inverse", t0=2.0, average=False)),
    ],
)
def test_hyperparameters_reach_the_solver(flags, expected, monkeypatch):
    seen = []
    solve = type(expected).solve

    def spy(self, *arguments, **options):
        seen.append((self, options["lam"], options["passes"], options["seed"]))
        return solve(self, *arguments, **options)

    monkeypatch.setattr(type(expected), "solve", spy)
    train(*(flags.split() if flags else []), "--lam", "2/n", "--seed", 7, passes=1)
    assert seen == [(expected, 2 / 36, 1, 7)]


def test_lam_is_a_number_or_a_fraction_of_n():
    for text, value in {"0.5": 0.5, "9/n": 9 / 36, "1e-3": 1e-3}.items():
        train("--lam", text, "--overwrite", passes=1)
        assert described()["lam"] == value


def test_same_seed_same_run():
    train("--seed", 3, out="a")
    train("--seed", 3, out="b")
    train("--seed", 4, out="c")
    assert_same_run("a", "b")
    assert not torch.equal(weights("a"), weights("c"))


def test_options_of_the_task_reach_it():
    train("--scheme", "BIOES", "--no-rich")
    trained = described()["trained"]
    assert (trained["scheme"], trained["rich"], trained["bits"]) == ("BIOES", False, 10)


def test_own_task_from_the_working_directory(folder, capsys):
    module = "from structsmooth.tasks import NER\n\n\nclass Chunks(NER):\n    lam, passes = '2/n', 2\n"
    (folder / "my_task.py").write_text(module)
    assert main(["train", "my_task:Chunks", "--train", "train.txt", "--bits", "10"]) == 0
    assert [row.passes for row in history("runs/chunks")] == [0, 1, 2]
    assert described("runs/chunks")["lam"] == 2 / 36
    assert "which is not of this package" in refused(["evaluate", "runs/chunks", "test.txt"], capsys)
    assert main(["evaluate", "runs/chunks", "test.txt", "--task", "my_task:Chunks"]) == 0


def test_own_tasks_must_say_how_their_models_load(folder, capsys):
    module = "from structsmooth.tasks import NER, OCR\n\n\nclass Words(NER):\n    fitted_type = OCR.fitted_type\n"
    (folder / "my_words.py").write_text(module)
    line = refused(["train", "my_words:Words", "--train", "train.txt"], capsys)
    assert "Words needs fitted_type = FittedTagging" in line


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed")
def test_memory_that_is_freed_goes_back_to_the_system():
    code = f"""
import torch
from pathlib import Path
from structsmooth.cli import main

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

main({training(passes=0)})
before = resident()
for _ in range(2):  # a free teaches glibc to take tensors of that size from its heap
    kept = [(torch.zeros(3 << 20, dtype=torch.float64), torch.zeros(1000)) for _ in range(10)]
    held = resident()
    kept = [small for _, small in kept]
assert resident() - before < 0.1 * (held - before), (before, held, resident())
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_embedded_data_are_the_default():
    assert main(["train", "ner", "--bits", "8", "--no-rich", "--passes", "0", "--kappa", "1e-3"]) == 0
    assert described("runs/ner")["n"] == 1164


# Resuming.


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name not in OF_OTHER_PROBLEMS])
def test_resumed_run_equals_an_unbroken_one(solver):
    few, all_passes = {"prox-linear": (5, 10), "convex-concave": (3, 6)}.get(solver, (2, 5))  # whole iterations
    train("--solver", solver, "--dev", "test.txt", out="unbroken", passes=all_passes)
    train("--solver", solver, "--dev", "test.txt", out="resumed", passes=few)
    train("--solver", solver, "--dev", "test.txt", "--resume", out="resumed", passes=all_passes)
    assert_same_run("unbroken", "resumed")


def test_resume_starts_where_there_is_no_checkpoint():
    train(out="a")
    train("--resume", out="b")
    assert_same_run("a", "b")


def test_resume_of_a_complete_run_changes_nothing():
    train()
    before = weights()
    train("--resume")
    assert torch.equal(weights(), before)
    assert len(history()) == 4


@pytest.mark.parametrize(
    ("option", "name"),
    [
        (["--capacity", "4"], "capacity"),
        (["--lam", "1/n"], "lam"),
        (["--seed", "1"], "seed"),
        (["--dev", "test.txt"], "dev"),
        (["--scheme", "BIOES"], "scheme"),
        (["--no-rich"], "rich"),
    ],
)
def test_resume_with_other_options_is_refused(option, name, capsys):
    train(passes=1)
    before = weights()
    line = refused(training("--resume", *option), capsys)
    assert f"is of a run with {name} = " in line
    assert torch.equal(weights(), before)


def test_resume_of_a_damaged_checkpoint_is_refused(capsys):
    train(passes=1)
    path = Path("model/checkpoint.safetensors")
    path.write_bytes(path.read_bytes()[:100])
    assert "checkpoint.safetensors: not a structsmooth file, or damaged" in refused(training("--resume"), capsys)


@pytest.mark.parametrize("file", ["model.json", "checkpoint.safetensors"])
def test_another_run_is_replaced_only_if_asked(file, capsys):
    train(passes=1)
    for path in Path("model").iterdir():
        if path.name not in {file, "model.safetensors"}:
            path.unlink()
    before = Path("model", file).read_bytes()
    assert "--resume continues it, --overwrite replaces it" in refused(training("--seed", "1"), capsys)
    assert Path("model", file).read_bytes() == before
    train("--seed", 1, "--overwrite")
    train("--seed", 1, out="new")
    assert_same_run("model", "new")


def test_a_model_without_a_checkpoint_is_not_resumed(capsys):
    train(passes=1)
    before = weights()
    Path("model/checkpoint.safetensors").unlink()
    assert "model has a model but no checkpoint to resume" in refused(training("--resume"), capsys)
    assert torch.equal(weights(), before)


@pytest.mark.parametrize("option", [[], ["--resume"], ["--overwrite"]])
@pytest.mark.parametrize("file", ["notes.txt", "model.json", "model.safetensors"])
def test_a_directory_of_others_is_left_alone(file, option, folder, capsys):
    (folder / "model").mkdir()
    (folder / "model" / file).write_text("{}")
    assert "model has files that structsmooth train did not write" in refused(training(*option), capsys)
    assert [(path.name, path.read_text()) for path in (folder / "model").iterdir()] == [(file, "{}")]


def test_a_device_that_a_task_cannot_use_is_refused_before_the_data_are_read(monkeypatch, capsys):
    monkeypatch.setattr("structsmooth.cli.train.usable_device", str)
    assert main(["train", "ner", "--train", "nowhere.txt", "--device", "cuda"]) == 2
    assert "--device: ner has no module, and trains on the CPU alone; got cuda" in capsys.readouterr().err


def test_an_empty_directory_is_taken(folder):
    (folder / "model").mkdir()
    train(passes=1)
    assert len(history()) == 2


# Signals.


def started(rows: int, *options: str) -> subprocess.Popen[str]:
    """A training process with so many passes that it does not end, after it has recorded some."""
    # Ctrl-C works in what runs in the background of a shell too.
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from structsmooth.cli import main; sys.exit(main())"
    arguments = training(*options, passes=10**6)
    # With another number of threads torch sums in another order: last digits would differ from runs in this process.
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=-1, stderr=-1, text=True, env=one_thread
    )
    path, limit = Path("model/history.jsonl"), time.monotonic() + 300
    while process.poll() is None and time.monotonic() < limit:
        if path.exists() and len(path.read_text().splitlines()) >= rows:
            return process
        time.sleep(0.01)
    process.kill()
    pytest.fail(f"training wrote no history: {process.communicate()}")


# No gap is below this tolerance: the runs go on until they are stopped.
ENDLESS = ("--gap-tolerance", "0")


def test_killed_run_resumes_as_if_unbroken():
    process = started(4, *ENDLESS)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not Path("model/model.json").exists()
    passes = len(history()) + 3
    train("--resume", *ENDLESS, passes=passes)
    train(*ENDLESS, out="unbroken", passes=passes)
    assert_same_run("unbroken", "model")


def test_interrupted_run_leaves_a_model():
    process = started(3, *ENDLESS)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=3600)
    assert process.returncode == 130
    assert [line for line in errors.splitlines() if not is_stage(line)] == []
    assert "interrupted" in output
    assert described()["status"] == "interrupted"
    assert main(["evaluate", "model", "test.txt"]) == 0
    passes = history()[-1].passes
    train(*ENDLESS, out="unbroken", passes=passes)
    assert torch.equal(weights(), weights("unbroken"))


def test_the_package_is_the_command():
    run = subprocess.run(
        [sys.executable, "-m", "structsmooth", "--version"], capture_output=True, text=True, timeout=3600, check=True
    )
    assert run.stdout.strip() == structsmooth.__version__


# Several processes, as torchrun starts them.


def test_two_processes_make_the_run_of_one(folder):
    script = Path(__file__).parents[2] / "scripts" / "train.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    options = ["--test", "test.txt", "--solver", "casimir-svrg"]
    run = subprocess.run(
        [*launch, *training(*options, out="two")[1:]],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("saved in two") == run.stdout.count("test: test.txt") == 1
    train(*options, out="one")
    assert {path.name for path in Path("two").iterdir()} == {path.name for path in Path("one").iterdir()}
    torch.testing.assert_close(weights("two"), weights("one"), rtol=1e-6, atol=1e-6)
    for two, one in zip(history("two"), history("one"), strict=True):
        # There is no step size.
        for row in (rows := [two.as_dict(), one.as_dict()]):
            row.update(seconds=0, step_size=row["step_size"] or 0)
        assert rows[0] == pytest.approx(rows[1], rel=1e-6)
    assert described("two")["metrics"]["test"] == pytest.approx(described("one")["metrics"]["test"])
    passes = 5
    train(*options, "--resume", out="two", passes=passes)
    train(*options, "--overwrite", out="one", passes=passes)
    torch.testing.assert_close(weights("two"), weights("one"), rtol=1e-6, atol=1e-6)


def test_death_of_a_process_ends_the_run_which_can_be_resumed():
    code = "import sys; from structsmooth.cli import main; sys.exit(main())"
    processes = two_processes.started(code, *training(*ENDLESS, passes=10**6))
    path, limit = Path("model/history.jsonl"), time.monotonic() + 300
    while not path.exists() and time.monotonic() < limit and all(process.poll() is None for process in processes):
        time.sleep(0.01)
    processes[1].send_signal(signal.SIGKILL)
    (status, output, errors), (killed, _, _) = two_processes.ended(processes)
    assert (status, killed, output) == (2, -signal.SIGKILL, "")
    (error,) = (line for line in errors.splitlines() if line.startswith("structsmooth: error: "))
    assert "process 0 cannot reach the others, one may have ended" in error
    assert "Traceback" not in errors
    passes = len(history()) + 2
    train("--resume", *ENDLESS, passes=passes)
    train(*ENDLESS, out="unbroken", passes=passes)
    torch.testing.assert_close(weights(), weights("unbroken"), rtol=1e-6, atol=1e-6)


@pytest.mark.long
def test_killed_cocoa_goes_on_from_the_parts_of_its_processes():
    code = "import sys; from structsmooth.cli import main; sys.exit(main())"
    cocoa = ("--solver", "cocoa", "--gap-tolerance", 0)
    run = two_processes.started(code, *training(*cocoa, passes=10**6))
    path, limit = Path("model/checkpoint.safetensors"), time.monotonic() + 300
    while not path.exists() and time.monotonic() < limit and all(process.poll() is None for process in run):
        time.sleep(0.01)
    run[0].send_signal(signal.SIGKILL)
    statuses = [status for status, _, _ in two_processes.ended(run)]
    assert statuses == [-signal.SIGKILL, 2]
    passes = len(history()) + 2
    for options in (training("--resume", *cocoa, passes=passes), training(*cocoa, out="unbroken", passes=passes)):
        assert [status for status, _, _ in two_processes.ended(two_processes.started(code, *options))] == [0, 0]
    assert_same_run("model", "unbroken")
    files = (path, Path(f"model/checkpoint.parts/1-{passes % 2}.safetensors"))
    first, second = (load_state(path)[0] for path in files)
    assert torch.equal(first["weights"], second["weights"])
    assert len(first["point.gaps"]) + len(second["point.gaps"]) == 36
    train("--resume", *cocoa, passes=passes + 20)  # one process goes on, from the parts of two
    ends = [history(model).column("objective") for model in ("model", "unbroken")]
    assert ends[0][: len(ends[1])] == ends[1]
    assert ends[0][-1] < ends[1][-1]
    assert load_state(path)[0]["point.gaps"].shape == (36,)


@pytest.mark.long
@pytest.mark.parametrize("solver", ["cocoa", "casimir-svrg"])
def test_machines_without_a_shared_disk_go_on_in_any_order(folder, solver):
    """Processes with working directories of their own, as machines have disks of their own."""
    code = (
        "import os, sys; os.chdir(sys.argv.pop(1).split(':')[int(os.environ['RANK'])]); "
        "from structsmooth.cli import main; sys.exit(main())"
    )
    for disk in ("a", "b", "c"):
        shutil.copytree(folder, folder / disk, ignore=lambda *_: ["a", "b", "c"])

    def run(disks: str, *options: object, passes: int) -> list[tuple[int, str, str]]:
        options = training("--solver", solver, *options, passes=passes)
        return two_processes.ended(two_processes.started(code, disks, *options))

    (status, output, _), (other, silence, _) = run("a:b", passes=2)
    assert (status, other, silence) == (0, 0, "")
    assert "model is on disks of their own: the model will be on" in output
    assert not Path("b/model/model.json").exists()
    # The disks of two machines are enough, whatever the numbers of their processes are now.
    assert [status for status, _, _ in run("b:a", "--resume", passes=4)] == [0, 0]
    assert [status for status, _, _ in run(".:.", passes=4)] == [0, 0]
    assert_same_run("model", "b/model")
    if solver == "cocoa":
        for status, _, errors in run("b:c", "--resume", passes=6):
            assert status == 2
            lost = f"of the checkpoint after pass 4 no process has part 1 of 2, which host {gethostname()} saved"
            assert lost in errors
            assert "reading" not in errors
    else:  # each process has the whole state
        assert [status for status, _, _ in run("c:b", "--resume", passes=6)] == [0, 0]
        assert len(history("c/model")) == 7


@pytest.mark.long
def test_error_in_the_examples_of_one_process_ends_all(folder):
    code = "import sys; from structsmooth.cli import main; sys.exit(main())"
    with (folder / "train.txt").open("a") as file:
        file.write("\none too many O\n")
    place = (folder / "train.txt").read_text().count("\n")
    for status, output, errors in two_processes.ended(two_processes.started(code, *training("--solver", "cocoa"))):
        assert (status, output) == (2, "")
        (error,) = (line for line in errors.splitlines() if not is_stage(line))
        assert error == f"structsmooth: error: train.txt:{place}: expected 2 columns, got 4"


def test_processes_without_examples_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(processes, "count", lambda: 37)
    monkeypatch.setattr(processes, "rank", lambda: 0)
    monkeypatch.setattr(processes, "gathered", lambda own: [own])
    assert "37 processes need an example each, got 36" in refused(training("--solver", "cocoa"), capsys)


def test_only_training_takes_several_processes(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "evaluate runs in one process" in refused(["evaluate", "model", "test.txt"], capsys)


# Trained models.


def test_held_out_data_are_encoded_once(monkeypatch):
    encode, calls = HashingEncoder.encode, []

    def counted(*arguments):
        calls.append(len(arguments[1]))
        return encode(*arguments)

    monkeypatch.setattr(HashingEncoder, "encode", counted)
    train("--test", "test.txt", passes=4)
    assert len(calls) == 2


def test_a_process_predicts_the_same_list_every_time(monkeypatch):
    lists = []

    class Task:
        def predict(self, weights, examples):
            lists.append(examples)
            return [[(0.0, example.upper())] for example in examples]

        def measure(self, examples, outputs):
            return {"right": sum(map(str.__eq__, map(str.upper, examples), outputs))}, ""

    monkeypatch.setattr(processes, "share", lambda n: range(1, n))
    monkeypatch.setattr(processes, "concatenated", lambda own: ["A", *own])
    held_out, weights = HeldOut("abc"), torch.zeros(1)
    assert held_out.measure(Task(), weights) == held_out.measure(Task(), weights) == ({"right": 3}, "")
    assert lists[0] is lists[1]
    assert lists[0] == ["b", "c"]


def test_evaluate_gives_the_table_of_training(capsys):
    train("--test", "test.txt")
    table = capsys.readouterr().out.partition("test: test.txt\n")[2].partition("\n\nsaved")[0]
    assert main(["evaluate", "model", "test.txt"]) == 0
    assert capsys.readouterr().out.strip() == table.strip()


def test_predict_file_stream_and_output(capsys, monkeypatch):
    train(passes=8)
    capsys.readouterr()
    assert main(["predict", "model", "words.txt"]) == 0
    written = capsys.readouterr().out
    first, second = read_conll(io.StringIO(written))
    assert first.words == ["Ada", "met", "John", "Smith", "."]
    assert first.tags == ["B-PER", "O", "B-PER", "I-PER", "O"]
    assert second.words == ["Paris"]
    for arguments in (["predict", "model"], ["predict", "model", "-"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO(Path("words.txt").read_text()))
        assert main(arguments) == 0
        assert capsys.readouterr().out == written
    assert main(["predict", "model", "words.txt", "--output", "tagged.txt"]) == 0
    assert capsys.readouterr().out == ""
    assert Path("tagged.txt").read_text() == written


def test_predict_of_tagged_data_keeps_the_tags(capsys):
    train()
    assert main(["predict", "model", "test.txt", "--output", "both.txt"]) == 0
    gold = read_conll("test.txt")
    assert [s.columns[-1] for s in read_conll("both.txt")] == [s.tags for s in gold]


def test_predict_json(capsys):
    train()
    capsys.readouterr()
    assert main(["predict", "model", "words.txt", "--top", "2", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["tokens"] == ["Ada", "met", "John", "Smith", "."]
    assert second["tokens"] == ["Paris"]
    model = structsmooth.tasks.trained.load("model")
    expected = model.alternatives("words.txt", 2)
    found = [[(output["score"], output["tags"]) for output in line["outputs"]] for line in (first, second)]
    assert found == expected


def test_predict_top(capsys):
    train()
    assert main(["predict", "model", "words.txt", "--output", "best.txt"]) == 0
    capsys.readouterr()
    assert main(["predict", "model", "words.txt", "--top", "3"]) == 0
    blocks = capsys.readouterr().out.strip().split("\n\n")
    assert len(blocks) == 2
    for block, best in zip(blocks, read_conll("best.txt"), strict=True):
        comment, *rows = block.splitlines()
        scores = [float(score) for score in comment.removeprefix("# scores ").split()]
        columns = list(zip(*(row.split()[1:] for row in rows), strict=True))
        assert scores == sorted(scores, reverse=True)
        assert len(scores) == len(columns) == len(set(columns)) == 3
        assert list(columns[0]) == best.tags


def test_info(capsys):
    train("--test", "test.txt", "--solver", "casimir-svrg", "--mu", "0.75")
    capsys.readouterr()
    assert main(["info", "model"]) == 0
    output = capsys.readouterr().out
    for name, value in {"task": "ner", "n": "36", "mu": "0.75", "train": "train.txt", "solver": "casimir-svrg"}.items():
        assert any(line.split()[:2] == [name, value] for line in output.splitlines())
    assert "f1 " in output


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nosuch"], "unknown task 'nosuch': expected one of ner"),
        (["train", "chunkin"], "unknown task 'chunkin' (did you mean chunking?): expected one of ner"),
        (["train", "json:loads"], "task 'json:loads' must be a subclass"),
        (["train", "ner", "--train", "nosuch.txt"], "nosuch.txt"),
        (["train", "ner", "--train", "."], ".: expected a file, got a folder"),
        (["train", "ner", "--dev", "test.txt"], "--train is needed with --dev or --test"),
        (["train", "ner", "--train", "row.txt"], "row.txt:2: expected 2 columns, got 3"),
        (["train", "ner", "--train", "tag.txt"], "tag.txt:2: "),
        (["train", "ner", "--train", "empty.txt"], "empty.txt: no sentences"),
        (["train", "ner", "--train", "bytes.txt"], "bytes.txt:1: byte 0xff is not utf-8"),
        (training("--lam", "little"), "--lam must be a number or c/n with c >= 0, such as"),
        (training("--lam", "-1"), "got '-1'"),
        (training("--lam", "nan"), "--lam must be"),
        (training("--lam", "1/m"), "--lam must be"),
        (training(passes=-1), "passes must be at least 0, got -1"),
        (training("--bits", "31"), "bits must be from 0 to 30, got 31"),
        (training("--kappa", "0"), "kappa must be positive and finite, got 0.0"),
        (training("--solver", "svrg", "--mu", "0"), "mu must be positive and finite, got 0.0"),
        (training("--solver", "svrg", "--k", "0"), "k must be at least 1, got 0"),
        (
            training("--solver", "casimir-svrg", "--lipschitz", "1", "--learning-rate", "1"),
            "give lipschitz or learning_rate, not both",
        ),
        (training("--lam", "0", "--solver", "bcfw"), "BCFW needs lam > 0 for a dual; ProximalSDCA trains without one"),
        (training("--solver", "sgd", "--lam", "0"), 'schedule="inverse"'),
        (training(out="train.txt"), "train.txt"),
        (["evaluate", "nosuch", "test.txt"], "nosuch: no model.json; train a model with --out nosuch"),
        (["predict", "nosuch", "test.txt"], "nosuch: no model.json"),
        (["info", "nosuch"], "nosuch: no model.json"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, message, folder, capsys):
    (folder / "row.txt").write_text("Ada B-PER\nmet VBD O\n")
    (folder / "tag.txt").write_text("Ada B-PER\nmet Q-PER\n")
    (folder / "empty.txt").write_text("\n")
    (folder / "bytes.txt").write_bytes(b"\xff O\n")
    assert message in refused(arguments, capsys)
    assert not (folder / "model").exists()


def test_bad_input_to_a_model_is_refused_in_one_line(folder, capsys):
    train(passes=1)
    assert "--masks needs --json" in refused(["predict", "model", "words.txt", "--masks", "x"], capsys)
    assert "NER has no masks" in refused(["predict", "model", "words.txt", "--json", "--masks", "x"], capsys)
    assert "--top must be at least 1, got 0" in refused(["predict", "model", "words.txt", "--top", "0"], capsys)
    assert "words.txt:1: expected a word and a tag" in refused(["evaluate", "model", "words.txt"], capsys)
    assert "nosuch.txt" in refused(["evaluate", "model", "nosuch.txt"], capsys)
    (folder / "wide.txt").write_text("Ada NNP I-NP B-PER\n")
    wide = "wide.txt: expected 2 columns, as in training"
    assert f"{wide}; got 4" in refused(["evaluate", "model", "wide.txt"], capsys)
    assert f"{wide}, or 1 without tags, or words alone; got 4" in refused(["predict", "model", "wide.txt"], capsys)
    assert f"{wide}; got 4" in refused([*training(out="other"), "--test", "wide.txt"], capsys)
    (folder / "model/model.safetensors").write_bytes(b"damaged")
    assert "model.safetensors: its bytes are not those that were saved" in refused(
        ["predict", "model", "words.txt"], capsys
    )
    (folder / "model/model.json").write_text("{")
    assert "model.json: expected JSON" in refused(["info", "model"], capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["train"], "required: TASK"),
        (["train", "ner", "--passes", "many"], "argument --passes: invalid int value: 'many'"),
        (["train", "ner", "--solver", "newton"], "argument --solver: invalid choice: 'newton'"),
        (["train", "ner", "--solver", "bfcw"], "invalid choice: 'bfcw' (did you mean bcfw?): expected one of"),
        (["train", "ner", "--lamb", "1"], "unrecognized arguments: --lamb (did you mean --lam?) 1"),
        (["train", "ner", "--solver", "sgd", "--kappa", "1"], "unrecognized arguments: --kappa 1"),
        (["train", "ner", "--solv", "sgd", "--t0", "2"], "arguments: --solv (did you mean --solver?) sgd --t0 2"),
        (["train", "ner", "--scheme", "XYZ"], "argument --scheme: invalid choice: 'XYZ'"),
    ],
)
def test_wrong_usage_is_said_in_the_last_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_help_lists_tasks_and_hyperparameters(capsys):
    for arguments, expected in (
        (["--help"], ["train", "evaluate", "predict", "info"]),
        (["train", "--help"], ["ner", "chunking", "ocr", "named entity recognition", "--resume"]),
        (["train", "ner", "--help"], ["--bits", "--kappa", "--sampling", "--scheme"]),
        (["train", "ner", "--solver", "casimir-svrg", "--help"], ["--mu", "--kappa", "--warm-start"]),
        (["train", "ner", "--solver", "sgd", "--help"], ["--t0", "--no-average"]),
        (["train", "chunking", "--help"], ["hyperparameters of proximal-bcfw", "--bits"]),
        (["train", "ocr", "--solver", "svrg", "--help"], ["hyperparameters of svrg"]),
    ):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
        output = capsys.readouterr().out
        assert all(text in output for text in expected)


@pytest.mark.parametrize(
    ("options", "solver"),
    [
        (["ner"], "proximal-bcfw"),
        (["ner", "--unknown", "_"], "convex-concave"),
        (["ner", "--unknown=_", "--solver", "adam"], "adam"),
        (["parsing", "--unknown", "_"], "convex-concave"),
        (["pose", "--hidden", "left-out"], "proximal-bcfw"),
        (["pose", "--hidden", "partial"], "convex-concave"),
    ],
)
def test_the_options_of_a_task_choose_its_solver(options, solver, capsys):
    with pytest.raises(SystemExit):
        main(["train", *options, "--help"])
    assert f"hyperparameters of {solver} " in capsys.readouterr().out


def test_files_with_unknown_tags_train_by_the_concave_convex_procedure(tmp_path, capsys):
    text = "Ada B-PER\nmet _\nBo B-PER\n\nshe O\nmet O\nAda _\n\nBo _\nsang O\n\n"
    (tmp_path / "train.txt").write_text(text)
    files = ["--train", str(tmp_path / "train.txt"), "--out", str(tmp_path / "run")]
    assert main(["train", "ner", *files, "--unknown", "_", "--passes", "9"]) == 0
    about = json.loads((tmp_path / "run" / "model.json").read_text())
    assert "convex-concave" in json.dumps(about)
