"""The admin port of a node: /healthz, /metrics and /overlay.json.  [docs/dashboard.md]

It only reads. Everything is put together when it is asked for, in the node's own thread, between two inputs.
"""

from __future__ import annotations

import ssl
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from trellis import __version__
from trellis.live.addresses import parse_address
from trellis.live.config import is_loopback
from trellis.live.http import Answer, Events, HttpServer, Request
from trellis.live.mends import BOUNDS_MS
from trellis.live.metrics import KIND, Exposition, Labels, cpu_seconds, resident_bytes
from trellis.protocols.pieces import DROPPED
from trellis.protocols.ring import place

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

JSON = "application/json"
_STARTED = time.time()


class Admin:
    def __init__(self, node: LiveNode) -> None:
        self.node = node
        self.http: HttpServer | None = None

    @property
    def port(self) -> int:
        return self.http.port if self.http is not None else 0

    def bind(self, address: str, tls: ssl.SSLContext | None) -> None:
        self.http = HttpServer(self.answer, is_local=is_loopback(parse_address(address)[0]))
        self.http.bind(address, tls)

    def serve(self) -> None:
        assert self.http is not None
        self.http.serve()

    async def close(self) -> None:
        if self.http is not None:
            await self.http.close()

    def answer(self, request: Request) -> Answer | Events | None:
        match request.path:
            case "/healthz":
                trouble = not_ready(self.node)
                return Answer(b"ok\n") if not trouble else Answer(f"{trouble}\n".encode(), status=503)
            case "/metrics":
                return Answer(exposition(self.node).encode(), KIND)
            case "/overlay.json":
                return Answer(msgspec.json.encode(snapshot(self.node)), JSON)
        return None


def not_ready(node: LiveNode) -> str:
    """Why the node should not be given work now; empty if it may."""
    if node.mesh.is_leaving:
        return "leaving"
    parts = getattr(node.mesh.overlay.node, "parts", None)
    is_joining = getattr(parts, "is_joining", not node.transport.peers)  # the others know no such time: somebody is met
    others = [seed for seed in node.config.seeds if node.transport.names.get(seed) != node.name]
    if is_joining and others:  # whoever has no seed waits for nobody
        return "joining" if node.transport.peers else "joining: no seed answers"
    return ""


def snapshot(node: LiveNode) -> dict[str, Any]:
    """How this node sees its part of the overlay, now."""
    overlay, names = node.mesh.overlay, node.mesh.overlay.table.topics
    counters = node.mesh.delivery.state.counters
    return {
        "node": node.name,
        "incarnation": node.life,
        "place": place(node.name),
        "overlay": node.config.overlay,
        "topics": names(overlay.interest),
        "links": [
            {"peer": peer, "topics": names(interest & overlay.interest)}
            for peer, interest in sorted(overlay.neighbours().items())
        ],
        "joined": not not_ready(node),
        "leaving": node.mesh.is_leaving,
        "mends": [
            {"cause": one.cause, "node": one.node, "number": one.number, "at_ms": one.at_ms, "ms": one.ms}
            for one in node.mends.latest
        ],
        "mending": [
            {"cause": one.cause, "node": one.node, "number": one.number, "at_ms": one.at_ms}
            for one, _ in node.mends.open.values()
        ],
        "clients": len(node.door.clients),
        "counters": {
            "published": counters.published,
            "acknowledged": counters.acknowledged,
            "not_acknowledged": counters.not_acknowledged,
            "delivered": counters.delivered,
            "pushes": counters.pushes_in,
            "duplicates": counters.duplicates,
            "lost": counters.lost,
            "bugs": node.counters["bugs"],
        },
    }


def exposition(node: LiveNode) -> str:
    page = Exposition()
    _overlay(page, node)
    _mends(page, node)
    _delivery(page, node)
    _streams(page, node)
    _mqtt(page, node)
    _pieces(page, node)
    _process(page, node)
    return page.text()


