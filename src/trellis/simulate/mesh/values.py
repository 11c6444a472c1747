"""Draw values of every type that crosses the wire, including absurd ones, for hostile peers and clients.

Values are huge numbers, the node's own name, unknown names and topics, and empty and very long lists. Some messages
repeat what the node itself has just sent, with a field changed. The decoder accepts every value, so the handlers behind
it are tested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any, get_args

import msgspec
from msgspec import inspect

from trellis.live.frames import HOST_PATTERN, PROTOCOL
from trellis.live.talk import CLIENT_PROTOCOL
from trellis.protocols.mqtt.envelope import Said, wrap
from trellis.protocols.pieces.messages import DIGEST_BYTES
from trellis.protocols.wire import NAME_LETTERS_MAX, NodeName, WireError

NUMBERS = (0, 0, 1, 1, 2, 3, 7, 64, 255, 4_096, 2**31, 2**32, 2**53 - 1, 2**53, 2**62, 2**63 - 1)
STRANGE_NODES = ("x", "y", "~", "node of blanks", "\U0001f331", "z" * 255)
STRANGE_TOPICS = ("$mqtt/ask", "$mqtt/all", "$mqtt/in/t0", "t0/x", "#", "/", "\n", "\0")
# Names that the decoder must refuse. A peer that sends one is cut off.
UNFIT_NODES = ("x0:bad", " x", "x\n", "10.0.0.1:7001")
UNFIT_HOSTS = (".", "a..b", "x" * 64, "x" * 64 + ".example", "\u2024")
_NODE_PATTERN = get_args(NodeName)[1].pattern


def kinds_of(union: Any) -> list[Any]:
    """Return the types of a union of unions."""
    parts = get_args(union)
    return [kind for part in parts for kind in kinds_of(part)] if parts else [union]


class Values:
    """Draws values of any type that crosses the wire."""

    def __init__(self, random: Random, nodes: Sequence[str], topics: Sequence[str], hosts: Sequence[str]) -> None:
        """`nodes`, `topics` and `hosts` are the names that are drawn most of the time."""
        self.random, self.nodes, self.known_topics, self.hosts = random, nodes, topics, hosts
        # numbers that the node has sent lately; most drawn numbers refer to them
        self.numbers: deque[int] = deque(maxlen=64)
        self.names: deque[str] = deque(maxlen=32)
        self.digests: deque[bytes] = deque(maxlen=64)  # digests of pieces that the node has asked for or referred to
        self.said: dict[type, deque[Any]] = {}
        self.wildness = 0.2  # share of names and topics that no node knows
        self.unfit = 0.0  # share of names of nodes and hosts that the decoder must refuse
        self._types: dict[Any, inspect.Type] = {}

    def message(self, kind: Any) -> Any:
        """Return a new message, or one that the node has sent with some fields changed."""
        said = self.said.get(kind)
        if said and self.random.random() < 0.4:
            return self.changed(self.random.choice(said))
        return self._draw(self._type(kind))

    def learn(self, message: Any) -> None:
        """Remember what a node has sent. Later values refer to it."""
        self.said.setdefault(type(message), deque(maxlen=8)).append(message)
        for field in message.__struct_fields__:
            value = getattr(message, field)
            if type(value) is int:
                self.numbers.append(value)
            elif type(value) is str and field in ("node", "origin", "peer", "root"):
                self.names.append(value)
            elif type(value) is bytes and len(value) == DIGEST_BYTES:
                self.digests.append(value)
            elif type(value) is tuple and value and type(value[0]) is bytes:
                self.digests += value
            elif type(value) is tuple and value and isinstance(value[0], msgspec.Struct):
                self.learn(value[0])

    def _type(self, kind: Any) -> inspect.Type:
        found = self._types.get(kind)
        if found is None:
            found = self._types[kind] = inspect.type_info(kind)
        return found

    def changed(self, message: Any) -> Any:
        """Return the message with up to two fields drawn again."""
        info = self._type(type(message))
        fields = {one.name: one.type for one in info.fields}  # type: ignore[attr-defined]
        if not fields:
            return message
        changed = self.random.sample(list(fields), min(len(fields), self.random.choice((0, 1, 1, 2))))
        return msgspec.structs.replace(message, **{name: self._draw(fields[name]) for name in changed})

    def _draw(self, kind: inspect.Type) -> Any:
        random = self.random
        match kind:
            case inspect.StructType(cls=cls, fields=fields):
                return cls(**{field.name: self._draw(field.type) for field in fields})
            case inspect.UnionType(types=types):
                return self._draw(random.choice(types))
            case inspect.IntType(ge=low, le=high):
                return self._number(-(2**63) if low is None else low, 2**63 - 1 if high is None else high)
            case inspect.StrType(pattern=pattern):
                return self._text(kind, pattern)
            case inspect.BytesType(min_length=least, max_length=most) if least is not None and least == most:
                is_known = self.digests and random.random() < 0.7
                return random.choice(self.digests) if is_known else random.randbytes(least)
            case inspect.BytesType(min_length=least, max_length=most):
                return self._bytes(most) or bytes(least or 0)
            case inspect.VarTupleType(item_type=item, min_length=least, max_length=most):
                return self._list(item, most) or tuple(self._draw(item) for _ in range(least or 0))
            case inspect.TupleType(item_types=items):
                return tuple(map(self._draw, items))
            case inspect.BoolType():
                return random.random() < 0.5
            case inspect.NoneType():
                return None
            case inspect.LiteralType(values=values):
                return random.choice(values)
        raise TypeError(f"no values for {kind}")

    def _number(self, low: int, high: int) -> int:
        random = self.random
        if self.numbers and random.random() < 0.5:
            found = random.choice(self.numbers) + random.choice((-1, 0, 0, 0, 0, 1))
        else:
            found = random.choice(NUMBERS) if random.random() < 0.8 else random.choice((low, high))
        return min(max(found, low), high)

    def _text(self, kind: inspect.StrType, pattern: str | None) -> str:
        random = self.random
        if pattern in (_NODE_PATTERN, HOST_PATTERN) and self.unfit and random.random() < self.unfit:
            return random.choice(UNFIT_NODES if pattern == _NODE_PATTERN else UNFIT_HOSTS)
        if pattern == _NODE_PATTERN:
            if self.names and random.random() < 0.3:
                return random.choice(self.names)
            is_known = random.random() > self.wildness
            return random.choice(self.nodes) if is_known else f"u{random.randrange(10**9)}"
        if pattern == HOST_PATTERN:
            return random.choice(self.hosts)
        if kind.max_length == NAME_LETTERS_MAX:
            if random.random() > self.wildness:
                found = random.choice(self.known_topics)
            else:
                found = f"q{random.randrange(10**12)}" + ("/" * random.choice((0, 0, 0, 400)))
        else:
            found = random.choice(("omen", "x", PROTOCOL, CLIENT_PROTOCOL, "self", "t0", "long " * 100, "q/w"))
        if pattern is not None:
            found = found.replace("\n", "n").replace("\0", "0")
        found = found[: kind.max_length or 512]
        return found if len(found) >= (kind.min_length or 0) else "s"

    def _bytes(self, most: int | None) -> bytes:
        match self.random.randrange(20):
            case 0:
                return b"\xff" * min(most or 64, 70_000)
            case number if number < 8:
                return self.random.randbytes(self.random.randrange(min(20, (most or 20) + 1)))
            case number if number < 12 and (most is None or most > 4_096):
                try:
                    wrapped = wrap(self._draw(self._type(self.random.choice(kinds_of(Said)))))
                except WireError:
                    return b""
                return wrapped if most is None or len(wrapped) <= most else b""
        return b""

    def _list(self, item: inspect.Type, most: int | None) -> tuple[Any, ...]:
        most, chance = 16 if most is None else most, self.random.random()
        if chance < 0.95:
            return tuple(self._draw(item) for _ in range(min(most, self.random.choice((0, 1, 1, 2, 3, 5)))))
        if chance < 0.998:
            return tuple(self._draw(item) for _ in range(min(most, self.random.randrange(80))))
        return (self._draw(item),) * min(most, 600)
