"""Trellis: topic-connected overlays for publish/subscribe, planned, proven and run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trellis.live.client import connect as connect

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`trellis.connect`, imported at its first use: `import trellis` stays light."""
    if name == "connect":
        from trellis.live.client import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
