"""The limit on open files of the process. Every connection takes one."""

from __future__ import annotations

import resource
from contextlib import suppress

from trellis.live.config import NodeConfig

SPARE_FILES = 64  # for all that is no stream: files, listening sockets, the event loop


def files_needed(config: NodeConfig) -> int:
    """Return how many files a node needs if all its connections are used."""
    limits, mqtt = config.limits, config.mqtt
    streams = limits.connections_max + limits.clients_max + 2 * limits.handshakes_max
    return streams + (mqtt.clients_max if mqtt.listen else 0) + SPARE_FILES


def allow_files(config: NodeConfig) -> None:
    """Raise the limit of this process to what the configuration needs, as far as the system allows it."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = files_needed(config)
    wanted = needed if most == resource.RLIM_INFINITY else min(needed, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
