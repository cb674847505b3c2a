"""Run the experiments of the papers, and write a page of what holds."""

import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from scripts.reproduce import meshi2015, osokin2016, pillutla2019, zhang2014
from scripts.reproduce.experiment import QUICK, described
from scripts.reproduce.page import write_page

PAPERS = {module.__doc__: module.EXPERIMENTS for module in (osokin2016, meshi2015, zhang2014, pillutla2019)}
EXPERIMENTS = {experiment.name: experiment for experiments in PAPERS.values() for experiment in experiments}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run some experiments, and print what is seen."""
    listed = "\n".join(f"  {name:<19}{experiment.figure}" for name, experiment in EXPERIMENTS.items())
    description = f"{__doc__}\n\nexperiments:\n{listed}"
    parser = ArgumentParser(
        "python -m scripts.reproduce", None, description, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments to run, or all; finished runs are kept")
    parser.add_argument("--quick", action="store_true", help="a trial of at most two minutes each")
    parser.add_argument(
        "--data", default=os.environ.get("STRUCTSMOOTH_DATA"), help="folder of data (default: STRUCTSMOOTH_DATA)"
    )
    parser.add_argument("--out", default="runs/reproduce", help="pictures, tables and runs (default: runs/reproduce)")
    parser.add_argument(
        "--page", metavar="FILE", help="renew the sections of this page, in Markdown, by the summaries in --out"
    )
    options = parser.parse_args(arguments)
    names = list(EXPERIMENTS) if options.names == ["all"] else options.names
    if unknown := sorted(set(names) - set(EXPERIMENTS)):
        parser.error(f"unknown experiments {', '.join(unknown)}: choose from {', '.join(EXPERIMENTS)}, or all")
    if names and options.data is None:
        parser.error("give --data, a folder with the data sets, or set STRUCTSMOOTH_DATA")
    needed = sorted({EXPERIMENTS[name].needs for name in names})
    if missing := [folder for folder in needed if not Path(options.data, folder).is_dir()]:
        parser.error(f"{options.data} has no folder {', '.join(missing)}")
    if not names and options.page is None:
        parser.error("name the experiments to run, or give --page")
    out = Path(options.out) / QUICK if options.quick else Path(options.out)
    for name in names:
        summary = EXPERIMENTS[name].run(options.data, out / name, options.quick)
        print(described(summary))
    if options.page is not None:
        write_page(Path(options.page), out, PAPERS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
