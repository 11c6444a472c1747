"""Vary a case: give it another seed or other limits; drop, move, repeat, stretch, aim and splice its faults.

A seed decides what clients, attackers and the network do. A variation with the same seed repeats all of that. So most
variations take a new seed and keep the faults and limits, which made the case rare.

A variation follows the rules of every seed. It has a crash and a partition. Faults that take nodes away keep a distance
in time, because a mesh promises to survive only so many crashes at a time.
"""

from __future__ import annotations

from random import Random

import msgspec

from trellis.simulate.mesh.corpus import Case, Limits
from trellis.simulate.mesh.draw import ALWAYS, TAKE_AWAY, MeshPlan, draw_mesh
from trellis.simulate.mesh.limits import draw_limits
from trellis.simulate.mesh.trial import Trial
from trellis.simulate.schedule import Fault, Schedule

_OPERATORS = ("drop", "move", "repeat", "stretch", "aim", "splice", "limits")
_ANEW_SHARE = 0.75  # share of variations with a new seed
_LASTS_MS_MAX = 20_000  # far below the replay window, because a longer cut may lose messages


def vary(case: Case, other: Case, plan: MeshPlan, random: Random) -> Case:
    """Return a case like `case`, with up to three changes. Some of them are taken from `other`."""
    seed = case.seed
    faults, limits = _drawn(case, plan)
    is_anew = random.random() < _ANEW_SHARE
    if is_anew:
        seed = random.randrange(1 << 32)
    for _ in range(random.choice((0, 0, 1, 2) if is_anew else (1, 1, 2, 3))):
        match random.choice(_OPERATORS):
            case "drop" if len(faults) > len(ALWAYS):
                faults.pop(random.randrange(len(faults)))
            case "move":
                place = random.randrange(len(faults))
                by_ms = random.choice((-5_000, -1_000, -100, 100, 1_000, 5_000))
                faults[place] = msgspec.structs.replace(faults[place], time_ms=faults[place].time_ms + by_ms)
            case "repeat" if len(faults) < 2 * plan.faults_max:
                again = random.choice(faults)
                later_ms = random.choice((200, 2_000, 8_000))
                faults.append(msgspec.structs.replace(again, time_ms=again.time_ms + again.duration_ms + later_ms))
            case "stretch":
                place = random.randrange(len(faults))
                lasts_ms = round(faults[place].duration_ms * random.choice((0.25, 0.5, 2.0)))
                faults[place] = msgspec.structs.replace(faults[place], duration_ms=min(lasts_ms, _LASTS_MS_MAX))
            case "aim":
                place, names = random.randrange(len(faults)), draw_mesh(plan, seed)
                if len(faults[place].nodes) == 1 and faults[place].nodes[0] in names:
                    faults[place] = msgspec.structs.replace(faults[place], nodes=(random.choice(names),))
            case "splice":
                before_ms = round(1_000 * (plan.form_s + random.random() * plan.span_s))
                theirs = [one for one in _drawn(other, plan)[0] if one.time_ms >= before_ms]
                faults = [one for one in faults if one.time_ms < before_ms] + theirs or faults
            case "limits":
                limits = random.choice((_drawn(other, plan)[1], draw_limits(random)))
            case _:
                pass
    return Case(seed, _possible(faults, seed, plan, random), limits)


def _drawn(case: Case, plan: MeshPlan) -> tuple[list[Fault], Limits]:
    """Return the faults and limits of a case, drawn if it does not name them."""
    schedule = None if case.faults is None else Schedule(case.faults)
    trial = Trial(case.seed, plan, schedule, case.limits)
    return list(trial.schedule.faults), trial.limits


def _possible(faults: list[Fault], seed: int, plan: MeshPlan, random: Random) -> tuple[Fault, ...]:
    """Return the faults that the mesh of `seed` can have, in time order.

    A fault of one node that the mesh does not have is aimed at another one.
    """
    trial = Trial(seed, plan, None, None)
    drawn = list(trial.schedule.faults)
    begin_ms, end_ms = round(1_000 * plan.form_s), round(1_000 * (plan.form_s + plan.span_s))
    known = {*trial.names, *trial.clients, *(name for one in drawn for name in (*one.nodes, *one.peers))}
    kept: list[Fault] = []
    for one in faults:
        nodes = tuple(name for name in one.nodes if name in known)
        peers = tuple(name for name in one.peers if name in known)
        if not nodes and len(one.nodes) == 1 and not one.kind.startswith("broker-"):
            nodes = (random.choice(trial.names),)
        if not nodes or bool(peers) != bool(one.peers):
            continue
        time_ms = min(max(one.time_ms, begin_ms), end_ms - 1)
        kept.append(msgspec.structs.replace(one, time_ms=time_ms, nodes=nodes, peers=peers))
    for kind in ALWAYS:
        if all(one.kind != kind for one in kept):
            kept += [one for one in drawn if one.kind == kind][:1]
    return tuple(_apart(sorted(kept, key=lambda one: one.time_ms), plan))


def _apart(faults: list[Fault], plan: MeshPlan) -> list[Fault]:
    """Leave out faults that take a node away too soon after another one.

    The first crash has priority over the others.
    """
    out: list[Fault] = []
    gone_ms = -(10**9)
    gap_ms = round(1_000 * plan.crash_gap_s)
    first = next((one for one in faults if one.kind == "crash"), None)
    for one in faults:
        if one.kind in TAKE_AWAY:
            is_near_first = first is not None and one is not first and abs(one.time_ms - first.time_ms) < gap_ms
            if is_near_first or one.time_ms < gone_ms + gap_ms:
                continue
            gone_ms = one.time_ms
        out.append(one)
    return out
