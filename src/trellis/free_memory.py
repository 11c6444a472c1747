"""How much memory this machine can give."""

from __future__ import annotations

from pathlib import Path


def memory_free() -> int | None:
    """Return the bytes that this machine can give; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
