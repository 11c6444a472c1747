"""`trellis.lab.compare`: systems side by side on the same interests, with confidence intervals.

Every system starts with all nodes (OMen, and systems that need one, from LowODA's overlay) and runs until nothing
changes any more, or for `rounds` gossip rounds where links never rest. Then one event is published on every topic by a
random subscriber, if the system disseminates events. The measures:

    degree mean, degree max, links    of the overlay at the end
    split topics                      topics whose subscribers are not connected through each other
    diameter mean, diameter max       topic diameters, in hops, over connected topics
    messages, events                  sent by a node in a gossip round, as the event engine counts them: every message
    messages, cycles                  the same, as the cycle engine counts them: without those that undo links, and
                                      with those of the events. The two cannot be compared: each has a column
    hit ratio %, overhead %, delay    of the published events (VI §IV): delivered pairs, unwanted receptions, hops
    cpu s                             processor seconds of the run
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trellis.errors import InputError, TrellisError
from trellis.lab.comparison import Comparison, Measures
from trellis.lab.systems import CENTRAL, ENGINES, Rounds, engines_of, is_own, make_rounds, make_system
from trellis.measure.connectivity import connectivity
from trellis.measure.diameters import topic_diameters
from trellis.model import Interests, Overlay
from trellis.model.names import IdArray
from trellis.plan import construct
from trellis.simulate.by_cycles import simulate_cycles
from trellis.simulate.dissemination import Dissemination, Measured
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.probes import Camera
from trellis.simulate.publications import one_per_topic
from trellis.simulate.run import RunConfig, link_names, topics_by_node
from trellis.simulate.schedule import Schedule
from trellis.simulate.system import System

ROUNDS, STILL = 60, 5  # gossip rounds of systems whose links never rest; of a network in rounds, how many are quiet
SPAN_ROUNDS, AFTER_ROUNDS = 5, 15  # in which events are published, and travel
SEED_END = 2**31
SETTLE_MS_MAX = 600_000
Chosen = str | tuple[str, Mapping[str, Any]]


class Entrant(NamedTuple):
    name: str
    options: dict[str, Any]
    engine: str

    @property
    def label(self) -> str:
        told = ", ".join(f"{key} {value}" for key, value in self.options.items())
        return f"{self.name} ({told})" if told else self.name


def compare(
    systems: Sequence[Chosen],
    interests: Interests | Callable[[int], Interests],
    *,
    seeds: int | Iterable[int] = 3,
    engine: str = "events",
    rounds: int = ROUNDS,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Run systems on the same interests, and return a table of measures with 95% intervals over seeds.

    systems    names, or pairs of a name and options: ["spidercast", ("vitis", {"table_size": 20}), "mine"]. Known are
               the systems of the papers, the central algorithms lowoda, gm, minmax and ring, and systems that were
               registered (`trellis.lab.register`)
    interests  a table, or a function that gives one for a seed
    seeds      how many (1, 2, ...), or the seeds themselves
    engine     events, cycles, or both: every system on each engine that has it
    rounds     gossip rounds of systems whose links never rest
    progress   called after every run with the number of runs done, and of all
    """
    entrants, numbers = _entrants(systems, engine), _seeds(seeds)
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise InputError(f"rounds={rounds!r}", "is not 1 or more", "give a number of gossip rounds")
    listed: list[list[Measures]] = [[] for _ in entrants]
    done = 0
    for seed in numbers:
        table = interests(seed) if callable(interests) else interests
        if not isinstance(table, Interests):
            raise InputError("", f"the interests are {type(table).__name__}", "give trellis.Interests, or a function")
        if not len(table.nodes):
            raise InputError("", f"the interests for seed {seed} have no nodes", "give interests of one node or more")
        for place, one in enumerate(entrants):
            listed[place].append(_measured(one, table, seed, rounds))
            done += 1
            if progress is not None:
                progress(done, len(entrants) * len(numbers))
    return Comparison([(one.label, one.engine, values) for one, values in zip(entrants, listed, strict=True)], numbers)


def _measured(one: Entrant, interests: Interests, seed: int, rounds: int) -> Measures:
    begun = time.process_time()
    try:
        if one.engine == "central":
            found = _of_overlay(interests, construct(interests, one.name, seed=seed).overlay)
        elif is_own(one.name, "cycles") and one.engine == "cycles":
            found = _own_rounds(one, interests, seed, rounds)
        elif one.engine == "cycles":
            found = _by_cycles(make_system(one.name, one.options), interests, seed, rounds)
        else:
            found = _by_events(make_system(one.name, one.options), interests, seed, rounds)
    except TrellisError as error:
        if not is_own(one.name, one.engine) or str(error).startswith(one.name):
            raise
        raise TrellisError(f"{one.label}, engine {one.engine}, seed {seed}: {error}") from error
    except Exception as error:
        if not is_own(one.name, one.engine):
            raise
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        raise TrellisError(f"{one.label}, engine {one.engine}, seed {seed}: {what}; mend the system") from error
    return {**found, "cpu s": time.process_time() - begun}


