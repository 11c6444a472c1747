"""The metrics of a node, for /metrics.  [docs/dashboard.md names every metric, docs/runbook.md says how to react]

The number of series does not depend on what peers and clients do: every label has a fixed list of values. All series
exist from the start with value 0. Otherwise the rate of a counter would miss the event that creates it. Values that are
not on the list of a label are counted under `other`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args

from trellis import __version__
from trellis.live.frames import VERSION
from trellis.live.health import KINDS, unready
from trellis.live.link_requests import link_counts
from trellis.live.metrics import Exposition, Labels, cpu_seconds, resident_bytes, slug
from trellis.live.repair_times import BOUNDS_MS, CAUSES
from trellis.protocols.mesh.codecs import union_of
from trellis.protocols.mqtt import reasons
from trellis.protocols.pieces import DROPPED as PIECES_DROPPED
from trellis.protocols.pieces.messages import Give, Want

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

Samples = list[tuple[Labels, float]]

# Reasons for which this node ends a stream to a peer, or to a client of the client port.
CUT = {
    "peer": (
        "certificate", "cluster", "flood", "full", "garbage", "handshake", "name", "old", "overlay", "oversized",
        "role", "silent", "slow", "taken", "tls", "version",
    ),
    "client": (
        "certificate", "full", "garbage", "handshake", "name", "oversized", "quota", "role", "slow", "subscriptions",
        "tls", "token", "topics", "user", "version",
    ),
}  # fmt: skip
# Reasons for which peers refuse a stream to this node, and for which messages to peers are dropped.
REFUSED = ("certificate", "cluster", "name", "old", "overlay", "second", "self", "taken", "tls", "version")
DROPPED = ("dialling", "full", "queued", "unaddressed", "unreachable", "version")

# Names in `MqttListener.metrics()` that are gauges. All others are counters.
MQTT_NOW = (
    "clients", "sessions", "filters", "filter bytes", "retained", "sidecar filters learned",
    "sidecar subscriptions unknown",
)  # fmt: skip
# Counters of the MQTT listener: of its host, of its sidecar, of its directory, and of streams that it cut.
_MQTT_HOST = (
    "before the subscription", "connected", "connections beyond quotas", "filters beyond quotas", "held by quotas",
    "delivered", "dropped", "expired", "filters beyond memory",
    "filters refused", "garbage", "malformed", "not acknowledged", "passwords refused",
    "payloads too large", "publications refused",
    "reads denied", "refused", "retained refused", "set aside", "shared not guarded", "shared taken over",
    "subacks early", "subscriptions denied", "taken over", "too large for a client", "too large for the mesh",
    "wills", "wills denied", "wills refused", "writes denied",
)  # fmt: skip
_MQTT_SIDECAR = (
    "beyond take", "bugs", "clients ended", "clients lapsed", "connections ended", "dropped", "echoes",
    "echoes missing", "filters refused", "given", "kept out", "log gaps", "log unread",
    "not carried", "perhaps echoes", "probes of others", "refused by the broker", "retained before", "sent again",
    "sessions begun", "set aside", "subscriptions forgotten", "subscriptions not learned", "taken",
    "too large for the broker",
)  # fmt: skip
_MQTT_DIRECTORY = (
    "asks ignored",
    "late",
    "members silent",
    "other depth",
    "out of order",
    "strange",
    "too many askers",
    "unknown",
)
_MQTT_CUT = (
    "full",
    "handshake",
    "slow",
    "tls",
    *(name for value, name in sorted(reasons.NAMES.items()) if value >= 128),
)
MQTT_HAPPENED = (
    *(slug(name) for name in _MQTT_HOST),
    *(slug(f"sidecar {name}") for name in _MQTT_SIDECAR),
    *(slug(f"directory {name}") for name in _MQTT_DIRECTORY),
    *(slug(f"cut {name}") for name in _MQTT_CUT),
    "closed",  # streams that this node ended, with a reason that the client was told
)


def exposition(node: LiveNode, *, is_open: bool = False) -> str:
    """Return all metrics of `node`, as OpenMetrics if `is_open`."""
    page = Exposition(is_open=is_open)
    _overlay(page, node)
    _health(page, node)
    _mends(page, node)
    _delivery(page, node)
    _streams(page, node)
    _traffic(page, node)
    _pieces(page, node)
    _mqtt(page, node)
    _certificates(page, node)
    _process(page, node)
    return page.text()


def _overlay(page: Exposition, node: LiveNode) -> None:
    """Add the node's identity, its links and its topics."""
    mesh = node.mesh
    neighbors = mesh.overlay.neighbors()
    interest = mesh.overlay.interest
    alone = interest & ~_union(neighbors.values())
    about = {"node": node.name, "cluster": node.config.cluster, "overlay": node.config.overlay, "version": __version__}
    page.info("trellis_node_info", "Who this is: always 1.", about)
    page.gauge("trellis_incarnation", "The incarnation of this name: grows with every start.", node.life)
    page.gauge("trellis_ready", "1 while the node can be given clients, as /readyz says.", int(not unready(node)))
    page.gauge("trellis_degree", "Neighbors in the overlay.", len(neighbors))
    page.counter("trellis_links_up_total", "Links that came up.", node.counters["links_up"])
    page.counter("trellis_links_down_total", "Links that went down.", node.counters["links_down"])
    asked = link_counts(node)
    labelled: Samples = [
        ({"change": change, "state": state}, asked[change, state])
        for change in ("open", "drop")
        for state in ("done", "refused")
    ]
    page.counter("trellis_link_requests_total", "Links that an operator asked to open or drop.", labelled)
    unauthorized = node.counters["link_requests_refused"]
    page.counter("trellis_link_requests_unauthorized_total", "Such requests without the secret.", unauthorized)
    page.gauge("trellis_topics", "Topics that this node takes part in.", interest.bit_count())
    page.gauge("trellis_topics_alone", "Of these, topics that no neighbor takes part in.", alone.bit_count())
    page.gauge("trellis_subscriptions", "Topics that clients or the configuration want here.", len(mesh.wanted))
    limits = node.config.limits
    page.gauge("trellis_topics_max", "Topics above which subscriptions are refused.", limits.topics_max)
    page.gauge("trellis_topics_bytes", "Bytes of the names of all topics here, and 8 for each.", mesh.topics_bytes)
    page.gauge("trellis_topics_bytes_max", "Bytes above which subscriptions are refused.", limits.topics_bytes_max)
    refused = node.counters["topics_refused"]
    page.counter("trellis_topics_refused_total", "Subscriptions refused for the number or bytes of topics.", refused)


