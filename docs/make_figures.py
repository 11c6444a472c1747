"""Makes the pictures that the pages show: `make docs`. Each is what a command draws."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from draw_repair import draw, read_moments, worst_loss, write_crash, write_interests

from trellis.cli.main import run

FIGURES = Path(__file__).parent / "figures"
LAB_FIGURE = "spidercast-fig12"


def repair(folder: Path) -> int:
    """Draw the mesh that repairs itself: plan links for some sites, crash the worst one, and record what happens."""
    interests, overlay, crash, run_folder = (folder / name for name in ("sites.tsv", "links.tsv", "crash.tsv", "run"))
    write_interests(interests)
    failed = run(["plan", str(interests), "--seed", "7", "-o", str(overlay)])
    victim, topic = worst_loss(interests, overlay)
    write_crash(crash, victim)
    simulate = ["simulate", "omen", str(interests), "--overlay", str(overlay), "--schedule", str(crash), "--record"]
    options = ["--broken-stream", "0.05", "--resilience", "1", "--seed", "7"]
    failed = max(failed, run([*simulate, *options, "-o", str(run_folder)]))
    draw(FIGURES / "repair.svg", read_moments(run_folder / "recording.jsonl.gz", topic), victim, topic)
    return failed


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
        failed = max(repair(Path(folder)), *(run(command) for command in commands))
        for made in (f"{folder}/tour/comparison.png", f"{lab}/report-smoke/figures/{LAB_FIGURE}.png"):
            shutil.copy(made, FIGURES)
        return failed


if __name__ == "__main__":
    sys.exit(main())
