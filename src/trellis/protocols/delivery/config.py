"""What the delivery part can be told."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.protocols.delivery.messages import PAYLOAD_BYTES_MAX


class DeliveryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    copies: int = 2
    """Nodes that hold a publication before its client is told. Raising it survives more crashes, and waits longer."""

    window_ms: int = 60_000
    """How long a message is kept for others. Raising it lets a topic be split for longer; memory grows."""

    window_bytes: int = 64 << 20
    """Payload bytes kept in all. Beyond it the oldest go first: counted, never silent."""

    order: Literal["publisher", "none"] = "publisher"
    """Hand over in the order of each publisher, or at once: then a gap holds nothing back."""

    tick_ms: int = 1_000
    """Ages, gaps, registrations are looked at so often. Ages are no finer than this."""

    soon_ms: int = 50
    """One round: acknowledgements wait at most so long for something to travel with."""

    announce_rounds: int = 6
    """Rounds between two batches of announcements over a lazy link. Fewer find a loss sooner, and cost frames: at 500
    publications a second in a mesh of 50 nodes with 2 they were every second frame."""

    pull_rounds: int = 4
    """Rounds that an announced message may take over the tree before it is pulled."""

    retry_rounds: int = 20
    """Rounds until a pull goes to somebody else."""

    resend_rounds: int = 6
    """Rounds until a frame that nobody acknowledged is sent again; doubled each time, up to `resend_rounds_max`."""

    resend_rounds_max: int = 40
    """The longest pause between two of them."""

    flight_bytes: int = 256 << 10
    """Bytes under way on one link. Above delay times rate."""

    flight_frames: int = 64
    """Frames under way on one link."""

    queue_max: int = 2_048
    """Messages that wait for one link. What comes then is announced, not pushed: the peer pulls when it can."""

    control_max: int = 4_096
    """Other things that wait for one link. Beyond it the link begins anew, with a comparison."""

    pull_max: int = 256
    """Messages pulled over one link at a time."""

    missing_max: int = 65_536
    """Announced messages of one topic that are not here yet. Beyond it the topic is compared again later."""

    payload_bytes_max: int = 256 << 10
    """Larger publications are refused."""

    pending_max: int = 10_000
    """Publications of clients that wait for copies. More are refused. Nodes may have more of their own."""

    publish_timeout_ms: int = 30_000
    """A publication without enough copies fails then. Above the time of a mend."""

    ask_ms: int = 1_000
    """A publication that still waits asks who holds it, and its topic's home who wants it, so often."""

    confirm_ms: int = 2_000
    """A new subscriber with neighbours waits so long for one whose watermarks can be its baseline."""

    alone_ms: int = 30_000
    """A new subscriber waits no longer than this; one without neighbours, until its topic's home knows nobody else."""

    interest_ms: int = 60_000
    """A publisher that does not subscribe stays interested for so long after its last publication. [SC §2.1]
    Below `window_ms` it may forget what it has acknowledged while a cut network kept it from all subscribers."""

    batch_ms: int = 50
    """While clients change many subscriptions, changes within this time are carried out together."""

    register_ms: int = 5_000
    """Subscribers tell their topic's home so often that they are there."""

    registered_ms: int = 15_000
    """A home believes it for so long, and answers nothing before it has been home for so long."""

    sample_max: int = 16
    """Subscribers that a home names at most; above `copies`."""

    leave_ms_max: int = 15_000
    """A node that leaves goes after so long even if nobody took over what it holds: counted, never silent."""

    tombstone_ms: int = 600_000
    """The ends of departed lives are remembered for so long: well above two windows, and above the longest pause."""

    clients_max: int = 100_000
    """Numbers of clients remembered (for one window), so that a repeated publication stays one."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if field != "order" and getattr(self, field) < 1:
                raise InputError("", f"{field} is {getattr(self, field)}", "give 1 or more")
        if self.tombstone_ms < 3 * self.window_ms:
            raise InputError("", f"tombstone_ms is {self.tombstone_ms}", "give at least three times window_ms")
        if self.payload_bytes_max > PAYLOAD_BYTES_MAX:
            remedy = f"give {PAYLOAD_BYTES_MAX} or less: a message travels in one frame"
            raise InputError("", f"payload_bytes_max is {self.payload_bytes_max}", remedy)
        if self.copies > self.sample_max:
            raise InputError("", f"copies is {self.copies}", f"give sample_max ({self.sample_max}) or less")
