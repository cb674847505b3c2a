"""Hosts that share nothing but a network: those of namespaces of Linux, which this file makes as root."""

import time
from pathlib import Path

import pytest
from two_processes import ended, started

from scripts.shared.networks import network, why_not

COMMAND = "import sys; from structsmooth.cli import main; sys.exit(main())"
ENDLESS = ("train", "ner", "--solver", "cocoa", "--bits", "10", "--gap-tolerance", "0", "--out", "model")
REASON = why_not()


@pytest.mark.long
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("pulled", [0, 1])
def test_both_hosts_notice_a_cable_that_is_pulled_and_go_on_when_it_is_back(
    pulled: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    history = Path("model/history.jsonl")
    with network(2) as hosts:
        both = started(COMMAND, *ENDLESS, "--passes", "1000000", "--patience", "3", hosts=hosts)
        try:
            limit = time.monotonic() + 240
            while not history.exists() and time.monotonic() < limit and all(one.poll() is None for one in both):
                time.sleep(0.05)
            hosts[pulled].plug("down")
            begun = time.monotonic()
            texts = [one.communicate(timeout=60)[1] for one in both]
            took = time.monotonic() - begun
        finally:
            for one in both:
                one.kill()
        assert [one.returncode for one in both] == [1, 1]
        assert "process 0 ends: process 1 on host-2 has not been heard of for 3 s" in texts[0]
        assert (
            "process 1 ends: the store of the processes, with process 0 on host-1, has not answered for 3" in texts[1]
        )
        assert took < 30  # some seconds where the machine does nothing else
        hosts[pulled].plug("up")
        passes = str(len(history.read_text().splitlines()) + 1)
        ends = ended(started(COMMAND, *ENDLESS, "--passes", passes, "--resume", hosts=hosts))
        assert [status for status, *_ in ends] == [0, 0], ends
        assert "saved in model" in ends[0][1]
