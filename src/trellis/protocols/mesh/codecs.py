"""All messages between nodes of a mesh, as bytes: one tagged union for each overlay, with the messages of delivery.

The messages of Vitis and Magnet for publications are left out, because delivery carries these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from trellis.protocols.delivery.messages import DeliveryMessage
from trellis.protocols.overlays import OVERLAYS, load, overlay_of
from trellis.protocols.wire import Codec


@cache
def union_of(overlay: str) -> Any:
    """Return the types of all messages between nodes of a mesh with this overlay."""
    return load(overlay_of(overlay).messages) | DeliveryMessage


@cache
def codec_of(overlay: str) -> Codec[Any]:
    return Codec(union_of(overlay))


class _Codecs(Mapping[str, Codec[Any]]):
    """The codecs by overlay. One is made, and the overlay's package imported, when it is first asked for."""

    def __getitem__(self, overlay: str) -> Codec[Any]:
        if overlay not in OVERLAYS:
            raise KeyError(overlay)
        return codec_of(overlay)

    def __iter__(self) -> Iterator[str]:
        return iter(OVERLAYS)

    def __len__(self) -> int:
        return len(OVERLAYS)


CODECS = _Codecs()
