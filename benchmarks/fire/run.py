"""One run: brokers up, clients connected, a load with faults, and everything that was seen."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fire.client import Client
from benchmarks.fire.interests import Interests, Topic
from benchmarks.fire.links import links, owners
from benchmarks.fire.network import Loopback, Namespaces
from benchmarks.fire.schedule import TAIL_S, Fault
from benchmarks.fire.site import Site, SiteFailed, pids_of
from benchmarks.fire.systems.base import MQTT_PORT, System

from trellis.judge.history import Disturbed, Down, Event, History, Left, Publishing, Received, Settled, Up

WARM_UP_S = 180.0
SETTLE_S = 90.0  # what has not come so long after the load is lost
CALM_S = 35.0  # and so is what is missing when nothing has come for so long; NATS repeats after 30 s
ATTACH_S = 5.0  # before the first client: a sidecar is attached to its broker by then, and sees who subscribes
STOP_S = 30.0  # for an orderly end
SAMPLE_S = 1.0
_PAUSE_S = 0.005
_NOISE_BYTES = 1 << 21
_NOTICED = 0.2  # of a copy for each message: what brokers say to each other besides messages varies by less
PROBES, PROBE_BYTES, PROBE_TOPICS = 8, 32_768, 4


@dataclass(frozen=True)
class Load:
    brokers: int
    schedule: str
    seconds: float
    rate: float  # publications a second, in all
    payload: int  # bytes
    seed: int = 1


@dataclass
class Costs:
    """What the brokers used during the load, all sites together unless said otherwise."""

    cpu_s: float = 0.0
    memory_mb: float = 0.0  # the largest site
    links: int = 0  # pairs of brokers with a connection, at the end of the calm beginning
    peer_bytes: int | None = None  # received from other brokers; None: see Loopback.no_bytes
    strayed: float | None = None  # copies to brokers where nobody subscribes, for each publication of the relay test
    strays: dict[str, float] = field(default_factory=dict)  # the same by topic and broker
    strayed_why: str = ""  # why it was not measured
    up_s: float = 0.0  # until every reader got messages of every publisher


@dataclass
class Outcome:
    load: Load
    system: str
    title: str
    version: str
    network: str
    interests: str
    topics: int
    since: float = 0.0  # the load begins here, by the clock of the history
    until: float = 0.0
    costs: Costs = field(default_factory=Costs)
    configurations: dict[str, str] = field(default_factory=dict)
    safe: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)  # what went wrong, in words
    history: History = field(default_factory=History)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the history, which has a file of its own."""
        return asdict(self, dict_factory=lambda pairs: {key: value for key, value in pairs if key != "history"})


