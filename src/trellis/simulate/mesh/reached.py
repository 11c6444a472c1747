"""The rare situations that a campaign of whole nodes must reach. The code names each with `trellis.reached.reached`."""

from __future__ import annotations

SITUATIONS = (
    # delivery
    "a gap is skipped",
    "a home is not sure",
    "a publication is acknowledged by proof with fewer copies",
    "a publication is not acknowledged in time",
    "a link begins a new session",
    "a link's queue is full",
    "a node leaves a topic drained",
    # streams and peers
    "a silent peer is cut off",
    "a newcomer takes over a name",
    "a peer that could not be reached is back",
    # OMen
    "a repair covers two dead nodes",
    "a standby takes over a repair",
)
