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
    """Take the tour: make a workload, look at it, let churn loose on it.

    Every step is printed as the command that does it. The files stay for you to play with.
    """
    from trellis.cli.main import run

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be made ({error.strerror})", "choose another --folder") from error
    interests, churn = folder / "interests.parquet", folder / "churn.parquet"
    steps = [
        ("2,000 brokers, 200 topics, 10 to 90 of them each: the workload of the Shadows and OMen papers.",
         ["workload", "--preset", "shadows-zipf", "--seed", str(seed), "-o", str(interests)]),
        ("What does it look like?",
         ["profile", str(interests), "--plot", str(folder / "profile.png")]),
        ("A thousand joins and leaves to try overlays on.",
         ["churn", "random", str(interests), "--joiners", "shadows-zipf", "--seed", str(seed), "-o", str(churn)]),
    ]  # fmt: skip
    for place, (title, arguments) in enumerate(steps, start=1):
        say(f"\n{place}. {title}\n$ trellis {shlex.join(arguments)}")
        if run(arguments) != 0:
            raise TrellisError(f"step {place} of the tour failed; what it said stands above")
    say(f"\nPictures and tables are in {folder}/. Next: trellis --help")
