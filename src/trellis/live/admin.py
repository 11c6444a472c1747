"""The admin port of a node: /healthz, /readyz, /livez, /metrics, /overlay.json and /links.  [docs/dashboard.md]

It is read-only, unless `admin_token` names a file with a secret (`link_requests.py`). Each answer is computed when it
is asked for, in the node's own thread, between two inputs of the node. So it shows one consistent state.

    /healthz       503 while messages that should flow do not, with each reason as a sentence  [health.py]
    /readyz        503 while the node should not be given clients: it is leaving, joining, subscribing or learning
    /livez         200 whenever the process answers, for supervisors that restart it
    /metrics       counters and gauges for Prometheus  [series.py]
    /overlay.json  the node's topics, links, repairs and counters, for the dashboard  (`snapshot`)
    /links/NAME    PUT opens a link, DELETE drops one, with the secret of `admin_token`  [docs/replan.md]
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from trellis import __version__
from trellis.live.addresses import parse_address
from trellis.live.clock import life_now, wall_ms
from trellis.live.config import is_loopback
from trellis.live.health import not_ready, unready
from trellis.live.http import Events, HttpServer
from trellis.live.http_messages import CHANGING, READING, Answer, Request
from trellis.live.link_requests import LinkRequests, requests_of
from trellis.live.metrics import OPENMETRICS, TEXT, accepts_openmetrics
from trellis.live.series import exposition, of_clients
from trellis.live.tls import Credentials
from trellis.protocols.ring import place

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

JSON = "application/json"


class Admin:
    """Serve the admin port of one node."""

    def __init__(self, node: LiveNode) -> None:
        self.node = node
        self.http: HttpServer | None = None
        self.links = LinkRequests(node) if node.config.admin_token else None

    @property
    def port(self) -> int:
        """Return the port that is bound, or 0 before `bind`."""
        return self.http.port if self.http is not None else 0

    def bind(self, address: str, tls: Credentials | None) -> None:
        """Bind the port. Nothing is accepted before `serve`."""
        methods = CHANGING if self.links is not None else READING
        self.http = HttpServer(self.answer, is_local=is_loopback(parse_address(address)[0]), methods=methods)
        self.http.bind(address, tls)

    def serve(self) -> None:
        assert self.http is not None
        self.http.serve()

    async def close(self) -> None:
        if self.http is not None:
            await self.http.close()

    def answer(self, request: Request) -> Answer | Events | None:
        """Return the answer to a request, or None for a path that does not exist."""
        if request.method not in READING:
            return self.links.answer(request) if self.links is not None else None
        accept = request.headers.get("accept", "")
        match request.path:
            case "/healthz":
                return _health(self.node, as_json=JSON in accept)
            case "/readyz":
                trouble = unready(self.node)
                return Answer(b"ok\n") if not trouble else Answer(f"{trouble}\n".encode(), status=503)
            case "/livez":
                return Answer(b"ok\n")
            case "/metrics":
                is_open = accepts_openmetrics(accept)
                text = exposition(self.node, is_open=is_open)
                return Answer(text.encode(), OPENMETRICS if is_open else TEXT, headers=(("Vary", "Accept"),))
            case "/overlay.json":
                return Answer(msgspec.json.encode(snapshot(self.node)), JSON)
        return None


def _health(node: LiveNode, *, as_json: bool) -> Answer:
    """Return the answer of /healthz. Warnings follow "ok" in the text, and are left out where there are complaints."""
    complaints = node.health.complaints()
    status = 503 if complaints else 200
    if as_json:
        return Answer(msgspec.json.encode({"healthy": not complaints, "complaints": complaints}), JSON, status)
    texts = [text for credentials in node.credentials() for text in credentials.warnings()]
    warnings = "".join(f"{text}\n" for text in [*texts, *node.gate.warnings()])
    text = "".join(f"{complaint.text}\n" for complaint in complaints) or f"ok\n{warnings}"
    return Answer(text.encode("utf-8", "backslashreplace"), status=status)


def _peers_ahead_s(node: LiveNode) -> float:
    """Return how many seconds ahead of this node's clock the latest incarnation of a connected peer is; 0 if none is.

    An incarnation is the time of a start. So a positive value means that the clocks differ.
    """
    newest = max((stream.tag.incarnation for stream in node.transport.peers.values()), default=0)
    return max(0.0, (newest - life_now()) / 10)


def snapshot(node: LiveNode) -> dict[str, Any]:
    """Return the node's present view of its part of the overlay, as /overlay.json shows it (`view.Snapshot`)."""
    overlay, names = node.mesh.overlay, node.mesh.overlay.table.topics
    metrics = node.mesh.delivery.metrics()
    return {
        "node": node.name,
        "version": __version__,
        "cluster": node.config.cluster,
        "incarnation": node.life,
        "pid": os.getpid(),
        "time_ms": wall_ms(),
        "peers_ahead_s": _peers_ahead_s(node),
        "place": place(node.name),
        "overlay": node.config.overlay,
        "topics": names(overlay.interest),
        "links": [
            {"peer": peer, "topics": names(interest & overlay.interest)}
            for peer, interest in sorted(overlay.neighbors().items())
        ],
        "requests": [
            {"change": request.change, "peer": request.peer, "state": request.state, "why": request.why}
            for request in requests_of(node)
        ],
        "joined": not not_ready(node),
        "leaving": node.mesh.is_leaving,
        "complaints": [complaint.text for complaint in node.health.complaints()],
        "mends": [
            {
                "cause": repair.cause,
                "node": repair.node,
                "number": repair.number,
                "at_ms": repair.at_ms,
                "ms": repair.ms,
            }
            for repair in node.repairs.latest
        ],
        "mending": [
            {"cause": repair.cause, "node": repair.node, "number": repair.number, "at_ms": repair.at_ms}
            for repair, _ in node.repairs.open.values()
        ],
        "clients": len(node.client_port.clients),
        "counters": {
            "published": of_clients(metrics, "published"),
            "acknowledged": of_clients(metrics, "acknowledged"),
            "not_acknowledged": of_clients(metrics, "not_acknowledged"),
            "delivered": metrics["delivered"],
            "pushes": metrics["pushes_in"],
            "duplicates": metrics["duplicates"],
            "lost": of_clients(metrics, "lost"),
            "bugs": node.counters["bugs"],
        },
    }
