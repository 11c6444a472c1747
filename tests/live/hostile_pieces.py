"""Pieces that hostile peers refer to, give and ask for: a part of `hostile_values.py`.

A node asks for a piece only where a message refers to it. So a peer refers to pieces that it has made, some as any node
would, some with wrong kinds, sizes and placeholders, and gives most of those that it is then asked for.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from trellis.live.frames import PIECES, pack_message
from trellis.protocols.pieces import PIECES_MESSAGES, Packed, Pieces
from trellis.protocols.pieces.messages import PIECES as PIECES_CODEC
from trellis.protocols.pieces.messages import WANTS_MAX, Give, Piece, Ref, Want
from trellis.protocols.wire import WireError

if TYPE_CHECKING:
    from trellis.simulate.mesh.values import Values

STORE_BYTES_MAX = 2 << 20  # of the peers, and of the nodes among them: so pieces are forgotten as well
_WORDS = tuple(f"w{number:04}/".ljust(40, "x") for number in range(2_000))


class HostilePieces:
    """What all peers of a trial say about pieces."""

    def __init__(self, codec: Any, random: Random, values: Values) -> None:
        self.codec, self.random, self.values = codec, random, values
        self.pieces = Pieces(codec, STORE_BYTES_MAX)  # that the peers have

    def message(self, kind: Any, mesh_message: Any) -> Any:
        """Return a message of this kind; a `Packed` stands for `mesh_message`."""
        random = self.random
        if kind is Packed and random.random() < 0.9:
            packed = self._honest(mesh_message) if random.random() < 0.5 else self._made_up(mesh_message)
            return self.values.changed(packed) if random.random() < 0.2 else packed
        if kind is Give and random.random() < 0.7:
            return Give(PIECES_CODEC.encode(self.values.message(Piece)))
        return self.values.message(kind)

    def _honest(self, message: Any) -> Packed:
        """As a node packs it, with long lists of topics in it."""
        packed = self.pieces.pack(self.pieces.lists.replace(message, lambda topics: self._long()))
        return packed if isinstance(packed, Packed) else self._made_up(message)

    def _made_up(self, message: Any) -> Packed:
        """References to any pieces, and placeholders that may have none."""
        random, put = self.random, self.pieces.store.put
        refs = [put(self.values.message(Piece)) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        refs = [one if random.random() < 0.8 else Ref(one.digest, random.randrange(1, 1_000)) for one in refs]
        body = self.codec.encode(self.pieces.lists.replace(message, self._placeholder))
        whole = random.choice(refs) if refs and random.random() < 0.2 else None
        return Packed(b"" if whole is not None else body, whole, tuple(refs))

    def _long(self) -> tuple[str, ...]:
        start = self.random.randrange(0, len(_WORDS), 50)
        return _WORDS[start : start + self.random.choice((50, 100, 600))]

    def _placeholder(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        return self.random.choice((topics, ("\x000",), ("\x000",), ("\x001",), ("\x00",), ("\x00-1",), ("\x009999",)))

    def answers(self, data: bytes) -> list[bytes]:
        """Return the frames with which a peer answers what a node has said about pieces."""
        try:
            question = PIECES_MESSAGES.decode(data)
        except WireError:
            return []
        self.values.learn(question)
        match question:
            case Want(digests):
                found = [self.pieces.store.get(one) for one in digests if self.random.random() < 0.9]
                said: list[Any] = [Give(PIECES_CODEC.encode(one)) for one in found if one is not None]
            case Packed(_, whole, lists):
                refs = (whole, *lists) if whole is not None else lists
                said = [Want(tuple(one.digest for one in refs[:WANTS_MAX]))]
            case _:
                said = []
        return [pack_message(PIECES_MESSAGES.encode(one), PIECES) for one in said]
