"""Test messages: clients publish them at a steady rate, and each has a number of its own."""

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
FOREIGN = 0.05  # share of messages on topics that the publisher does not subscribe to
_BEHIND_S = 0.5  # If publications are later than this, those that were missed are left out.
_ADDRESS = re.compile(r"^\S+:\d+: ")  # the node's address at the beginning of a client's error
_LOOKS = 8  # members that are drawn at random, before all are looked at


def pack(mark: str, number: int) -> bytes:
    """Return the payload of a test message. `mark` tells this run from others."""
    return f"trellis up {mark} {number} ".encode().ljust(PAYLOAD_BYTES, b".")


def number_in(payload: bytes, mark: str) -> int | None:
    """Return the number of a test message, or None for a message that this run has not published."""
    start = f"trellis up {mark} ".encode()
    text = payload[len(start) :].partition(b" ")[0]
    return int(text) if payload.startswith(start) and text.isdigit() else None


class Traffic:
    """Publishes test messages, and tells the ledger how each publication ends."""

    def __init__(self, fleet: Fleet, rate: float, random: Random, *, foreign: float = FOREIGN) -> None:
        self.fleet, self.rate, self.random, self.foreign = fleet, rate, random, foreign
        self._pending: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Publish at a steady rate until this is cancelled."""
        if self.rate <= 0:
            return
        due = time.monotonic()
        while True:
            due = max(due + 1 / self.rate, time.monotonic() - _BEHIND_S)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.publish()

    def publish(self, node: str = "", topic: str = "") -> None:
        """Publish one message. A node and a topic that are not given are drawn."""
        member = self.fleet.members[node] if node else self._publisher(topic)
        if member is None or member.state != "up" or member.client is None:
            return
        chosen = topic or self._topic(member)
        if chosen:
            number = self.fleet.ledger.publish(member.name, chosen, time.monotonic())
            task = asyncio.create_task(self._publish(member.client, chosen, number))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)

    async def settled(self, limit_s: float) -> None:
        """Wait until every publication is acknowledged or refused, at most for `limit_s`."""
        if self._pending:
            await asyncio.wait(self._pending, timeout=limit_s)

    def end(self) -> None:
        for task in self._pending:
            task.cancel()

    def _publisher(self, topic: str) -> Member | None:
        """Draw a member that has joined: one that subscribes to the topic, if there is any.

        A few members are drawn and tried first, because nearly all are fit and a list of all takes longer.
        """
        members = list(self.fleet.members.values())
        for member in (self.random.choice(members) for _ in range(_LOOKS if members else 0)):
            if member.is_joined and member.client is not None and (not topic or topic in member.topics):
                return member
        able = [member for member in self.fleet.joined if member.client is not None]
        able = [member for member in able if topic in member.topics] or able
        return self.random.choice(able) if able else None

    def _topic(self, member: Member) -> str:
        """Draw a topic: one of the member's, or now and then one that only others subscribe to."""
        if not member.topics or self.random.random() < self.foreign:
            joined = self.fleet.joined
            others = sorted({topic for peer in joined for topic in peer.topics if topic not in member.topics})
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
