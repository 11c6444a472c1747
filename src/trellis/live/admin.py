"""The admin port of a node: /healthz, /readyz, /livez, /metrics, /overlay.json and /links.  [docs/dashboard.md]

It only reads, unless `admin_token` names a file with a secret (`link_requests.py`). Everything is put together when it
is asked for, in the node's own thread, between two inputs.

    /healthz  503 while messages that should flow do not, with each reason as a sentence  [health.py]
    /readyz   503 while the node joins, leaves or takes up remembered filters: it should not be given clients
    /livez    200 whenever the process answers: for supervisors that restart it
    /links    PUT opens a link, DELETE drops one; only with the secret of `admin_token`  [docs/replan.md]
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
    def __init__(self, node: LiveNode) -> None:
        self.node = node
        self.http: HttpServer | None = None
        self.links = LinkRequests(node) if node.config.admin_token else None

    @property
    def port(self) -> int:
        return self.http.port if self.http is not None else 0

    def bind(self, address: str, tls: Credentials | None) -> None:
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
    found = node.health.complaints()
    status = 503 if found else 200
    if as_json:
        return Answer(msgspec.json.encode({"healthy": not found, "complaints": found}), JSON, status)
    told = [text for one in node.credentials() for text in one.warnings()]
    warnings = "".join(f"{text}\n" for text in [*told, *node.gate.warnings()])
    text = "".join(f"{one.text}\n" for one in found) or f"ok\n{warnings}"
    return Answer(text.encode("utf-8", "backslashreplace"), status=status)


def _peers_ahead_s(node: LiveNode) -> float:
    """How far in the future a peer started, by this node's clock; 0 if none did. Incarnations are times of starts."""
    newest = max((stream.tag.incarnation for stream in node.transport.peers.values()), default=0)
    return max(0.0, (newest - life_now()) / 10)


def snapshot(node: LiveNode) -> dict[str, Any]:
    """How this node sees its part of the overlay, now."""
    overlay, names = node.mesh.overlay, node.mesh.overlay.table.topics
    found = node.mesh.delivery.metrics()
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
            {"change": one.change, "peer": one.peer, "state": one.state, "why": one.why} for one in requests_of(node)
        ],
        "joined": not not_ready(node),
        "leaving": node.mesh.is_leaving,
        "complaints": [one.text for one in node.health.complaints()],
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
            "published": of_clients(found, "published"),
            "acknowledged": of_clients(found, "acknowledged"),
            "not_acknowledged": of_clients(found, "not_acknowledged"),
            "delivered": found["delivered"],
            "pushes": found["pushes_in"],
            "duplicates": found["duplicates"],
            "lost": of_clients(found, "lost"),
            "bugs": node.counters["bugs"],
        },
    }
