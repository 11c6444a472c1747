"""Delivery, broken on purpose: what the check must find. Each leaves out one thing that docs/delivery.md builds on."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from trellis.protocols.delivery.identities import Ranges
from trellis.protocols.mesh import MeshNode
from trellis.simulate.systems.delivery import Delivery


class _Mutant(Delivery):
    def make_mesh(self, overlay: Any, topics: tuple[str, ...]) -> MeshNode:
        mesh = super().make_mesh(overlay, topics)
        self.break_it(mesh.delivery)
        return mesh

    @abstractmethod
    def break_it(self, delivery: Any) -> None: ...


class NoComparison(_Mutant):
    """A link that comes up is used for what is new only."""

    def break_it(self, delivery: Any) -> None:
        delivery.comparison._send_what_is_lacking = lambda *_: None


class OneCopy(_Mutant):
    """The publisher's own copy is enough."""

    def break_it(self, delivery: Any) -> None:
        delivery.copies._look_at = delivery.copies._acknowledge


class ForgetsEarly(_Mutant):
    """Identities are forgotten after a few seconds of silence, while others still keep the messages."""

    def break_it(self, delivery: Any) -> None:
        tick = delivery._tick

        def forgetful() -> None:
            tick()
            state = delivery.state
            for stream in [stream for topic in state.topics.values() for stream in topic.streams.values()]:
                is_old = stream.touched_ms < state.now_ms - 3_000 and not stream.waiting
                if is_old and stream.id.origin != state.id:
                    stream.seen, stream.handed = Ranges(), None

        delivery._tick = forgetful


class LazyWithoutPull(_Mutant):
    """A link of the tree may be made lazy at both ends, and nobody pulls what is announced over it."""

    def break_it(self, delivery: Any) -> None:
        delivery.tree._pull = lambda: None


class AnybodyCounts(_Mutant):
    """Publishers that do not subscribe are copies of each other's messages."""

    def break_it(self, delivery: Any) -> None:
        delivery.state.only_subscribers_count = False


class OldBaseline(_Mutant):
    """A subscription that begins again goes on where the earlier one ended, and waits for what it was never owed."""

    def break_it(self, delivery: Any) -> None:
        end = delivery.order.end_subscription

        def keep(topic: Any) -> None:
            before = {stream: stream.handed for stream in topic.streams.values()}
            end(topic)
            for stream, handed in before.items():
                stream.handed = handed

        delivery.order.end_subscription = keep


MUTANTS = (NoComparison, OneCopy, ForgetsEarly, LazyWithoutPull, AnybodyCounts)