def _overlay(page: Exposition, node: LiveNode) -> None:
    mesh = node.mesh
    neighbours = mesh.overlay.neighbours()
    interest = mesh.overlay.interest
    alone = interest & ~_union(neighbours.values())
    about = {"node": node.name, "cluster": node.config.cluster, "overlay": node.config.overlay, "version": __version__}
    page.gauge("trellis_node_info", "Who this is: always 1.", [(about, 1)])
    page.gauge("trellis_incarnation", "The life of this name: grows with every start.", node.life)
    page.gauge("trellis_ready", "1 while the node has joined and is not leaving.", int(not not_ready(node)))
    page.gauge("trellis_degree", "Neighbours in the overlay.", len(neighbours))
    page.counter("trellis_links_up_total", "Links that came up.", node.counters["links_up"])
    page.counter("trellis_links_down_total", "Links that went down.", node.counters["links_down"])
    page.gauge("trellis_topics", "Topics that this node takes part in.", interest.bit_count())
    page.gauge("trellis_topics_alone", "Of these, topics that no neighbour takes part in.", alone.bit_count())
    page.gauge("trellis_subscriptions", "Topics that clients or the configuration want here.", len(mesh.wanted))
    limits = node.config.limits
    page.gauge("trellis_topics_max", "Topics above which subscriptions are refused.", limits.topics_max)
    page.gauge("trellis_topics_bytes", "Bytes of the names of all topics here, and 8 for each.", mesh.topics_bytes)
    page.gauge("trellis_topics_bytes_max", "Bytes above which subscriptions are refused.", limits.topics_bytes_max)
    refused = node.counters["topics_refused"]
    page.counter("trellis_topics_refused_total", "Subscriptions refused for the number or bytes of topics.", refused)


def _union(bitsets: Any) -> int:
    union = 0
    for one in bitsets:
        union |= one
    return union


def _mends(page: Exposition, node: LiveNode) -> None:
    running = Counter(one.cause for one, _ in node.mends.open.values())
    page.gauge("trellis_mends_running", "Repairs under way here.", [({"cause": one}, n) for one, n in running.items()])
    page.histogram(
        "trellis_mend_seconds",
        "Repairs that this node coordinated, from their first question to links that stand.",
        tuple(bound / 1_000 for bound in BOUNDS_MS),
        [
            ({"cause": cause}, buckets, node.mends.sum_ms[cause] / 1_000)
            for cause, buckets in sorted(node.mends.buckets.items())
        ],
    )


# name -> (of `Delivery.metrics()`, what it is)
_COUNTERS = {
    "published": "Publications taken in from clients.",
    "acknowledged": "Publications that have their copies.",
    "not_acknowledged": "Publications without enough copies in time, or refused.",
    "delivered": "Messages handed over at this node.",
    "duplicates": "Messages that came in and were here already. They are not handed over.",
    "resends": "Frames sent again for want of an acknowledgement.",
    "pulls": "Messages asked for after an announcement.",
    "lost": "Messages that will never be handed over here.",
    "late": "Messages that came after their turn was skipped.",
    "too_old": "Messages older than two windows.",
    "stale": "Messages of lives that are over.",
    "overflows": "Messages dropped from the window for want of room.",
    "turned_lazy": "Links that were full and are told of messages only.",
    "restarts": "Sessions of links begun anew.",
    "left_undrained": "Topics left although nobody had taken over what was held.",
}
_GAUGES = {
    "held": ("held_messages", "Messages in the window."),
    "held_bytes": ("held_bytes", "Their bytes."),
    "held_back": ("held_back_messages", "Messages that wait for earlier ones of their publisher."),
    "missing": ("missing_messages", "Messages known of and not here yet."),
    "pending": ("pending_publications", "Publications that wait for their copies."),
    "queued": ("queued_messages", "Messages that wait for room on links."),
    "under_way_bytes": ("under_way_bytes", "Bytes sent on links and not acknowledged yet."),
}


def _delivery(page: Exposition, node: LiveNode) -> None:
    found = node.mesh.delivery.metrics()
    for key, about in _COUNTERS.items():
        page.counter(f"trellis_{key}_total", about, found[key])
    page.counter("trellis_pushes_total", "Messages that came in whole from neighbours.", found["pushes_in"])
    ratio = found["pushes_in"] / found["delivered"] if found["delivered"] else 0.0
    page.gauge("trellis_sends_per_delivery", "Messages that came in, by messages handed over, since the start.", ratio)
    for key, (name, about) in _GAUGES.items():
        page.gauge(f"trellis_{name}", about, found[key])


