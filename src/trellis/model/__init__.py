"""Define instances, overlays and churn traces, and read and write them. This package has no algorithms."""

from trellis.model.churn import ChurnEvent, ChurnTrace, Event, replay
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay
from trellis.model.read import read_churn, read_interests, read_overlay, read_rates, read_rows
from trellis.model.write import expect_format, write_table

__all__ = [
    "ChurnEvent",
    "ChurnTrace",
    "Event",
    "Interests",
    "Names",
    "Overlay",
    "expect_format",
    "read_churn",
    "read_interests",
    "read_overlay",
    "read_rates",
    "read_rows",
    "replay",
    "write_table",
]