def _union(bitsets: Iterable[int]) -> int:
    """Return the topics of any of the sets. A set of topics is an int with one bit for each."""
    union = 0
    for bitset in bitsets:
        union |= bitset
    return union


def _health(page: Exposition, node: LiveNode) -> None:
    kinds = Counter(complaint.kind for complaint in node.health.complaints())
    page.gauge("trellis_healthy", "1 while /healthz says ok.", int(not kinds))
    page.gauge("trellis_complaints", "Reasons why /healthz does not say ok, by kind.", _each("kind", KINDS, kinds))
    page.counter("trellis_canaries_total", "Canary publications of this node.", node.health.canary.sent)
    page.counter("trellis_canaries_answered_total", "Canaries whose home answered.", node.health.canary.answered)


def _mends(page: Exposition, node: LiveNode) -> None:
    running = Counter(repair.cause for repair, _ in node.repairs.open.values())
    page.gauge("trellis_mends_running", "Repairs under way here.", _each("cause", CAUSES, running))
    page.histogram(
        "trellis_mend_seconds",
        "Repairs that this node coordinated, from their first question to links that stand.",
        tuple(bound / 1_000 for bound in BOUNDS_MS),
        [({"cause": cause}, node.repairs.buckets[cause], node.repairs.sum_ms[cause] / 1_000) for cause in CAUSES],
    )


