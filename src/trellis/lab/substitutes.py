"""Stand-ins for data that is not at hand. Whatever is judged on them is `shape only` at best.  [EXPERIMENTS 4]

friends      Holme and Kim's clustered power-law graph, for Facebook samples larger than `ego-facebook`, or without it
followers    in- and out-degrees by a power law of exponent 1.65, for Twitter samples
machines     leaves at random, one per 30 minutes and 1,000 machines, down times of 1.5 hours, for Google's trace
editors      popularity by a power law from 1 to 348 with mean 5.4, for Wikipedia's editors
"""

from __future__ import annotations

from random import Random

from trellis import ids
from trellis.model import ChurnTrace, Interests

Wanted = dict[str, tuple[str, ...]]
TRIANGLES = 0.6  # how often a link closes a triangle
LEAVES_PER_1000_MACHINES_AND_HOUR, DOWN_HOURS = 2.0, 1.5


def friends(nodes: int, seed: int, *, links: int = 8) -> list[tuple[int, int]]:
    """Edges of a graph of mean degree 2 x links: newcomers befriend popular users, and then often friends of those.

    [Holme, Kim: Growing scale-free networks with tunable clustering, 2002]
    """
    chance = Random(ids.stream(seed, "lab", "friends"))
    links = min(links, max(1, nodes // 4))
    near: list[set[int]] = [set() for _ in range(nodes)]
    ends: list[int] = list(range(links))  # every user once per friend: a draw prefers the popular
    for user in range(links, nodes):
        target = ends[chance.randrange(len(ends))]
        while len(near[user]) < links:
            if target != user and target not in near[user]:
                near[user].add(target)
                near[target].add(user)
                ends.append(target)
                around = sorted(near[target] - near[user] - {user})
                if around and chance.random() < TRIANGLES:
                    target = around[chance.randrange(len(around))]
                    continue
            target = ends[chance.randrange(len(ends))]
        ends.extend([user] * links)
    return [(user, friend) for user in range(nodes) for friend in sorted(near[user]) if user < friend]


def friend_interests(nodes: int, seed: int) -> Interests:
    """Users are topics too; a user wants the topics of its friends.  [OM 6.1; E-13]"""
    pairs = friends(nodes, seed)
    return Interests.from_pairs([*pairs, *((other, one) for one, other in pairs)])


def followers(nodes: int, seed: int, *, exponent: float = 1.65, least: int = 4) -> Interests:
    """Capped at a fifth of all users; about 80 subscriptions on average at 10,000.  [VI Fig. 9]"""
    chance = Random(ids.stream(seed, "lab", "followers"))
    most = max(10, nodes // 5)

    def draw() -> int:
        return min(most, int(least * (1 - chance.random()) ** (-1 / (exponent - 1))))

    names = [f"u{number}" for number in range(nodes)]
    weights = [draw() for _ in names]
    wanted: Wanted = {}
    for name in names:
        chosen: dict[str, None] = {}
        count = min(draw(), nodes // 5)
        while len(chosen) < count:
            chosen.update(dict.fromkeys(one for one in chance.choices(names, weights, k=count) if one != name))
        wanted[name] = tuple(list(chosen)[:count])
    return Interests.from_pairs(wanted)


def machine_events(machines: int, seed: int, *, hours: float = 29 * 24) -> list[tuple[float, int, str]]:
    """(seconds, machine, add | remove) in time order; all machines are there at the start."""
    chance = Random(ids.stream(seed, "lab", "machines"))
    rate = LEAVES_PER_1000_MACHINES_AND_HOUR / 1000  # of one machine
    found: list[tuple[float, int, str]] = []
    for machine in range(machines):
        now = chance.expovariate(rate)
        while now < hours:
            found.append((round(3600 * now, 3), machine, "remove"))
            now += chance.expovariate(1 / DOWN_HOURS)
            if now < hours:
                found.append((round(3600 * now, 3), machine, "add"))
            now += chance.expovariate(rate)
    return sorted(found)


def machine_churn(interests: Interests, seed: int) -> ChurnTrace:
    """Each node stands for one machine, and keeps its interests.  [E-9, E-10]"""
    names = list(interests.nodes)
    events = machine_events(len(names), seed)
    return ChurnTrace.from_rows(
        [(at, names[m], "leave" if what == "remove" else "join", None) for at, m, what in events]
    )


def editors(users: int, pages: int, seed: int, *, most: int = 348) -> Interests:
    """Popularity of a page x with probability ~ x^-1.9, which has mean 5.4; editors by a power law too.  [MG 4.5]"""
    chance = Random(ids.stream(seed, "lab", "editors"))
    most = min(most, max(2, users // 4))
    values = range(1, most + 1)
    popularity = chance.choices(values, [value**-1.9 for value in values], k=pages)
    busy = [chance.paretovariate(1.2) for _ in range(users)]
    wanted: dict[str, set[str]] = {}
    for page, count in enumerate(popularity):
        chosen: set[int] = set()
        while len(chosen) < count:
            chosen.update(chance.choices(range(users), busy, k=count - len(chosen)))
        for user in chosen:
            wanted.setdefault(f"user{user}", set()).add(f"page{page}")
    return Interests.from_pairs({user: sorted(topics) for user, topics in sorted(wanted.items())})
