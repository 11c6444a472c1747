"""All messages between nodes of a mesh, as bytes: one tagged union for each overlay.

The messages of Vitis and Magnet for publications are left out, because delivery carries these.
"""

from __future__ import annotations

from typing import Any

from trellis.protocols.delivery.messages import DeliveryMessage
from trellis.protocols.magnet.messages import MagnetControl
from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.omen.messages import Message as OMenMessage
from trellis.protocols.oscar.messages import OscarMessage
from trellis.protocols.spidercast.messages import SpiderCastMessage
from trellis.protocols.vitis.messages import Gossip, Leave, Profile, Relay, Unlink
from trellis.protocols.wire import Codec

UNIONS: dict[str, Any] = {
    "omen": OMenMessage | DeliveryMessage,
    "spidercast": SpiderCastMessage | NewscastRequest | NewscastReply | DeliveryMessage,
    "vitis": Gossip | Profile | Unlink | Relay | Leave | DeliveryMessage,
    "magnet": MagnetControl | OscarMessage | NewscastRequest | NewscastReply | DeliveryMessage,
}
CODECS: dict[str, Codec[Any]] = {overlay: Codec(union) for overlay, union in UNIONS.items()}