def _by_events(system: System, interests: Interests, seed: int, rounds: int) -> Measures:
    wanted = topics_by_node(interests)
    start = construct(interests, "lowoda", seed=seed).overlay if _starts_planned(system) else None
    links = tuple(link_names(start)) if start is not None else ()
    engine = Engine(system, wanted, seed=seed, overlay=links)
    step, end = system.period_ms, rounds * system.period_ms
    while engine.world.now_ms < end if not system.must_settle else _is_busy(engine, system):
        engine.run(engine.world.now_ms + step)
    passed, sent = engine.world.now_ms / step, sum(engine.sent_by_type().values())
    found = _of_overlay(interests, Camera(engine.world).take().overlay)
    found["messages, events"] = sent / len(wanted) / max(1.0, passed)
    return {**found, **(_published(engine, wanted, seed) if _disseminates(system) else {})}


def _is_busy(engine: Engine, system: System) -> bool:
    now = engine.world.now_ms
    return now < min(SETTLE_MS_MAX, engine.quiet_from_ms + system.settle_ms)


def _published(engine: Engine, wanted: Mapping[str, tuple[str, ...]], seed: int) -> Measures:
    watch, step, now = Dissemination.attach(engine), engine.system.period_ms, engine.world.now_ms
    faults = one_per_topic(wanted, start_ms=now + 1, span_ms=SPAN_ROUNDS * step, seed=seed)
    Injector(engine, Schedule(tuple(faults)))
    engine.run(now + (SPAN_ROUNDS + AFTER_ROUNDS) * step)
    return _of_events(watch.measure())


def _by_cycles(system: System, interests: Interests, seed: int, rounds: int) -> Measures:
    """One of Trellis' own systems on the cycle engine."""
    wanted, step = topics_by_node(interests), system.period_ms
    config, schedule = RunConfig(seed=seed, limit_ms=SETTLE_MS_MAX), None
    if _disseminates(system):
        faults = one_per_topic(wanted, start_ms=rounds * step, span_ms=SPAN_ROUNDS * step, seed=seed)
        schedule = Schedule(tuple(faults))
        config = RunConfig(seed=seed, duration_ms=(rounds + SPAN_ROUNDS + 1) * step)
    start = construct(interests, "lowoda", seed=seed).overlay if _starts_planned(system) else None
    run: Any = simulate_cycles(system, interests, config, overlay=start, schedule=schedule)
    summary = run.summary()
    found = _of_overlay(interests, run.probe.snapshot().overlay)
    found["messages, cycles"] = summary["messages"] / len(wanted) / max(1.0, summary["time_s"] * 1000 / step)
    told = summary.get("dissemination")
    if told and schedule is not None:
        found["hit ratio %"], found["overhead %"] = 100 * told["hit_ratio"], 100 * told["traffic_overhead"]
        found["delay"] = told["delay_hops"]
    return found


def _own_rounds(one: Entrant, interests: Interests, seed: int, rounds: int) -> Measures:
    """A network of a researcher's own: until nothing has changed for some rounds, at most `rounds`."""
    network = make_rounds(one.name, interests, seed, one.options)
    still = passed = 0
    while passed < rounds and still < STILL:
        still = 0 if _has_changed(one.name, network.cycle()) else still + 1
        passed += 1
    found = _of_overlay(interests, Overlay.from_ids(interests.nodes, *checked_links(one.name, network, interests)))
    if hasattr(network, "messages"):
        sent = _checked_count(one.name, network.messages)
        found["messages, cycles"] = sent / len(interests.nodes) / max(1, passed)
    return found


def _has_changed(name: str, told: Any) -> bool:
    if not isinstance(told, bool | np.bool_ | int):
        raise InputError(name, f"`cycle` returned {told!r:.60}", "return True where a link has changed, else False")
    return bool(told)


