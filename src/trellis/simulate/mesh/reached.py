"""List the rare situations that a campaign of whole nodes must reach. The code names each with `trellis.reached`."""

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
    "there is no room for a publication",
    "a window overflows",
    # streams and peers
    "a silent peer is cut off",
    "a newcomer takes over a name",
    "a peer that could not be reached is back",
    "a message travels in pieces",
    "a stream's queue overflows",
    "a slow reader is cut off",
    "a half-open connection makes room for another",
    "a peer that floods is cut off",
    "there is no room for a native client",
    # MQTT
    "an MQTT session is taken over",
    "an MQTT client's window is full",
    "a retained message is replaced",
    "a retained message is removed",
    "there is no room for a retained message",
    "there is no room for an MQTT client",
    "there is no room for an MQTT session",
    "a message is dropped for want of room for its MQTT client",
    "a topic alias is given up",
    "a will is published for a node that has crashed",
    # sidecars
    "a sidecar remembers what it learned",
    "a remembered filter is confirmed again",
    "a broker's log went unread for too long",
    "a broker's counts end a client",
    "a broker sends again what the mesh has",
    "a sidecar sends again what its broker may have",
    # OMen
    "a repair covers two dead nodes",
    "a repair covers three dead nodes",
    "a standby takes over a repair",
    "the second standby takes over a repair",
)
