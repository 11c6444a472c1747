"""Draw what happens to a mesh of whole nodes in one seed. Faults are data, so that they can be shrunk and varied.

| kind                | nodes       | other fields                                                           |
| ------------------- | ----------- | ---------------------------------------------------------------------- |
| crash               | one         | `duration_ms` down; `value` callbacks run before it                    |
| machine-crash       | one         | `duration_ms` down; the network tells nobody                           |
| pause, freeze       | one         | `duration_ms`; the process stops, or its kernel as well                |
| leave               | one         | `duration_ms` away after it has left in order                          |
| flap                | in turn     | `value` crashes in a row, each `duration_ms` down                      |
| row                 | in order    | crashes along the ring, `value` seconds apart; `duration_ms` down      |
| sidecar-crash       | a sidecar   | as `crash`, long after the broker's clients have subscribed            |
| partition           | one side    | `duration_ms`; clients are on either side                              |
| split               | one side    | `peers`: the other nodes, `duration_ms`; clients reach both sides      |
| one-way             | senders     | `peers`: receivers, `duration_ms`                                      |
| reset, dark         | one end     | `peers`: the other end; connections are reset, or end silently         |
| slow, lossy         | one end     | `peers`: the other end, `duration_ms`, `value`: seconds or probability |
| clock               | one         | `value`: seconds by which its wall clock jumps                         |
| files               | one         | `duration_ms`, `value`: number of file descriptors that are left       |
| disk                | one         | `duration_ms`: nothing can be written                                  |
| broker-crash        | a broker    | `duration_ms` down                                                     |
| broker-pause        | a broker    | `duration_ms`; its process stops                                       |
| hostile kinds       | its target  | `duration_ms`; `hostile.py` lists them                                 |
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import msgspec
from msgspec.structs import replace

from trellis import ids
from trellis.protocols.ring import identifier
from trellis.simulate.mesh.hostile import HONEST, HOSTILE, LIES
from trellis.simulate.schedule import Fault, Schedule

KINDS = (
    "crash",
    "machine-crash",
    "flap",
    "row",
    "sidecar-crash",
    "pause",
    "freeze",
    "leave",
    "partition",
    "split",
    "one-way",
    "reset",
    "dark",
    "slow",
    "lossy",
    "clock",
    "files",
    "disk",
    "broker-crash",
    "broker-pause",
    *HOSTILE,
)
# share of seeds with a long calm time, and the share of `quiet_s` by which clients go on there
_CALM_SHARE, _CALM = 0.25, 0.75
_HANGS_SHARE = 0.6  # share of meshes of three or more nodes in which a node hangs while another one crashes
_UNHEARD_SHARE = 0.4  # share of seeds with brokers in which a broker hears nothing from its sidecar for a while
# Least time between a first crash and all other faults for the crash to count as alone.
_ALONE_MS = 9_000
LONG_MS = 30_000  # duration of a long split: half of the replay window
ALWAYS = ("crash", "partition")  # kinds in every seed; clients restart in every seed as well, by their habits
TAKE_AWAY = ("crash", "machine-crash", "flap", "row", "sidecar-crash", "leave")
_ALONE_SHARE = 0.6  # Share of seeds of a harmless attack in which the attack comes first, while nothing else happens.
# Share of the other seeds in which a node crashes and soon restarts, while nothing else happens.
_ALONE_CRASH_SHARE = 0.25
# A sidecar crashes only after this share of the span. Before that, its broker's clients have not subscribed.
_LATE_SHARE = 0.5


class MeshPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a seed."""

    nodes_min: int = 1
    nodes_max: int = 5
    clients: int = 8
    hostile: float = 0.3  # share of seeds in which hostile peers or clients may take part
    lies: float = 0.1  # share of seeds in which hostile peers may also lie
    sites: float = 0.4  # share of seeds in which some nodes are sidecars of brokers
    form_s: float = 20.0  # time before the first client, because a mesh that has just started is sure of nothing
    span_s: float = 30.0  # time during which clients work and faults happen
    quiet_s: float = 40.0  # time after everything is healed; clients go on for its first half
    faults_max: int = 7
    rate: float = 3.0  # publications per second of each publisher
    # Time between two faults that take nodes away. Promises cover `copies - 1` crashes at a time.
    crash_gap_s: float = 12.0


