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
    # pieces, streams and peers
    "a stream is cut because its reader is slow",
    "a silent peer is cut off",
    "a handshake gives way to a newcomer",
    # OMen
    "a repair covers two dead nodes",
    "a standby takes over a repair",
    # MQTT
    "a session is taken up again",
    "a SUBACK is sent early",
    "a message waits for its predecessor",
    "a client is not read for a while",
)