def _streams(page: Exposition, node: LiveNode) -> None:
    peers, door = node.transport, node.door
    page.gauge("trellis_peer_streams", "Streams to other nodes.", len(peers.peers))
    versions = Counter(stream.tag.version for stream in peers.peers.values())
    told_versions = [({"version": str(one)}, n) for one, n in sorted(versions.items())]
    page.gauge("trellis_peers_by_version", "Streams to other nodes, by the protocol spoken on them.", told_versions)
    page.gauge("trellis_clients", "Clients that are connected.", len(door.clients))
    queues: list[tuple[Labels, float]] = []
    queued_bytes: list[tuple[Labels, float]] = []
    for who, streams in (("peers", list(peers.peers.values())), ("clients", list(door.streams))):
        queues.append(({"to": who}, sum(len(one.outbox) for one in streams)))
        queued_bytes.append(({"to": who}, sum(one.outbox.bytes for one in streams)))
    page.gauge("trellis_queue_frames", "Frames that wait for slow readers.", queues)
    page.gauge("trellis_queue_bytes", "Their bytes.", queued_bytes)
    cuts: list[tuple[Labels, float]] = []
    drops: list[tuple[Labels, float]] = []
    for who, counters in (("peer", peers.counters), ("client", door.counters)):
        for key, count in sorted(counters.items()):
            kind, _, reason = key.partition(" ")
            if kind == "cut":
                cuts.append(({"who": who, "reason": reason}, count))
            elif kind == "dropped" and count:
                drops.append(({"reason": reason}, count))
    page.counter("trellis_cut_off_total", "Streams that this node ended, and why.", cuts)
    page.counter("trellis_dropped_total", "Messages to peers that were dropped, and why.", drops)
    page.counter(
        "trellis_streams_broken_total", "Streams to peers that broke without a word.", peers.counters["broken"]
    )
    page.counter("trellis_client_messages_total", "Messages given to clients.", door.counters["delivered"])
    for way, traffic in (("in", node.traffic_in), ("out", node.traffic_out)):
        kinds = sorted((_tag(kind), found[0], found[1]) for kind, found in traffic.items())
        told = "Messages of each kind that came in" if way == "in" else "Messages of each kind that went out"
        page.counter(f"trellis_messages_{way}_total", f"{told}.", [({"kind": kind}, n) for kind, n, _ in kinds])
        page.counter(f"trellis_bytes_{way}_total", f"{told}, in bytes.", [({"kind": kind}, n) for kind, _, n in kinds])


def _pieces(page: Exposition, node: LiveNode) -> None:
    pieces = node.pieces
    too_large = node.counters["too_large"]
    page.counter("trellis_too_large_total", "Messages to peers that were too large to be sent.", too_large)
    page.gauge("trellis_pieces_bytes", "Pieces of long lists of topics that are kept.", pieces.store.bytes)
    page.gauge("trellis_pieces_waiting", "Messages that wait for pieces.", len(pieces.waiting.messages))
    given_up = [({"reason": why.replace(" ", "_")}, pieces.counters[why]) for why in DROPPED]
    page.counter("trellis_pieces_dropped_total", "Messages of peers whose pieces did not come, and why.", given_up)


def _tag(kind: Any) -> str:
    return str(kind.__struct_config__.tag)


_MQTT_NOW = ("clients", "sessions", "filters", "retained")


def _mqtt(page: Exposition, node: LiveNode) -> None:
    found = sorted(node.mqtt.metrics().items()) if node.mqtt is not None else []
    now: list[tuple[Labels, float]] = [({"what": key}, value) for key, value in found if key in _MQTT_NOW]
    happened: list[tuple[Labels, float]] = [({"what": key}, value) for key, value in found if key not in _MQTT_NOW]
    page.gauge("trellis_mqtt", "What the MQTT door holds.", now)
    page.counter("trellis_mqtt_total", "What has happened at the MQTT door, and at the broker beside it.", happened)


def _process(page: Exposition, node: LiveNode) -> None:
    page.counter("trellis_bugs_total", "Messages on which a handler of ours failed.", node.counters["bugs"])
    page.counter(
        "trellis_stood_still_seconds_total",
        "Time for which the process was found to have stood still.",
        node.counters["stood_still_ms"] / 1_000,
    )
    page.counter("trellis_process_cpu_seconds_total", "Computing time of the process.", cpu_seconds())
    page.gauge("trellis_process_resident_bytes", "Memory of the process.", resident_bytes())
    page.gauge("trellis_process_start_time_seconds", "When it started, in seconds since 1970.", _STARTED)