def checked_links(name: str, network: Rounds, interests: Interests) -> tuple[IdArray, IdArray]:
    """Return both ends of the links of a network of one's own. Raise InputError that names the first bad link."""
    told = network.links()
    if not isinstance(told, tuple | list) or len(told) != 2:
        raise InputError(name, f"`links` returned {told!r:.60}", "return two lists: both ends of every link")
    ends = []
    for side, listed in zip(("first", "second"), told, strict=True):
        try:
            found = np.asarray(listed)
        except ValueError:  # lists of unequal lengths inside
            found = np.asarray(listed, object)
        if found.ndim != 1 or (len(found) and not np.issubdtype(found.dtype, np.integer)):
            wrong = [one for one in found.tolist() if not isinstance(one, int) or isinstance(one, bool)]
            what = f"the {side} ends of its links have {wrong[0]!r:.60}, which is no place of a node"
            raise InputError(name, what, "give whole numbers: places in interests.nodes")
        ends.append(found.astype(np.int64))
    u, v = ends
    if len(u) != len(v):
        raise InputError(name, f"its links have {len(u)} first ends and {len(v)} second ends", "give one for each")
    last = len(interests.nodes) - 1
    for places, what in (
        (
            np.flatnonzero((np.minimum(u, v) < 0) | (np.maximum(u, v) > last)),
            "a link leads to a node that there is not",
        ),
        (np.flatnonzero(u == v), "a node is linked to itself"),
    ):
        if len(places):
            shown = f"link {places[0]} is ({u[places[0]]}, {v[places[0]]}), nodes are 0 to {last}"
            raise InputError(name, f"{what}: {shown}", "give two different places in interests.nodes for each link")
    pairs, counts = np.unique(np.sort(np.stack([u, v]), axis=0), axis=1, return_counts=True)
    if len(counts) and counts.max() > 1:
        twice = pairs[:, int(counts.argmax())]
        raise InputError(
            name, f"the link ({twice[0]}, {twice[1]}) is given {counts.max()} times", "give each link once"
        )
    return u.astype(np.int32), v.astype(np.int32)


def _checked_count(name: str, told: Any) -> float:
    is_number = isinstance(told, int | float | np.integer | np.floating) and not isinstance(told, bool)
    if not is_number or not 0 <= float(told) < float("inf"):
        what = f"its attribute `messages` is {told!r:.60}"
        raise InputError(name, what, "count all messages that were sent so far, or have no such attribute")
    return float(told)


def _of_overlay(interests: Interests, overlay: Overlay) -> Measures:
    seen = connectivity(interests, overlay)
    far = topic_diameters(interests, overlay, connected=seen, threads=1)
    degrees = overlay.degrees
    return {
        "degree mean": float(degrees.mean()),
        "degree max": float(degrees.max()),
        "links": float(len(overlay)),
        "split topics": float(len(seen.split)),
        "diameter mean": float(far.mean or 0.0),
        "diameter max": float(far.maximum or 0),
    }


def _of_events(found: Measured) -> Measures:
    return {"hit ratio %": 100 * found.hit_ratio, "overhead %": 100 * found.overhead, "delay": found.delay}


def _starts_planned(system: System) -> bool:
    return system.needs_overlay or system.name == "omen"


def _disseminates(system: System) -> bool:
    return getattr(type(system), "carried", None) is not System.carried


def _entrants(systems: Sequence[Chosen], engine: str) -> list[Entrant]:
    if isinstance(systems, str) or not isinstance(systems, Sequence) or not systems:
        raise InputError("", "no systems are listed", 'give a list of names: ["spidercast", "mine"]')
    if engine not in (*ENGINES, "both"):
        raise InputError("", f'no engine is called "{engine}"', f"choose from {', '.join(ENGINES)}, both")
    found = []
    for chosen in systems:
        match chosen:
            case str():
                name, options = chosen, {}
            case (str() as name, Mapping() as given):
                options = dict(given)
            case _:
                raise InputError("", f"{chosen!r} names no system", "give a name, or a pair of a name and options")
        known = engines_of(name)
        wanted = known if name in CENTRAL or engine == "both" else (engine,)
        if wanted[0] not in known:
            what = f"the engine {engine} does not have it"
            raise InputError(name, what, f'take engine="{known[0]}", or register one for {engine}')
        found += [Entrant(name, options, one) for one in wanted]
    return found


def _seeds(seeds: int | Iterable[int]) -> list[int]:
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            raise InputError(f"seeds={seeds}", "names no seed", "give a number of seeds, 1 or more, or a list of them")
        return list(range(1, seeds + 1))
    if isinstance(seeds, str | bytes | bool) or not isinstance(seeds, Iterable):
        raise InputError(f"seeds={seeds!r}", "names no seed", "give a number of seeds, or a list of them")
    found: list[int] = []
    for one in seeds:
        if isinstance(one, bool) or not isinstance(one, int | np.integer) or not 0 <= one < SEED_END:
            raise InputError(f"seeds: {one!r}", "is no seed", f"give whole numbers from 0 to {SEED_END - 1}")
        if int(one) in found:
            raise InputError(f"seeds: {one}", "is listed twice", "give each seed once: a repeated run shows no chance")
        found.append(int(one))
    if not found:
        raise InputError("seeds=[]", "names no seed", "give a number of seeds, or a list of them")
    return found
