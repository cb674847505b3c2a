"""The experiments of the four papers, one entry for each figure and table: ``python -m scripts reproduce --help``."""
