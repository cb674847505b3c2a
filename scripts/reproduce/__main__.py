"""Run the experiments of the papers, and write a page of what holds."""

import os
from argparse import Namespace
from pathlib import Path

from scripts.reproduce import meshi2015, osokin2016, pillutla2019, zhang2014
from scripts.reproduce.experiment import QUICK, described
from scripts.reproduce.page import write_page
from scripts.shared.harness import RequestError, command, option
from structsmooth.files import DATA_VARIABLE

PAPERS = {module.__doc__: module.EXPERIMENTS for module in (osokin2016, meshi2015, zhang2014, pillutla2019)}
EXPERIMENTS = {experiment.name: experiment for experiments in PAPERS.values() for experiment in experiments}


@command(
    option("names", None, "experiments to run, or all; finished runs are kept", nargs="*", metavar="NAME"),
    option("--quick", False, "a trial of at most two minutes each"),
    option("--data", None, "folder of data (default: STRUCTSMOOTH_DATA)"),
    option("--out", "runs/reproduce", "pictures, tables and runs"),
    option("--page", None, "renew this page, in Markdown, and its results by the summaries in --out", metavar="FILE"),
    threads=None,
    program="python -m scripts reproduce",
    more="\n\nexperiments:\n" + "\n".join(f"  {name:<19}{run.figure}" for name, run in EXPERIMENTS.items()),
)
def main(options: Namespace) -> None:
    """Run some experiments, and print what is seen."""
    names = list(EXPERIMENTS) if options.names == ["all"] else options.names
    if unknown := sorted(set(names) - set(EXPERIMENTS)):
        raise RequestError(f"unknown experiments {', '.join(unknown)}: choose from {', '.join(EXPERIMENTS)}, or all")
    data: str = options.data or os.environ.get(DATA_VARIABLE, "")
    if names and not data:
        raise RequestError("give --data, a folder with the data sets, or set STRUCTSMOOTH_DATA")
    needed = sorted({EXPERIMENTS[name].needs for name in names})
    if missing := [folder for folder in needed if not Path(data, folder).is_dir()]:
        raise RequestError(f"{data} has no folder {', '.join(missing)}")
    if not names and options.page is None:
        raise RequestError("name the experiments to run, or give --page")
    out = Path(options.out) / QUICK if options.quick else Path(options.out)
    for name in names:
        summary = EXPERIMENTS[name].run(data, out / name, options.quick)
        print(described(summary))
    if options.page is not None:
        write_page(Path(options.page), out, PAPERS)


if __name__ == "__main__":
    raise SystemExit(main())
