"""Delivery over a mended overlay: exactly once, in order, acknowledged when enough nodes hold it. docs/delivery.md"""

from trellis.protocols.delivery.config import DeliveryConfig
from trellis.protocols.delivery.messages import DeliveryMessage
from trellis.protocols.delivery.outcome import (
    Acknowledged,
    Confirmed,
    Lost,
    NotAcknowledged,
    Outcome,
    Overflowed,
    Published,
)
from trellis.protocols.delivery.part import Delivery

__all__ = [
    "Acknowledged",
    "Confirmed",
    "Delivery",
    "DeliveryConfig",
    "DeliveryMessage",
    "Lost",
    "NotAcknowledged",
    "Outcome",
    "Overflowed",
    "Published",
]
