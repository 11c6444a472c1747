"""Small raw traces made by us in the formats of the real ones: to show and test the way from raw data to verdicts."""

from __future__ import annotations

from pathlib import Path

from trellis.errors import InputError
from trellis.files import written_whole
from trellis.lab.substitutes import friends, machine_events

START_US = 600_000_000  # Google's trace begins 600 s in; rows at 0 were there before
PLATFORM = "HofLGzk1Or/8Ildj2+Lqv0UGGvY82NLoni8+J/Yy0RU="


def write_traces(folder: Path, users: int, days: float, seed: int) -> dict[str, Path]:
    """`friends.txt`, an undirected edge a line as SNAP's ego-Facebook; `machine_events.csv` as Google's of 2011."""
    if days <= 0:
        raise InputError(f"--days {days:g}", "is not above 0", "give a number of days")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be made ({error.strerror})", "choose another folder") from error
    made = {"friendships": folder / "friends.txt", "machine events": folder / "machine_events.csv"}
    with written_whole(made["friendships"]) as part:
        part.write_text("".join(f"{one} {other}\n" for one, other in friends(users, seed)), "utf-8")
    rows = [f"0,{machine},0,{PLATFORM},0.5,0.2493\n" for machine in range(users)]
    for seconds, machine, what in machine_events(users, seed, hours=24 * days):
        at = START_US + round(1e6 * seconds)
        rows.append(f"{at},{machine},{0 if what == 'add' else 1},{PLATFORM},0.5,0.2493\n")
    with written_whole(made["machine events"]) as part:
        part.write_text("".join(rows), "utf-8")
    return made
