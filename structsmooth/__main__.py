"""The command line: ``python -m structsmooth``, where the command ``structsmooth`` is not on the path."""

import sys

from structsmooth.cli import main

if __name__ == "__main__":
    sys.exit(main())
