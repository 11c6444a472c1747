"""A steady load of MQTT over many sites, and what became of each message: for `bench_mqtt.py --brokers`.

A site is a Mosquitto with a node as its sidecar, or a node with an embedded door. Each topic has readers at a few
sites, and publishers at a few, which need not be the same; QoS 1. The payload carries a message's number.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from node_process import cpu_s, peak_mb
from trellis.fleet.mosquitto import Mosquitto, find_mosquitto
from trellis.fleet.processes import ANY, NodeProcess
from trellis.fleet.watch import percentile
from trellis.live.http_client import HttpClient
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing

_READY_S = 240.0
_SETTLE_S = 30.0  # a mesh that has just started is sure of itself by then
_ROUNDS_MAX = 400
_LATE_S = 30.0  # what has not come so long after the end is missing
_PAUSE_S = 0.005


@dataclass
class Load:
    brokers: int
    topics: int
    rate: int
    seconds: float
    payload: int
    readers: int  # sites of each topic
    publishers: int  # sites at which each topic is published
    doors: str  # mosquitto or embedded
    seed: int = 1
    settings: dict[str, object] = field(default_factory=dict)

    def topic(self, place: int) -> str:
        return f"bench/{place}"


class Client(asyncio.Protocol):
    """Packets of MQTT 5 over a socket; whole batches per write."""

    def __init__(self, name: str, taken: Callable[[list[p.Packet]], None]) -> None:
        self.name, self.taken, self.framing = name, taken, Framing(1 << 20)
        self.transport: asyncio.Transport | None = None
        self.window = 65_535  # publications under way that the other end takes
        self.is_cut = self.is_closing = False

    @classmethod
    async def connect(cls, address: str, name: str, taken: Callable[[list[p.Packet]], None]) -> Client:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        welcomed: asyncio.Future[None] = loop.create_future()

        def first(packets: list[p.Packet]) -> None:
            assert isinstance(packets[0], p.ConnAck), packets
            assert not packets[0].reason, packets
            client.window = packets[0].receive_max or 65_535
            client.taken = taken
            welcomed.set_result(None)

        client = cls(name, first)
        await loop.create_connection(lambda: client, host, int(port))
        client.send(p.Connect(version=p.V5, client=name, clean_start=True, receive_max=65_535))
        await welcomed
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self.is_cut = not self.is_closing

    def data_received(self, data: bytes) -> None:
        self.framing.feed(data)
        found = [decode(p.V5, first, body) for first, body in self.framing.packets()]
        if found:
            self.taken(found)

    def send(self, *several: p.Packet) -> None:
        assert self.transport is not None
        assert not self.is_cut, f"{self.name} was cut off"
        self.transport.write(b"".join(encode(p.V5, one) for one in several))

    def close(self) -> None:
        self.is_closing = True
        if self.transport is not None:
            self.transport.abort()


class Site:
    def __init__(self, place: int, folder: Path, has_broker: bool) -> None:
        self.name = f"s{place}"
        self.node = NodeProcess(self.name, folder, self.name)
        self.broker = Mosquitto(find_mosquitto(), folder, self.name) if has_broker else None
        self.address = ""

    async def start(self, settings: dict[str, object], seeds: list[str]) -> None:
        config: dict[str, object] = {"cluster": "bench", "listen": ANY, "client_listen": ANY, "admin_listen": ANY}
        config |= {"seeds": seeds, "mqtt.suback_s": 120.0, **settings}
        if self.broker is None:
            config["mqtt.listen"] = ANY
        else:
            if not self.broker.port:
                await self.broker.start()
            config["mqtt.broker"] = f"mqtt://{self.broker.address}"
        await self.node.start(config)
        self.address = self.broker.address if self.broker is not None else self.node.about["mqtt_listen"]

    async def end(self) -> None:
        self.node.signal(signal.SIGKILL)
        if self.broker is not None:
            await self.broker.kill()

    async def counts(self) -> dict[str, int]:
        """`trellis_mqtt_total`, by what."""
        client = HttpClient(self.node.about["admin_listen"])
        try:
            _, body = await client.get("/metrics", timeout_s=30.0)
        finally:
            client.close()
        lines = [line for line in body.decode().splitlines() if line.startswith("trellis_mqtt_total{")]
        return {line.split('"')[1]: int(line.rpartition(" ")[2]) for line in lines}


class Book:
    """What was published, acknowledged and delivered."""

    def __init__(self, load: Load, wanting: list[list[int]], giving: list[list[int]]) -> None:
        self.wanting, self.giving = wanting, giving  # topic -> sites
        self.most = int(load.rate * load.seconds) + 1 + _ROUNDS_MAX * load.topics * load.publishers
        self.at = array("d", bytes(8 * self.most))
        self.topic, self.site = array("h", bytes(2 * self.most)), array("h", bytes(2 * self.most))
        self.acknowledged = bytearray(self.most)
        self.got = bytearray(self.most * load.readers)
        self.published = self.duplicates = 0
        self.begin = 0  # the first that counts
        self.far: list[float] = []  # seconds, to other sites
        self.near: list[float] = []
        self.acks: list[float] = []

    def publish(self, topic: int, site: int) -> int:
        number = self.published
        self.at[number], self.topic[number], self.site[number] = time.monotonic(), topic, site
        self.published += 1
        return number

    def deliver(self, number: int, site: int, now: float) -> None:
        sites = self.wanting[self.topic[number]]
        place = number * len(sites) + sites.index(site)
        if self.got[place]:
            self.duplicates += 1
            return
        self.got[place] = 1
        if number >= self.begin:
            (self.near if self.site[number] == site else self.far).append(now - self.at[number])

    def missing(self) -> int:
        """Of those that were acknowledged."""
        each = len(self.wanting[0])
        return sum(
            each - sum(self.got[number * each : (number + 1) * each])
            for number in range(self.begin, self.published)
            if self.acknowledged[number]
        )


class Clients:
    """A publisher and a reader at every site."""

    def __init__(self, load: Load, sites: list[Site], book: Book) -> None:
        self.load, self.sites, self.book = load, sites, book
        self.publishers: list[Client] = []
        self.readers: list[Client] = []
        self.flying: list[dict[int, int]] = [{} for _ in sites]  # packet identifier -> number
        self.waiting: list[deque[int]] = [deque() for _ in sites]  # numbers: more are under way than may be
        self.ids = [0 for _ in sites]
        self.granted = 0

    async def connect(self) -> None:
        for place, site in enumerate(self.sites):
            self.publishers.append(
                await Client.connect(site.address, f"p{place}", lambda found, place=place: self.told(place, found))
            )
            reader = await Client.connect(site.address, f"r{place}", lambda found, place=place: self.took(place, found))
            self.readers.append(reader)
            mine = [topic for topic, sites in enumerate(self.book.wanting) if place in sites]
            reader.send(p.Subscribe(1, tuple(p.Asked(self.load.topic(one), 1) for one in mine)))
        while self.granted < len(self.sites):
            await asyncio.sleep(0.05)

    def told(self, place: int, found: list[p.Packet]) -> None:
        now, flying, book = time.monotonic(), self.flying[place], self.book
        for one in found:
            if isinstance(one, p.Ack) and (number := flying.pop(one.id, None)) is not None and one.reason < 0x80:
                book.acknowledged[number] = 1
                if number >= book.begin:
                    book.acks.append(now - book.at[number])
        self._pump(place)

    def took(self, place: int, found: list[p.Packet]) -> None:
        now, answers = time.monotonic(), []
        for one in found:
            if isinstance(one, p.Publish):
                self.book.deliver(int.from_bytes(one.payload[:8], "big"), place, now)
                if one.id is not None:
                    answers.append(p.Ack(p.PUBACK, one.id))
            elif isinstance(one, p.SubAck):
                self.granted += 1
        if answers:
            self.readers[place].send(*answers)

    def publish(self, topic: int, place: int) -> None:
        self.waiting[place].append(self.book.publish(topic, place))
        self._pump(place)

    @property
    def is_done(self) -> bool:
        return not any(self.flying) and not any(self.waiting)

    def _pump(self, place: int) -> None:
        """No more under way than the other end takes: an embedded door cuts off who sends more.  [MQTT-3.3.4-7]"""
        publisher, flying, waiting = self.publishers[place], self.flying[place], self.waiting[place]
        while waiting and len(flying) < publisher.window:
            while True:
                self.ids[place] = self.ids[place] % 65_535 + 1
                if self.ids[place] not in flying:
                    break
            number, identifier = waiting.popleft(), self.ids[place]
            flying[identifier] = number
            payload = number.to_bytes(8, "big").ljust(self.load.payload, b".")
            topic = self.load.topic(self.book.topic[number])
            publisher.send(p.Publish(topic=topic, payload=payload, qos=1, id=identifier))

    def close(self) -> None:
        for one in (*self.publishers, *self.readers):
            one.close()


async def run_load(load: Load, folder: Path) -> None:
    random = Random(load.seed)
    wanting = [sorted(random.sample(range(load.brokers), load.readers)) for _ in range(load.topics)]
    sites = [Site(place, folder, load.doors == "mosquitto") for place in range(load.brokers)]
    giving = [random.sample(range(load.brokers), load.publishers) for _ in range(load.topics)]
    book = Book(load, wanting, giving)
    clients = Clients(load, sites, book)
    try:
        for place, site in enumerate(sites):
            wants = [load.topic(topic) for topic, some in enumerate(wanting) if place in some]
            settings = {**load.settings, **({"mqtt.want": wants} if site.broker is not None else {})}
            await site.start(settings, [sites[0].node.about["listen"]] if place else [])
        await clients.connect()
        await _warm_up(load, clients)
        await _steady(load, clients, random)
    finally:
        clients.close()
        await asyncio.gather(*(one.end() for one in sites))


async def _warm_up(load: Load, clients: Clients) -> None:
    """Rounds of one message of each publisher of each topic, until one round has come to everybody."""
    book, begun = clients.book, time.monotonic()
    until = begun + _READY_S
    is_whole = False
    for _ in range(_ROUNDS_MAX):
        assert time.monotonic() < until, "the mesh did not form"
        book.begin = book.published
        for topic, places in enumerate(book.giving):
            for place in places:
                clients.publish(topic, place)
            if topic % 20 == 19:
                await asyncio.sleep(0.05)
        owed = load.topics * load.readers * load.publishers
        for _ in range(30):  # a new round when this one has come, or after three seconds
            await asyncio.sleep(0.1)
            came = sum(book.got[book.begin * load.readers : book.published * load.readers])
            is_whole = came == owed and clients.is_done
            if is_whole:
                break
        if is_whole and time.monotonic() > begun + _SETTLE_S:
            break
    book.begin, book.duplicates = book.published, 0
    book.far.clear()
    book.near.clear()
    book.acks.clear()


async def _steady(load: Load, clients: Clients, random: Random) -> None:
    book, sites = clients.book, clients.sites
    nodes = [one.node.pid for one in sites]
    brokers = [one.broker.pid for one in sites if one.broker is not None]
    parts = {"nodes": nodes, "brokers": brokers, "clients": [os.getpid()]}
    before = {part: sum(cpu_s(pid) for pid in pids) for part, pids in parts.items()}
    begun, sent, late = time.monotonic(), 0, 0.0
    total = int(load.rate * load.seconds)
    while sent < total:
        due = min(total, int((time.monotonic() - begun) * load.rate) + 1)
        late = max(late, (due - sent) / load.rate)
        for _ in range(due - sent):
            topic = random.randrange(load.topics)
            clients.publish(topic, random.choice(book.giving[topic]))
        sent = due
        await asyncio.sleep(_PAUSE_S)
    took = time.monotonic() - begun
    used = {part: sum(cpu_s(pid) for pid in pids) - before[part] for part, pids in parts.items()}
    until = time.monotonic() + _LATE_S
    while time.monotonic() < until and (book.missing() or not clients.is_done):
        await asyncio.sleep(0.5)
    counts: dict[str, int] = {}
    for site in sites:
        for what, count in (await site.counts()).items():
            counts[what] = counts.get(what, 0) + count
    _report(load, book, used, took, late, counts, max(peak_mb(pid) for pid in nodes))


def _report(
    load: Load, book: Book, used: dict[str, float], took: float, late: float, counts: dict[str, int], memory: float
) -> None:
    published = book.published - book.begin
    acknowledged = sum(book.acknowledged[book.begin : book.published])
    delivered = sum(book.got[book.begin * load.readers : book.published * load.readers])
    print(
        f"{load.brokers} sites ({load.doors}), {load.topics} topics, each with readers at {load.readers} sites ", end=""
    )
    print(f"and publishers at {load.publishers}, {load.payload} bytes")
    print(f"{published / took:,.0f} publications/s for {took:.0f} s (at most {late:.2f} s behind)")
    print(f"published {published}  acknowledged {acknowledged}  delivered {delivered}  ", end="")
    print(f"missing {book.missing()}  duplicates {book.duplicates}")
    for about, some in (("to other sites", book.far), ("to the same site", book.near), ("PUBACK", book.acks)):
        if some:
            cuts = [1_000 * (percentile(some, share) or 0) for share in (0.5, 0.99, 1.0)]
            print(f"{about:16} p50 {cuts[0]:7.1f} ms  p99 {cuts[1]:7.1f} ms  at most {cuts[2]:7.1f} ms")
    for part, seconds in used.items():
        if seconds:
            print(f"CPU of {part:8} {seconds:7.1f} s  {1e6 * seconds / published:6.0f} us per publication  ", end="")
            print(f"{seconds / took:5.2f} cores")
    print(f"memory of a node: {memory:.0f} MB at most")
    watched = ("sidecar taken", "sidecar given", "sidecar sent again", "sidecar dropped", "dropped", "not acknowledged")
    print("counted: " + ", ".join(f"{what} {counts[what]}" for what in watched if what in counts))


async def run_overhead(folder: Path, rate: int, seconds: float, payload: int, blocks: int = 3) -> None:
    """A broker's own traffic, without a sidecar, and beside one that takes everything, or nothing of it.

    In turns, so that whatever else the machine does hits all alike. For comparison, beside one more reader of all.
    """
    cases = {"no sidecar": "", "a reader of #": "", "takes #": "#", "takes other/#": "other/#"}
    sites = [Site(place, folder, True) for place in range(len(cases))]
    reader: asyncio.subprocess.Process | None = None
    found: dict[str, list[float]] = {about: [] for about in cases}
    used = dict.fromkeys(cases, 0.0)
    try:
        for site, take in zip(sites, cases.values(), strict=True):
            assert site.broker is not None
            if take:
                first = [one.node.about["listen"] for one in sites if one.node.about][:1]
                await site.start({"mqtt.take": [take], "delivery.copies": 1}, first)
            else:
                await site.broker.start()
                site.address = site.broker.address
        readers_port = sites[1].address.rpartition(":")[2]
        command = ("mosquitto_sub", "-p", readers_port, "-q", "1", "-t", "#", "-V", "5")
        reader = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        await asyncio.sleep(5.0)
        for _ in range(blocks):
            for about, site in zip(cases, sites, strict=True):
                assert site.broker is not None
                then = cpu_s(site.broker.pid)
                found[about] += await _local(site.address, rate, seconds / blocks, payload)
                used[about] += cpu_s(site.broker.pid) - then
    finally:
        if reader is not None:
            reader.kill()
            await reader.wait()
        await asyncio.gather(*(one.end() for one in sites))
    plain = {share: percentile(found["no sidecar"], share) or 1 for share in (0.5, 0.99)}
    for about, some in found.items():
        cuts = {share: percentile(some, share) or 0 for share in (0.5, 0.99)}
        ratio = "  ".join(f"x{cuts[share] / plain[share]:.2f}" for share in cuts)
        print(f"local traffic, {about:14} {len(some):7} messages  p50 {1e3 * cuts[0.5]:6.2f} ms  ", end="")
        print(f"p99 {1e3 * cuts[0.99]:6.2f} ms  ({ratio})  broker {1e6 * used[about] / len(some):5.1f} us each")


async def _local(address: str, rate: int, seconds: float, payload: int) -> list[float]:
    delays: list[float] = []
    ready = asyncio.Event()

    def took(found: list[p.Packet]) -> None:
        now = time.monotonic()
        messages = [one for one in found if isinstance(one, p.Publish)]
        delays.extend(now - int.from_bytes(one.payload[:8], "big") / 1e9 for one in messages)
        if messages:
            reader.send(*(p.Ack(p.PUBACK, one.id) for one in messages if one.id is not None))
        if any(isinstance(one, p.SubAck) for one in found):
            ready.set()

    reader = await Client.connect(address, "local reader", took)
    publisher = await Client.connect(address, "local publisher", lambda found: None)
    try:
        reader.send(p.Subscribe(1, (p.Asked("local/#", 1),)))
        await ready.wait()
        begun, sent, total = time.monotonic(), 0, int(rate * seconds)
        while sent < total:
            due = min(total, int((time.monotonic() - begun) * rate) + 1)
            for _ in range(due - sent):
                sent += 1
                now = int(1e9 * time.monotonic()).to_bytes(8, "big")
                topic = f"local/{sent % 20}"
                publisher.send(p.Publish(topic=topic, payload=now.ljust(payload, b"."), qos=1, id=sent % 65_535 + 1))
            await asyncio.sleep(0.001)
        until = time.monotonic() + _LATE_S
        while len(delays) < total and time.monotonic() < until:
            await asyncio.sleep(0.01)
    finally:
        reader.close()
        publisher.close()
    return delays