# Name in `Delivery.metrics()` -> help text. The metric is named after it.
_COUNTERS = {
    "published": "Publications taken in from clients.",
    "acknowledged": "Publications of clients that have their copies.",
    "not_acknowledged": "Publications of clients without enough copies in time, or refused.",
    "delivered": "Messages handed over at this node.",
    "duplicates": "Messages that came in and were here already. They are not handed over.",
    "resends": "Frames sent again for want of an acknowledgement.",
    "pulls": "Messages asked for after an announcement.",
    "passed_by": "Messages that a new subscription skipped: they were published before it.",
    "lost": "Messages that will never be handed over to a subscriber that was promised them.",
    "late": "Messages that came after their turn was skipped.",
    "too_old": "Messages older than two windows.",
    "stale": "Messages of incarnations that are over.",
    "forged": "Messages and numbers in the name of a node that has not published them: a neighbor lies.",
    "overflows": "Messages dropped from the window for want of room.",
    "window_full": "Publications refused or given up since the window was full of publications that wait.",
    "registrations_turned_away": "Registrations of subscribers that this home turned away or dropped for want of room.",
    "turned_lazy": "Links that were full and are told of messages only.",
    "restarts": "Sessions of links that were started again.",
    "left_undrained": "Topics left although nobody had taken over what was held.",
    "left_behind": "Messages that this node held when it left the mesh, and that nobody had taken over.",
}
# Name in `Delivery.metrics()` -> name of the metric, help text.
_GAUGES = {
    "held": ("held_messages", "Messages in the window."),
    "held_bytes": ("held_bytes", "Their bytes."),
    "held_back": ("held_back_messages", "Messages that wait for earlier ones of their publisher."),
    "missing": ("missing_messages", "Messages known of and not here yet."),
    "pending": ("pending_publications", "Publications that wait for their copies."),
    "pending_bytes": ("pending_bytes", "Their bytes in the window."),
    "queued": ("queued_messages", "Messages that wait for room on links."),
    "under_way_bytes": ("under_way_bytes", "Bytes sent on links and not acknowledged yet."),
}
# Name in `Delivery.metrics()`, without `_internal` -> help text.
_INTERNAL = {
    "published": "Publications of nodes to each other, as of the MQTT directory.",
    "acknowledged": "Publications of nodes to each other that have their copies.",
    "not_acknowledged": "Publications of nodes to each other without enough copies in time.",
    "lost": "Messages of nodes to each other that will never be handed over. They are repeated.",
}


def of_clients(metrics: Mapping[str, int], key: str) -> int:
    """Return a counter of `Delivery.metrics()` without the messages that nodes publish to each other."""
    return metrics[key] - metrics.get(f"{key}_internal", 0)


def _delivery(page: Exposition, node: LiveNode) -> None:
    metrics = node.mesh.delivery.metrics()
    for key, about in _COUNTERS.items():
        page.counter(f"trellis_{key}_total", about, of_clients(metrics, key))
    for key, about in _INTERNAL.items():
        page.counter(f"trellis_internal_{key}_total", about, metrics[f"{key}_internal"])
    page.counter("trellis_pushes_total", "Messages that came in whole from neighbors.", metrics["pushes_in"])
    ratio = metrics["pushes_in"] / metrics["delivered"] if metrics["delivered"] else 0.0
    page.gauge("trellis_sends_per_delivery", "Messages that came in, by messages handed over, since the start.", ratio)
    for key, (name, about) in _GAUGES.items():
        page.gauge(f"trellis_{name}", about, metrics[key])


def _streams(page: Exposition, node: LiveNode) -> None:
    peers, port = node.transport, node.client_port
    page.gauge("trellis_peer_streams", "Streams to other nodes.", len(peers.peers))
    versions = Counter(str(stream.tag.version) for stream in peers.peers.values())
    listed = tuple(str(version) for version in range(1, VERSION + 1))
    by_version = _each("version", listed, versions)
    page.gauge("trellis_peers_by_version", "Streams to other nodes, by the protocol spoken on them.", by_version)
    page.gauge("trellis_clients", "Clients that are connected.", len(port.clients))
    queues: Samples = []
    queued_bytes: Samples = []
    for who, streams in (("peers", list(peers.peers.values())), ("clients", list(port.streams))):
        queues.append(({"to": who}, sum(len(stream.outbox) for stream in streams)))
        queued_bytes.append(({"to": who}, sum(stream.outbox.bytes for stream in streams)))
    page.gauge("trellis_queue_frames", "Frames that wait for slow readers.", queues)
    page.gauge("trellis_queue_bytes", "Their bytes.", queued_bytes)
    cuts: Samples = []
    for who, counters in (("peer", peers.counters), ("client", port.counters)):
        samples = _each("reason", CUT[who], _behind("cut ", counters))
        cuts += [({"who": who, **labels}, count) for labels, count in samples]
    page.counter("trellis_cut_off_total", "Streams that this node ended, and why.", cuts)
    refusals = _each("reason", REFUSED, _behind("refused ", peers.counters))
    page.counter("trellis_refused_total", "Streams to this node that peers refused, and why.", refusals)
    drops = _each("reason", DROPPED, _behind("dropped ", peers.counters))
    page.counter("trellis_dropped_total", "Messages to peers that were dropped, and why.", drops)
    page.counter(
        "trellis_streams_broken_total", "Streams to peers that broke without a word.", peers.counters["broken"]
    )
    denied: Samples = [
        ({"what": what}, port.counters[f"{what} denied"]) for what in ("reads", "subscriptions", "writes")
    ]
    page.counter("trellis_denied_total", "What the access list denied to clients of the client port.", denied)
    page.counter("trellis_client_messages_total", "Messages given to clients.", port.counters["delivered"])


