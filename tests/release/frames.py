"""One of each message that goes over the wire, made from its type: what the recordings of a version hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from msgspec import inspect

from trellis.live.frames import CONTROLS, Control
from trellis.live.talk import TO_CLIENT, TO_NODE, ToClient, ToNode
from trellis.protocols.delivery.messages import DeliveryMessage
from trellis.protocols.mesh import CODECS
from trellis.protocols.pieces.messages import PIECES, PIECES_MESSAGES, Piece, PiecesMessage
from trellis.protocols.wire import Codec

UNIONS: dict[str, tuple[Any, Codec[Any]]] = {
    "control": (Control, CONTROLS),
    "pieces": (PiecesMessage, PIECES_MESSAGES),
    "piece": (Piece, PIECES),
    "to-node": (ToNode, TO_NODE),
    "to-client": (ToClient, TO_CLIENT),
    **{name: (codec._decoder.type, codec) for name, codec in CODECS.items()},
}


def samples() -> Iterator[tuple[str, msgspec.Struct]]:
    """(union, message). What delivery says is the same over every overlay: with the first one is enough."""
    for name, (union, _) in UNIONS.items():
        for kind in get_args(union):
            if name not in CODECS or name == "omen" or kind not in get_args(DeliveryMessage):
                yield name, sample(inspect.type_info(kind))


def sample(kind: Any, number: int = 1) -> Any:
    """A value of the type: small, and with something in everything that can hold something."""
    match kind:
        case inspect.StructType():
            return kind.cls(*(sample(field.type, place) for place, field in enumerate(kind.fields, start=1)))
        case inspect.UnionType():
            return sample(next(one for one in kind.types if not isinstance(one, inspect.NoneType)), number)
        case inspect.IntType():
            return number + (kind.ge or 0)
        case inspect.FloatType():
            return number + 0.5
        case inspect.BoolType():
            return True
        case inspect.StrType():
            return f"n{number}"
        case inspect.BytesType():
            return b"\x00\xff" * max(1, (kind.min_length or 0) // 2)
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.VarTupleType(item_type=inspect.UnionType(types=kinds)):
            return tuple(sample(one, number) for one in kinds)  # one of each
        case inspect.VarTupleType():
            count = 2 if kind.min_length is None else max(2, kind.min_length)
            made = (sample(kind.item_type, place) for place in range(1, count + 1))
            return tuple(made)
        case inspect.TupleType():
            return tuple(sample(one, place) for place, one in enumerate(kind.item_types, start=1))
        case inspect.DictType():
            return {sample(kind.key_type, 1): sample(kind.value_type, 2)}
        case _:
            raise AssertionError(f"no sample of {kind}")
