"""The state that a node keeps for one stream to a peer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from trellis.live.frames import Hello
from trellis.live.proof import Proof
from trellis.protocols.effects import Contact, NodeId


@dataclass(eq=False)
class Ends:
    """The state of one stream to a peer (`Stream.tag`)."""

    dialled: Contact = ""  # The name or seed that we dialed. Empty if the peer dialed us.
    peer: NodeId = ""  # Name of the peer. Empty until its hello is accepted.
    incarnation: int = 0  # incarnation of the peer
    version: int = 0  # newest version of the protocol that both ends speak
    told: int = 0  # version of our address book that the peer was told
    used: float = 0.0  # When a message last went in or out, in seconds of the loop's clock, about a second coarse.
    said_bye: bool = False  # One end said `Bye`, so the end of the stream is no sign of a crash.
    proof: Proof = field(default_factory=lambda: Proof(0.0))  # whether the peer answers pings
    pings: int = 0  # pings that came in the present round
    why: str = ""  # Why one end refused the other. Empty if none did.
    timer: asyncio.TimerHandle | None = None  # Cuts the stream if the handshake is not over in time.
    claim: Hello | None = None  # Its hello, while an earlier stream of the same name is asked to prove that it works.
    early: list[bytes] = field(default_factory=list)  # Frames that came while `claim` was set.
