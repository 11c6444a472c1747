"""Run one seed: a mesh of whole nodes, clients of both kinds, faults, and a verdict on what the clients saw.

A trial has four phases. The mesh forms (`form_s`). Clients work while faults happen (`span_s`). Everything is healed,
and clients go on for a while (`quiet_s`, and more in some seeds). At the end the judge reads the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from trellis import ids
from trellis.judge import History, Promise, Verdict, judge
from trellis.judge.history import Connected, Settled, Up
from trellis.live.addresses import BOOK_MAX
from trellis.live.config import NodeConfig
from trellis.live.health import unready
from trellis.live.series import exposition
from trellis.live.shell import LiveNode
from trellis.protocols.delivery import DeliveryConfig
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.omen.config import OMenConfig
from trellis.reached import listen
from trellis.simulate.mesh import topics
from trellis.simulate.mesh.costs import charge, draw_slowness, has_floods
from trellis.simulate.mesh.draw import (
    ALWAYS,
    LONG_MS,
    MeshPlan,
    crashes_alone,
    draw_calm_s,
    draw_faults,
    draw_mesh,
    draw_sites,
    has_lies,
)
from trellis.simulate.mesh.hostile import HOSTILE
from trellis.simulate.mesh.inject import Injector
from trellis.simulate.mesh.limits import LYING_WINDOW_MS, UNTOLD, USED_UP, apply_limits, draw_limits, without
from trellis.simulate.mesh.mqttists import mqtt_latecomer, mqtt_subscriber
from trellis.simulate.mesh.mqttwriters import mqtt_publisher
from trellis.simulate.mesh.natives import (
    Habits,
    Visits,
    draw_visits,
    native_publisher,
    native_reader,
    native_subscriber,
)
from trellis.simulate.mesh.overflows import Overflows
from trellis.simulate.mesh.overflows import Place as Dropping
from trellis.simulate.mesh.repairs import slow_repairs
from trellis.simulate.mesh.sites import Place, Site
from trellis.simulate.mesh.witness import Witness
from trellis.simulate.schedule import Schedule
from trellis.simulate.whole.host import Host
from trellis.simulate.whole.network import NetworkConfig
from trellis.simulate.whole.whole import CLIENTS, MQTT, Mesh
from trellis.simulate.whole.world import World

RESTART = "client restart"  # counted with the faults: a client connects again under its name
_KINDS = ("native subscriber", "mqtt subscriber", "native publisher", "mqtt publisher")
# Words of refusals that limits cause.
_LIMITS = ("room", "wait for their copies", "window did not keep it", "quota", "the client gave up")
# Drawn limits at which nodes drop messages, and where. Default limits leave space for all messages.
_DROPPING: tuple[tuple[str, str, Dropping], ...] = (
    ("delivery", "window_bytes", "window"),
    ("mqtt", "queue_bytes", "clients"),
    ("mqtt", "broker_queue_bytes", "clients"),
)
LACKS = "the seed had no "  # beginning of a failure text that says what the draw lacks
RESIDENT = "r0"  # A subscriber at a broker that stays. It gets messages only through a sidecar that remembers.
AUTHOR = "r1"  # It publishes for the resident at another node, on a topic that no other client uses.
_RESTARTS_S = 20.0  # A client that works for so long restarts.
WRITER, READER = "l0", "l1"  # clients that stay with their nodes: an MQTT publisher and a native reader
SOURCE, VISITOR = "l2", "l3"  # a native publisher and a native subscriber, which come and go
LATECOMER = "l4"  # an MQTT subscriber that connects when the mesh has been calm for `_CALM_S`
_CALM_S = 18.0  # The judge expects retained messages of a mesh that nothing has disturbed for 15 s.
_METRICS_MAX = 1_500  # most lines of /metrics of one node
_SIZES = (16, 16, 200, 3_000)  # sizes of payloads, in bytes
_RETAINED_BYTES = 600  # size of a retained message without its payload, with all properties
PROMISE = Promise(settle_s=30.0, heal_s=8.0, alone_s=2.0, accept_s=6.0, restart_s=9.0, may_refuse=_LIMITS)
_SLOW_S = 10.0  # time for a retained message over links that carry few bytes at a time
_JOIN_PERIODS = 6  # periods that a join takes beside the wait for a view
STILL_S = 5  # A mesh in which no message arrives for this long has delivered all messages.
QUEUES_S = 300  # longest wait for that


class TrialResult(msgspec.Struct, kw_only=True):
    """The result of one seed."""

    seed: int
    nodes: int
    failures: list[str]  # why the seed failed; empty if it passed
    digest: str  # digest of every event of the run
    schedule: Schedule
    limits: dict[str, dict[str, Any]]
    injected: Counter[str]
    reached: Counter[str]  # rare situations
    counts: Counter[str]
    history: History
    seconds: float  # virtual time

    @property
    def holds(self) -> bool:
        return not self.failures


def run_trial(
    seed: int,
    plan: MeshPlan | None = None,
    schedule: Schedule | None = None,
    limits: dict[str, dict[str, Any]] | None = None,
) -> TrialResult:
    """Run one seed. A given schedule or given limits replace the drawn ones."""
    return Trial(seed, plan or MeshPlan(), schedule, limits).run()


class Trial:
    """One seed with its mesh, clients and faults. `run` may be called once."""

    def __init__(
        self, seed: int, plan: MeshPlan, schedule: Schedule | None, limits: dict[str, dict[str, Any]] | None
    ) -> None:
        self.seed, self.plan = seed, plan
        self.names = draw_mesh(plan, seed)
        self.clients = [f"c{number}" for number in range(plan.clients)]
        self.limits = draw_limits(self._random("limits")) if limits is None else limits
        brokers = draw_sites(plan, self.names, seed)
        drawn = draw_faults(plan, self.names, self.clients, seed, brokers)
        self.schedule = drawn if schedule is None else schedule
        if brokers:
            self.limits = without(self.limits, UNTOLD)
        if any(one.kind in HOSTILE for one in self.schedule.faults):
            self.limits = without(self.limits, USED_UP)
        if has_lies(drawn):
            self.limits.setdefault("delivery", {})["window_ms"] = LYING_WINDOW_MS
        self._is_drawn = schedule is None
        self._loyal = self._draw_loyal(drawn, list(brokers.values()))
        self.clients += [RESIDENT] if brokers and RESIDENT not in self._loyal else []
        self.clients += self._loyal
        self.world = World(f"{seed}", _draw_network(self._random("network"), has_floods(drawn)))
        self.witness = Witness(lambda: self.world.now_s)
        self.witness.host_of = lambda client: client.partition("-")[0]  # the inverse of `Habits.name`
        self.mesh = Mesh(self.world, self.names, self._configure)
        self.slowness = draw_slowness(self._random("costs"), drawn)
        self.mesh.on_made = self._charge
        registered_ms = self.limits.get("delivery", {}).get("registered_ms", DeliveryConfig().registered_ms)
        self.sites = {
            node: Site(name, node, self.mesh, self.witness, registered_ms / 1_000) for name, node in brokers.items()
        }
        self.witness.nodes = {self.mesh.address(name, CLIENTS): name for name in self.names}
        self.injector = Injector(self.world, self.mesh, self.witness, self.sites.values())
        self._calm_s = draw_calm_s(plan, seed)
        # Clients begin nothing new after this time.
        self._until = plan.form_s + plan.span_s + plan.quiet_s / 2 + self._calm_s

    def run(self) -> TrialResult:
        """Run the trial, and return its result."""
        plan = self.plan
        with self.world, listen() as self._heard, TemporaryDirectory(prefix="trellis-mesh-") as folder:
            self._folder = Path(folder)
            for site in self.sites.values():
                self.world.after(0.0, site.start)
                self.world.after(0.0, site.watch)
            for number, name in enumerate(self.names):
                self.world.after(0.05 * number, self._start_node, name)
            for number, name in enumerate(self.clients):
                self.world.after(plan.form_s + 0.1 * number, self._start_client, name, _kind(name, number))
            if places := [place for table, key, place in _DROPPING if key in self.limits.get(table, {})]:
                self.world.after(plan.form_s, Overflows(self.mesh, self.witness, places).watch)
            if set(self.names) - self.sites.keys():
                self.world.after(plan.form_s + plan.span_s + _CALM_S, self._start_client, LATECOMER, _KINDS[1])
            self.injector.plan(self.schedule)
            self.world.run_for(plan.form_s + plan.span_s)
            self.injector.heal()
            self.world.run_for(plan.quiet_s + self._calm_s)
            self._wait_for_queues()
            self.witness.add(Settled(self.witness.now()))
            return self._result()

    def _wait_for_queues(self) -> None:
        """Wait while messages still arrive. Brokers accept them faster than sidecars with small limits carry them."""
        for _ in range(QUEUES_S // STILL_S):
            is_behind = any(site.is_behind for site in self.sites.values())
            if self.world.now_s - self.witness.received_s > STILL_S and not is_behind:
                return
            self.world.run_for(STILL_S)

    def _random(self, *labels: str) -> Random:
        return Random(ids.stream(self.seed, "mesh", *labels))

    def _draw_loyal(self, drawn: Schedule, sidecars: list[str]) -> dict[str, str]:
        """Draw clients that stay with their nodes. Return the node of each.

        There may be a publisher at a node that crashes and soon restarts, with a reader elsewhere. There may be a
        native publisher and a reader that come and go, while nodes soon lose interest in unused topics. There may be a
        reader at the broker of a sidecar that crashes, with a publisher elsewhere. Each pair has a topic of its own. No
        wildcard covers it, and its home may be any node.
        """
        random = self._random("loyal")
        self._own = f"l{random.randrange(1_000)}/oven"
        loyal: dict[str, str] = {}
        if self._interest_s() < LONG_MS / 1_000:
            source, visitor = random.sample(self.names, 2) if len(self.names) > 1 else self.names * 2
            loyal |= {SOURCE: source, VISITOR: visitor}
        crashing = drawn.faults[0].nodes[0]
        others = [name for name in self.names if name != crashing and name not in sidecars]
        if crashes_alone(drawn) and crashing not in sidecars and others:
            loyal |= {WRITER: crashing, READER: random.choice(others)}
        crashed = [one.nodes[0] for one in drawn.faults if one.kind == "sidecar-crash"]
        if crashed and len(self.names) > 1:
            loyal |= {RESIDENT: crashed[0], AUTHOR: random.choice([name for name in self.names if name != crashed[0]])}
        return loyal

    def _interest_s(self) -> float:
        """Return for how long a node takes part in a topic that no client uses any more, in seconds."""
        drawn: int = self.limits.get("delivery", {}).get("interest_ms", DeliveryConfig().interest_ms)
        return drawn / 1_000

    def _configure(self, name: str, fields: dict[str, Any]) -> NodeConfig:
        site = self.sites.get(name)
        if site is not None:
            learned = str(self._folder / f"{name}.learned.json")
            fields["mqtt"] = MqttConfig(broker=f"mqtt://{site.address}", learn=True, learn_file=learned)
        return apply_limits(self.limits, name, fields)

    def _charge(self, node: LiveNode, host: Host) -> None:
        assert host.loop is not None
        charge(node, host.loop, self.slowness)

    def _start_node(self, name: str) -> None:
        self.mesh.start(name)
        self.witness.add(Up(self.witness.now(), name))

    def _start_client(self, name: str, kind: str) -> None:
        """Start a client on a host of its own, with habits drawn for it."""
        random = self._random("client", name)
        places = {}
        for node in self.names:
            site = self.sites.get(node)
            if (name == RESIDENT and site is None) or self._loyal.get(name, node) != node:
                continue
            if name == LATECOMER and site is not None:  # A broker keeps retained messages of its own.
                continue
            if kind.startswith("native"):
                places[self.mesh.address(node, CLIENTS)] = Place(node)
            else:
                places[self.mesh.address(node, MQTT) if site is None else site.address] = Place(node, site)
        healed = self.plan.form_s + self.plan.span_s
        kind_of_habits = Visits if name in (SOURCE, VISITOR) else Habits
        habits = kind_of_habits(
            random, list(places), lambda: self.world.now_s < self._until, lambda: self.world.now_s >= healed
        )
        habits.suback_s = self.limits.get("mqtt", {}).get("suback_s", MqttConfig().suback_s)
        if name == RESIDENT:  # It subscribes once, because its sidecar must remember the subscription.
            habits.stay, habits.changes = 1.0, False
        if name == WRITER:  # It is back as soon as its node, which knows little then.
            habits.away_s = (0.05, 0.2)
        if isinstance(habits, Visits):
            visits = draw_visits(self._random("visits"), self._interest_s(), self.plan.form_s + 1.0, self._until)
            habits.set_out(visits["source" if name == SOURCE else "visitor"], lambda: self.world.now_s)
        self.world.host(name).start(self._client(name, kind, habits, places.__getitem__))

    def _client(
        self, name: str, kind: str, habits: Habits, place_at: Callable[[str], Place]
    ) -> Coroutine[Any, Any, None]:
        random, witness, rate = habits.random, self.witness, self.plan.rate
        size = random.choice(_SIZES)
        if name == READER:
            return native_reader(name, witness, habits, self._own)
        if name == WRITER:
            return mqtt_publisher(name, witness, habits, lambda: self._own, place_at, rate, size)
        if name == VISITOR:
            return native_subscriber(name, witness, habits, lambda: [f"n/{self._own}"])
        if name == AUTHOR:
            return native_publisher(name, witness, habits, lambda: f"r{self._own}", rate, size)
        if name == RESIDENT and name in self._loyal:
            return mqtt_subscriber(name, witness, habits, lambda: f"r{self._own}", place_at)
        if name == SOURCE:
            return native_publisher(name, witness, habits, lambda: f"n/{self._own}", rate, size)
        if name == LATECOMER:
            return mqtt_latecomer(name, witness, habits, topics.retained_filters(random), place_at)
        match kind:
            case "native subscriber":
                return native_subscriber(name, witness, habits, lambda: topics.native_topics(random, 3))
            case "mqtt subscriber":
                return mqtt_subscriber(name, witness, habits, lambda: topics.mqtt_filter(random), place_at)
            case "native publisher":
                return native_publisher(name, witness, habits, lambda: self._topic(random, True), rate, size)
            case _:
                return mqtt_publisher(name, witness, habits, lambda: self._topic(random, False), place_at, rate, size)

    def _topic(self, random: Random, is_native: bool) -> str:
        return topics.topic_to_publish(random, is_native=is_native, wanted=self.witness.wanted())

    def _result(self) -> TrialResult:
        history = self.witness.history()
        verdict = judge(history, self._promise())
        return TrialResult(
            seed=self.seed,
            nodes=len(self.names),
            failures=[
                *self._broken(history),
                *self._lacking(history),
                *([] if has_lies(self.schedule) else slow_repairs(self.mesh, history, self._jumped())),
                *(f"{one.kind}: {one.text}" for one in verdict.violations),
            ],
            digest=self.world.history.hexdigest(),
            schedule=self.schedule,
            limits=self.limits,
            injected=self.injector.counts,
            reached=Counter(self._heard),
            counts=self._counts(verdict),
            history=history,
            seconds=self.world.now_s,
        )

    def _promise(self) -> Promise:
        """Return what nodes with the drawn limits promise."""
        delivery = DeliveryConfig(**self.limits.get("delivery", {}))
        limits, mqtt = self.limits.get("limits", {}), self.limits.get("mqtt", {})
        clients_max = {"native": limits.get("clients_max"), "mqtt": mqtt.get("clients_max")}
        return replace(
            PROMISE,
            copies=delivery.copies,
            window_s=delivery.window_ms / 1_000,
            registered_s=delivery.registered_ms / 1_000,
            interest_s=self._interest_s(),
            learned_s=mqtt.get("learn_away_s", MqttConfig().learn_away_s),
            takeover_s=mqtt.get("share_takeover_s", MqttConfig().share_takeover_s),
            depth=mqtt.get("depth", MqttConfig().depth),
            retained_max=min(
                mqtt.get("retained_max", MqttConfig().retained_max),
                mqtt.get("retained_bytes", MqttConfig().retained_bytes) // (max(_SIZES) + _RETAINED_BYTES),
            ),
            clients_max={kind: most for kind, most in clients_max.items() if most is not None},
            sessions_max=mqtt.get("sessions_max"),
            retained_s=_SLOW_S if "flight_bytes" in self.limits.get("delivery", {}) else PROMISE.retained_s,
            remembers="clients_max" not in self.limits.get("delivery", {}),
        )

    def _broken(self, history: History) -> list[str]:
        """Return failures of processes, which are wrong whatever clients see."""
        found = [f"{one.host}: {one.message}: {one.error!r}" for one in self.world.failures]
        found += [f"{one.host}: its process ended by itself: {one.error!r}" for one in self.world.exits if one.error]
        for host in self.world.hosts.values():
            unseen = host.loop.unseen_errors() if host.loop is not None else []
            found += [f"{host.name}: a task failed, and nobody looked at its error: {error!r}" for error in unseen]
        for name in self.names:
            if not self.mesh.is_running(name):
                found.append(f"{name} does not run at the end")
            elif bugs := self.mesh.nodes[name].counters["bugs"]:
                found.append(f"{name}: {bugs} handlers raised")
            elif why := self.mesh.host(name).call(unready, self.mesh.nodes[name]):
                if not self._may_join(name, history):
                    found.append(f"{name} is not ready at the end: {why}")
            else:
                found += self._wrong_inside(name)
        return found

    def _may_join(self, name: str, history: History) -> bool:
        """Return whether a node started so late that it may still join.

        Its successor waits `ready_wait` periods for a view of it if its topics keep changing, as in a flood of topics.
        """
        started = max(one.t for one in history.events if isinstance(one, Up) and one.node == name)
        periods = OMenConfig().ready_wait + _JOIN_PERIODS
        period_s: float = self.limits.get("omen", {}).get("period_ms", 1_000) / 1_000
        return self.world.now_s - started < periods * period_s

    def _lacking(self, history: History) -> list[str]:
        """Return what every drawn seed must have and this one lacks."""
        names = Counter(one.client for one in history.events if isinstance(one, Connected))
        self.injector.counts[RESTART] = sum(names.values()) - len(names)
        works_s = self._until - self.plan.form_s
        if not self._is_drawn or self.plan.clients < len(_KINDS) or works_s < _RESTARTS_S:
            return []
        return [f"{LACKS}{kind}" for kind in (*ALWAYS, RESTART) if not self.injector.counts[kind]]

    def _wrong_inside(self, name: str) -> list[str]:
        """Check invariants and sizes of a node.

        Whatever peers and clients do, nothing that they name may grow without limit.
        """
        node, host = self.mesh.nodes[name], self.mesh.host(name)
        try:
            host.call(node.mesh.check)
        except AssertionError as error:
            return [f"{name}: an invariant does not hold: {error}"]
        sizes = {
            "addresses": (len(node.transport.book), BOOK_MAX),
            "lines of metrics": (len(host.call(exposition, node).splitlines()), _METRICS_MAX),
            "streams": (len(node.transport.peers), node.config.limits.connections_max),
        }
        return [f"{name} has {size} {what}, more than {most}" for what, (size, most) in sizes.items() if size > most]

    def _jumped(self) -> set[str]:
        return {one.nodes[0] for one in self.schedule.faults if one.kind == "clock"}

    def _counts(self, verdict: Verdict) -> Counter[str]:
        counts = Counter(
            published=verdict.published,
            acknowledged=verdict.acknowledged,
            refused=verdict.refused,
            received=verdict.received,
            owed=verdict.counts.owed,
            sessions=verdict.sessions,
            retained=verdict.counts.retained_judged,
        )
        counts.update({f"excused, {why}": count for why, count in verdict.counts.excused.items()})
        counts.update({f"trouble, {why}": count for why, count in self.witness.troubles.items()})
        return counts


def _kind(name: str, number: int) -> str:
    kinds = {
        SOURCE: _KINDS[2],
        AUTHOR: _KINDS[2],
        VISITOR: _KINDS[0],
        RESIDENT: _KINDS[1],
        READER: _KINDS[0],
        WRITER: _KINDS[3],
    }
    return kinds.get(name, _KINDS[number % len(_KINDS)])


def _draw_network(random: Random, is_large: bool) -> NetworkConfig:
    """Draw the network. If `is_large`, kernels have large receive buffers, so that a flood reaches the process."""
    latency_us = random.choice((300, 2_000, 40_000))
    # A window of 4 KiB carries 50 KB/s over 40 ms. A mesh that repeats frames over it has no capacity left.
    buffers = (4 << 10, 256 << 10) if latency_us < 40_000 else (64 << 10, 256 << 10)
    return NetworkConfig(
        latency_us_high=latency_us,
        split=random.choice((0.0, 0.05, 0.5)),
        send_buffer=random.choice(buffers),
        receive_buffer=buffers[-1] if is_large else random.choice(buffers),
    )
