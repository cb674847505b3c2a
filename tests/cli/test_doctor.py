"""The command doctor finds what is wrong with an installation, and says what to do."""

import json
import sys
import warnings

import pytest
import torch
from source_tree import ROOT

from structsmooth.cli import main
from structsmooth.cli.doctor import EXTRAS, check_computations, check_extras, check_folder
from structsmooth.cli.self_test import Kind, check_oracles, check_training
from structsmooth.structures import Candidates, LinearChain

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture
def no_self_test(monkeypatch):
    for name in ("check_oracles", "check_training"):
        monkeypatch.setattr(f"structsmooth.cli.doctor.{name}", lambda *_: "skipped")


def test_a_good_installation_passes(capsys, monkeypatch):
    monkeypatch.delenv("STRUCTSMOOTH_DATA", raising=False)
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("ok")
    assert set(found) == {"versions", "devices", "threads", "cache", "data", "extras", "self-test"}
    assert [test["name"] for test in found["self-test"]] == ["oracles, cpu", "training"]
    assert all(finding["advice"] == "" for section in found.values() for finding in section)
    assert "FIN5" in next(finding["value"] for finding in found["data"] if finding["name"] == "ner")


def test_a_missing_data_folder_is_named(capsys, monkeypatch, tmp_path, no_self_test):
    monkeypatch.setenv("STRUCTSMOOTH_DATA", str(tmp_path / "missing"))
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "set STRUCTSMOOTH_DATA to a folder that exists" in captured.err
    assert "wrong: STRUCTSMOOTH_DATA" in captured.out


def test_more_threads_than_processors_are_named(capsys, monkeypatch, no_self_test):
    monkeypatch.setattr("torch.get_num_threads", lambda: 10_000)
    assert main(["doctor"]) == 1
    assert "structsmooth: torch: set OMP_NUM_THREADS=" in capsys.readouterr().err


def test_a_failing_self_test_is_reported(capsys, monkeypatch):
    def fail():
        raise RuntimeError("no such instruction")

    monkeypatch.setattr("structsmooth.cli.doctor.check_training", fail)
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "RuntimeError: no such instruction" in captured.out
    assert "reinstall structsmooth" in captured.err


def test_wrong_oracles_are_found(monkeypatch):
    right = LinearChain.logsumexp
    monkeypatch.setattr(LinearChain, "logsumexp", lambda chain: right(chain) + 1e-3)
    with pytest.raises(RuntimeError, match="the exp oracle of LinearChain"):
        check_oracles()


def test_places_of_oracles_are_told():
    found = check_oracles()
    loops = "LinearChain, SemiMarkov, ProjectiveTree, Constituents, Alignment, Subset, SpanningTree, Tree"
    others = "Matching, BinaryGraph, FactorGraph"
    assert found == f"equal to all outputs, by compiled loops on the CPU: {loops}, {others}; plain torch: Candidates"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernels_are_told():
    assert "kernels: LinearChain, SemiMarkov" in check_oracles("cuda")


def test_outputs_that_are_left_out_are_found(monkeypatch):
    monkeypatch.setattr("structsmooth.cli.self_test.kinds", lambda: [Kind(Candidates(torch.zeros(1, 3)), 2)])
    with pytest.raises(RuntimeError, match="Candidates finds more than 2 outputs"):
        check_oracles()


def test_kernels_that_do_not_run_are_a_fault(monkeypatch):
    def fallen(*_):
        warnings.warn("the kernel chain.fused.forward does not run", RuntimeWarning, stacklevel=2)

    monkeypatch.setattr(LinearChain, "max", fallen)
    finding = next(iter(check_computations()))
    assert "RuntimeWarning: the kernel chain.fused.forward does not run" in finding.value
    assert finding.advice


def test_training_without_progress_is_found(monkeypatch):
    monkeypatch.setattr("structsmooth.cli.self_test._PASSES", 0)
    with pytest.raises(RuntimeError, match="it must fall"):
        check_training()


def test_a_folder_that_cannot_be_written_into_is_found(tmp_path):
    assert check_folder("cache", tmp_path / "new", "PLACE").advice == ""
    (tmp_path / "file").touch()
    assert "set PLACE" in check_folder("cache", tmp_path / "file", "PLACE").advice


def test_extras_are_those_of_the_package(monkeypatch):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"test", "dev", "benchmarks"}


def test_broken_extras_are_told_from_absent_ones(monkeypatch):
    monkeypatch.setattr("structsmooth.cli.doctor.EXTRAS", {"absent": ["no_such_module"], "broken": ["json"]})

    def fail(name):
        raise ImportError("libGL.so.1: cannot open shared object file")

    monkeypatch.setattr("structsmooth.cli.doctor.import_module", fail)
    absent, broken = check_extras()
    assert (absent.advice, "pip install 'structsmooth[absent]'" in absent.value) == ("", True)
    assert "libGL" in broken.value
    assert "--force-reinstall" in broken.advice
