"""Run one node as a process: the event loop, the signals, and the report that the node is up.

SIGTERM or SIGINT makes the node leave in order, and a second one ends it at once. SIGHUP makes it read its certificates
and access files again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from trellis.live.addresses import parse_address, show_address
from trellis.live.config import NodeConfig
from trellis.live.files import allow_files
from trellis.live.pauses import Pauses
from trellis.live.shell import LiveNode

log = logging.getLogger("trellis.live")
Answer = TypeVar("Answer")
_STOP_S = 1.0  # After a second signal, streams get this long to close in order.


def run_loop(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine to its end and return its result. Use uvloop if it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


async def _stop_now(node: LiveNode) -> None:
    """Close all streams. Cut those that are not closed after `_STOP_S`: the peer or client may hang."""
    try:
        async with asyncio.timeout(_STOP_S):
            await node.stop()
    except TimeoutError:
        await node.stop(in_order=False)


async def run_node(config: NodeConfig, is_up: Callable[[dict[str, object]], None]) -> None:
    """Run a node until a signal ends it, and it has left or was stopped.

    `is_up` is called once, when the node has started, with its name, ports and process id. SIGHUP never ends a node,
    even if it has no files to read: service managers send it to reload.
    """
    allow_files(config)
    node = LiveNode(config)
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []

    def on_signal() -> None:  # for SIGTERM and SIGINT
        if node.mesh.is_leaving:
            stopping.append(loop.create_task(_stop_now(node)))
        else:
            node.leave()

    loop.add_signal_handler(signal.SIGHUP, node.reload)
    await node.start()
    node.pauses = Pauses(loop)
    _collect_less()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, on_signal)
    about: dict[str, object] = {
        "name": node.name,
        "cluster": config.cluster,
        "life": node.life,
        "listen": show_address(parse_address(config.listen)[0], node.transport.port),
        "client_listen": show_address(parse_address(config.client_listen)[0], node.client_port.port),
        "pid": os.getpid(),
    }
    if node.admin is not None:
        about["admin_listen"] = show_address(parse_address(config.admin_listen)[0], node.admin.port)
    if node.mqtt is not None and config.mqtt.listen:
        about["mqtt_listen"] = show_address(parse_address(config.mqtt.listen)[0], node.mqtt.port)
    if node.mqtt is not None and config.mqtt.websocket:
        about["mqtt_websocket"] = show_address(parse_address(config.mqtt.websocket)[0], node.mqtt.websocket_port)
    if node.mqtt is not None and node.mqtt.sidecar is not None:
        about["mqtt_broker"] = show_address(node.mqtt.sidecar.host_name, node.mqtt.sidecar.port)
    is_up(about)
    log.info("%s: is up: peers %s, clients %s", node.name, about["listen"], about["client_listen"])
    await node.wait()
    if node.left_behind[0]:
        log.warning("%s: has left, and nobody has taken over messages that it held: %d on %d topics", *_left(node))
    else:
        log.info("%s: has left", node.name)


def _left(node: LiveNode) -> tuple[str, int, int]:
    return (node.name, *node.left_behind)


def _collect_less() -> None:
    """Make the garbage collector look for cycles less often.

    A node holds many messages, and they contain no cycles. To search them often takes time and finds nothing.
    """
    gc.collect()
    gc.freeze()  # Never search modules and other objects that were made at the start.
    gc.set_threshold(20_000, 20, 20)
