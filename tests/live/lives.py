"""Live nodes for tests: quick periods, any free port, and waiting for conditions instead of for time."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from trellis.live.config import DeliveryConfig, LimitsConfig, NodeConfig, OMenConfig
from trellis.live.run import run_loop
from trellis.live.shell import LiveNode

LONG_S = 60.0  # a limit that only a failure reaches: machines are busy
CLUSTER = "test"
OMEN = OMenConfig(period_ms=60)
DELIVERY = DeliveryConfig(
    tick_ms=100, register_ms=300, registered_ms=900, alone_ms=3_000, confirm_ms=300, ask_ms=200, leave_ms_max=3_000
)


def config(name: str, seeds: tuple[str, ...] = (), **fields: Any) -> NodeConfig:
    given = {"cluster": CLUSTER, "listen": "127.0.0.1:0", "client_listen": "127.0.0.1:0", "omen": OMEN}
    given |= {"delivery": DELIVERY, "limits": LimitsConfig(handshake_s=5, leave_s=20)}
    return NodeConfig(name=name, seeds=seeds, **{**given, **fields})


def run(work: Coroutine[Any, Any, None], limit_s: float = LONG_S) -> None:
    """No longer than the limit, tidying up included: a bug may make a node wait for ever for a stream to end."""

    async def limited() -> None:
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([task], timeout=limit_s)
        if not done:
            while not done:
                task.cancel()  # each time, the wait that it is in ends
                done, _ = await asyncio.wait([task], timeout=1.0)
            _tolerate_open_streams()
            raise TimeoutError(f"not over after {limit_s} s")
        if task.exception() is not None:
            _tolerate_open_streams()
        task.result()

    with warnings.catch_warnings():
        run_loop(limited())


def _tolerate_open_streams() -> None:
    """A test that failed has left streams open. uvloop warns of each when it closes.

    Where such a warning is an error, it does not close that stream, and then waits for it for ever.
    """
    warnings.simplefilter("ignore", ResourceWarning)


async def until(is_so: Callable[[], bool]) -> None:
    """The limit is that of `run`."""
    while not is_so():
        await asyncio.sleep(0.01)


async def within(work: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(work, LONG_S)


def peer_address(node: LiveNode) -> str:
    return f"127.0.0.1:{node.transport.port}"


def client_address(node: LiveNode) -> str:
    return f"127.0.0.1:{node.client_port.port}"


@asynccontextmanager
async def mesh(*names: str, **fields: Any) -> AsyncIterator[list[LiveNode]]:
    """Nodes in this process; the first is the seed of the others."""
    nodes: list[LiveNode] = []
    try:
        for name in names:
            node = LiveNode(config(name, tuple(peer_address(one) for one in nodes[:1]), **fields))
            await node.start()
            nodes.append(node)
        yield nodes
        for node in nodes:
            assert not node.counters["bugs"]
            node.mesh.check()
    finally:
        for node in nodes:
            await node.stop(in_order=False)
