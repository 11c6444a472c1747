"""Reliable delivery over a self-repairing overlay: exactly once, in order, acknowledged by copies. [docs/delivery.md]

The overlay (OMen, SpiderCast, Vitis or Magnet) decides which nodes are linked. This package moves messages over those
links. A publisher's node numbers its messages. Each node passes a new message on to its neighbors, keeps it for a while
(the window), and hands it to its application in order. The publisher is told once enough nodes hold a copy. `part.py`
is the entry point and lists the other modules.
"""

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