def draw_mesh(plan: MeshPlan, seed: int) -> list[str]:
    """Return the names of the nodes of one seed."""
    random = Random(ids.stream(seed, "mesh", "nodes"))
    return [f"n{number}" for number in range(random.randint(plan.nodes_min, plan.nodes_max))]


def draw_sites(plan: MeshPlan, names: list[str], seed: int) -> dict[str, str]:
    """Draw the brokers of one seed. Return for each broker the node that is its sidecar."""
    random = Random(ids.stream(seed, "mesh", "sites"))
    if random.random() >= plan.sites and not _is_of_brokers(KINDS[seed % len(KINDS)]):
        return {}
    sidecars = random.sample(names, random.randint(1, len(names)))
    return {f"b{number}": name for number, name in enumerate(sidecars)}


def draw_calm_s(plan: MeshPlan, seed: int) -> float:
    """Draw for how long clients go on after the mesh has healed. Some promises hold only in calm."""
    random = Random(ids.stream(seed, "mesh", "calm"))
    return plan.quiet_s * _CALM if random.random() < _CALM_SHARE else 0.0


def draw_faults(
    plan: MeshPlan, names: list[str], clients: list[str], seed: int, sites: Mapping[str, str] | None = None
) -> Schedule:
    """Draw the faults of one seed. The same plan, names and seed give the same schedule.

    `sites` maps each broker to the node that is its sidecar.
    """
    random = Random(ids.stream(seed, "mesh", "faults"))
    sites = sites or {}
    brokers = list(sites)
    own = KINDS[seed % len(KINDS)]
    chance = random.random()
    hostile = HOSTILE if own in LIES or chance < plan.lies else HONEST if own in HONEST or chance < plan.hostile else ()
    ordinary = [kind for kind in KINDS if kind not in HOSTILE and (brokers or not _is_of_brokers(kind))]
    possible = [*ordinary, *hostile]
    kinds = [*ALWAYS, own if own in possible else "crash"]
    more = [kind for kind in possible if random.random() < 0.3]
    kinds += [random.choice(more or possible) for _ in range(random.randint(0, plan.faults_max - len(kinds)))]
    random.shuffle(kinds)
    # Faults that take nodes away keep a distance in time, so the last ones may not fit into the span. A crash fits in
    # every seed.
    places = [place for place, kind in enumerate(kinds) if kind in TAKE_AWAY]
    away = sorted((kinds[place] for place in places), key=lambda kind: (kind != "crash", kind != own))
    for place, kind in zip(places, away, strict=True):
        kinds[place] = kind
    faults: list[Fault] = []
    gap_ms, gone_ms, end_ms = round(1_000 * plan.crash_gap_s), -(10**9), round(1_000 * (plan.form_s + plan.span_s))
    for time_ms, kind in _times(plan, kinds, own, random):
        if kind in TAKE_AWAY:
            if gone_ms < 0 and own in TAKE_AWAY:  # so early that a second one still fits
                time_ms = max(round(1_000 * plan.form_s), min(time_ms, end_ms - gap_ms - 1))
            time_ms = max(time_ms, gone_ms + gap_ms)
            if time_ms >= end_ms:
                continue
            gone_ms = time_ms
        one = _fault(kind, time_ms, names, [*clients, *brokers], sites, random)
        # A long split begins early, because it must last its full time before everything is healed.
        if one.kind == "split" and one.duration_ms == LONG_MS:
            one = replace(one, time_ms=round(1_000 * plan.form_s) + one.time_ms % 2_000)
        faults.append(one)
    faults += _hangs(faults, names, random)
    faults += _unheard(plan, sites, random)
    if any(one in LIES for one in kinds):
        faults = [_short(one) for one in faults]
    schedule = Schedule(tuple(sorted(faults, key=lambda one: one.time_ms)))
    if crashes_alone(schedule):
        crash, *others = schedule.faults
        schedule = Schedule((replace(crash, duration_ms=min(crash.duration_ms, 1_000)), *others))
    return schedule


