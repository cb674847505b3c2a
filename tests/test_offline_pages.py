"""The built documentation, opened from disk: its search runs without a server."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from source_tree import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHIM = ROOT / "docs" / "assets" / "iframe-worker.js"

WORKER = """
let words;
const loaded = importScripts("words.js");
addEventListener("message", async (event) => { await loaded; postMessage(`${event.data} ${self.words}`); });
"""
PAGE = """<!DOCTYPE html><body><p id="answers"></p><script src="iframe-worker.js"></script><script>
const worker = new Worker("worker.js");
const note = (event) => { document.getElementById("answers").textContent += `${event.data}; `; };
worker.addEventListener("message", note);
worker.postMessage("first");
worker.postMessage("second");
</script></body>"""


def test_pages_are_built_for_use_from_disk() -> None:
    """The plugin writes links to files, and would load a script from elsewhere without our own."""
    configured = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"^plugins:\n(  .*\n)*  - offline\b", configured, re.M)
    assert re.search(rf"polyfills: \[assets/{SHIM.name}\]", configured)
    assert SHIM.is_file()


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_worker_of_a_page_from_disk_answers(tmp_path: Path) -> None:
    shutil.copy(SHIM, tmp_path)
    for name, text in {"page.html": PAGE, "worker.js": WORKER, "words.js": "self.words = 'word';"}.items():
        (tmp_path / name).write_text(text)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    command = [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "page.html").as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert '<p id="answers">first word; second word; </p>' in shown
