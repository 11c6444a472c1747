"""A node that is left alone by a crash goes on acknowledging: it has proof that nobody else is there."""

from __future__ import annotations

import msgspec
import pytest

import trellis
from live.lives import DELIVERY, client_address, mesh, run, until, within

# Longer than the test may take: no acknowledgement comes because a registration has run out.
PATIENT = msgspec.structs.replace(DELIVERY, registered_ms=300_000, publish_timeout_ms=50_000)


@pytest.mark.parametrize("count", [2, 3])
def test_the_node_that_is_left_of_a_mesh_acknowledges_without_waiting_for_registrations_to_run_out(count):
    async def work() -> None:
        async with mesh(*"abc"[:count], delivery=PATIENT) as nodes:
            first, *others = nodes
            async with trellis.connect(client_address(first)) as client:
                subscribers = [await trellis.connect(client_address(node)).__aenter__() for node in others]
                for one in subscribers:
                    await within(one.subscribe("t"))
                await within(client.subscribe("t"))
                assert len((await within(client.publish("t", b"before"))).holders) == 2
                for node in others:
                    await node.stop(in_order=False)
                receipt = await within(client.publish("t", b"after"))
                assert receipt.holders == ("a",)
                for one in subscribers:
                    await one.close()
            await until(lambda: first.mesh.overlay.home_range() == "a")
            del nodes[1:]

    run(work())
