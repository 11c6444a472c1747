"""Read a running mesh through its admin ports, and open or drop single links of it.  [docs/replan.md; trellis replan]

    async with Fleet(["127.0.0.1:9001", ...], token=...) as fleet:
        await fleet.look()
        fleet.topics, fleet.links
        result = await fleet.apply([("add", "a", "b"), ("remove", "c", "d")])

Changes are made one at a time: the next one begins when both ends show the result of the last one. Two checks keep a
topic from being split. The node at one end decides whether a link may be dropped (`link_requests.py`). And `Fleet` does
not ask for a link to be dropped if, by the latest snapshots, a topic would be split without it.

When a node has crashed, leaves or has restarted, the plan no longer fits the mesh, and `apply` stops. Changes that were
made stay. The result lists those that were not made.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal
from urllib.parse import quote

from trellis.errors import InputError, TrellisError
from trellis.live.http_client import HttpClient
from trellis.live.http_messages import TARGET_LETTERS_MAX
from trellis.live.link_requests import VIA_MAX
from trellis.live.reasons import why_not
from trellis.live.view import SNAPSHOT, RequestTold, Snapshot
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.overlays import OVERLAYS

ASK_S = 5.0  # limit for one answer of an admin port
CHANGE_S = 15.0  # limit for one change
LOOK_S = 0.05  # pause between two snapshots while a change is under way
TRIES, PAUSE_S = 5, 1.0  # A refused change is tried again after a pause: the node may have been busy with a repair.
LOOK_EVERY = 16  # All nodes are read again after this many changes.
_FINAL = "nothing else is known to connect"  # A refusal that begins like this stays the same if it is tried again.

Change = tuple[Literal["add", "remove"], NodeId, NodeId]
Pair = tuple[NodeId, NodeId]
Progress = Callable[[int, int, str], None]  # changes that are over, all changes, the next change in words


class MeshChanged(TrellisError):
    """A node has crashed, leaves, has not joined or has restarted: a plan for this mesh no longer fits."""


@dataclass
class Applied:
    """The result of `Fleet.apply`. Every change is in exactly one of the three lists."""

    done: list[Change] = field(default_factory=list)
    refused: list[tuple[Change, str]] = field(default_factory=list)  # with the reason
    # Changes that were not finished when it stopped. The first of them may have been requested already.
    left: list[Change] = field(default_factory=list)
    stopped: str = ""  # why it stopped before the end. Empty: it did not.


class Fleet:
    """All nodes of a mesh, as their admin ports show them."""

    def __init__(self, addresses: Sequence[str], tls: ssl.SSLContext | None = None, token: str = "") -> None:
        """`addresses`: the admin ports of all nodes. `token`: their admin secret, which only changes need."""
        self.token, self._has_tls = token, tls is not None
        self._clients = [HttpClient(address, tls) for address in addresses]
        self._at: dict[NodeId, HttpClient] = {}  # empty before the first `look`
        self.told: dict[NodeId, Snapshot] = {}  # the latest snapshot of each node

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()

    # Reading

    @property
    def topics(self) -> dict[NodeId, tuple[Topic, ...]]:
        """The topics of each node."""
        return {name: snapshot.topics for name, snapshot in self.told.items()}

    @property
    def links(self) -> set[Pair]:
        """The links that both ends report. The smaller name of each pair comes first."""
        claims = {name: {link.peer for link in snapshot.links} for name, snapshot in self.told.items()}
        return {
            (node, peer) for node, peers in claims.items() for peer in peers if node < peer and node in claims[peer]
        }

    async def look(self) -> None:
        """Read a snapshot of every node.

        The first call also checks the mesh. It raises InputError if a node cannot be read, two addresses lead to the
        same node, the overlay is not OMen, or a neighbor is not among the nodes. Every call raises MeshChanged if a
        node leaves, has not joined or has restarted; later calls also if a node cannot be read any more.
        """
        first = not self._at
        snapshots = await asyncio.gather(*(self._read(client) for client in self._clients))
        for client, snapshot in zip(self._clients, snapshots, strict=True):
            if first and snapshot.node in self._at:
                what = f"node {snapshot.node} answers there, and at {self._at[snapshot.node].address} too"
                raise InputError(client.address, what, "name each node once")
            self._at.setdefault(snapshot.node, client)
            self._take(client, snapshot)
        if not first:
            return
        overlays = {snapshot.overlay for snapshot in snapshots}
        if len(overlays) != 1 or not all(overlay in OVERLAYS and OVERLAYS[overlay].takes_plans for overlay in overlays):
            what = f"the overlay is {' and '.join(sorted(overlays))}, which chooses its links by itself"
            raise InputError("", what, "links can be changed in a mesh of OMen alone")
        for snapshot in snapshots:
            unknown = sorted({link.peer for link in snapshot.links} - self.told.keys())
            if unknown:
                what = f"{snapshot.node} is linked to {unknown[0]}, which is not among these nodes"
                raise InputError("", what, "name the admin ports of all nodes")

    async def _read(self, client: HttpClient) -> Snapshot:
        """Return the snapshot of the node at one admin port."""
        try:
            status, body = await client.get("/overlay.json", timeout_s=ASK_S)
            if status != 200:
                raise ValueError(f"status {status}: {body[:200].decode('utf-8', 'replace').strip()}")
            return SNAPSHOT.decode(body)
        except (OSError, ValueError) as error:
            why = why_not(error, has_tls=self._has_tls)
            if self._at:
                raise MeshChanged(f"{client.address} does not answer any more: {why}") from None
            remedy = "name admin ports (admin_listen) of nodes that run"
            raise InputError(client.address, f"no node answers: {why}", remedy) from None

    def _take(self, client: HttpClient, snapshot: Snapshot) -> None:
        """Keep a snapshot. Raise MeshChanged if it shows that the mesh has changed."""
        known = self.told.get(snapshot.node)
        if self._at.get(snapshot.node) is not client:
            raise MeshChanged(f"another node answers at {client.address}: {snapshot.node}")
        if snapshot.leaving or not snapshot.joined:
            raise MeshChanged(f"node {snapshot.node} {'leaves' if snapshot.leaving else 'has not joined'}")
        if known is not None and known.incarnation != snapshot.incarnation:
            raise MeshChanged(f"node {snapshot.node} has restarted")
        self.told[snapshot.node] = snapshot

    # Changing links

    async def apply(self, changes: Iterable[Change], progress: Progress | None = None) -> Applied:
        """Carry out changes one after the other. Stop when a node cannot be asked, refuses the secret, or churns."""
        result, left = Applied(), deque(changes)
        total = len(left)
        try:
            while left:
                if progress is not None:
                    progress(total - len(left), total, f"{left[0][0]} {left[0][1]} - {left[0][2]}")
                if (total - len(left)) % LOOK_EVERY == 0:
                    await self.look()
                why = await self._change(*left[0])
                change = left.popleft()
                if why:
                    result.refused.append((change, why))
                else:
                    result.done.append(change)
            await self.look()
        except (MeshChanged, InputError) as error:
            result.stopped = str(error)
        result.left = list(left)
        return result

    async def _change(self, do: str, u: NodeId, v: NodeId) -> str:
        """Carry out one change, in at most `TRIES` tries. Return an empty string, or why it was not done."""
        pair = (min(u, v), max(u, v))
        why = ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(PAUSE_S)
                await self.look()
            if (pair in self.links) == (do == "add"):
                return ""  # It was done meanwhile, by a repair or by another operator.
            via: list[NodeId] = []
            if do == "remove":
                via, split = self.ways_around(pair)
                if split is not None:
                    return f'the mesh is not as it was planned: this link connects topic "{split}" now'
            why = await self._try(do, u, v, via)
            if not why or why.startswith(_FINAL):
                return why
        return why

    async def _try(self, do: str, u: NodeId, v: NodeId, via: Sequence[NodeId]) -> str:
        """Ask `u` for one change, and wait until both ends show it. Return an empty string, or why it was not done."""
        path = _target(v, via)
        status, body = await self._ask(u, "PUT" if do == "add" else "DELETE", path)
        if status != 202:
            said = body[:300].decode("utf-8", "replace").strip()
            if status in (401, 405, 503):
                raise InputError(f"node {u}", _why_refused(status, said), "see docs/replan.md, Who may do it")
            return f"node {u} says: {said}"
        loop = asyncio.get_running_loop()
        until = loop.time() + CHANGE_S
        kind = "open" if do == "add" else "drop"
        while True:
            for name in (u, v):
                self._take(self._at[name], await self._read(self._at[name]))
            asked = [request for request in self.told[u].requests if (request.change, request.peer) == (kind, v)]
            last = asked[-1] if asked else RequestTold(kind, v, "refused", f"node {u} does not know of the request")
            if last.state == "refused":
                return last.why
            if last.state == "done" and self._is_over(do, u, v):
                return ""
            if loop.time() > until:
                return "it took too long"
            await asyncio.sleep(LOOK_S)

    def _is_over(self, do: str, u: NodeId, v: NodeId) -> bool:
        """Return whether both ends report the link (add), or neither does (remove)."""
        claims = [any(link.peer == peer for link in self.told[end].links) for end, peer in ((u, v), (v, u))]
        return all(claims) if do == "add" else not any(claims)

    async def _ask(self, name: NodeId, method: str, path: str) -> tuple[int, bytes]:
        client = self._at[name]
        try:
            return await client.ask(method, path, ASK_S, self.token)
        except (OSError, ValueError) as error:
            why = why_not(error, has_tls=self._has_tls)
            raise MeshChanged(f"{client.address} does not answer any more: {why}") from None

    def ways_around(self, pair: Pair) -> tuple[list[NodeId], Topic | None]:
        """Return the nodes of paths that connect the ends of a link without it, one path for each topic they share.

        The second result is the first topic for which there is no such path, or None. All nodes of a path are
        subscribed to its topic.
        """
        u, v = pair
        near: dict[NodeId, list[NodeId]] = {}
        for first, second in self.links - {pair}:
            near.setdefault(first, []).append(second)
            near.setdefault(second, []).append(first)
        nodes: dict[NodeId, None] = {}
        wanted = {name: set(snapshot.topics) for name, snapshot in self.told.items()}
        for topic in sorted(wanted[u] & wanted[v]):
            path = _path(u, v, near, lambda name, topic=topic: topic in wanted[name], nodes)  # type: ignore[misc]
            if path is None:
                return list(nodes), topic
            nodes.update(dict.fromkeys(path))
        return list(nodes), None


def _path(
    start: NodeId,
    goal: NodeId,
    near: dict[NodeId, list[NodeId]],
    is_on: Callable[[NodeId], bool],
    free: Iterable[NodeId],
) -> list[NodeId] | None:
    """Return the inner nodes of a path from `start` to `goal`, or None if there is no path.

    The path leads only over nodes for which `is_on`. Nodes of `free` cost nothing and all others cost 1. The path is
    one of least cost (a 0-1 breadth-first search), so that few nodes have to be named in a request.
    """
    known, before = set(free), dict[NodeId, NodeId | None]()
    queue: deque[tuple[NodeId, NodeId | None]] = deque([(start, None)])
    while queue:
        node, last = queue.popleft()
        if node in before:
            continue
        before[node] = last
        if node == goal:
            path = []
            while (last := before[node]) is not None:
                path.append(node := last)
            return path[:-1]
        for peer in sorted(near.get(node, ())):
            if peer not in before and is_on(peer):
                (queue.appendleft if peer in known else queue.append)((peer, node))
    return None


def _target(peer: NodeId, via: Sequence[NodeId]) -> str:
    """Return the path of a request. Names of `via` that do not fit are left out: they are only hints."""
    path = f"/links/{quote(peer, safe='')}"
    listed: list[str] = []
    for name in via[:VIA_MAX]:
        listed.append(quote(name, safe=""))
        if len(path) + sum(map(len, listed)) + len(listed) + 5 > TARGET_LETTERS_MAX:
            listed.pop()
            break
    return f"{path}?via={','.join(listed)}" if listed else path


def _why_refused(status: int, said: str) -> str:
    """Return why an admin port changes no links. `said` is the text of its answer."""
    if status == 405:
        return "its admin port only reads: it has no admin_token"
    return "it does not accept this secret" if status == 401 else said
