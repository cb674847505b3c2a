"""The command that bounds how far a trained model is from the optimum."""

import sys
from argparse import ArgumentParser, Namespace

from structsmooth import solvers
from structsmooth.cli.stages import stage
from structsmooth.files import checksum
from structsmooth.tasks.trained import load


def certify(options: Namespace) -> int:
    """Print a bound on how far a trained model is from the optimum, by passes over its training data."""
    model = load(options.model)
    description, settings = model.description, model.description["settings"]
    if "train checksum" not in settings:
        raise ValueError(f"{options.model} was trained in Python: certify it there, by structsmooth.certify")
    if checksum(settings["train"]) != settings["train checksum"]:
        raise ValueError(f"{settings['train']} is not what {options.model} was trained on: it has changed since")
    with stage(f"reading {settings['train']}"):
        problem = model.task.problem(model.task.read(settings["train"], "train"))
    limits = {"passes": options.passes, "seed": options.seed}
    with stage(f"bounding the optimum, by up to {options.passes} passes over {problem.n:,} examples"):
        certificate = solvers.certify(problem, model.weights, description["lam"], accuracy=options.accuracy, **limits)
    print(certificate)
    if certificate.slack > options.accuracy * certificate.gap:
        print("the lower bound can be better: more --passes may raise it", file=sys.stderr)
    return 0


def add_certify(parser: ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="DIR", help="model directory, the --out of structsmooth train")
    parser.add_argument("--accuracy", type=float, default=0.1, help="relative accuracy of the distance (default: 0.1)")
    parser.add_argument("--passes", type=int, default=100, help="limit on passes over the data (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same certificate (default: 0)")
