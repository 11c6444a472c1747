"""Which name listens where: learned from hellos and from peers, bounded.

Protocols speak of names. A node that tells a name to another one must have told it where that name listens before, so
every stream carries what changed in the book since it was last told, ahead of the next message. So whoever has heard
of a name can dial it, without a question.
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

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, node: NodeId) -> Address | None:
        found = self._entries.get(node)
        return found[1] if found is not None else None

    def nodes(self) -> list[NodeId]:
        return list(self._entries)

    def learn(self, addresses: Iterable[Address], keep: Container[NodeId] = ()) -> None:
        """A later life wins. What is said about the owner is not kept. `keep` are not forgotten for want of room."""
        for one in addresses:
            known = self._entries.get(one.node)
            if one.node == self.owner or (known is not None and known[1].incarnation >= one.incarnation):
                continue
            self.version += 1
            self._entries[one.node] = (self.version, one)
            self._entries.move_to_end(one.node)
            if len(self._entries) > self.entries_max:
                oldest = next((node for node in self._entries if node not in keep), None)
                del self._entries[oldest if oldest is not None else one.node]

    def forget(self, node: NodeId) -> None:
        """Somebody else answers there."""
        self._entries.pop(node, None)

    def since(self, version: int) -> list[Address]:
        """What has changed after a version, the oldest first."""
        changed: list[Address] = []
        for when, one in reversed(self._entries.values()):
            if when <= version:
                break
            changed.append(one)
        return changed[::-1]


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
