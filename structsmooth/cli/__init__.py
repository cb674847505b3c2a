"""The command ``structsmooth``."""

from structsmooth.cli.main import main

__all__ = ["main"]
