"""Lets a script that is run by its path import others as ``scripts.name``, as ``python -m scripts.name`` does."""

from pathlib import Path

__path__ = [str(Path(__file__).parent)]
