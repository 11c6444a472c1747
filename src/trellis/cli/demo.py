"""`trellis demo`: the whole tour, once, each step a command that can be typed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from trellis.cli.common import examples, say
from trellis.errors import InputError, TrellisError

EXAMPLE = examples("trellis demo", "trellis demo --folder tour --seed 7")


def demo(
    folder: Annotated[Path, typer.Option(help="Where the tour leaves its files.", metavar="DIR")] = Path(
        "trellis-demo"
    ),
    seed: Annotated[int, typer.Option(help="Another seed, another tour.")] = 7,
) -> None:
    """Take the tour: plan an overlay from interests, break it, mend it, and let the nodes build one by themselves.

    Every step is printed as the command that does it. The files stay for you to play with.
    """
    from trellis.cli.main import run

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be made ({error.strerror})", "choose another --folder") from error
    interests, overlay, churn = (str(folder / f"{name}.parquet") for name in ("interests", "overlay", "churn"))
    small, chance = str(folder / "small.parquet"), ["--seed", str(seed)]
    steps = [
        ("2,000 brokers, 200 topics, 10 to 90 of them each: a workload of the Shadows and OMen papers.",
         ["workload", "--preset", "shadows-zipf", *chance, "-o", interests]),
        ("What does it look like?",
         ["profile", interests, "--plot", str(folder / "profile.png")]),
        ("An overlay that connects every topic with few links.",
         ["plan", interests, "--algorithm", "lowoda", *chance, "-o", overlay]),
        ("Is it one? And how far apart are the nodes of a topic?",
         ["check", interests, overlay, "--plot", str(folder / "check.png")]),
        ("Whose loss would hurt most?",
         ["plan", interests, "--existing", overlay, "--what-if-worst", "3"]),
        ("Three hundred joins and leaves ...",
         ["churn", "random", interests, "--rounds", "300", "--joiners", "shadows-zipf", *chance, "-o", churn]),
        ("... mended one by one, each from the shadow set of the node that came or went.",
         ["maintain", interests, overlay, "--churn", churn, "--algorithm", "shadows", "--plot",
          str(folder / "history.png"), "-o", str(folder / "history.parquet")]),
        ("Without anybody in charge: 300 nodes that know only each other's interests.",
         ["workload", "--preset", "spidercast-rss", "--nodes", "300", *chance, "-o", small]),
        ("They run SpiderCast in the simulator until nobody changes anything.",
         ["simulate", "spidercast", small, *chance, "-o", str(folder / "spidercast")]),
    ]  # fmt: skip
    for place, (title, arguments) in enumerate(steps, start=1):
        say(f"\n{place}. {title}\n$ trellis {shlex.join(arguments)}")
        if run(arguments) != 0:
            raise TrellisError(f"step {place} of the tour failed; what it said stands above")
    say(f"\nPictures and tables are in {folder}/. Next: trellis --help")
