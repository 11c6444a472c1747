"""Everything that nodes of a mesh say to each other, as bytes: one tagged union per overlay."""

from __future__ import annotations

from typing import Any

from trellis.protocols.delivery.messages import DeliveryMessage
from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.omen.messages import Message as OMenMessage
from trellis.protocols.spidercast.messages import SpiderCastMessage
from trellis.protocols.wire import Codec

CODECS: dict[str, Codec[Any]] = {
    "omen": Codec(OMenMessage | DeliveryMessage),
    "spidercast": Codec(SpiderCastMessage | NewscastRequest | NewscastReply | DeliveryMessage),
}
