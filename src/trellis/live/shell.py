"""A live node: runs a `MeshNode` on sockets and the loop's clock.  [protocols/effects.py]

    frames of peers, timers, wishes of clients  ->  the node  ->  effects  ->  frames, timers, clients

Everything happens in one thread, one input at a time, so the node is the state machine that the simulator has proven.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from trellis.live.addresses import parse_address
from trellis.live.admin import Admin
from trellis.live.config import NodeConfig
from trellis.live.door import Door
from trellis.live.frames import MESSAGE, PIECES, Address
from trellis.live.mends import MendClock
from trellis.live.meshes import make_mesh
from trellis.live.talk import CLIENT_VERSION, Welcome
from trellis.live.telemetry import Telemetry
from trellis.live.tls import contexts
from trellis.live.transport import Transport
from trellis.protocols.delivery.messages import Frame
from trellis.protocols.delivery.outcome import ClientId, Lost, Outcome, Overflowed
from trellis.protocols.effects import (
    CancelTimer,
    Deliver,
    Effect,
    Left,
    LinkDown,
    LinkUp,
    NodeId,
    Send,
    SetTimer,
    Topic,
)
from trellis.protocols.mesh import CODECS
from trellis.protocols.pieces import PIECES_MESSAGES, Came, Packed, Pieces, PiecesEffects
from trellis.protocols.wire import WireError

if TYPE_CHECKING:
    from trellis.live.mqtt.door import MqttDoor
    from trellis.live.rest import Rest

log = logging.getLogger("trellis.live")

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_PIECES_S = 0.5  # how often missing pieces are asked for again
_REFUSALS_MS = 10_000  # between two log lines about refused subscriptions
_EPOCH_S = 1_704_067_200  # 2024-01-01. Lives count tenths of a second from there: 33 bits last until 2051.


def life_now() -> int:
    """Grows with every start of a name, as long as the machine's clock does not go back."""
    return int((time.time() - _EPOCH_S) * 10)


def monotonic_ms() -> int:
    """Goes on while the process is stopped and, where the system can tell, while the machine sleeps."""
    return int(time.clock_gettime(_CLOCK) * 1_000)


def wall_ms() -> int:
    return int(time.time() * 1_000)


