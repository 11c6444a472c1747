"""Define the settings of each churn model.  [readings E-11, E-12: docs/papers.md]

Times are in rounds for `random` and in seconds for the others. A joining node gets its interests from `joiners`:
    popularity   as many topics as some initial node has, drawn by the popularity among the initial nodes
    copy         the interests of some initial node
    a workload   a configuration, or as text `zipf:alpha=2.0`: its next nodes, beyond those of the interests
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.errors import InputError
from trellis.workloads.checks import check_above, check_at_least, check_choice, check_count, refuse_if
from trellis.workloads.configs import Hierarchical, Spatial, WorkloadConfig
from trellis.workloads.options import parse_spec

Joiners = Annotated[
    str | WorkloadConfig,
    Meta(description="where joiners get their interests: popularity, copy, or a workload as zipf:alpha=2.0"),
]
Start = Annotated[float, Meta(description="when it begins")]


class RandomChurn(msgspec.Struct, frozen=True):
    """One join or leave a round, each with probability 0.5.  [Shadows VI]

    The leaver is any present node, the joiner a new one. The last node stays: the round brings a join instead.
    """

    rounds: Annotated[int, Meta(description="number of rounds, at times 1, 2, ...")] = 1000
    joiners: Joiners = "popularity"

    def __post_init__(self) -> None:
        check_count("rounds", self.rounds)
        check_joiners(self.joiners)


class OnOff(msgspec.Struct, frozen=True):
    """Every node comes and goes; with new interests at each return.  [SpiderCast 3.8; E-11: a stationary start]"""

    mean_up: Annotated[
        float, Meta(description="mean time connected; higher is less churn (the paper varies it from 100 to 500)")
    ] = 100.0
    mean_down: Annotated[
        float | None, Meta(description="mean time away; a quarter of the mean time connected unless given")
    ] = None
    duration: Annotated[float, Meta(description="how long it goes on")] = 1000.0
    joiners: Joiners = "popularity"

    def __post_init__(self) -> None:
        check_above("mean-up", self.mean_up, 0)
        check_above("mean-down", self.away, 0)
        check_above("duration", self.duration, 0)
        check_joiners(self.joiners)

    @property
    def away(self) -> float:
        return self.mean_up / 4 if self.mean_down is None else self.mean_down


class FlashCrowd(msgspec.Struct, frozen=True):
    """Many new nodes at nearly one time.  [Vitis IV-F; ours: half as many again within 10 s]"""

    joins: Annotated[int | None, Meta(description="how many nodes join; the fraction decides unless given")] = None
    fraction: Annotated[float, Meta(description="how many join, as a part of the initial nodes")] = 0.5
    start: Start = 60.0
    window: Annotated[float, Meta(description="how long it takes until all are there; 0: all at once")] = 10.0
    joiners: Joiners = "popularity"

    def __post_init__(self) -> None:
        if self.joins is not None:
            check_count("joins", self.joins)
        check_above("fraction", self.fraction, 0)
        check_at_least("start", self.start, 0)
        check_at_least("window", self.window, 0)
        check_joiners(self.joiners)


PLACEMENTS = ("uniform", "ring", "overlay", "hub")


class CrashGroups(msgspec.Struct, frozen=True):
    """Groups of nodes that crash together, no node twice.  [for OMen's claim about concurrent churn, section 5]"""

    size: Annotated[int, Meta(description="nodes in a group; OMen promises to stand up to L of them")] = 10
    groups: Annotated[int, Meta(description="how many groups crash, one after the other")] = 1
    placement: Annotated[
        str,
        Meta(
            description="uniform: any nodes; ring: consecutive on the identifier ring; overlay: a node and those "
            "nearest to it in the overlay; hub: the highest degrees, with their highest neighbours"
        ),
    ] = "uniform"
    start: Start = 60.0
    interval: Annotated[float, Meta(description="time from one group to the next; enough to mend, or not")] = 60.0
    window: Annotated[float, Meta(description="a group crashes within this time (a detection period); 0: at once")] = (
        0.0
    )
    rejoin_after: Annotated[
        float | None, Meta(description="a crashed node returns after this time, with its old interests")
    ] = None

    def __post_init__(self) -> None:
        check_count("size", self.size)
        check_count("groups", self.groups)
        check_choice("placement", self.placement, PLACEMENTS)
        check_at_least("start", self.start, 0)
        check_at_least("window", self.window, 0)
        check_above("interval", self.interval, 0)
        if self.rejoin_after is not None:
            check_above("rejoin-after", self.rejoin_after, 0)


ChurnConfig = RandomChurn | OnOff | FlashCrowd | CrashGroups

CHURN_MODELS: dict[str, type[ChurnConfig]] = {
    "random": RandomChurn,
    "onoff": OnOff,
    "flash-crowd": FlashCrowd,
    "crash-groups": CrashGroups,
}
CHURN_ALIASES = {"coin": "random", "crash-k": "crash-groups"}  # short names used in the papers


def churn_named(name: str) -> ChurnConfig:
    """Return the default configuration of a churn model, given by name or alias."""
    kind = CHURN_MODELS.get(CHURN_ALIASES.get(name, name))
    if kind is None:
        raise InputError(
            name, "there is no such churn model", f"choose from {', '.join([*CHURN_MODELS, *CHURN_ALIASES])}"
        )
    return kind()


def parse_joiners(text: str) -> str | WorkloadConfig:
    """Return the source of interests that a user typed after --joiners."""
    if text in ("popularity", "copy"):
        return text
    try:
        return parse_spec(text)
    except InputError as error:
        remedy = error.remedy if ":" in text else f"use popularity or copy, or {error.remedy}"
        raise InputError(f"--joiners {error.where}", error.what, remedy) from None


def check_joiners(joiners: str | WorkloadConfig) -> None:
    """Raise InputError unless joining nodes can get their interests from `joiners`."""
    kind = parse_joiners(joiners) if isinstance(joiners, str) else joiners
    refuse_if(
        isinstance(kind, Spatial | Hierarchical),
        f"--joiners {type(kind).__name__.lower()}",
        "draws all its nodes together and has none to come",
        "use popularity or copy",
    )
