"""Configuration of the delivery protocol: `[delivery]` of node.toml. Times are in milliseconds."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.protocols.delivery.messages import PAYLOAD_BYTES_MAX


class DeliveryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[delivery]`: copies, window, waits and limits of reliable delivery. `docs/delivery.md` explains the rules."""

    copies: int = 2
    """Nodes that must hold a publication before it is acknowledged to its client. A message acknowledged with k copies
    survives k - 1 crashes. Raising it makes clients wait longer."""

    window_ms: int = 60_000
    """How long a node keeps a message to send it again. Raising it lets a topic stay split for longer without loss, and
    takes more memory."""

    window_bytes: int = 64 << 20
    """Bytes of messages that a node keeps in total. Beyond it the oldest messages are dropped, counted and logged."""

    order: Literal["publisher", "none"] = "publisher"
    """publisher: hand messages over in the order in which each publisher sent them; a missing message delays later
    ones. none: hand each message over as soon as it arrives."""

    tick_ms: int = 1_000
    """Interval of periodic work: expiry of messages, gaps, registrations. Expiry is no more precise than this."""

    soon_ms: int = 50
    """Length of one round. An acknowledgement waits at most one round for a frame that can carry it."""

    announce_rounds: int = 6
    """Rounds between two batches of announcements over a lazy link. Fewer rounds detect a loss sooner and cost more
    frames: with 2 rounds, half of all frames were announcements (50 nodes, 500 publications a second)."""

    pull_rounds: int = 4
    """Rounds to wait for an announced message to arrive over the tree before it is pulled."""

    retry_rounds: int = 20
    """Rounds to wait for the answer to a pull before another neighbor is asked."""

    resend_rounds: int = 6
    """Rounds until an unacknowledged frame is sent again. The pause doubles each time, up to `resend_rounds_max`."""

    resend_rounds_max: int = 40
    """Longest pause, in rounds, before an unacknowledged frame is sent again."""

    flight_bytes: int = 256 << 10
    """Unacknowledged bytes allowed on one link. Choose more than the link's delay times its rate."""

    flight_frames: int = 64
    """Unacknowledged frames allowed on one link."""

    queue_max: int = 2_048
    """Messages that may wait for one link. Further ones are announced instead of pushed, and the peer pulls them."""

    control_max: int = 4_096
    """Items other than messages that may wait for one link. Beyond it the link starts a new session and compares."""

    pull_max: int = 256
    """Messages of all topics that may be pulled over one link at a time."""

    missing_max: int = 65_536
    """Announced messages of one topic that have not arrived yet. Beyond it the topic is compared again later."""

    payload_bytes_max: int = 256 << 10
    """Larger publications are refused."""

    pending_max: int = 10_000
    """Publications of clients that may wait for copies. More are refused. Publications of the nodes themselves may be
    four times as many."""

    publish_timeout_ms: int = 30_000
    """Time after which a publication without enough copies fails. Choose more than a repair of the overlay takes."""

    ask_ms: int = 1_000
    """Interval at which a waiting publication asks who holds it, and asks the topic's home who subscribes."""

    confirm_ms: int = 2_000
    """How long a new subscriber waits for a neighbor that can give it a baseline."""

    alone_ms: int = 30_000
    """Longest wait of a new subscriber for a baseline. One without neighbors waits until the topic's home answers that
    nobody else subscribes."""

    interest_ms: int = 60_000
    """How long a node that publishes without subscribing takes part in the topic after its last publication. [SC §2.1]
    Below `window_ms` it may drop acknowledged messages before a partition that hid all subscribers has ended."""

    batch_ms: int = 50
    """Subscription changes of clients within this time are passed to the overlay together."""

    register_ms: int = 5_000
    """Interval at which a subscriber repeats its registration at the topic's home."""

    registered_ms: int = 15_000
    """Lifetime of a registration. A node that became home answers with certainty only after the same time."""

    sample_max: int = 16
    """Most subscribers that a home names in one answer. At least `copies`."""

    leave_ms_max: int = 15_000
    """Longest time for which a leaving node waits until others hold its messages. After it, the node leaves and counts
    what nobody took over."""

    tombstone_ms: int = 600_000
    """How long a node remembers that an incarnation has ended. At least three windows, and more than the longest pause
    of a process."""

    clients_max: int = 100_000
    """Publications of clients that are remembered for one window, so that a repeated one is not published twice."""

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


class DurableConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[durable]`: messages are stored on disk, so that they survive a loss of power.  [docs/durable.md]"""

    path: str = ""
    """Folder of the store, one for each node. Publications are then acknowledged when `delivery.copies` nodes have
    synced them to disk. Empty: messages are kept in memory only."""

    keep_s: float = 86_400.0
    """How long a message is kept for nodes and clients that are away, in seconds since its publication. Time for which
    nodes are switched off counts. All nodes of a mesh should have the same value."""

    bytes_max: int = 1 << 30
    """Bytes that the store may take on disk."""

    full: Literal["refuse", "drop-oldest"] = "drop-oldest"
    """What happens when the store is full. refuse: new publications are refused, with a reason. drop-oldest: the oldest
    messages are dropped and counted, even if somebody still waits for them."""

    gap_s: float = 600.0
    """How long messages of a publisher that is gone wait for an earlier one that is missing, in seconds. A node that is
    switched off may have it."""

    segment_bytes: int = 16 << 20
    """Size of one file of the store. A file is removed when nothing in it is needed any more."""

    def __post_init__(self) -> None:
        for field in ("keep_s", "gap_s"):
            if not getattr(self, field) > 0:
                raise InputError(field, f"it is {getattr(self, field):g}", "give more than 0")
        if not 4_096 <= self.segment_bytes <= 1 << 30:
            raise InputError("segment_bytes", f"it is {self.segment_bytes}", "give 4096 to 1073741824")
        if self.bytes_max < 4 * self.segment_bytes:
            raise InputError("bytes_max", f"it is {self.bytes_max}", "give at least four times segment_bytes")

    def __bool__(self) -> bool:
        return bool(self.path)
