"""Analyze bridges between brokers: what travels over them, loops, duplicates, and brokers that are left out.

A rule of a bridge lets messages *flow* from one broker to another, perhaps under another name. To find out what happens
to a message, one is simulated: a *probe* for each filter, published at each broker that has it. A broker passes a
message on over every bridge with a matching rule, but not back over the bridge by which it came. A probe that returns
to a broker on its path is in a *loop*. A probe that comes to a broker by two paths under one name arrives twice.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trellis.errors import InputError
from trellis.plan.mosquitto import BrokerFile
from trellis.protocols.mqtt.topics import matches

PROBE = "trellis-probe"
COPIES_MAX = 1_000  # most copies of one probe, because loops and many paths multiply them
FOUND_MAX = 1_000  # most loops, and most duplicates, that are reported
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Flow:
    """Messages that one rule lets through, in one direction."""

    source: str
    target: str
    filter: str  # at the source
    source_prefix: str
    target_prefix: str
    bridge: int  # number of the connection, because nothing goes back over it
    where: str

    def renamed(self, topic: str) -> str:
        """Return the name of a topic at the target."""
        return self.target_prefix + topic[len(self.source_prefix) :]


@dataclass(frozen=True)
class Found:
    """A loop or a duplicate: the topic, and the paths that a message takes."""

    topic: str
    # a loop: one path, which ends at a broker that it has passed; a duplicate: two paths
    ways: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"{self.topic}: {' and '.join(' > '.join(path) for path in self.ways)}"


@dataclass(frozen=True)
class Bridges:
    """All bridges of some brokers, and what is wrong with them."""

    brokers: tuple[str, ...]  # ascending
    outside: tuple[str, ...]  # brokers of which only an address is known
    links: tuple[tuple[str, str], ...]  # pairs of brokers with one or more bridges, ascending
    flows: tuple[Flow, ...]
    interests: dict[str, tuple[str, ...]]  # topic (a filter) -> brokers that have it
    # groups of brokers without a bridge between them; all brokers in one group if there are none
    islands: tuple[tuple[str, ...], ...]
    split: dict[str, tuple[tuple[str, ...], ...]]  # topic -> groups of brokers between which it does not travel
    loops: tuple[Found, ...]
    duplicates: tuple[Found, ...]
    parallel: tuple[tuple[str, str], ...]  # pairs of brokers with several bridges
    renamed: int  # rules whose prefixes change names; a mesh of Trellis does not
    publications: int  # number of probes: each topic from each of its brokers
    copies: int  # copies of all probes on bridges; a loop is followed once
    reached: int  # brokers that the probes reached, each once per probe, without the first
    wanted: int  # brokers that they would reach if every topic were connected
    cut_short: bool  # whether a probe made more copies than are followed


def find_bridges(files: Iterable[BrokerFile], addresses: dict[str, str] | None = None) -> Bridges:
    """Combine the files of all brokers.

    addresses  "host:port" or "host" -> broker, for addresses that do not tell its name
    """
    brokers = list(files)
    resolve = _Resolver(brokers, addresses or {})
    flows: list[Flow] = []
    pairs: list[tuple[str, str]] = []
    renamed = 0
    for broker in brokers:
        for connection in broker.connections:
            remote = resolve(broker, connection.name, connection.addresses[0], connection.where)
            number = len(pairs)
            pairs.append((min(broker.name, remote), max(broker.name, remote)))
            for rule in connection.rules:
                renamed += rule.local_prefix != rule.remote_prefix
                if rule.direction != "in":
                    ends = (broker.name, remote, rule.local, rule.local_prefix, rule.remote_prefix)
                    flows.append(Flow(*ends, number, rule.where))
                if rule.direction != "out":
                    ends = (remote, broker.name, rule.remote, rule.remote_prefix, rule.local_prefix)
                    flows.append(Flow(*ends, number, rule.where))
    names = sorted({broker.name for broker in brokers}.union(*pairs))
    links = sorted(set(pairs))
    names_of = _names(flows)
    interests = {topic: tuple(sorted(holders)) for topic, holders in names_of.items()}
    probes = _Probes(flows)
    for topic, holders in names_of.items():
        for holder in sorted(holders):
            probes.send(topic, holder, probe_of(holders[holder]))
    return Bridges(
        tuple(names),
        tuple(name for name in names if name not in {broker.name for broker in brokers}),
        tuple(links),
        tuple(flows),
        interests,
        _groups(names, links),
        {topic: groups for topic, groups in _split(flows, names_of) if len(groups) > 1},
        tuple(probes.loops.values()),
        tuple(probes.duplicates.values()),
        tuple(pair for pair, bridges in sorted(Counter(pairs).items()) if bridges > 1),
        renamed,
        probes.sent,
        probes.copies,
        probes.reached,
        sum(len(holders) * (len(holders) - 1) for holders in interests.values()),
        probes.cut_short,
    )


class _Resolver:
    """Finds the broker of an address."""

    def __init__(self, brokers: list[BrokerFile], addresses: dict[str, str]) -> None:
        self.given = {address.lower(): name for address, name in addresses.items()}
        self.names = {broker.name.lower(): broker.name for broker in brokers}
        self.by_port: dict[int, list[str]] = {}
        for broker in brokers:
            for port in broker.ports:
                self.by_port.setdefault(port, []).append(broker.name)

    def __call__(self, broker: BrokerFile, connection: str, address: tuple[str, int], where: str) -> str:
        """Return the name of a broker: as given, by host, by local port, by connection, or else the address."""
        host, port = address
        local = self.by_port.get(port, []) if host in LOOPBACK else []
        name = (
            self.given.get(f"{host}:{port}")
            or self.given.get(host)
            or self.names.get(host)
            or self.names.get(host.split(".")[0])
            or (local[0] if len(local) == 1 else None)
            or self.names.get(connection.lower())
            or f"{host}:{port}"
        )
        if name == broker.name:
            what = f'connection "{connection}" leads to {host}:{port}, which seems to be "{name}" itself'
            raise InputError(where, what, "say which broker that is: --broker NAME=HOST:PORT")
        return name


class _Probes:
    """Simulates messages, and keeps what happens to them."""

    def __init__(self, flows: list[Flow]) -> None:
        self.flows: dict[str, list[Flow]] = {}
        for flow in flows:
            self.flows.setdefault(flow.source, []).append(flow)
        self.loops: dict[frozenset[str], Found] = {}  # brokers of the loop -> the loop, so each is reported once
        self.duplicates: dict[frozenset[str], Found] = {}  # brokers of both paths -> the duplicate
        self.sent = self.copies = self.reached = 0
        self.cut_short = False

    def send(self, topic: str, broker: str, name: str) -> None:
        """Follow one message of this name from the broker, over all paths that pass no broker twice."""
        self.sent += 1
        came: dict[tuple[str, str], tuple[str, ...]] = {(broker, name): (broker,)}
        paths: deque[tuple[tuple[str, ...], str, int]] = deque([((broker,), name, -1)])
        copies = 0
        while paths:
            path, name, bridge = paths.popleft()
            taken: set[tuple[int, str]] = set()  # one copy on each bridge under each name
            for flow in self.flows.get(path[-1], []):
                there = flow.renamed(name)
                if flow.bridge == bridge or (flow.bridge, there) in taken or not matches(flow.filter, name):
                    continue
                taken.add((flow.bridge, there))
                copies += 1
                longer = (*path, flow.target)
                if copies > COPIES_MAX:
                    self.cut_short = True
                    paths.clear()
                    break
                if flow.target in path:
                    self._note_loop(topic, path[path.index(flow.target) :], flow.target)
                elif (flow.target, there) in came:
                    self._note_duplicate(topic, came[flow.target, there], longer)
                    paths.append((longer, there, flow.bridge))
                else:
                    came[flow.target, there] = longer
                    paths.append((longer, there, flow.bridge))
        self.copies += copies
        self.reached += len({target for target, _ in came} - {broker})

    def _note_loop(self, topic: str, path: tuple[str, ...], back: str) -> None:
        if len(self.loops) < FOUND_MAX:
            # A loop is reported from its first broker in order of names, wherever the message came in.
            first = path.index(min(path))
            turned = (*path[first:], *path[:first])
            self.loops.setdefault(frozenset(path), Found(topic, ((*turned, turned[0]),)))

    def _note_duplicate(self, topic: str, first: tuple[str, ...], second: tuple[str, ...]) -> None:
        while len(first) > 1 and len(second) > 1 and first[1] == second[1]:  # Skip the common beginning of both paths.
            first, second = first[1:], second[1:]
        if len(self.duplicates) < FOUND_MAX:
            self.duplicates.setdefault(frozenset((*first, *second)), Found(topic, (first, second)))


def probe_of(filter_: str) -> str:
    """Return a topic that this filter matches, and few other filters do."""
    return "/".join(PROBE if level in ("+", "#") else level for level in filter_.split("/"))


def _names(flows: list[Flow]) -> dict[str, dict[str, str]]:
    """Return for each topic the brokers that have it, and its filter there.

    Filters that rules turn into each other are one topic, which is named after the shortest of them.
    """
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            name = leader[name]
        return name

    for flow in flows:
        ends = sorted((find(flow.filter), find(flow.renamed(flow.filter))), key=_by_length)
        leader[ends[1]] = ends[0]
    topics: dict[str, dict[str, str]] = {}
    for flow in flows:
        holders = topics.setdefault(find(flow.filter), {})
        for broker, name in ((flow.source, flow.filter), (flow.target, flow.renamed(flow.filter))):
            holders[broker] = min(holders.get(broker, name), name, key=_by_length)
    return dict(sorted(topics.items()))


def _by_length(name: str) -> tuple[int, str]:
    return len(name), name


def _split(flows: list[Flow], names_of: dict[str, dict[str, str]]) -> Iterator[tuple[str, tuple[tuple[str, ...], ...]]]:
    """Yield each topic with groups of its brokers. Inside a group, messages travel in at least one direction."""
    for topic, holders in names_of.items():
        yield (
            topic,
            _groups(
                sorted(holders),
                [
                    (flow.source, flow.target)
                    for flow in flows
                    if flow.source in holders and matches(flow.filter, probe_of(holders[flow.source]))
                ],
            ),
        )


def _groups(names: Iterable[str], links: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return the connected parts, largest first."""
    near: dict[str, set[str]] = {name: set() for name in names}
    for u, v in links:
        if u in near and v in near:
            near[u].add(v)
            near[v].add(u)
    groups: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for name in near:
        if name in seen:
            continue
        group, waiting = {name}, [name]
        while waiting:
            new = near[waiting.pop()] - group
            group |= new
            waiting.extend(new)
        seen |= group
        groups.append(tuple(sorted(group)))
    return tuple(sorted(groups, key=lambda group: (-len(group), group)))
