"""A scenario: a mesh and the faults that it meets, in a TOML file that runs on processes and in the simulator.

    nodes = 12
    topics = 8
    subscriptions = 3           # or a table of its own: [interests] with node = ["topic", ...]
    overlay = "omen"
    copies = 4
    rate = 20                   # publications a second, by all nodes together
    duration = 40               # seconds, from when the mesh has formed; then all faults end and the run is scored

    [[step]]
    at = 5                      # seconds
    do = "crash"
    who = "neighbours"          # any, `neighbours`, hub, or names
    count = 3
    lasts = 6                   # seconds until they start again; without it they stay down

| do                     | who                     | also                                                              |
| ---------------------- | ----------------------- | ----------------------------------------------------------------- |
| crash                  | any, `neighbours`, hub, names | `count`; `lasts`: then they are started again           |
| restart                | any that is down, names | `count`                                                           |
| hang                   | any, names              | `lasts`, or until the next `heal`                                 |
| leave                  | any, names              | in order                                                          |
| partition              | names of one side; any: the first `count` | `lasts`, or until the next `heal`               |
| heal                   |                         | ends hangs and partitions without `lasts`                         |
| subscribe, unsubscribe | names                   | `topic`                                                           |
| publish                | any, names              | `topic`; `count` messages at once, beside the steady traffic      |

At the end every topic must be connected, both ends of every link must have it, no acknowledged message may be missing,
and none may have been delivered twice.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from trellis.errors import InputError
from trellis.fleet.interests import InterestsByNode, draw_interests, expect_few

Do = Literal["crash", "restart", "hang", "leave", "partition", "heal", "subscribe", "unsubscribe", "publish"]
_BURST_MAX = 1_000  # messages of one step
_LASTING = ("hang", "partition")


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at: float
    do: Do
    who: Literal["any", "neighbours", "hub"] | tuple[str, ...] = "any"
    count: int = 1
    lasts: float | None = None
    topic: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that the step names. Empty if it says by what rule they are chosen."""
        return () if isinstance(self.who, str) else self.who

    def __str__(self) -> str:
        whom = " ".join(self.names) if self.names else f"{self.count} {self.who}"
        topic = f" {self.topic}" if self.topic else ""
        return f"{self.do} {whom}{topic}" + (f" for {self.lasts:g} s" if self.lasts is not None else "")


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    about: str = ""
    nodes: int = 0
    topics: int = 0
    subscriptions: int = 0
    interests: dict[str, tuple[str, ...]] = {}
    overlay: str = "omen"
    copies: int = 2
    rate: float = 20.0
    duration: float = 30.0
    seed: int = 1
    step: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in time order. Each has its end, so no `heal` is among them."""
        heals = sorted(step.at for step in self.step if step.do == "heal")
        ordered = []
        for step in sorted(self.step, key=lambda step: step.at):
            if step.do in _LASTING and step.lasts is None:
                end = next((at for at in heals if at > step.at), self.duration)
                step = msgspec.structs.replace(step, lasts=end - step.at)
            if step.do != "heal":
                ordered.append(step)
        return tuple(ordered)

    def wanted(self) -> InterestsByNode:
        """Return the interests: those of the file, or drawn ones."""
        if self.interests:
            return self.interests
        return draw_interests(self.nodes, self.topics, self.subscriptions, self.seed)


def read_scenario(path: Path) -> Scenario:
    where = str(path)
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(where, error.strerror or "cannot be read", "name a file that is there") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(where, f"not TOML: {error}", "correct the line") from None
    return make_scenario(given, where)


def make_scenario(given: dict[str, Any], where: str = "scenario") -> Scenario:
    try:
        scenario = msgspec.convert(given, Scenario)
    except msgspec.ValidationError as error:
        raise InputError(where, str(error), "see docs/live.md for the keys") from None
    if bool(scenario.interests) == bool(scenario.nodes):
        remedy = "give nodes, topics and subscriptions, or a table of interests"
        raise InputError(where, "the interests are given twice, or not at all", remedy)
    try:
        interests = scenario.wanted()
    except InputError as error:
        raise InputError(where, f"{error.where.lstrip('-')}: {error.what}", error.remedy.replace("--", "")) from None
    expect_few(where, len(interests))
    if scenario.duration <= 0 or scenario.rate < 0:
        raise InputError(
            where, "the duration or the rate is too low", "give a duration above 0 and a rate of 0 or more"
        )
    for number, step in enumerate(scenario.step, start=1):
        _check(step, scenario, interests, f"{where}: step {number}")
    return scenario


def _check(step: Step, scenario: Scenario, interests: InterestsByNode, where: str) -> None:
    unknown = [name for name in step.names if name not in interests]
    if unknown:
        raise InputError(where, f'there is no node "{unknown[0]}"', "name nodes of the interests")
    if not 0 <= step.at <= scenario.duration or (step.lasts is not None and step.lasts <= 0):
        raise InputError(where, f"at {step.at:g} s", f"give a time within {scenario.duration:g} s, lasting above 0")
    most = _BURST_MAX if step.do == "publish" else len(interests) - 1
    if not 1 <= step.count <= most:
        raise InputError(where, f"count is {step.count}", f"give 1 to {most}")
    if step.who in ("neighbours", "hub") and step.do != "crash":
        raise InputError(where, f"{step.do} cannot choose {step.who}", "only a crash can")
    if step.who == "hub" and step.count != 1:
        raise InputError(where, f"{step.count} hubs", "give one at a time")
    if step.do in ("subscribe", "unsubscribe") and not (step.names and step.topic):
        raise InputError(where, f"{step.do} needs who and topic", 'give who = ["..."] and topic = "..."')
