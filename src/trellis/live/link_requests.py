"""Open and drop links at an operator's request: PUT and DELETE of /links/NAME at the admin port.  [docs/replan.md]

    PUT    /links/b           open a link with the node b
    DELETE /links/b?via=c,d   drop the link with b; c and d are believed to connect both nodes without it

Both need the secret of `admin_token` (`Authorization: Bearer ...`). The answer has status 202 and the state of the
request so far. /overlay.json shows its further states. The node refuses to drop a link that a topic may need
(`protocols/omen/links/requests.py`). The nodes in `via` are only hints: they are asked, and their answers must prove
it.
"""

from __future__ import annotations

import hmac
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from trellis.errors import InputError
from trellis.live.http_messages import Answer, Request
from trellis.protocols.omen.links.requests import Kind, State
from trellis.protocols.omen.links.requests import Request as LinkRequest
from trellis.protocols.omen.node import OMenNode
from trellis.protocols.wire import node_name_fault

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

log = logging.getLogger("trellis.live")

JSON = "application/json"
VIA_MAX = 64  # most names in `via`; further ones are ignored
_TOKEN_BYTES_MIN, _TOKEN_BYTES_MAX = 32, 4_096
_FOLDER = "/links/"


def read_admin_token(path: str, where: str = "admin_token") -> str:
    """Return the secret in a file, without trailing line ends. Raise InputError if the file cannot be used."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_TOKEN_BYTES_MAX + 1)
    except OSError as error:
        what = f"{path}: {(error.strerror or str(error)).lower()}"
        raise InputError(where, what, "name a file that this user can read") from None
    secret = data.rstrip(b"\r\n")
    remedy = "give one line of 32 letters or more, such as: openssl rand -hex 32"
    if len(secret) < _TOKEN_BYTES_MIN or len(data) > _TOKEN_BYTES_MAX:
        raise InputError(where, f"{path} has {len(data)} bytes", remedy)
    if not all(0x21 <= byte <= 0x7E for byte in secret):
        raise InputError(where, f"{path} holds a space, or a letter that is not ASCII", remedy)
    return secret.decode()


def requests_of(node: LiveNode) -> Sequence[LinkRequest]:
    """Return the latest requests for links at this node, newest last. Only OMen takes such requests."""
    overlay = node.mesh.overlay.node
    return overlay.requests.latest if isinstance(overlay, OMenNode) else ()


def link_counts(node: LiveNode) -> Counter[tuple[Kind, State]]:
    """Return the number of finished requests, by kind of change and state."""
    overlay = node.mesh.overlay.node
    return overlay.requests.counts if isinstance(overlay, OMenNode) else Counter()


class LinkRequests:
    """Answer requests for links at the admin port of one node."""

    def __init__(self, node: LiveNode) -> None:
        """Raise InputError if the file with the secret cannot be used."""
        self.node = node
        read_admin_token(node.config.admin_token)

    def answer(self, request: Request) -> Answer | None:
        """Check a request and pass it to the overlay. Return the answer, or None for a path that does not exist."""
        if not request.path.startswith(_FOLDER):
            return None
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        peer, *via = self._names(request)
        for name in (peer, *via):
            if (fault := node_name_fault(name)) is not None:
                return _said(400, f'"{name}": {fault[0]}')
        node, overlay = self.node, self.node.mesh.overlay.node
        if not isinstance(overlay, OMenNode):
            return _said(409, f"{node.config.overlay} chooses its links by itself")
        is_known = peer in node.links or node.transport.book.find(peer) is not None
        if request.method == "PUT" and not is_known:
            return _said(404, f"this node does not know where {peer} listens")
        opens = request.method == "PUT"
        log.info("%s: was asked to %s the link with %s", node.name, "open" if opens else "drop", peer)
        node.change_overlay(lambda: overlay.open_link(peer) if opens else overlay.drop_link(peer, via))
        made = overlay.requests.latest[-1]
        reply = {"change": made.change, "peer": made.peer, "state": made.state, "why": made.why}
        return Answer(msgspec.json.encode(reply), JSON, status=202)

    def _refusal(self, request: Request) -> Answer | None:
        """Return the answer to a request without the right secret, or None if it has the right one.

        The file is read for each request, so that the secret can be changed while the node runs.
        """
        try:
            secret = read_admin_token(self.node.config.admin_token)
        except InputError as error:
            return _said(503, str(error))
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), secret.encode()):
            return None
        self.node.counters["link_requests_refused"] += 1
        return _said(401, "give the secret of admin_token as a bearer token", (("WWW-Authenticate", "Bearer"),))

    def _names(self, request: Request) -> list[str]:
        """Return the names in a request: the peer, then the nodes of `via`."""
        listed: list[str] = []
        for part in request.query.split("&"):
            key, _, value = part.partition("=")
            if key == "via":
                listed += [unquote(name, errors="replace") for name in value.split(",") if name]
        return [unquote(request.path.removeprefix(_FOLDER), errors="replace"), *listed[:VIA_MAX]]


def _said(status: int, text: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Return an answer of one line of text."""
    return Answer(f"{text}\n".encode("utf-8", "backslashreplace"), status=status, headers=headers)
