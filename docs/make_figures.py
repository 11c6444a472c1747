"""Makes the pictures that the pages show: `make docs`. Each is what a command draws."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from trellis.cli.main import run

FIGURES = Path(__file__).parent / "figures"


def main() -> int:
    FIGURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        interests, overlay = f"{folder}/interests.parquet", f"{folder}/overlay.parquet"
        commands = [
            ["workload", "--preset", "shadows-zipf", "--seed", "7", "-o", interests],
            ["profile", interests, "--plot", str(FIGURES / "profile.png")],
            ["plan", interests, "--seed", "7", "-o", overlay],
            ["check", interests, overlay, "--plot", str(FIGURES / "check.png")],
        ]
        return max(run(command) for command in commands)


if __name__ == "__main__":
    sys.exit(main())
