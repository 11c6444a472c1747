"""Test messages: published through the clients of living nodes at a steady rate, each with a number of its own."""

from __future__ import annotations

import asyncio
import re
import time
from random import Random
from typing import TYPE_CHECKING

from trellis.live.client import ClientError

if TYPE_CHECKING:
    from trellis.fleet.clients import FleetClient
    from trellis.fleet.fleet import Fleet, Member

PAYLOAD_BYTES = 128
FOREIGN = 0.05  # of all: on topics that the publisher does not subscribe to
_BEHIND_S = 0.5  # a publisher that is later than this leaves out what it has missed
_ADDRESS = re.compile(r"^\S+:\d+: ")  # of the node, at the beginning of a client's error
_LOOKS = 8  # at members drawn at random, before all are looked at


def pack(mark: str, number: int) -> bytes:
    return f"trellis up {mark} {number} ".encode().ljust(PAYLOAD_BYTES, b".")


def number_in(payload: bytes, mark: str) -> int | None:
    """None: somebody else's message. Whoever likes may talk on the mesh as well."""
    start = f"trellis up {mark} ".encode()
    text = payload[len(start) :].partition(b" ")[0]
    return int(text) if payload.startswith(start) and text.isdigit() else None


class Traffic:
    def __init__(self, fleet: Fleet, rate: float, random: Random, *, foreign: float = FOREIGN) -> None:
        self.fleet, self.rate, self.random, self.foreign = fleet, rate, random, foreign
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until it is cancelled."""
        if self.rate <= 0:
            return
        due = time.monotonic()
        while True:
            due = max(due + 1 / self.rate, time.monotonic() - _BEHIND_S)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.publish()

    def publish(self, node: str = "", topic: str = "") -> None:
        """One message: at a node, or at any that has joined; on a topic, or on one that suits it."""
        member = self.fleet.members[node] if node else self._publisher(topic)
        if member is None or member.state != "up" or member.client is None:
            return
        chosen = topic or self._topic(member)
        if chosen:
            number = self.fleet.ledger.publish(member.name, chosen, time.monotonic())
            task = asyncio.create_task(self._publish(member.client, chosen, number))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def settled(self, limit_s: float) -> None:
        """Until every publication is acknowledged or refused."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=limit_s)

    def end(self) -> None:
        for task in self._under_way:
            task.cancel()

    def _publisher(self, topic: str) -> Member | None:
        """One that has joined, and wants the topic if anybody does. Nearly always the first that is looked at."""
        members = list(self.fleet.members.values())
        for one in (self.random.choice(members) for _ in range(_LOOKS if members else 0)):
            if one.is_joined and one.client is not None and (not topic or topic in one.topics):
                return one
        able = [one for one in self.fleet.joined if one.client is not None]
        able = [one for one in able if topic in one.topics] or able
        return self.random.choice(able) if able else None

    def _topic(self, member: Member) -> str:
        if not member.topics or self.random.random() < self.foreign:
            others = sorted({topic for one in self.fleet.joined for topic in one.topics if topic not in member.topics})
            if others:
                return self.random.choice(others)
        return self.random.choice(sorted(member.topics)) if member.topics else ""

    async def _publish(self, client: FleetClient, topic: str, number: int) -> None:
        try:
            receipt = await client.publish(topic, pack(self.fleet.mark, number))
        except ClientError as error:
            self.fleet.ledger.refuse(number, _ADDRESS.sub("", str(error)))
        except asyncio.CancelledError:
            self.fleet.ledger.refuse(number, "it still waited at the end")
            raise
        else:
            self.fleet.ledger.acknowledge(number, receipt.holders, time.monotonic())
