"""Lines and seconds of the jobs of docs/jobs.md: each program in a process and a folder of its own, from its start."""

import re
import resource
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.shared.harness import RequestError, command, option

_PAGE = Path(__file__).parents[2] / "docs" / "jobs.md"


def programs(page: str) -> Iterator[tuple[str, str]]:
    """The program of each section, by its title."""
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        for code in re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S):
            yield section.partition("\n")[0], code


def cpu_seconds(code: str) -> float:
    """CPU seconds of a program, in a folder of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with TemporaryDirectory() as folder:
        run = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RequestError(run.stderr.strip().rpartition("\n")[2])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@command(
    option("--page", str(_PAGE), "the page", metavar="FILE"),
    table=["job", "lines", "CPU s"],
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each job."""
    for title, code in programs(Path(options.page).read_text(encoding="utf-8")):
        lines = sum(bool(line.strip()) for line in code.splitlines())
        yield [title, str(lines), f"{cpu_seconds(code):.1f}"]
