"""The harness is a package beside `src`: `benchmarks.fire`, found from the root of the checkout."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)
