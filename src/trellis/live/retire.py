"""Make a node that runs on this machine leave its mesh in order, and wait until it has left.  [docs/operating.md]

The node's admin port tells its process id, and the process is sent SIGTERM. The admin port itself cannot end a node.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from trellis.errors import InputError, TrellisError
from trellis.live.addresses import parse_address
from trellis.live.config import NodeConfig
from trellis.live.http_client import HttpClient
from trellis.live.reasons import is_refused, why_not
from trellis.live.tls import make_context

_ASK_S = 5.0  # limit for one answer
_LOOK_S = 0.1  # between two looks at the process
_MORE_S = 10.0  # The node may take this much longer than `limits.leave_s`.


@dataclass(frozen=True)
class Departure:
    """A node that was told to leave, and has left."""

    pid: int
    seconds: float  # from SIGTERM to the end of the process


async def make_leave(config: NodeConfig) -> Departure | None:
    """Tell the node of this configuration to leave, and wait until its process has ended. None: it does not run.

    Raise `TrellisError` if it is unclear whether it runs, if it cannot be told to leave, or if it takes too long.
    """
    pid = await _running(config)
    if pid is None:
        return None
    begun = time.monotonic()
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return Departure(pid, 0.0)
    except PermissionError:
        raise TrellisError(f"node {config.name} runs as process {pid}, which is not yours; end it first") from None
    until = begun + config.limits.leave_s + _MORE_S
    while _is_alive(pid):
        if time.monotonic() > until:
            raise TrellisError(f"node {config.name}, process {pid}, does not leave; see its log, and end it")
        await asyncio.sleep(_LOOK_S)
    return Departure(pid, time.monotonic() - begun)


async def _running(config: NodeConfig) -> int | None:
    """Return the process id of the node; None if it does not run. Raise InputError if that cannot be found out."""
    if not config.admin_listen or parse_address(config.admin_listen)[1] == 0:
        if await _is_open(config.client_listen):
            what = f"something listens on {config.client_listen}, where node {config.name} takes clients"
            raise InputError(config.name, what, "end it with SIGTERM first, since there is no admin_listen to ask")
        return None
    client = HttpClient(config.admin_listen, make_context(config.tls, server=False) if config.tls.cert else None)
    try:
        _, body = await client.get("/overlay.json", timeout_s=_ASK_S)
        about = json.loads(body)
        name, pid = about["node"], about["pid"]
    except OSError as error:
        if is_refused(error):
            return None  # Nothing listens on the admin port, so the node does not run.
        where, why = f"admin_listen {config.admin_listen}", why_not(error, has_tls=bool(config.tls.cert))
        what = f"it cannot be seen whether node {config.name} runs: {why}; nothing was ended"
        raise InputError(where, what, "see whether its process hangs, end it, and try again") from None
    except (ValueError, KeyError, TypeError):
        what = "what answers is no node that tells its process"
        raise InputError(f"admin_listen {config.admin_listen}", what, "end the node with SIGTERM first") from None
    finally:
        client.close()
    if name != config.name or not isinstance(pid, int) or pid <= 1:
        what = f"it is the admin port of {name}, not of {config.name}"
        raise InputError(f"admin_listen {config.admin_listen}", what, "give the configuration of the node that runs")
    if not _is_ours(pid):
        what = f"node {config.name} says that it is process {pid}, and here that is something else"
        raise InputError(f"admin_listen {config.admin_listen}", what, "end the node with SIGTERM where it runs")
    return pid


async def _is_open(address: str) -> bool:
    """Return whether something may listen at an address. An address that does not answer counts as open."""
    host, port = parse_address(address)
    if not port:
        return False
    try:
        async with asyncio.timeout(_ASK_S):
            _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        return not is_refused(error)
    writer.close()
    return True


def _is_ours(pid: int) -> bool:
    """Return whether a process of this machine is a Trellis node. Without /proc: whether there is such a process."""
    try:
        return b"trellis" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc/self").exists() and _is_alive(pid)


def _is_alive(pid: int) -> bool:
    """Return whether a process runs. One that has ended and waits for its parent (a zombie) does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True
