"""Which name listens where: learned from hellos and from peers, bounded.

Protocols speak of names. A node that tells a name to another one must have told it where that name listens before, so
every stream carries what changed in the book since it was last told, ahead of the next message. So whoever has heard
of a name can dial it, without a question.

Anybody can say anything about the address of another node. So what a node says of itself in its hello (first hand) wins
over what others say of it, and nobody changes the address of a node that is connected. Of a node that is known from
others alone, the later incarnation wins, and the address before it is kept as a spare: a dial that fails tries the
other one next. So a false address costs dials, and does not outlast the liar.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Container, Iterable

from trellis.errors import InputError
from trellis.live.frames import HOST_LETTERS_MAX, HOST_PATTERN, Address
from trellis.protocols.effects import NodeId, Seed

BOOK_MAX = 8_192  # at most about 100 bytes each


class AddressBook:
    def __init__(self, owner: NodeId, entries_max: int = BOOK_MAX) -> None:
        self.owner, self.entries_max = owner, entries_max
        self.version = 0  # grows with every change
        self._entries: OrderedDict[NodeId, tuple[int, Address]] = OrderedDict()  # by version, the oldest first
        self._spares: dict[NodeId, Address] = {}  # another address that was told of a node
        self._first_hand: dict[NodeId, None] = {}  # nodes whose entry they have told us themselves

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, node: NodeId) -> Address | None:
        found = self._entries.get(node)
        return found[1] if found is not None else None

    def nodes(self) -> list[NodeId]:
        return list(self._entries)

    def is_first_hand(self, node: NodeId) -> bool:
        """Return whether the node itself has told us the address that is known of it."""
        return node in self._first_hand

    def meet(self, one: Address, keep: Container[NodeId] = ()) -> None:
        """Take the address that a node says of itself. `keep` are not forgotten for want of room."""
        if one.node == self.owner:
            return
        if self.find(one.node) != one:
            self._put(one, keep)
        if one.node in self._entries:
            self._first_hand[one.node] = None
            self._spares.pop(one.node, None)

    def learn(
        self, addresses: Iterable[Address], connected: Container[NodeId] = (), changes_max: int = BOOK_MAX
    ) -> int:
        """Take what others say, up to so many changes. Return how many there were: all other peers are told of each.

        What is said about the owner and about nodes that are connected is not kept.
        """
        before = self.version
        for one in addresses:
            if one.node == self.owner or one.node in connected:
                continue
            if self.version - before >= changes_max:
                break
            known = self.find(one.node)
            if known is None:
                self._put(one, connected)
            elif one.incarnation > known.incarnation:
                self._put(one, connected)
                if one.node in self._entries and _place(known) != _place(one):
                    self._spares[one.node] = known
            elif _place(one) != _place(known):
                self._spares[one.node] = one
        return self.version - before

    def failed(self, node: NodeId) -> None:
        """A dial to the address of a node failed: the next one goes to its other address, if one was told."""
        spare, known = self._spares.pop(node, None), self.find(node)
        if spare is not None and known is not None:
            self._put(spare, ())
            if node in self._entries:
                self._spares[node] = known

    def forget(self, node: NodeId) -> None:
        """Somebody else answers there."""
        self._entries.pop(node, None)
        self._spares.pop(node, None)
        self._first_hand.pop(node, None)

    def _put(self, one: Address, keep: Container[NodeId]) -> None:
        self.version += 1
        self._entries[one.node] = (self.version, one)
        self._entries.move_to_end(one.node)
        self._first_hand.pop(one.node, None)
        if len(self._entries) > self.entries_max:
            oldest = next((node for node in self._entries if node not in keep), None)
            self.forget(oldest if oldest is not None else one.node)

    def since(self, version: int) -> list[Address]:
        """What has changed after a version, the oldest first."""
        changed: list[Address] = []
        for when, one in reversed(self._entries.values()):
            if when <= version:
                break
            changed.append(one)
        return changed[::-1]


def _place(address: Address) -> tuple[str, int]:
    return address.host, address.port


def parse_address(text: str, where: str = "") -> tuple[str, int]:
    """`host:port` or `[v6]:port`. The host is one that a node may tell to others (`frames.Host`)."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535
    if not colon or not is_port or not 0 < len(host) <= HOST_LETTERS_MAX or not re.search(HOST_PATTERN, host):
        raise InputError(where, f'"{text}" is no address', "give host:port, as in 127.0.0.1:7001")
    return host, int(port)


def parse_seed(text: str) -> Seed:
    return Seed(*parse_address(text, "seeds"))


def show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
