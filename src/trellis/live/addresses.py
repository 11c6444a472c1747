"""The address book: which address each node listens at. It is bounded, and learned from hellos and from peers.

Protocols name nodes, and the transport needs their addresses. So before each message a stream carries the entries of
the book that have changed since the peer was last told. Therefore a node that hears of a name can dial it at once.

A peer may tell a false address of another node. These rules limit the damage:

- A node tells its own address in its hello (first hand). That replaces whatever others have told.
- Others cannot change the address of a node that is connected.
- Otherwise an address with a later incarnation replaces the known one, which is kept as a spare. A different address
  of the same or an earlier incarnation only becomes the spare. After a failed dial the two are swapped.

So a false address costs failed dials, until the node itself connects.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Container, Iterable

from trellis.errors import InputError
from trellis.live.frames import HOST_LETTERS_MAX, HOST_PATTERN, Address
from trellis.protocols.effects import NodeId, Seed

BOOK_MAX = 8_192  # Most entries of a book. An entry takes about 100 bytes.


class AddressBook:
    """Remember at most `entries_max` addresses. Beyond that, the entry that was changed longest ago is dropped."""

    def __init__(self, owner: NodeId, entries_max: int = BOOK_MAX) -> None:
        self.owner, self.entries_max = owner, entries_max
        self.version = 0  # Number of changes so far. `since` compares entries with it.
        self._entries: OrderedDict[NodeId, tuple[int, Address]] = OrderedDict()  # with version; oldest first
        self._spares: dict[NodeId, Address] = {}  # A second address that was told for a node.
        self._first_hand: dict[NodeId, None] = {}  # Nodes that told us their present entry themselves.

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, node: NodeId) -> Address | None:
        """Return the address of a node, or None if it is unknown."""
        entry = self._entries.get(node)
        return entry[1] if entry is not None else None

    def nodes(self) -> list[NodeId]:
        """Return all nodes of the book, the one whose entry changed longest ago first."""
        return list(self._entries)

    def is_first_hand(self, node: NodeId) -> bool:
        """Return whether the node itself told us its present entry."""
        return node in self._first_hand

    def meet(self, address: Address, keep: Container[NodeId] = ()) -> None:
        """Take the address that a node tells of itself. Nodes in `keep` are not dropped when the book is full."""
        if address.node == self.owner:
            return
        if self.find(address.node) != address:
            self._put(address, keep)
        if address.node in self._entries:
            self._first_hand[address.node] = None
            self._spares.pop(address.node, None)

    def learn(
        self, addresses: Iterable[Address], connected: Container[NodeId] = (), changes_max: int = BOOK_MAX
    ) -> tuple[int, int]:
        """Take addresses that a peer tells of other nodes, up to `changes_max` changes of the book.

        Return the number of changes, and the number of new addresses that were left out because of `changes_max`. Each
        change is passed on to all other peers, so callers limit it. Addresses of the owner and of nodes in `connected`
        are ignored.
        """
        before, left_out = self.version, 0
        for address in addresses:
            if address.node == self.owner or address.node in connected:
                continue
            known = self.find(address.node)
            is_later = known is None or address.incarnation > known.incarnation
            if known is not None and not is_later and _host_and_port(address) == _host_and_port(known):
                continue
            if self.version - before >= changes_max:
                left_out += 1
            elif not is_later:
                self._spares[address.node] = address
            else:
                self._put(address, connected)
                if (
                    known is not None
                    and address.node in self._entries
                    and _host_and_port(known) != _host_and_port(address)
                ):
                    self._spares[address.node] = known
        return self.version - before, left_out

    def failed(self, node: NodeId) -> None:
        """Swap the address of a node with its spare, if there is one, because a dial to it failed."""
        spare, known = self._spares.pop(node, None), self.find(node)
        if spare is not None and known is not None:
            self._put(spare, ())
            if node in self._entries:
                self._spares[node] = known

    def forget(self, node: NodeId) -> None:
        """Remove a node, for example because another node answers at its address."""
        self._entries.pop(node, None)
        self._spares.pop(node, None)
        self._first_hand.pop(node, None)

    def _put(self, address: Address, keep: Container[NodeId]) -> None:
        """Store an entry as the newest one. If the book is full, drop the oldest one that is not in `keep`."""
        self.version += 1
        self._entries[address.node] = (self.version, address)
        self._entries.move_to_end(address.node)
        self._first_hand.pop(address.node, None)
        if len(self._entries) > self.entries_max:
            oldest = next((node for node in self._entries if node not in keep), None)
            self.forget(oldest if oldest is not None else address.node)

    def since(self, version: int) -> list[Address]:
        """Return the entries that changed after `version`, oldest first."""
        changed: list[Address] = []
        for when, address in reversed(self._entries.values()):
            if when <= version:
                break
            changed.append(address)
        return changed[::-1]


def _host_and_port(address: Address) -> tuple[str, int]:
    return address.host, address.port


def parse_address(text: str, where: str = "") -> tuple[str, int]:
    """Return the host and port of `host:port` or `[v6]:port`. Raise InputError for anything else.

    `where`: what the error names as its place. Only hosts that may be sent to other nodes are accepted (`frames.Host`).
    """
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535
    if not colon or not is_port or not 0 < len(host) <= HOST_LETTERS_MAX or not re.search(HOST_PATTERN, host):
        raise InputError(where, f'"{text}" is no address', "give host:port, as in 127.0.0.1:7001")
    return host, int(port)


def parse_seed(text: str) -> Seed:
    """Return one entry of `seeds` as a `Seed`."""
    return Seed(*parse_address(text, "seeds"))


def show_address(host: str, port: int) -> str:
    """Return an address as text that `parse_address` reads: an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
