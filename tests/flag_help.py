"""What the help of a parser says of each flag."""

from argparse import ArgumentParser


def help_of(parser: ArgumentParser, title: str) -> dict[str, str]:
    """By flag: how its value is written, then the explanation; for the last group, which has the title."""
    lines = parser.format_help().partition(f"{title}:\n")[2].split("\n  --")
    pairs = (" ".join(line.split()).split(" ", 1) for line in lines if line.strip())
    return {flag.strip("-,"): text for flag, text in pairs}
