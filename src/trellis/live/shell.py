"""A live node: runs a `MeshNode` on sockets and the loop's clock.  [protocols/effects.py]

    frames of peers, timers, wishes of clients  ->  the node  ->  effects  ->  frames, timers, clients

Everything happens in one thread, one input at a time, so the node is the state machine that the simulator has proven.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from trellis.live.addresses import parse_address
from trellis.live.admin import Admin
from trellis.live.clock import life_now, monotonic_ms, wall_ms
from trellis.live.config import NodeConfig
from trellis.live.door import Door
from trellis.live.frames import MESSAGE, PIECES, Address
from trellis.live.health import Health
from trellis.live.mends import MendClock
from trellis.live.meshes import make_mesh
from trellis.live.story import Story
from trellis.live.talk import CLIENT_VERSION, Welcome
from trellis.live.telemetry import Telemetry
from trellis.live.tls import Credentials, node_credentials
from trellis.live.transport import Transport
from trellis.protocols.delivery.messages import Frame
from trellis.protocols.delivery.outcome import ClientId, HomeTold, Lost, Outcome, Overflowed
from trellis.protocols.delivery.state import is_internal
from trellis.protocols.effects import (
    CancelTimer,
    Contact,
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

_TIMER_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0)  # before a timer that failed is tried again; then the node ends
_PIECES_TIMER, _PIECES_S = "pieces/ask", 0.5  # how often missing pieces are asked for again
_REFUSALS_MS = 10_000  # between two log lines about refused subscriptions


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
        self.tls: Credentials | None = None
        self._look: asyncio.TimerHandle | None = None  # at files of certificates
        self._wants: Counter[Topic] = Counter(dict.fromkeys(self.mesh.wanted, 1))  # by how many doors, or for good
        self.failure: Exception | None = None
        self.rest: Rest | None = None  # where the process runs nothing but this node
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failed: Counter[str] = Counter()  # timers -> how many times in a row each has failed
        self._log_refusals_ms = 0  # when the next refused subscription is logged
        self._gone = asyncio.Event()  # the node has left, or was stopped
        self._is_stopped = False
        self._input: tuple[NodeId | None, str] = (None, "")  # what is taken in: by whom, and its kind

    async def start(self) -> None:
        config = self.config
        self._loop = asyncio.get_running_loop()
        host, port = parse_address(config.advertise or config.listen)
        tls = self.tls = node_credentials(config.tls, self.name)
        self.transport = Transport(
            Address(self.name, self.life, host, port),
            config.cluster,
            config.overlay,
            config.limits,
            tls,
            on_message=self._on_message,
            on_peer_down=self._on_peer_down,
            on_peer_ended=self._on_peer_ended,
            is_linked=self.links.__contains__,
            on_pieces=self._on_pieces,
        )
        self.door = Door(
            self, Welcome(self.name, config.cluster, self.life, CLIENT_VERSION), config.limits, self.mesh_topics()
        )
        self.story = Story(self, self.now())
        self.health = Health(self)
        self.mends.watcher = self.story
        try:
            self.transport.bind(config.listen)
            self.door.bind(config.client_listen, tls)
            if config.admin_listen:
                self.admin = Admin(self)
                self.admin.bind(config.admin_listen, tls)
            if config.mqtt:
                from trellis.live.mqtt.door import MqttDoor  # not every node has one

                proves_copies = self.mesh.overlay.has_homes and config.delivery.copies > 1
                self.mqtt = MqttDoor(self, self.name, self.life, config.mqtt, config.limits, proves_copies)
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
        self.health.start()
        if self.credentials():
            self._look = self._loop.call_later(config.tls.reload_s, self._look_at_files)

    def credentials(self) -> list[Credentials]:
        """Return the certificates of this node: those of [tls], and those of the MQTT listener."""
        found = (self.tls, self.mqtt.tls if self.mqtt is not None else None)
        return [one for one in found if one is not None]

    def reload(self) -> None:
        """Read certificates again now, changed or not. New handshakes use them; streams that stand stay."""
        for one in self.credentials():
            one.look(at_once=True)

    def _look_at_files(self) -> None:
        for one in self.credentials():
            one.look()
        self._look = self._loop.call_later(self.config.tls.reload_s, self._look_at_files)

    def now(self) -> float:
        return self._loop.time()

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
        """Close everything. Not in order: as if the process had died, also where closing in order is under way."""
        if not self._is_stopped or not in_order:
            self._is_stopped = True
            for timer in (*self._timers.values(), *([self._look] if self._look is not None else [])):
                timer.cancel()
            self.health.close()
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
        if self._is_stopped:
            return
        self.health.links.hears(sender)
        try:
            effects = self.pieces.on_message(sender, encoded, monotonic_ms())
        except WireError:
            raise  # it cuts the peer off
        except Exception:
            self._broke(f"a message of {sender} about pieces")
            return
        self._do_pieces(effects)

    def _do_pieces(self, effects: PiecesEffects) -> None:
        """Hand over messages whose pieces are there; ask for pieces and give them, where a stream is there."""
        for effect in effects:
            try:
                self._do_piece(effect)
            except Exception:  # one that fails does not keep back the others
                self._broke("carrying out an effect of pieces")
        if self.pieces.waiting.messages and _PIECES_TIMER not in self._timers and not self._is_stopped:
            self._timers[_PIECES_TIMER] = self._loop.call_later(_PIECES_S, self._on_timer, _PIECES_TIMER)

    def _do_piece(self, effect: Send | Came) -> None:
        if isinstance(effect, Came):
            self._take_in(effect.sender, effect.message, effect.size)
        elif effect.to in self.transport.peers and self.transport.takes_pieces(effect.to):
            encoded = PIECES_MESSAGES.encode(effect.message)  # type: ignore[arg-type]
            _count(self.traffic_out, effect.message, len(encoded))
            self.transport.send(effect.to, encoded, may_drop=False, kind=PIECES)

    def _take_in(self, sender: NodeId, message: msgspec.Struct, size: int) -> None:
        _count(self.traffic_in, message, size)
        if self._is_stopped:
            return
        self.health.links.hears(sender)
        self._input = (sender, type(message).__name__)
        try:
            self._catch_up()
            effects = self.mesh.on_message(sender, message)
        except Exception:
            self._broke(f"a {type(message).__name__} of {sender}")
            return
        self._carry_out(effects)
        if self.rest is not None:
            self.rest.worked()

    def _on_peer_down(self, peer: NodeId) -> None:
        if not self._is_stopped:
            self._input = (peer, "down")
            try:
                self._catch_up()
                effects = self.mesh.on_peer_down(peer)
            except Exception:
                self._broke(f"the loss of the stream to {peer}")
            else:
                self._carry_out(effects)
            try:
                pieces = self.pieces.on_peer_down(peer, monotonic_ms())
            except Exception:
                self._broke(f"the loss of pieces of {peer}")
            else:
                self._do_pieces(pieces)

    def _on_peer_ended(self, peer: NodeId, is_alone: bool) -> None:
        if not self._is_stopped:
            try:
                self._catch_up()
                effects = self.mesh.on_peer_ended(peer, is_alone=is_alone)
            except Exception:
                self._broke(f"the end of {peer}")
                return
            self._carry_out(effects)

    def _on_timer(self, tag: str) -> None:
        del self._timers[tag]
        try:
            self._catch_up()
            self._input = (None, "timer")
            if tag == _PIECES_TIMER:
                asked, effects = self.pieces.tick(monotonic_ms()), []
            else:
                asked, effects = [], self.mesh.on_timer(tag)
        except Exception as error:
            self._timer_failed(tag, error)
            return
        self._failed.pop(tag, None)
        self._do_pieces(asked)
        self._carry_out(effects)

    def _timer_failed(self, tag: str, error: Exception) -> None:
        """Try the timer again after a pause. A node whose timer keeps failing ends: the others repair around it.

        What has made it fail may be data that a peer sent. So one failure must not end the node.
        """
        failed = self._failed[tag]
        self._failed[tag] += 1
        self.counters["bugs"] += 1
        if failed >= len(_TIMER_PAUSES_S):
            log.critical("%s: timer %s failed %d times in a row; the node ends", self.name, tag, failed + 1)
            self.failure = error
            self._gone.set()
            return
        pause_s = _TIMER_PAUSES_S[failed]
        log.error("%s: timer %s failed; tried again in %.1f s", self.name, tag, pause_s, exc_info=error)
        self._timers[tag] = self._loop.call_later(pause_s, self._on_timer, tag)

    def _broke(self, what: str) -> None:
        """Log and count an error of ours. The input counts as lost: none may be able to stop node after node."""
        log.exception("%s: %s broke a handler", self.name, what)
        self.counters["bugs"] += 1

    def refusal(self, topic: Topic) -> str | None:
        """Return why no client may subscribe to this topic here, or None if it may."""
        limits = self.config.limits
        reason = self.mesh.refusal(topic, limits.topics_max, limits.topics_bytes_max)
        if reason is not None:
            self._refused("a subscription was refused", reason)
        return reason

    def subscribe(self, topic: Topic) -> None:
        self._wants[topic] += 1
        if self._wants[topic] > 1:
            return
        reason = self.mesh.refusal(topic)
        if reason is not None:  # beyond what peers take: a wildcard has found so many topics
            self._refused(f"cannot take part in topic {topic}, and misses its messages", reason)
            return
        self._carry_out(self.mesh.subscribe(topic))

    def _refused(self, what: str, reason: str) -> None:
        """Count it, and log it once in a while: a client may ask thousands of times."""
        self.counters["topics_refused"] += 1
        now_ms = monotonic_ms()
        if now_ms >= self._log_refusals_ms:
            self._log_refusals_ms = now_ms + _REFUSALS_MS
            count = self.counters["topics_refused"]
            log.warning("%s: %s: %s (refused so far: %d)", self.name, what, reason, count)

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

    def ask_home(self, topic: Topic) -> None:
        """Ask the home of a canary's topic; `health` is told the answer."""
        if not self._is_stopped:
            self._catch_up()
            self._carry_out(self.mesh.ask_home(topic))

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
            self.health.stood_still()
            self._carry_out(self.mesh.stood_still(behind_ms - tick_ms))
            behind_ms = tick_ms
        self.mesh.delivery.look_at_clock(behind_ms)

    # Effects

    def _carry_out(self, effects: Iterable[Effect | Outcome]) -> None:
        """Carry out all effects. One that fails does not keep back the others, which may set timers."""
        left = iter(effects)
        while True:
            try:
                self._carry_out_in_turn(left)
                return
            except Exception:  # `left` stands behind the effect that failed
                self._broke("carrying out an effect")

    def _carry_out_in_turn(self, effects: Iterator[Effect | Outcome]) -> None:
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
                    self._failed.pop(tag, None)
                    pending = self._timers.pop(tag, None)
                    if pending is not None:
                        pending.cancel()
                case LinkUp(peer):
                    self.links[peer] = None
                    self.counters["links_up"] += 1
                    self.health.links.up(peer)
                    self.story.link_up(peer)
                case LinkDown(peer):
                    self.links.pop(peer, None)
                    self.counters["links_down"] += 1
                    self.story.link_down(peer, *self._input)
                    self.health.links.down(peer)
                case Deliver():
                    self.door.deliver(effect)
                    if self.mqtt is not None:
                        self.mqtt.deliver(effect)
                case Left():
                    self._gone.set()
                case HomeTold(topic, is_sure):
                    self.health.canary.heard(topic, is_sure)
                case _:
                    if isinstance(effect, Lost | Overflowed):
                        say = log.debug if _is_harmless(effect) else log.warning
                        say("%s: %s", self.name, _sentence(effect))
                    self.door.tell(effect)
                    if self.mqtt is not None:
                        self.mqtt.tell(effect)
        self.mends.look()

    def _send(self, to: Contact, message: msgspec.Struct) -> None:
        try:
            encoded, kind = self._encode(to, message)
        except WireError as error:
            log.error("%s: cannot send to %s: %s", self.name, to, error)
            self.counters["too_large"] += 1
            return
        _count(self.traffic_out, message, len(encoded))
        self.transport.send(to, encoded, type(message) is not Frame, kind)

    def _encode(self, to: Contact, message: msgspec.Struct) -> tuple[bytes, bytes]:
        if self.transport.takes_pieces(to):
            packed = self.pieces.pack(message)
            return (PIECES_MESSAGES.encode(packed), PIECES) if isinstance(packed, Packed) else (packed, MESSAGE)
        try:
            return self.pieces.write_out(message), MESSAGE
        except WireError as error:
            raise WireError(f"{error}, and {to} speaks an old version of the protocol; upgrade it") from None


def _is_harmless(effect: Lost | Overflowed) -> bool:
    """What nodes tell each other is repeated anyway."""
    return isinstance(effect, Lost) and is_internal(effect.topic)


def _sentence(effect: Lost | Overflowed) -> str:
    if isinstance(effect, Overflowed):
        return f"{effect.messages} messages were dropped from the window for want of room"
    which = f"message {effect.first}" if effect.first == effect.last else f"messages {effect.first} to {effect.last}"
    return f"{which} of {effect.origin} on {effect.topic} will never be handed over: {effect.why}"


def _count(traffic: dict[type, list[int]], message: msgspec.Struct, size: int) -> None:
    found = traffic.get(type(message))
    if found is None:
        found = traffic[type(message)] = [0, 0]
    found[0] += 1
    found[1] += size
