"""The limit on open files of the process. Every connection takes one."""

from __future__ import annotations

import resource
from contextlib import suppress

from trellis.live.config import NodeConfig
from trellis.live.http import Limits
from trellis.live.listen import ACCEPTED_MAX, BURST
from trellis.live.mqtt.listener import ARRIVING_MAX

SPARE_FILES = 64  # for all that is no stream: files, listening sockets, the event loop


def files_needed(config: NodeConfig) -> int:
    """Return how many files a node needs if all its connections are used, and all its ports have a burst of new ones.

    The owner of a port limits the connections that it was told of. A connection whose TLS handshake is not over comes
    on top of these. Peers are counted after their hello, so half-open connections to the mesh port come on top as well.
    """
    limits, mqtt, has_tls = config.limits, config.mqtt, bool(config.tls)
    mesh = limits.connections_max + limits.handshakes_max + BURST * limits.handshakes_max  # streams, dials, half-open
    clients = limits.clients_max + _untold(max(limits.handshakes_max, limits.clients_max), has_tls)
    needed = mesh + clients + SPARE_FILES
    if mqtt.has_clients:
        arriving = mqtt.clients_max + ARRIVING_MAX
        needed += arriving + _untold(arriving, bool(mqtt.cert))
    if config.admin_listen:
        admin = Limits()
        needed += admin.connections_max + _untold(admin.half_open_max, has_tls)
    return needed


def _untold(burst_max: int, has_tls: bool) -> int:
    """Return how many connections a port may have accepted that its owner was not told of yet."""
    return burst_max if has_tls else min(burst_max, ACCEPTED_MAX)


def allow_files(config: NodeConfig) -> None:
    """Raise the limit of this process to what the configuration needs, as far as the system allows it."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = files_needed(config)
    wanted = needed if most == resource.RLIM_INFINITY else min(needed, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
