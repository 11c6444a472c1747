"""`trellis demo`: a tour through Trellis. Each step is a command that can be typed."""

from __future__ import annotations

import io
import shlex
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from trellis.cli.common import examples, say
from trellis.cli.failures import INTERRUPTED
from trellis.errors import InputError, TrellisError

EXAMPLE = examples("trellis demo", "trellis demo --folder tour --seed 7")
USERS, SAMPLE, DAYS, LIVE_S = 300, 90, 4, 10


def demo(
    folder: Annotated[Path, typer.Option(help="Where the tour leaves its files.", metavar="DIR")] = Path(
        "trellis-demo"
    ),
    seed: Annotated[int, typer.Option(help="Another seed, another tour.")] = 7,
    master: Annotated[str, typer.Option("--master", help="For the steps on Spark.", metavar="URL")] = "local[*]",
) -> None:
    """Take the tour: raw traces on Spark, an overlay planned from them, churn, three answers to it, a live mesh.

    Every step is printed as the command that does it. The files are kept for your own experiments, and the last step
    makes a page with pictures.
    """
    from trellis.cli.main import run
    from trellis.lab.tour import Step, write_tour

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be made ({error.strerror})", "choose another --folder") from error
    begun, done = time.monotonic(), []
    steps = _steps(folder, seed, master)
    for number, (title, pictures, arguments) in enumerate(steps, start=1):
        command = f"trellis {shlex.join(arguments)}"
        say(f"\n{number}. {title}\n$ {command}")
        at, printed = time.monotonic(), io.StringIO()
        with redirect_stdout(printed):
            code = run(arguments)
        say(printed.getvalue().rstrip())
        if code == INTERRUPTED:
            raise typer.Exit(code)
        if code != 0:
            raise TrellisError(f"step {number} of the tour failed; what it said stands above")
        done.append(Step(title, command, printed.getvalue().rstrip(), time.monotonic() - at, pictures))
    page = write_tour(folder, done)
    say(f"\nThe report, with pictures: {page.resolve().as_uri()}")
    say(f"Done in {time.monotonic() - begun:.0f} s. Next: trellis up --nodes 24, trellis lab list, and trellis --help")


def _steps(folder: Path, seed: int, master: str) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """Return the steps: title, pictures that it writes, command."""
    from trellis.lab.tour import ROUNDS_PER_EVENT, WARMUP_ROUNDS

    raw, chance = folder / "raw", ["--seed", str(seed)]
    interests, churn, overlay = (str(folder / name) for name in ("interests", "churn", "overlay.parquet"))
    spark = ["--master", master, "--overwrite"]
    trace = ["--churn", churn, "--rounds-per-event", str(ROUNDS_PER_EVENT), "--warmup-rounds", str(WARMUP_ROUNDS)]
    return [
        (f"Raw traces in the formats of the real ones: friendships of {USERS} users, machines that come and go.", (),
         ["lab", "traces", str(raw), "--users", str(USERS), "--days", str(DAYS), *chance]),
        (f"On Spark: {SAMPLE} users, found breadth first, become nodes; each wants the topics of its friends.", (),
         ["pipeline", "social", str(raw / "friends.txt"), "--format", "facebook", "--sample-nodes", str(SAMPLE),
          *chance, "-o", interests, *spark]),
        ("On Spark: random machines are mapped onto the nodes, which come and go as their machines do.", (),
         ["pipeline", "churn", str(raw / "machine_events.csv"), "--format", "google2011", "--map-to", interests,
          *chance, "-o", churn, *spark]),
        ("What do the interests look like?", ("profile.png",),
         ["profile", interests, "--plot", str(folder / "profile.png")]),
        ("An overlay that connects every topic with few links.", (),
         ["plan", interests, "--algorithm", "lowoda", *chance, "-o", overlay]),
        ("Is it one? And how far apart are the nodes of a topic?", ("check.png",),
         ["check", interests, overlay, "--plot", str(folder / "check.png")]),
        ("Churn, the expensive way: a program that knows all nodes plans again after every event.", (),
         ["maintain", interests, overlay, "--churn", churn, "--algorithm", "rebuild", "-o",
          str(folder / "rebuild.parquet")]),
        ("Churn, repaired locally: OMen's nodes know their neighbors and a few backups.", ("omen/figures/topics.png",),
         ["simulate", "omen", interests, "--overlay", overlay, *trace, "--broken-stream", "0.05", "--resilience", "1",
          *chance, "-o", str(folder / "omen")]),
        ("Churn without a plan: SpiderCast's nodes link themselves.", ("spidercast/figures/topics.png",),
         ["simulate", "spidercast", interests, *trace, "--kg", "3", "--kr", "1", *chance, "-o",
          str(folder / "spidercast")]),
        ("OMen on real sockets: six processes under traffic; some are killed, and the others repair the mesh.", (),
         ["up", "--nodes", "6", "--topics", "5", "--subscriptions", "3", "--duration", str(LIVE_S), "--kill-every", "4",
          *chance]),
    ]  # fmt: skip
