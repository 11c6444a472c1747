"""Trellis: topic-connected overlays for publish/subscribe, planned, proven and run."""

__version__ = "0.1.0"
