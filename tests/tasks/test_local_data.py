"""Examples that processes of a host divide, and then put together again; hosts with files of their own."""

import json
from pathlib import Path
from typing import Any

import pytest
import small_tasks
import torch
from two_processes import ended, started

from structsmooth import processes
from structsmooth.checkpoint import load_state
from structsmooth.processes import host_share
from structsmooth.tasks.text.hosts import fit_joined, joined, read_host

TEXTS = ["Ada met Bob.\nOslo", "New\nYork fell"]  # the span of the second goes over a line break
SPANS = [[8, 11, "PER"], [0, 8, "LOC"]]
DIVIDED = """
import json, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2]]
import test_local_data
from structsmooth import processes
with processes.joined():
    results = test_local_data.divide_all(Path(sys.argv[1]))
    Path(sys.argv[1], f"{processes.rank()}.json").write_text(json.dumps(results))
"""


def divide_all(folder: Path) -> dict[str, Any]:
    """How many examples of each task this process and all have, and whether tasks are those of one process."""
    results = {}
    with pytest.MonkeyPatch.context() as patch:
        small_tasks.small_networks(patch)
        for case in small_tasks.CASES:
            place = folder / case.name
            place.mkdir(exist_ok=True)
            path = processes.gathered(case.write(place, True) if processes.rank() == 0 else "")[0]
            task = case.task(folder / f"caches {processes.rank()}")
            with processes.alone():
                whole = task.read(path, "train")
            own = read_host(task, path)
            expected = task.fit(whole).to_dict()
            results[case.name] = {
                "numbers": [len(own), len(joined(own)), len(whole)],
                "fitted alike": [
                    task.fit(joined(own)).to_dict() == expected,
                    fit_joined(task, own)[0].to_dict() == expected,
                ],
            }
    return results


@pytest.mark.long
def test_processes_of_a_host_divide_the_examples_of_every_task(tmp_path: Path) -> None:
    for status, _, messages in ended(started(DIVIDED, str(tmp_path), str(Path(__file__).parent))):
        assert status == 0, messages
    both = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert both[0].keys() == {case.name for case in small_tasks.CASES}
    for first, second in zip(*(results.values() for results in both), strict=True):
        assert first["fitted alike"] == second["fitted alike"] == [True, True]
        (one, all_, n), (other, *same) = first["numbers"], second["numbers"]
        assert [all_, n] == same == [n, n]
        assert one + other == n
        assert min(one, other) > 0


def test_a_process_needs_an_example_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert host_share(7) == range(2, 4)
    with pytest.raises(ValueError, match=r"3 processes of host .* need an example each, got 2 examples there"):
        host_share(2)


COMMAND = """
import os, sys
os.chdir(sys.argv.pop(1).split(":")[int(os.environ["RANK"])])
from structsmooth.cli import main
sys.exit(main())
"""


def run(disks: str, *options: str) -> list[tuple[int, str, str]]:
    """The command on two hosts with disks of their own."""
    data = ("--train", "local.txt", "--test", "../test.txt", "--bits", "10", "--passes", "3", "--out", "model")
    return ended(started(COMMAND, disks, "train", "ner", *data, *options, LOCAL_WORLD_SIZE="1", LOCAL_RANK="0"))


def weights(folder: Path) -> torch.Tensor:
    return load_state(folder / "model" / "model.safetensors")[0]["weights"]


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two with a half each of the sentences, which have words and a tag of their own, and one with all of them."""
    monkeypatch.chdir(tmp_path)
    halves = [
        "Ada NNP I-PER\nmet VBD O\n\nBob NNP I-PER\nleft VBD O\n\n",
        "Acme NNP I-ORG\nmet VBD O\n\nOslo NNP I-LOC\n\n",
    ]
    for name, text in zip("abc", (halves[0] * 3, halves[1] * 3, halves[0] * 3 + halves[1] * 3), strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "local.txt").write_text(text)
    (tmp_path / "test.txt").write_text(halves[0] + halves[1])
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("solver", ["casimir-svrg", "bcfw", "cocoa"])
def test_hosts_with_files_of_their_own_train_as_with_all(disks: Path, solver: str) -> None:
    ends = run("a:b", "--solver", solver, "--local-data")
    assert [status for status, *_ in ends] == [0, 0], ends
    assert [status for status, *_ in run("c:c", "--solver", solver)] == [0, 0]
    torch.testing.assert_close(weights(disks / "a"), weights(disks / "c"), rtol=1e-9, atol=1e-12)
    assert weights(disks / "a").norm() > 0


@pytest.mark.long
def test_texts_of_hosts_are_cut_alike(disks: Path) -> None:
    for name, kept in (("a", [0]), ("b", [1]), ("c", [0, 1])):
        lines = [json.dumps({"text": TEXTS[i], "label": [SPANS[i]]}) for i in kept]
        (disks / name / "local.txt").write_text("\n".join(lines) + "\n")
    (disks / "test.txt").write_text((disks / "c" / "local.txt").read_text())
    for solver in ("bcfw", "cocoa"):
        options = ("--solver", solver, "--overwrite")
        ends = run("a:b", *options, "--local-data")
        assert [status for status, *_ in ends] == [0, 0], ends
        assert [status for status, *_ in run("c:c", *options)] == [0, 0]
        torch.testing.assert_close(weights(disks / "a"), weights(disks / "c"), rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_files_that_differ_are_refused_unless_they_are_to(disks: Path) -> None:
    for end in run("a:b", "--solver", "cocoa"):
        assert end[0] == 2
        assert "and train checksum is" in end[2]
    for end in run("a:b", "--solver", "cocoa", "--train", "local*"):
        assert end[0] == 2
        assert "local*: local.txt is not the same in process 0 and process 1" in end[2]
        assert "the command has --local-data" in end[2]
    for end in run("c:c", "--solver", "cocoa", "--local-data"):
        assert end[0] == 2
        assert "have the same at local.txt: leave it out" in end[2]
