"""The command line: `python -m benchmarks.fire run`, `page`, `judge` and `systems`, from the root of a checkout."""

from __future__ import annotations

import sys

from benchmarks.fire.command import main

if __name__ == "__main__":
    sys.exit(main())
