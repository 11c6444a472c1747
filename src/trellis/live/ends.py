"""What a node knows of one stream to a peer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from trellis.live.frames import Hello
from trellis.live.proof import Proof
from trellis.protocols.effects import Contact, NodeId


@dataclass(eq=False)
class Ends:
    """The two ends of one stream (`Stream.tag`)."""

    dialled: Contact = ""  # the name or seed that we dialled; empty: accepted
    peer: NodeId = ""  # empty until its hello was taken
    incarnation: int = 0
    version: int = 0  # of the protocol: the newest that both ends speak
    told: int = 0  # the version of our address book that the peer has
    used: float = 0.0
    said_bye: bool = False
    proof: Proof = field(default_factory=lambda: Proof(0.0))
    pings: int = 0  # that came in this round
    why: str = ""  # why one end refused the other; empty: none did
    timer: asyncio.TimerHandle | None = None  # the handshake must be over by then
    claim: Hello | None = None  # its hello, while the stream that stands under the same name is asked to prove itself
    early: list[bytes] = field(default_factory=list)  # what it has said meanwhile
