"""Two processes that each read their own sentences, beside one that reads all."""

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from two_processes import ended, started

from structsmooth.files import checksum, shards
from structsmooth.problems import partitioned
from structsmooth.processes import checksum_of_all, own_files
from structsmooth.solvers import CoCoA
from structsmooth.tasks import NER, Task
from structsmooth.tasks.text.tagging import Tagging

# The second half has tags, words and a mark of the scheme that the first has not, and shares some of its words.
SENTENCES = [
    "Ada NNP I-PER\nmet VBD O\nBob NNP I-PER\n",
    "Bob NNP I-PER\nleft VBD O\n. . O\n",
    "Ada NNP I-PER\nleft VBD O\n",
    "Acme NNP I-ORG\nInc NNP I-ORG\nBob NNP I-PER\nmet VBD O\nAda NNP B-PER\n",
    "Oslo NNP I-LOC\n. . O\n",
]
TASKS: dict[str, Tagging] = {
    "dictionary": NER(bits=0),
    "hashes": NER(bits=8),
    "plain tags": NER(bits=0, scheme="plain"),
    "another scheme": NER(bits=0, scheme="BIOES"),
}
MALFORMED = {
    "first.txt": ["a b c d\n", *SENTENCES],
    "last.txt": [*SENTENCES, "a b I-X\nb I-X\n"],
    "both.txt": ["a b I-X\nb I-X\n", *SENTENCES, "a b c\n"],
    "empty.txt": [],
    "one.txt": SENTENCES[:1],
}


def run_all(folder: Path) -> dict[str, Any]:
    """What each task finds and learns, and errors."""
    path = str(folder / "train.txt")
    results: dict[str, Any] = {"errors": {name: error_of(str(folder / name)) for name in (*MALFORMED, "nowhere.txt")}}
    for name, task in TASKS.items():
        fitted, own = task.fit_own(path)
        whole, dropped = Task.fit_own(task, path)  # reads all, and drops what others have
        weights = [
            CoCoA().solve(partitioned(one.problem(examples)), lam=0.1, passes=5).weights
            for one, examples in ((fitted, own), (whole, dropped))
        ]
        results[name] = {
            "fitted": fitted.to_dict(),
            "own": [sentence.words for sentence in own],
            "dropped": [sentence.words for sentence in dropped],
            "same weights": torch.equal(*weights),
        }
    for name in ("columns", "texts"):
        pattern = str(folder / name / "*")
        fitted, own = NER(bits=0).fit_own(pattern)
        results[name] = {
            "fitted": fitted.to_dict(),
            "own": [sentence.words for sentence in own],
            "files": own_files(pattern),
            "checksum": checksum_of_all(pattern),
        }
    results["few files"] = own_files(str(folder / "few" / "*"))
    return results


def error_of(path: str) -> str:
    try:
        NER().fit_own(path)
    except (ValueError, OSError) as error:
        return str(error)
    return "none"


CODE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_own
from structsmooth import processes
with processes.joined():
    results = test_own.run_all(Path(sys.argv[1]))
    Path(sys.argv[1], f"{processes.rank()}.json").write_text(json.dumps(results))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shares")
    for name, sentences in {"train.txt": SENTENCES, **MALFORMED}.items():
        (folder / name).write_text("\n".join(sentences))
    for name in ("columns", "texts", "few"):
        (folder / name).mkdir()
    for i, sentence in enumerate(SENTENCES):
        (folder / "columns" / f"{i}.gz").write_bytes(gzip.compress(sentence.encode()))
    (folder / "columns" / "1a.gz").write_bytes(gzip.compress(b""))
    (folder / "columns" / "7.gz").touch()
    # The span of the last text goes over a line break, so that one alone ends no sentence, wherever it stands.
    texts = ["Ada met Bob.\nOslo", "New\nYork fell"]
    for i, (text, span) in enumerate(zip(texts, ([8, 11, "PER"], [0, 8, "LOC"]), strict=True)):
        (folder / "texts" / f"{i}.jsonl").write_text(json.dumps({"text": text, "label": [span]}) + "\n")
    (folder / "few" / "0.txt").write_text("\n".join(SENTENCES))
    (folder / "few" / "1.txt").touch()
    return folder


@pytest.fixture(scope="module")
def both(folder: Path) -> list[dict[str, Any]]:
    """Results of two processes."""
    for status, _, messages in ended(started(CODE, str(folder), str(Path(__file__).parent))):
        assert status == 0, messages
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", TASKS)
def test_both_learn_what_one_process_learns(both: list[dict[str, Any]], folder: Path, name: str) -> None:
    task = TASKS[name]
    expected = task.fit(task.read(str(folder / "train.txt"))).to_dict()
    assert [results[name]["fitted"] for results in both] == [expected, expected]


@pytest.mark.parametrize("name", TASKS)
def test_each_has_its_own_sentences(both: list[dict[str, Any]], name: str) -> None:
    first, second = (results[name] for results in both)
    assert first["own"] == first["dropped"]
    assert second["own"] == second["dropped"]
    words = [[row.split()[0] for row in sentence.splitlines()] for sentence in SENTENCES]
    assert [first["own"], second["own"]] == [words[:2], words[2:]]


@pytest.mark.parametrize("name", ["columns", "texts"])
def test_each_opens_its_own_files(both: list[dict[str, Any]], folder: Path, name: str) -> None:
    pattern = str(folder / name / "*")
    first, second = (results[name] for results in both)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of spans over line breaks
        whole = NER(bits=0).read(pattern)
    assert first["own"] + second["own"] == [sentence.words for sentence in whole]
    assert first["fitted"] == second["fitted"] == NER(bits=0).fit(whole).to_dict()
    assert first["checksum"] == second["checksum"] == checksum(pattern)
    assert not {*first["files"]} & {*second["files"]}
    assert sorted(first["files"] + second["files"]) == shards(pattern)


def test_all_read_files_of_which_some_would_have_none(both: list[dict[str, Any]]) -> None:
    assert [results["few files"] for results in both] == [None, None]


@pytest.mark.parametrize("name", TASKS)
def test_training_is_that_of_processes_that_read_all(both: list[dict[str, Any]], name: str) -> None:
    assert all(results[name]["same weights"] for results in both)


def test_all_raise_the_first_error_of_the_file(both: list[dict[str, Any]], folder: Path) -> None:
    errors = both[0]["errors"]
    assert errors == both[1]["errors"]
    few = "2 processes need an example each, got 1 examples in all"
    for name, error in errors.items():
        assert error == (few if name == "one.txt" else error_of(str(folder / name)))
        assert error != "none"