class LiveNode:
    def __init__(self, config: NodeConfig, life: int | None = None) -> None:
        self.config, self.name = config, config.name
        self.life = life_now() if life is None else life
        self.codec = CODECS[config.overlay]
        self.pieces = Pieces(self.codec)
        self.links: dict[NodeId, None] = {}
        self.counters: Counter[str] = Counter()
        self.mesh = make_mesh(config, self.life)
        self.mesh.delivery.gathers = True  # what one look at the sockets brings goes out together
        self.mends = MendClock(getattr(self.mesh.overlay.node, "coordinator", None), wall_ms, monotonic_ms)
        self.traffic_in: dict[type, list[int]] = {}  # kind of message -> messages and bytes
        self.traffic_out: dict[type, list[int]] = {}
        self.admin: Admin | None = None
        self.telemetry: Telemetry | None = None
        self.mqtt: MqttDoor | None = None
        self._wants: Counter[Topic] = Counter(dict.fromkeys(self.mesh.wanted, 1))  # by how many doors, or for good
        self.failure: Exception | None = None
        self.rest: Rest | None = None  # where the process runs nothing but this node
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pieces_timer: asyncio.TimerHandle | None = None  # runs while messages wait for pieces
        self._log_refusals_ms = 0  # when the next refused subscription is logged
        self._gone = asyncio.Event()  # the node has left, or was stopped
        self._is_stopped = False

    async def start(self) -> None:
        config = self.config
        self._loop = asyncio.get_running_loop()
        host, port = parse_address(config.advertise or config.listen)
        tls = contexts(config.tls)
        self.transport = Transport(
            Address(self.name, self.life, host, port),
            config.cluster,
            config.overlay,
            config.limits,
            tls,
            on_message=self._on_message,
            on_peer_down=self._on_peer_down,
            is_linked=self.links.__contains__,
            on_pieces=self._on_pieces,
        )
        self.door = Door(
            self, Welcome(self.name, config.cluster, self.life, CLIENT_VERSION), config.limits, self.mesh_topics()
        )
        try:
            self.transport.bind(config.listen)
            self.door.bind(config.client_listen, tls[0] if tls is not None else None)
            if config.admin_listen:
                self.admin = Admin(self)
                self.admin.bind(config.admin_listen, tls[0] if tls is not None else None)
            if config.mqtt:
                from trellis.live.mqtt.door import MqttDoor  # not every node has one

                self.mqtt = MqttDoor(self, self.name, self.life, config.mqtt, config.limits)
                self.mqtt.bind()
        except BaseException:
            await self.stop(in_order=False)
            raise
        self._started_ms = monotonic_ms()
        self._carry_out(self.mesh.start())
        if config.telemetry.file:
            self.telemetry = Telemetry(config.telemetry, self.name, lambda: self.mesh.wanted)
            self.telemetry.start()
        self.transport.serve()  # nothing may come in before the node has started
        self.door.serve()
        if self.admin is not None:
            self.admin.serve()
        if self.mqtt is not None:
            self.mqtt.serve()

    def mesh_topics(self) -> tuple[Topic, ...]:
        return tuple(self.mesh.wanted)

    def leave(self) -> None:
        """In order: `wait` returns when the others have taken over, or after `leave_s`."""
        if not self._is_stopped and not self.mesh.is_leaving:
            log.info("%s: leaves", self.name)
            self._loop.call_later(self.config.limits.leave_s, self._gone.set)
            if self.mqtt is not None:
                self.mqtt.close()
            self._carry_out(self.mesh.leave())

    async def wait(self) -> None:
        """Until the node has left; then everything is closed. Raises what has broken it."""
        await self._gone.wait()
        await self.stop()
        if self.failure is not None:
            raise self.failure

    async def stop(self, *, in_order: bool = True) -> None:
        """Close everything. Not in order: as if the process had died."""
        if not self._is_stopped:
            self._is_stopped = True
            for timer in self._timers.values():
                timer.cancel()
            if self._pieces_timer is not None:
                self._pieces_timer.cancel()
            if self.telemetry is not None:
                self.telemetry.close(in_order=in_order)
            if self.mqtt is not None:
                self.mqtt.close(in_order=in_order)
            self.transport.close(in_order=in_order)
            self.door.close(in_order=in_order)
        if self.mqtt is not None:
            await self.mqtt.closed()
        await self.transport.closed()
        await self.door.closed()
        if self.admin is not None:
            await self.admin.close()
        self._gone.set()

    # Inputs

    def _on_message(self, sender: NodeId, encoded: bytes) -> None:
        self._take_in(sender, self.codec.decode(encoded), len(encoded))  # a WireError cuts the peer off

    def _on_pieces(self, sender: NodeId, encoded: bytes) -> None:
        self._do_pieces(self.pieces.on_message(sender, encoded, monotonic_ms()))

    def _do_pieces(self, effects: PiecesEffects) -> None:
        """Hand over messages whose pieces are there; ask for pieces and give them, where a stream is there."""
        for effect in effects:
            if isinstance(effect, Came):
                self._take_in(effect.sender, effect.message, effect.size)
            elif effect.to in self.transport.peers and self.transport.takes_pieces(effect.to):
                encoded = PIECES_MESSAGES.encode(effect.message)  # type: ignore[arg-type]
                _count(self.traffic_out, effect.message, len(encoded))
                self.transport.send(effect.to, encoded, may_drop=False, kind=PIECES)
        if self.pieces.waiting.messages and self._pieces_timer is None and not self._is_stopped:
            self._pieces_timer = self._loop.call_later(_PIECES_S, self._on_pieces_timer)

    def _on_pieces_timer(self) -> None:
        self._pieces_timer = None
        self._do_pieces(self.pieces.tick(monotonic_ms()))

    def _take_in(self, sender: NodeId, message: msgspec.Struct, size: int) -> None:
        _count(self.traffic_in, message, size)
        if self._is_stopped:
            return
        self._catch_up()
        try:
            effects = self.mesh.on_message(sender, message)
        except Exception:
            # Our bug. One message must not be able to stop node after node, so this one counts as lost.
            log.exception("%s: a %s of %s broke a handler", self.name, type(message).__name__, sender)
            self.counters["bugs"] += 1
            return
        self._carry_out(effects)
        if self.rest is not None:
            self.rest.worked()

    def _on_peer_down(self, peer: NodeId) -> None:
        if not self._is_stopped:
            self._catch_up()
            self._carry_out(self.mesh.on_peer_down(peer))
            self._do_pieces(self.pieces.on_peer_down(peer, monotonic_ms()))

    def _on_timer(self, tag: str) -> None:
        del self._timers[tag]
        try:
            self._catch_up()
            self._carry_out(self.mesh.on_timer(tag))
        except Exception as error:
            # Without its timers a node is a zombie: better a crash, which the others mend.
            self.failure = error
            self._gone.set()
            raise

    def refusal(self, topic: Topic) -> str | None:
        """Return why no client may subscribe to this topic here, or None if it may."""
        limits = self.config.limits
        reason = self.mesh.refusal(topic, limits.topics_max, limits.topics_bytes_max)
        if reason is not None:
            self._refused(logging.WARNING, "a subscription was refused", reason)
        return reason

    def subscribe(self, topic: Topic) -> None:
        self._wants[topic] += 1
        if self._wants[topic] > 1:
            return
        reason = self.mesh.refusal(topic)
        if reason is not None:  # beyond what peers take: a wildcard has found so many topics
            self._refused(logging.ERROR, f"cannot take part in topic {topic}, and misses its messages", reason)
            return
        self._carry_out(self.mesh.subscribe(topic))

    def _refused(self, level: int, what: str, reason: str) -> None:
        """Count it, and log it once in a while: a client may ask thousands of times."""
        self.counters["topics_refused"] += 1
        now_ms = monotonic_ms()
        if now_ms >= self._log_refusals_ms:
            self._log_refusals_ms = now_ms + _REFUSALS_MS
            log.log(level, "%s: %s: %s (refused so far: %d)", self.name, what, reason, self.counters["topics_refused"])

    def unsubscribe(self, topic: Topic) -> None:
        self._wants[topic] -= 1
        if not self._wants[topic]:
            del self._wants[topic]
            self._carry_out(self.mesh.unsubscribe(topic))

    def publish(self, topic: Topic, payload: bytes, client_id: ClientId | None = None) -> None:
        self._catch_up()
        if self.telemetry is not None:
            self.telemetry.published(topic, len(payload))
        self._carry_out(self.mesh.publish(topic, payload, client_id))

    def is_confirmed(self, topic: Topic) -> bool:
        found = self.mesh.delivery.state.topics.get(topic)
        return found is not None and found.is_wanted and found.was_confirmed and found.is_confirmed

    def metrics(self) -> dict[str, int]:
        """Everything that an operator should see, as plain numbers."""
        return {
            **{f"delivery {key}": value for key, value in self.mesh.delivery.metrics().items()},
            **{f"peers {key}": value for key, value in sorted(self.transport.counters.items())},
            **{f"clients {key}": value for key, value in sorted(self.door.counters.items())},
            **({f"mqtt {key}": value for key, value in self.mqtt.metrics().items()} if self.mqtt is not None else {}),
            **({f"telemetry {key}": n for key, n in self.telemetry.counters.items()} if self.telemetry else {}),
            **self.counters,
            "links": len(self.links),
            "streams": len(self.transport.peers),
        }

    def _catch_up(self) -> None:
        """The node counts time by its ticks. If they come late (a stopped process, a busy machine), it is told."""
        tick_ms = self.config.delivery.tick_ms
        behind_ms = monotonic_ms() - self._started_ms - self.mesh.delivery.state.now_ms
        if behind_ms > 2 * tick_ms:
            self.counters["stood_still_ms"] += behind_ms - tick_ms
            self._carry_out(self.mesh.stood_still(behind_ms - tick_ms))

    # Effects

    def _carry_out(self, effects: Iterable[Effect | Outcome]) -> None:
        self.mends.look()
        for effect in effects:
            match effect:
                case Send(to, message):
                    self._send(to, message)
                case SetTimer(tag, delay_ms):
                    pending = self._timers.get(tag)
                    if pending is not None:
                        pending.cancel()
                    self._timers[tag] = self._loop.call_later(delay_ms / 1_000, self._on_timer, tag)
                case CancelTimer(tag):
                    pending = self._timers.pop(tag, None)
                    if pending is not None:
                        pending.cancel()
                case LinkUp(peer):
                    self.links[peer] = None
                    self.counters["links_up"] += 1
                case LinkDown(peer):
                    self.links.pop(peer, None)
                    self.counters["links_down"] += 1
                case Deliver():
                    self.door.deliver(effect)
                    if self.mqtt is not None:
                        self.mqtt.deliver(effect)
                case Left():
                    self._gone.set()
                case _:
                    if isinstance(effect, Lost | Overflowed):
                        log.warning("%s: %s", self.name, effect)
                    self.door.tell(effect)
                    if self.mqtt is not None:
                        self.mqtt.tell(effect)

    def _send(self, to: NodeId, message: msgspec.Struct) -> None:
        try:
            encoded, kind = self._encode(to, message)
        except WireError as error:
            log.error("%s: cannot send to %s: %s", self.name, to, error)
            self.counters["too_large"] += 1
            return
        _count(self.traffic_out, message, len(encoded))
        self.transport.send(to, encoded, type(message) is not Frame, kind)

    def _encode(self, to: NodeId, message: msgspec.Struct) -> tuple[bytes, bytes]:
        if self.transport.takes_pieces(to):
            packed = self.pieces.pack(message)
            return (PIECES_MESSAGES.encode(packed), PIECES) if isinstance(packed, Packed) else (packed, MESSAGE)
        try:
            return self.pieces.write_out(message), MESSAGE
        except WireError as error:
            raise WireError(f"{error}, and {to} speaks an old version of the protocol; upgrade it") from None


def _count(traffic: dict[type, list[int]], message: msgspec.Struct, size: int) -> None:
    found = traffic.get(type(message))
    if found is None:
        found = traffic[type(message)] = [0, 0]
    found[0] += 1
    found[1] += size
