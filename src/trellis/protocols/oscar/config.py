"""The parameters of OSCAR. The paper gives the number of walks and of links; periods and limits are ours."""

from __future__ import annotations

import msgspec

from trellis.errors import InputError
from trellis.protocols.oscar.labels import GRID_BYTES, LABEL_BYTES_MAX


class OscarConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    links: int = 19
    """Links a node has on average, both ends counted: m fingers and a successor make 2 (m + 1) (A-MAG-4). Raising it
    shortens routes and leaves fewer relays; it costs heartbeats. Paper: 19, and 12 for Wikipedia."""

    walks: int = 5
    """Random walks for each median. Raising it makes partitions more regular; it costs messages. Paper: 5."""

    walk_steps: int = 8
    """Links that a walk crosses. Raising it makes samples more uniform. Paper: silent."""

    walk_ms: int = 1_000
    """How long walks are awaited; a median is taken from those that came back."""

    two_choices: bool = True
    """Draw two peers of a partition and keep the more similar one, where similarity is known (A-MAG-3)."""

    successors: int = 4
    """Successors kept, the first of which is a link. The ring survives the loss of so many less one at once."""

    ring_ms: int = 1_000
    """The period in which successors are asked. Raising it saves traffic; the ring mends more slowly."""

    beat_ms: int = 2_000
    """The period of heartbeats on fingers. Raising it saves traffic; lost fingers are noticed later."""

    silence_max: int = 4
    """Periods without a word until a neighbour is given up."""

    locate_rounds: int = 5
    """Every so many ring periods a node looks itself up from a random peer: pieces of a ring find each other."""

    bury_ms: int = 12_000
    """For so long hearsay does not bring back a neighbour that was given up; its own word does."""

    estimate_ms: int = 5_000
    """The first re-estimation of the medians after joining. Later ones come at three times the distance each, as the
    network that a node sees changes less and less with its age; the loss of a finger brings one at once."""

    estimate_ms_max: int = 3_600_000
    """The longest time between two of them."""

    label_bytes_max: int = LABEL_BYTES_MAX
    """Longer labels are not given out."""

    grid_bytes: int = GRID_BYTES
    """Labels longer than this start a re-spacing. Raising both makes it rarer; labels are longer on the wire."""

    def __post_init__(self) -> None:
        for field in ("walks", "walk_steps", "walk_ms", "successors", "ring_ms", "beat_ms", "silence_max"):
            _at_least(self, field, 1)
        for field in ("locate_rounds", "bury_ms", "estimate_ms", "grid_bytes"):
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