def _traffic(page: Exposition, node: LiveNode) -> None:
    union = get_args(union_of(node.config.overlay))
    # A message that travels in pieces is counted under its own kind. The messages that give or ask for pieces are
    # counted only when they go out.
    for direction, traffic, kinds_there in (
        ("in", node.traffic_in, union),
        ("out", node.traffic_out, (*union, Give, Want)),
    ):
        kinds = sorted((str(kind.__struct_config__.tag), kind) for kind in kinds_there)
        about = "Messages of each kind that came in" if direction == "in" else "Messages of each kind that went out"
        counts: Samples = [({"kind": tag}, traffic.get(kind, (0, 0))[0]) for tag, kind in kinds]
        sizes: Samples = [({"kind": tag}, traffic.get(kind, (0, 0))[1]) for tag, kind in kinds]
        page.counter(f"trellis_messages_{direction}_total", f"{about}.", counts)
        page.counter(f"trellis_bytes_{direction}_total", f"{about}, in bytes.", sizes)


def _pieces(page: Exposition, node: LiveNode) -> None:
    pieces = node.pieces
    too_large = node.counters["too_large"]
    page.counter("trellis_too_large_total", "Messages to peers that were too large to be sent.", too_large)
    page.gauge("trellis_pieces_bytes", "Pieces of long lists of topics that are kept.", pieces.store.bytes)
    page.gauge("trellis_pieces_waiting", "Messages that wait for pieces.", len(pieces.waiting.messages))
    given_up: Samples = [({"reason": slug(why)}, pieces.counters[why]) for why in PIECES_DROPPED]
    page.counter("trellis_pieces_dropped_total", "Messages of peers whose pieces did not come, and why.", given_up)


def _mqtt(page: Exposition, node: LiveNode) -> None:
    metrics = node.mqtt.metrics() if node.mqtt is not None else {}
    happened: Counter[str] = Counter()
    for key, count in metrics.items():
        if key not in MQTT_NOW:
            happened["closed" if key.startswith("closed ") else slug(key)] += count
    now: Samples = [({"what": slug(key)}, metrics.get(key, 0)) for key in MQTT_NOW]
    page.gauge("trellis_mqtt_held", "What the MQTT listener holds.", now)
    page.counter(
        "trellis_mqtt_total",
        "What has happened at the MQTT listener, and at the broker beside it.",
        _each("what", MQTT_HAPPENED, happened),
    )


def _certificates(page: Exposition, node: LiveNode) -> None:
    credentials = node.credentials()
    ends: list[tuple[Labels, float]] = [
        ({"section": credential.what, "file": file}, until_s)
        for credential in credentials
        for file, until_s in credential.now.expires_s.items()
    ]
    about = "When a certificate ends, in seconds since 1970; of several authorities the first one."
    page.gauge("trellis_certificate_expires_seconds", about, ends)
    about = "1 while new files of certificates cannot be used and the old ones stay in use."
    page.gauge("trellis_certificate_reload_failed", about, int(any(credential.trouble for credential in credentials)))


def _process(page: Exposition, node: LiveNode) -> None:
    page.counter("trellis_bugs_total", "Messages on which a handler of ours failed.", node.counters["bugs"])
    page.counter(
        "trellis_stood_still_seconds_total",
        "Time for which the process was found to have stood still.",
        node.counters["stood_still_ms"] / 1_000,
    )
    page.counter("trellis_process_cpu_seconds_total", "Computing time of the process.", cpu_seconds())
    page.gauge("trellis_process_resident_bytes", "Memory of the process.", resident_bytes())
    page.gauge("trellis_process_start_time_seconds", "When it started, in seconds since 1970.", node.started_s)


def _behind(prefix: str, counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters whose names begin with `prefix`, without it."""
    return {key.removeprefix(prefix): count for key, count in counters.items() if key.startswith(prefix)}


def _each(label: str, listed: tuple[str, ...], counts: Mapping[Any, int]) -> Samples:
    """Return one sample for each value of the list, and one, labelled `other`, for all other values."""
    rest = sum(count for key, count in counts.items() if key not in listed)
    return [*(({label: value}, counts.get(value, 0)) for value in listed), ({label: "other"}, rest)]
