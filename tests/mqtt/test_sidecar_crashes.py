"""kill -9 of a broker, of its sidecar, of both, under traffic: the mesh mends and goes on.  [docs/mqtt.md, Sidecar]

Site s0 publishes, s1 and s2 read. What was acknowledged arrives at whoever was there; what comes twice was between the
broker and the sidecar that died, at most the receive maximum, and is counted. A broker that died comes back with what
it saved last, up to a second ago: traffic is slow enough that nothing but what is under way waits there then.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from live.lives import run, until
from mqtt.brokers import Mosquitto, brokers, needs_mosquitto
from mqtt.sites import Publisher, Reader, Site, sites

LIMIT_S = 150.0
INFLIGHT_MAX = 10
SAVED_S = 2.5  # Mosquitto saves every second: what it acknowledged in the last ones may die with it and its sidecar

pytestmark = [needs_mosquitto, pytest.mark.slow]


class Scene:
    def __init__(self, three: list[Mosquitto], several: list[Site]) -> None:
        self.brokers, self.sites = three, several
        self.publisher = Publisher(lambda: three[0].port, "t/1/x")
        self.readers = [Reader(lambda one=one: one.port, "t/#", f"reader of {one.name}") for one in three[1:]]
        self.tasks = [asyncio.create_task(one.run()) for one in self.readers]

    async def settle_in(self, pause_s: float) -> None:
        """Until both readers get what is published; and the brokers have saved that they are there."""
        await until(lambda: all(one.is_subscribed for one in self.readers))
        self.tasks.append(asyncio.create_task(self.publisher.run(pause_s)))
        await until(lambda: all(one.found for one in self.readers))
        for one in self.brokers:
            assert one.process is not None
            one.process.send_signal(signal.SIGUSR1)
        await self.more(100)

    async def more(self, count: int, *readers: Reader) -> None:
        """Until so many have been published, and have come."""
        last = self.publisher.number + count
        await until(lambda: max(self.publisher.acknowledged, default=0) > last)
        for one in readers or self.readers:
            await until(lambda one=one: bool(one.found) and one.found[-1] > last)

    async def kill(self, site: int, victims: tuple[str, ...]) -> float:
        """At the same moment; then, a second later, they come back."""
        broker, node = self.brokers[site], self.sites[site]
        at = asyncio.get_running_loop().time()
        if "broker" in victims and broker.process is not None:
            broker.process.kill()
        if "sidecar" in victims:
            await node.kill_node()
        if "broker" in victims:
            await broker.kill()
        await asyncio.sleep(1.0)
        if "broker" in victims:
            await broker.start()
        if "sidecar" in victims:
            await node.start_node([self.sites[2].node.about["listen"]])
        return at

    async def end(self) -> None:
        """All that was acknowledged has to come now: the last of it has come to everybody."""
        self.publisher.is_over = True
        await self.tasks[-1]
        last = max(self.publisher.acknowledged)
        await until(lambda: all(last in one.found for one in self.readers))

    def missing(self, reader: Reader) -> set[int]:
        """Acknowledged, and published after the reader got its first."""
        return {one for one in self.publisher.acknowledged if one > reader.found[0]} - set(reader.found)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self.tasks, return_exceptions=True)


def twice(reader: Reader) -> int:
    return sum(count - 1 for count in Counter(reader.found).values())


async def scene(folder: Path, stack: AsyncExitStack, pause_s: float) -> Scene:
    lines = f"persistence true\npersistence_location {folder}/NAME/\nautosave_interval 1\nuser root\n"
    lines += "max_queued_messages 0\n"
    three = await stack.enter_async_context(brokers(folder, "x", "y", "z", lines=lines))
    several = await stack.enter_async_context(sites(folder, [*three], want=["t/#"], inflight_max=INFLIGHT_MAX))
    made = Scene(three, several)
    stack.push_async_callback(made.close)
    await made.settle_in(pause_s)
    return made


@pytest.mark.parametrize("victims", [("sidecar",), ("broker",), ("sidecar", "broker")], ids="-".join)
def test_a_publishing_site_that_is_killed_goes_on_and_loses_nothing_that_it_saved(victims, tmp_path):
    async def work() -> None:
        async with AsyncExitStack() as stack:
            it = await scene(tmp_path, stack, 0.03 if "broker" in victims else 0.005)
            at = await it.kill(0, victims)
            await it.more(100)
            await it.end()
            again = await it.sites[0].count("sidecar sent again")
            for reader in it.readers:
                missing = it.missing(reader)
                if len(victims) == 2:  # what only the broker had, and had not saved, is gone
                    assert all(at - SAVED_S < it.publisher.acknowledged[one] <= at for one in missing)
                    assert len(missing) <= INFLIGHT_MAX
                else:
                    assert not missing
                if "sidecar" in victims:
                    assert twice(reader) <= min(again, INFLIGHT_MAX)
                else:
                    assert not twice(reader)
                    assert reader.found == sorted(reader.found)

    run(work(), LIMIT_S)


@pytest.mark.parametrize("victims", [("sidecar",), ("broker",), ("sidecar", "broker")], ids="-".join)
def test_a_reading_site_that_is_killed_takes_nothing_from_others_and_goes_on(victims, tmp_path):
    async def work() -> None:
        async with AsyncExitStack() as stack:
            it = await scene(tmp_path, stack, 0.01)
            here, other = it.readers
            before = len(here.found)
            await it.kill(1, victims)
            await it.more(100)
            await it.end()
            assert not it.missing(other)
            assert not twice(other)
            assert other.found == sorted(other.found)
            if victims == ("broker",):  # its node has kept what the broker missed
                assert not it.missing(here)
                assert twice(here) <= INFLIGHT_MAX  # under way to the broker, or to the reader, when the broker died
            elif victims == ("sidecar",):
                # Nothing is promised to a node that is away: there is one gap, and nothing comes twice.
                gaps = [
                    second for first, second in zip(here.found, here.found[1:], strict=False) if second != first + 1
                ]
                assert len(gaps) <= 1
                assert not twice(here)
            else:
                assert len(here.found) > before

    run(work(), LIMIT_S)
