"""The command ``structsmooth``."""

from structsmooth.cli.main import main as main
