"""How many files a node may have open: every stream is one."""

from __future__ import annotations

import resource
from contextlib import suppress

from trellis.live.config import NodeConfig

SPARE_FILES = 64  # beside streams: files, listeners, the loop's own


def files_needed(config: NodeConfig) -> int:
    limits, mqtt = config.limits, config.mqtt
    streams = limits.connections_max + limits.clients_max + 2 * limits.handshakes_max
    return streams + (mqtt.clients_max if mqtt.listen else 0) + SPARE_FILES


def allow_files(config: NodeConfig) -> None:
    """Raise this process's own limit to what the configuration needs, as far as the system allows it."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = files_needed(config)
    wanted = needed if most == resource.RLIM_INFINITY else min(needed, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
