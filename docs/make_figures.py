"""Makes the pictures that the pages show: `make docs`. Each is what a command draws."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from trellis.cli.main import run

FIGURES = Path(__file__).parent / "figures"
LAB_FIGURE = "spidercast-fig12"


def main() -> int:
    FIGURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        interests, overlay, lab = (f"{folder}/{name}" for name in ("interests.parquet", "overlay.parquet", "lab"))
        commands = [
            ["workload", "--preset", "shadows-zipf", "--seed", "7", "-o", interests],
            ["profile", interests, "--plot", str(FIGURES / "profile.png")],
            ["plan", interests, "--seed", "7", "-o", overlay],
            ["check", interests, overlay, "--plot", str(FIGURES / "check.png")],
            ["demo", "--folder", f"{folder}/tour"],
            ["lab", "run", LAB_FIGURE, "--scale", "smoke", "-o", lab],
            ["lab", "report", "--scale", "smoke", "--png", "-o", lab],
        ]
        failed = max(run(command) for command in commands)
        for made in (f"{folder}/tour/comparison.png", f"{lab}/report-smoke/figures/{LAB_FIGURE}.png"):
            shutil.copy(made, FIGURES)
        return failed


if __name__ == "__main__":
    sys.exit(main())