def crashes_alone(schedule: Schedule) -> bool:
    """Return whether a crash comes first, and nothing else for a while."""
    first, *others = schedule.faults
    return first.kind == "crash" and all(one.time_ms - first.time_ms >= _ALONE_MS for one in others)


def _times(plan: MeshPlan, kinds: list[str], own: str, random: Random) -> list[tuple[int, str]]:
    """Draw when the faults happen. In some seeds one comes first, and nothing else happens for a while."""
    begin_ms, span_ms = round(1_000 * plan.form_s), round(1_000 * plan.span_s)
    share = random.choice((0.5, 1.0, 1.0))  # Early faults leave a long calm time, in which many deliveries are owed.
    # Late faults meet subscriptions that were confirmed long before.
    late_ms = round(random.choice((0.0, 0.0, 0.4)) * span_ms)
    times = sorted(begin_ms + max(late_ms, random.randrange(round(share * span_ms))) for _ in kinds)
    alone, alone_share = (own, _ALONE_SHARE) if own in HONEST else ("crash", _ALONE_CRASH_SHARE)
    if random.random() < alone_share:
        # A crash happens after clients have subscribed. An attack meets clients that connect for the first time.
        first, calm = (0.2, 0.6) if alone == "crash" else (0.0, 0.4)
        kinds = [alone, *(kind for place, kind in enumerate(kinds) if place != kinds.index(alone))]
        times = [max(one, begin_ms + round(calm * span_ms)) for one in times]
        # It also comes before the others if the span is short.
        times[0] = begin_ms + round(first * span_ms) + random.randrange(max(1, min(2_000, span_ms // 5)))
    late_ms = begin_ms + round(_LATE_SHARE * span_ms)
    pairs = zip(times, kinds, strict=True)
    return sorted((max(one, late_ms) if kind == "sidecar-crash" else one, kind) for one, kind in pairs)


def _hangs(faults: list[Fault], names: list[str], random: Random) -> list[Fault]:
    """Draw a node that hangs while another one crashes, in some meshes of three or more nodes.

    Half of the time it is the next node on the ring, which is the one that repairs.
    """
    crashes = [one for one in faults if one.kind == "crash"]
    if len(names) < 3 or not crashes or random.random() >= _HANGS_SHARE:
        return []
    crash = random.choice(crashes)
    ring = sorted(names, key=identifier)
    after = [ring[(ring.index(crash.nodes[0]) + step) % len(ring)] for step in range(1, len(ring))]
    who = after[0] if random.random() < 0.5 else random.choice(after)
    return [Fault(crash.time_ms - 1_000, "pause", (who,), duration_ms=7_000)]


def _unheard(plan: MeshPlan, sites: Mapping[str, str], random: Random) -> list[Fault]:
    """Draw a broker that hears nothing from its sidecar until their connection ends. Then both send much again."""
    if not sites or random.random() >= _UNHEARD_SHARE:
        return []
    broker, sidecar = random.choice(list(sites.items()))
    begin_ms = round(1_000 * (plan.form_s + random.uniform(0.3, 0.8) * plan.span_s))
    return [
        Fault(begin_ms, "one-way", (sidecar,), (broker,), duration_ms=4_000),
        Fault(begin_ms + 3_900, "reset", (sidecar,), (broker,)),
    ]


def has_lies(schedule: Schedule) -> bool:
    """Return whether a hostile peer of the schedule lies."""
    return any(one.kind in LIES for one in schedule.faults)


def _short(fault: Fault) -> Fault:
    """Shorten a fault.

    If peers lie, messages are kept for a short time (`limits.py`), and cuts must end well before that.
    """
    return replace(fault, duration_ms=min(fault.duration_ms, 3_000)) if fault.kind not in HOSTILE else fault


def _is_of_brokers(kind: str) -> bool:
    return kind.startswith(("broker-", "sidecar-"))


def _fault(
    kind: str, time_ms: int, names: list[str], others: list[str], sites: Mapping[str, str], random: Random
) -> Fault:
    who = (random.choice(names),)
    lasts_ms = random.choice((200, 1_000, 4_000, 9_000))
    match kind:
        case "crash":
            lasts_ms = random.choice((200, 1_000, 4_000, 9_000, 25_000))
            return Fault(time_ms, kind, who, duration_ms=lasts_ms, value=random.choice((0, 0, 1, 10, 100)))
        case "machine-crash" | "leave":
            return Fault(time_ms, kind, who, duration_ms=random.choice((1_000, 5_000, 9_000)))
        case "pause" | "freeze":
            return Fault(time_ms, kind, who, duration_ms=random.choice((300, 2_000, 7_000, 12_000)))
        case "partition":
            everybody = [*names, *others]
            side = random.sample(everybody, random.randint(1, max(1, len(everybody) - 1)))
            return Fault(time_ms, kind, tuple(sorted(side)), duration_ms=random.choice((500, 3_000, 8_000, 20_000)))
        case "split":
            side = random.sample(names, random.randint(1, max(1, len(names) - 1)))
            rest = tuple(name for name in names if name not in side)
            return Fault(time_ms, kind, tuple(sorted(side)), rest, duration_ms=random.choice((3_000, 8_000, LONG_MS)))
        case "flap":
            turns = who if random.random() < 0.5 else tuple(random.sample(names, len(names)))
            return Fault(time_ms, kind, turns, duration_ms=random.choice((200, 1_000)), value=random.choice((2, 5, 12)))
        case "row":
            ring = sorted(names, key=identifier)
            first, count = random.randrange(len(ring)), random.randint(1, max(1, len(ring) - 1))
            order = tuple(ring[(first + step) % len(ring)] for step in range(count))
            lasts_ms, apart_s = random.choice((1_000, 5_000, 9_000)), random.choice((0.3, 1.0, 1.0, 2.5))
            return Fault(time_ms, kind, order, duration_ms=lasts_ms, value=apart_s)
        case "sidecar-crash":
            return Fault(time_ms, kind, (random.choice(list(sites.values())),), duration_ms=random.choice((200, 3_000)))
        case "one-way":
            other = random.choice([*names, *others])
            return Fault(time_ms, kind, who, (other,), duration_ms=random.choice((500, 3_000, 8_000)))
        case "reset" | "dark":
            return Fault(time_ms, kind, who, (random.choice([*names, *others]),))
        case "slow":
            value = random.choice((0.05, 0.3, 1.5))
            return Fault(time_ms, kind, who, (random.choice([*names, *others]),), duration_ms=lasts_ms, value=value)
        case "lossy":
            value = random.choice((0.05, 0.3))
            return Fault(time_ms, kind, who, (random.choice([*names, *others]),), duration_ms=lasts_ms, value=value)
        case "clock":
            return Fault(time_ms, kind, who, value=random.choice((-3_600.0, -2.0, 5.0, 86_400.0)))
        case "broker-crash" | "broker-pause":
            return Fault(time_ms, kind, (random.choice(list(sites)),), duration_ms=random.choice((200, 2_000, 7_000)))
        case _ if kind in HOSTILE:
            # nodes with an MQTT listener; a sidecar has a broker instead
            listeners = [name for name in names if name not in sites.values()]
            if listeners and random.random() < 0.7:
                who = (random.choice(listeners),)
            return Fault(time_ms, kind, who, duration_ms=random.choice((3_000, 6_000, 10_000)))
        case "files":
            return Fault(time_ms, kind, who, duration_ms=lasts_ms, value=random.choice((0, 1, 3)))
        case _:
            return Fault(time_ms, kind, who, duration_ms=lasts_ms)
