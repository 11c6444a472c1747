"""Which topics there are, where each is published, and at which brokers somebody subscribes.

A topic is `SITE/NAME`, where SITE is the broker at which it is published (see `systems/mosquitto.py` for the reason).
The interests come from the friendships of ego-Facebook (SNAP) if TRELLIS_DATA names a folder with that trace: each
broker is a user, and each topic a person whom at least two of the users know. Otherwise they are generated.
"""

from __future__ import annotations

import gzip
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from random import Random

_TRACE = Path("ego-facebook/facebook_combined.txt.gz")
_FRIENDS_MIN = 60


@dataclass(frozen=True)
class Topic:
    name: str
    publisher: int  # site
    readers: tuple[int, ...]  # sites


@dataclass(frozen=True)
class Interests:
    topics: tuple[Topic, ...]
    source: str

    def filters(self, site: int) -> tuple[str, ...]:
        return tuple(one.name for one in self.topics if site in one.readers)

    @property
    def crossing(self) -> int:
        """How many pairs of a topic and a reader are at different brokers."""
        return sum(reader != one.publisher for one in self.topics for reader in one.readers)


def make(sites: int, topics: int, seed: int, *, source: str = "auto") -> Interests:
    """`source`: `trace`, `made`, or `auto`: the trace where it is at hand."""
    folder = os.environ.get("TRELLIS_DATA", "")
    path = Path(folder) / _TRACE
    if source == "trace" and not (folder and path.is_file()):
        raise SystemExit(f"--interests trace: there is no {_TRACE} below TRELLIS_DATA; set it, or use --interests made")
    random = Random(f"{seed} interests")
    if source != "made" and folder and path.is_file():
        told = "ego-Facebook (SNAP): brokers are users, topics their friends"
        wanted = _from_friends(path, sites, random)
    else:
        told = "generated: a topic has subscribers at one broker or more, at few for the most part"
        wanted = _generated(sites, topics, random)
    chosen = sorted(random.sample(sorted(wanted), min(topics, len(wanted))))
    order = random.sample(range(sites), sites)
    made = [
        Topic(f"s{order[number % sites]}/{name}", order[number % sites], wanted[name])
        for number, name in enumerate(chosen)
    ]
    return Interests(tuple(made), told)


def _from_friends(path: Path, sites: int, random: Random) -> dict[str, tuple[int, ...]]:
    friends: dict[int, set[int]] = defaultdict(set)
    with gzip.open(path, "rt", encoding="ascii") as file:
        for line in file:
            one, other = map(int, line.split()[:2])
            friends[one].add(other)
            friends[other].add(one)
    center = random.choice([one for one in sorted(friends) if len(friends[one]) >= max(_FRIENDS_MIN, 2 * sites)])
    users = random.sample(sorted(friends[center]), sites)
    known: dict[int, list[int]] = defaultdict(list)
    for site, user in enumerate(users):
        for friend in friends[user]:
            known[friend].append(site)
    return {f"u{friend}": tuple(readers) for friend, readers in known.items() if len(readers) >= min(2, sites)}


def _generated(sites: int, topics: int, random: Random) -> dict[str, tuple[int, ...]]:
    """Return topics with few readers for the most part: the number of readers k has a weight of 1/k."""
    sizes = range(1, sites + 1)
    found = {}
    for number in range(topics):
        (size,) = random.choices(sizes, [1 / size for size in sizes])
        found[f"t{number}"] = tuple(sorted(random.sample(range(sites), size)))
    return found
