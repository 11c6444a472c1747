"""What is done to the brokers, and when: the same for every system, by the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

LEAD_S = 6.0  # calm at the beginning
TAIL_S = 6.0  # no fault begins so shortly before the end
GROUP = 3


@dataclass(frozen=True)
class Fault:
    """At `at_s` of the load something happens to `sites`, and lasts `for_s`.

    kill     kill -9; the site is started again after `for_s`
    hang     SIGSTOP, and SIGCONT after `for_s`
    restart  SIGTERM; the site is started again when it has ended
    cut      `sites` and all others cannot reach each other; their clients can
    """

    at_s: float
    kind: str
    sites: tuple[int, ...]
    for_s: float


@dataclass(frozen=True)
class Times:
    """How often and how long, in seconds."""

    kill_every_s: float = 5.0
    down_s: float = 2.0
    group_every_s: float = 15.0
    hang_every_s: float = 10.0
    hang_s: float = 5.0
    restart_every_s: float = 8.0
    cut_s: float = 30.0


class Unfit(Exception):
    """A schedule that makes no sense for so many brokers, or for so short a load."""


def make(kind: str, sites: int, seconds: float, seed: int, times: Times | None = None) -> list[Fault]:
    """Return the faults of a load of `seconds`, in the order of time."""
    if kind not in SCHEDULES:
        raise Unfit(f"there is no schedule {kind!r}; there are {', '.join(SCHEDULES)}")
    return list(SCHEDULES[kind](sites, seconds, Random(f"{seed} {kind}"), times or Times()))


def _quiet(sites: int, seconds: float, random: Random, times: Times) -> Iterator[Fault]:
    yield from ()


def _kills(sites: int, seconds: float, random: Random, times: Times) -> Iterator[Fault]:
    """One at a time."""
    yield from _each("kill", sites, seconds, random, times.kill_every_s, times.down_s)


def _groups(sites: int, seconds: float, random: Random, times: Times) -> Iterator[Fault]:
    """Three at the same moment."""
    if sites < 2 * GROUP:
        raise Unfit(f"groups of {GROUP} need {2 * GROUP} brokers or more, so that more than half stay up")
    for at_s in _moments(seconds, times.group_every_s, times.down_s):
        yield Fault(at_s, "kill", tuple(sorted(random.sample(range(sites), GROUP))), times.down_s)


def _hangs(sites: int, seconds: float, random: Random, times: Times) -> Iterator[Fault]:
    yield from _each("hang", sites, seconds, random, times.hang_every_s, times.hang_s)


def _rolling(sites: int, seconds: float, random: Random, times: Times) -> Iterator[Fault]:
    """Every broker once, in turn, however long that takes."""
    for place in range(sites):
        yield Fault(LEAD_S + place * times.restart_every_s, "restart", (place,), 0.0)


def _partition(sites: int, seconds: float, random: Random, times: Times) -> Iterator[Fault]:
    """A third of the brokers is cut off from the others, once."""
    if seconds < LEAD_S + times.cut_s + TAIL_S:
        raise Unfit(f"a cut of {times.cut_s:g} s needs a load of {LEAD_S + times.cut_s + TAIL_S:g} s or more")
    side = tuple(sorted(random.sample(range(sites), max(1, sites // 3))))
    yield Fault(LEAD_S, "cut", side, times.cut_s)


SCHEDULES: dict[str, Callable[[int, float, Random, Times], Iterator[Fault]]] = {
    "quiet": _quiet,
    "kills": _kills,
    "groups": _groups,
    "hangs": _hangs,
    "rolling": _rolling,
    "partition": _partition,
}


def _each(kind: str, sites: int, seconds: float, random: Random, every_s: float, for_s: float) -> Iterator[Fault]:
    """Yield a fault of one site every `every_s`; each site is hit once before one is hit again."""
    order: list[int] = []
    last = -1
    for at_s in _moments(seconds, every_s, for_s):
        if not order:
            order = random.sample(range(sites), sites)
            if order[0] == last and sites > 1:
                order.append(order.pop(0))
        last = order.pop(0)
        yield Fault(at_s, kind, (last,), for_s)


def _moments(seconds: float, every_s: float, for_s: float) -> Iterator[float]:
    at_s = LEAD_S
    while at_s + for_s <= seconds - TAIL_S:
        yield at_s
        at_s += every_s
