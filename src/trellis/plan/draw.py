"""Draw a run of `trellis maintain`: degrees over the rounds, and what each repair changed."""

from __future__ import annotations

from pathlib import Path

from trellis.measure.picture import BLUE, GREEN, ORANGE, picture
from trellis.plan.maintain_history import History

KINDS = {
    "joins": (GREEN, ("join",)),
    "leaves and crashes": (ORANGE, ("leave", "crash")),
    "subscription changes": (BLUE, ("subscribe", "unsubscribe")),
}


def draw_history(history: History, path: str | Path) -> None:
    """Draw maximum and mean degree by round, and changed links by subscription size, one color per kind of event."""
    rounds = list(history)
    mark = "" if history.complete else f" of {history.rounds_expected:,}, stopped there"
    with picture(path, f"{len(rounds):,} rounds{mark}", rows=1, columns=2) as ((degrees, repairs),):
        degrees.set(title="Degree", xlabel="round", ylabel="links of a node")
        degrees.plot(
            [round_.round for round_ in rounds], [round_.degree_max for round_ in rounds], color=BLUE, label="max"
        )
        degrees.plot(
            [round_.round for round_ in rounds], [round_.degree_mean for round_ in rounds], color=GREEN, label="mean"
        )
        degrees.set_ylim(bottom=0)
        degrees.legend(loc="lower right", ncols=2)
        repairs.set(title="Repairs", xlabel="topics of the node", ylabel="links added and removed")
        for label, (color, events) in KINDS.items():
            some = [round_ for round_ in rounds if round_.event in events]
            if some:
                repairs.plot(
                    [round_.subscriptions for round_ in some],
                    [round_.links_added + round_.links_removed for round_ in some],
                    ".", color=color, markersize=4, alpha=0.6, label=label,
                )  # fmt: skip
        if rounds:
            repairs.legend(loc="upper left")
