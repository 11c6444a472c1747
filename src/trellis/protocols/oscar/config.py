"""The settings of OSCAR. The paper gives the numbers of walks and links. Periods and limits are ours."""

from __future__ import annotations

import msgspec

from trellis.errors import InputError
from trellis.protocols.oscar.labels import GRID_BYTES, LABEL_BYTES_MAX


class OscarConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of OSCAR."""

    links: int = 19
    """Links that a node has on average, both ends counted: m fingers and a successor make 2 (m + 1) (A-MAG-4). Raising
    it shortens routes and needs fewer relays, but costs heartbeats. Paper: 19, and 12 for Wikipedia."""

    walks: int = 5
    """Random walks for each median. Raising it makes partitions more regular, but costs messages. Paper: 5."""

    walk_steps: int = 8
    """Links that a walk crosses. Raising it makes samples more uniform. Paper: silent."""

    walk_ms: int = 1_000
    """How long a node waits for walks. A median is computed from those that have ended by then."""

    two_choices: bool = True
    """Whether two peers of a partition are drawn and the more similar one is kept, if similarity is known (A-MAG-3)."""

    successors: int = 4
    """Successors that a node knows. The first one is a link. With s of them, the ring survives s - 1 crashes at once.
    """

    guests_max: int = 256
    """Nodes that may have this node as a finger. A further one is refused, and draws another finger at its next
    estimate. Raising it costs memory and heartbeats. Nodes that joined first have the most: 43 in a run of 600 nodes.
    Paper: silent."""

    ring_ms: int = 1_000
    """The period in which the successor is asked. Raising it saves traffic, but the ring is repaired more slowly."""

    beat_ms: int = 2_000
    """The period of heartbeats on fingers. Raising it saves traffic, but lost fingers are noticed later."""

    silence_max: int = 4
    """Periods without a message until a neighbor counts as gone."""

    locate_rounds: int = 5
    """Ring periods between two lookups of a node's own position from a random peer. By these, separate parts of a ring
    find each other."""

    bury_ms: int = 12_000
    """For this long, a node that was given up is not accepted again from what others say. Its own message brings it
    back."""

    estimate_ms: int = 5_000
    """Time from joining until the medians are first estimated again. Each later interval is three times as long,
    because the network that a node sees changes less as the node gets older. The loss of a finger causes an estimate at
    once."""

    estimate_ms_max: int = 3_600_000
    """The longest time between two estimates."""

    label_bytes_max: int = LABEL_BYTES_MAX
    """Longest label that is given out, in bytes."""

    grid_bytes: int = GRID_BYTES
    """A label longer than this starts a re-spacing. Raising both makes it rarer, but labels are longer in messages."""

    def __post_init__(self) -> None:
        for field in ("walks", "walk_steps", "walk_ms", "successors", "ring_ms", "beat_ms", "silence_max"):
            _at_least(self, field, 1)
        for field in ("locate_rounds", "bury_ms", "estimate_ms", "grid_bytes", "guests_max"):
            _at_least(self, field, 1)
        _at_least(self, "links", 4)
        if not self.grid_bytes < self.label_bytes_max <= LABEL_BYTES_MAX:
            raise InputError(
                "", f"label_bytes_max is {self.label_bytes_max}", f"give {self.grid_bytes + 1} to {LABEL_BYTES_MAX}"
            )


def _at_least(config: msgspec.Struct, field: str, least: int) -> None:
    value = getattr(config, field)
    if value < least:
        raise InputError("", f"{field} is {value}", f"give {least} or more")