class Run:
    """The parts of a run, and the order in which they happen."""

    def __init__(
        self, system: System, net: Loopback | Namespaces, interests: Interests, load: Load, faults: list[Fault],
        folder: Path, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.system, self.net, self.interests, self.load, self.faults = system, net, interests, load, faults
        self.folder, self.say = folder, say
        self.outcome = Outcome(
            load, system.name, system.title, system.version(), net.kind, interests.source, len(interests.topics),
            safe=system.safe, known=system.known,
        )  # fmt: skip
        self.arrived: Counter[str] = Counter()  # receipts by message
        self.last_arrival = 0.0
        self.numbers = 0
        self.noise = Random(load.seed).randbytes(_NOISE_BYTES)  # payloads that no system can compress
        self.sites: list[Site] = []
        self.publishers: dict[int, Client] = {}
        self.readers: dict[int, Client] = {}
        self.harmed: asyncio.Task[None] | None = None
        self.faults_over = False

    async def go(self) -> Outcome:
        self.net.open()
        watch: asyncio.Task[None] | None = None
        try:
            self._make()
            watch = asyncio.create_task(self._watch())
            await asyncio.gather(*(site.start() for site in self.sites))
            for site in self.sites:
                self._note(Up(_now(), site.name))
            await asyncio.sleep(ATTACH_S)
            for client in (*self.readers.values(), *self.publishers.values()):
                client.start()
            await self._warm_up()
            if self.load.schedule == "quiet":
                await self._relay_test()
            await self._burn()
            await self._settle()
        finally:
            for task in (watch, self.harmed):
                if task is not None:
                    task.cancel()
            for client in (*self.readers.values(), *self.publishers.values()):
                await client.close()
            for site in self.sites:
                await site.kill()
            self.net.close()
        return self.outcome

    def _make(self) -> None:
        places = self.net.places
        commands = self.system.configure(places, self.folder)
        self.outcome.configurations = self.system.configurations(self.folder)
        self.sites = [Site(place, self.folder, some) for place, some in zip(places, commands, strict=True)]
        for place in places:
            address = (place.client_ip, MQTT_PORT)
            if filters := self.interests.filters(place.index):
                self.readers[place.index] = Client(f"r{place.index}", place.name, address, self._note, filters)
            if any(one.publisher == place.index for one in self.interests.topics):
                self.publishers[place.index] = Client(f"p{place.index}", place.name, address, self._note)

    def _note(self, event: Event) -> None:
        self.outcome.history.add(event)
        if isinstance(event, Received):
            self.arrived[event.message] += 1
            self.last_arrival = event.t

    def publish(self, topic: Topic, size: int) -> str:
        self.numbers += 1
        message = f"m{self.numbers}"
        head = f"{message} ".encode()
        begin = self.numbers * 7919 % (len(self.noise) - size)
        payload = head + self.noise[begin : begin + size - len(head)]
        self.publishers[topic.publisher].publish(message, topic.name, payload)
        return message

    async def _warm_up(self) -> None:
        """Publish rounds of one message on each topic, until a round has come to every reader."""
        begin = _now()
        while not all(client.is_subscribed for client in self.readers.values()):
            if _now() - begin > WARM_UP_S:
                raise SiteFailed("subscriptions were not confirmed in time")
            await asyncio.sleep(0.1)
        whole = 0
        while whole < 2:
            if _now() - begin > WARM_UP_S:
                raise SiteFailed(f"messages did not reach every reader within {WARM_UP_S:g} s of the start")
            names = {self.publish(topic, 64): len(topic.readers) for topic in self.interests.topics}
            for _ in range(30):
                await asyncio.sleep(0.1)
                if all(self.arrived[name] >= count for name, count in names.items()):
                    whole += 1
                    break
            else:
                whole = 0
        self.outcome.costs.up_s = _now() - begin
        self.say(f"  everything flows after {self.outcome.costs.up_s:.1f} s")

    async def _relay_test(self) -> None:
        """Publish large messages on one topic at a time, and see which brokers without subscribers get their bytes."""
        costs, everywhere = self.outcome.costs, set(range(self.load.brokers))
        topics = [one for one in self.interests.topics if everywhere - {one.publisher, *one.readers}][:PROBE_TOPICS]
        if self.net.received() is None:
            costs.strayed_why = self.net.no_bytes
        elif not topics:
            costs.strayed_why = "every topic has a subscriber at every broker"
        else:
            for topic in topics:
                idle = await self._bytes_during(None)
                got = await self._bytes_during(topic)
                for site in sorted(everywhere - {topic.publisher, *topic.readers}):
                    copies = (got[site] - idle[site]) / (PROBES * PROBE_BYTES)
                    costs.strays[f"{topic.name} to s{site}"] = round(max(0.0, copies), 2)
            costs.strayed = sum(one for one in costs.strays.values() if one > _NOTICED) / len(topics)

    async def _bytes_during(self, topic: Topic | None) -> dict[int, int]:
        """Return the bytes that each broker gets from others in two seconds, while we publish on `topic` or nothing."""
        before = self.net.received() or {}
        for _ in range(PROBES):
            if topic is not None:
                self.publish(topic, PROBE_BYTES)
            await asyncio.sleep(0.15)
        await asyncio.sleep(0.8)
        after = self.net.received() or {}
        return {site: after[site] - before[site] for site in after}

    async def _burn(self) -> None:
        """Publish steadily while the faults of the schedule happen."""
        outcome, costs = self.outcome, self.outcome.costs
        marks = pids_of([site.mark for site in self.sites])
        costs.links = len(links(owners({site.place.index: marks[site.mark] for site in self.sites})))
        for site in self.sites:
            site.sample(marks[site.mark])
        cpu, heard = sum(site.cpu_s for site in self.sites), self.net.received()
        begin = outcome.since = _now()
        self.harmed = asyncio.create_task(self._harm_all(begin))
        sent, end = 0, begin + self.load.seconds
        while _now() < end or not self.harmed.done():
            for number in range(sent, due := int((_now() - begin) * self.load.rate) + 1):
                self.publish(self.interests.topics[number % len(self.interests.topics)], self.load.payload)
            sent = due
            if self.harmed.done() and not self.faults_over:
                self.faults_over, end = True, max(end, _now() + TAIL_S * bool(self.faults))
            await asyncio.sleep(_PAUSE_S)
        self.harmed.result()
        outcome.until = _now()
        self._sample()
        costs.cpu_s = sum(site.cpu_s for site in self.sites) - cpu
        costs.memory_mb = max(site.memory_mb for site in self.sites)
        after = self.net.received()
        if after is not None and heard is not None:
            costs.peer_bytes = sum(after.values()) - sum(heard.values())

    async def _harm_all(self, begin: float) -> None:
        """Do one fault after the other. A fault waits until the brokers that an earlier one hit are up again.

        Otherwise brokers that start slowly would all be down at once. The pause between two faults stays as planned.
        """
        late_s = 0.0
        for fault, after in zip_longest(self.faults, self.faults[1:]):
            await asyncio.sleep(max(0.0, begin + fault.at_s + late_s - _now()))
            try:
                await self._harm(fault)
            except SiteFailed as error:
                self.outcome.notes.append(str(error))
            if after is not None:
                pause_s = after.at_s - fault.at_s - fault.for_s
                late_s = max(late_s, _now() + pause_s - begin - after.at_s)

    async def _harm(self, fault: Fault) -> None:
        if fault.kind == "cut":
            names = tuple(self.sites[one].name for one in fault.sites)
            self.net.cut([fault.sites])
            since = _now()
            await asyncio.sleep(fault.for_s)
            self.net.heal()
            self._note(Disturbed(since, _now(), "cut", names))
            return
        await asyncio.gather(*(self._harm_site(self.sites[one], fault) for one in fault.sites))

    async def _harm_site(self, site: Site, fault: Fault) -> None:
        self.say(f"  {fault.kind} {site.name}")
        since = _now()
        if fault.kind == "hang":
            site.signal(signal.SIGSTOP)
            await asyncio.sleep(fault.for_s)
            site.signal(signal.SIGCONT)
            self._note(Disturbed(since, _now(), "hang", (site.name,)))
            return
        self._note(Down(since, site.name, leave=fault.kind == "restart"))
        if fault.kind == "kill":
            await site.kill()
            await asyncio.sleep(fault.for_s)
        else:
            if not await site.stop(STOP_S):
                self.outcome.notes.append(f"{site.name} did not end within {STOP_S:g} s of SIGTERM and was killed")
            self._note(Left(_now(), site.name))
        await site.start()
        self._note(Up(_now(), site.name))

    async def _settle(self) -> None:
        """Wait until every publication is acknowledged and delivered, or nothing has arrived for a while."""
        until = _now() + SETTLE_S
        readers = {topic.name: len(topic.readers) for topic in self.interests.topics}
        topics = {
            event.message: readers[event.topic]
            for event in self.outcome.history.events
            if isinstance(event, Publishing) and event.t >= self.outcome.since
        }
        self.last_arrival = max(self.last_arrival, _now())
        while _now() < until:
            is_idle = all(client.is_idle for client in self.publishers.values())
            if is_idle and all(self.arrived[message] >= count for message, count in topics.items()):
                break
            if is_idle and _now() - self.last_arrival > CALM_S:
                break
            await asyncio.sleep(0.25)
        await asyncio.sleep(1.0)  # repetitions may follow
        self._note(Settled(_now()))
        # Faults are written down when they are over, at the time of their beginning.
        self.outcome.history.events.sort(key=lambda event: event.t)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            self._sample()

    def _sample(self) -> None:
        marks = pids_of([site.mark for site in self.sites])
        for site in self.sites:
            site.sample(marks[site.mark])


def _now() -> float:
    return asyncio.get_running_loop().time()


def started() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
