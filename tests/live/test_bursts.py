"""Many publications at once, each on a topic of its own, as requests with reply topics are."""

from __future__ import annotations

import asyncio

import msgspec

import trellis
from live.lives import DELIVERY, client_address, mesh, run, until
from trellis.live.client import NotAcknowledged
from trellis.protocols.omen.me import Me

HASTY = msgspec.structs.replace(DELIVERY, publish_timeout_ms=10_000)
BURST = 8_000


def test_a_burst_on_thousands_of_new_topics_is_acknowledged_whole(monkeypatch):
    """The overlay takes topics up together: one by one, a slow machine would not keep up."""
    changes = 0
    take_part = Me.take_part

    def counted(self: Me, interest: int) -> None:
        nonlocal changes
        changes += interest != self.interest
        take_part(self, interest)

    async def work() -> None:
        async with mesh("a", "b", "c", delivery=HASTY) as nodes:
            await until(lambda: all(node.mesh.overlay.home_range() != node.name for node in nodes))
            monkeypatch.setattr(Me, "take_part", counted)
            async with trellis.connect(client_address(nodes[0])) as client:
                burst = (client.publish(f"reply/{number}", b"x") for number in range(BURST))
                outcomes = await asyncio.gather(*burst, return_exceptions=True)
        assert not [one for one in outcomes if isinstance(one, NotAcknowledged)]
        assert not [one for one in outcomes if isinstance(one, BaseException)]

    run(work())
    assert changes < BURST / 4
