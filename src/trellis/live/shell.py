"""A live node: runs a `MeshNode` on sockets and the loop's clock.  [protocols/effects.py]

    frames of peers, timers, wishes of clients  ->  the node  ->  effects  ->  frames, timers, clients

Everything happens in one thread, one input at a time, so the node is the state machine that the simulator has proven.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from trellis.live.access import Gate
from trellis.live.addresses import parse_address
from trellis.live.admin import Admin
from trellis.live.clock import life_now, monotonic_ms, wall_ms, wall_s
from trellis.live.config import NodeConfig
from trellis.live.door import Door
from trellis.live.exchange import PIECES_TIMER, Exchange
from trellis.live.frames import Address
from trellis.live.health import Health
from trellis.live.machine import machine
from trellis.live.mends import MendClock
from trellis.live.meshes import make_mesh
from trellis.live.story import Story
from trellis.live.subscriptions import Subscriptions
from trellis.live.talk import CLIENT_VERSION, Welcome
from trellis.live.telemetry import Telemetry
from trellis.live.timers import Timers
from trellis.live.tls import Credentials, node_credentials
from trellis.live.transport import Transport
from trellis.protocols.delivery.outcome import ClientId, HomeTold, Lost, Outcome, Overflowed
from trellis.protocols.effects import (
    CancelTimer,
    Deliver,
    Effect,
    Effects,
    Left,
    LinkDown,
    LinkUp,
    NodeId,
    Send,
    SetTimer,
    Topic,
)

if TYPE_CHECKING:
    from trellis.live.mqtt.listener import MqttListener
    from trellis.live.rest import Rest

log = logging.getLogger("trellis.live")


class LiveNode:
    def __init__(self, config: NodeConfig, life: int | None = None) -> None:
        self.config, self.name = config, config.name
        self.life = life_now() if life is None else life
        self.started_s = wall_s()
        self.exchange = Exchange(self)
        self.codec, self.pieces = self.exchange.codec, self.exchange.pieces
        self.links: dict[NodeId, None] = {}
        self.counters: Counter[str] = Counter()
        self.mesh = make_mesh(config, self.life)
        self.mesh.delivery.gathers = True  # what one look at the sockets brings goes out together
        self.mends = MendClock(getattr(self.mesh.overlay.node, "coordinator", None), wall_ms, monotonic_ms)
        self.traffic_in, self.traffic_out = self.exchange.traffic_in, self.exchange.traffic_out
        self.admin: Admin | None = None
        self.telemetry: Telemetry | None = None
        self.mqtt: MqttListener | None = None
        self.tls: Credentials | None = None
        self._look: asyncio.TimerHandle | None = None  # at files of certificates
        self.subscriptions = Subscriptions(self)
        self.failure: Exception | None = None
        self.rest: Rest | None = None  # where the process runs nothing but this node
        self.timers = Timers(self.name, self._on_timer, self._end, self.counters)
        self._gone = asyncio.Event()  # the node has left, or was stopped
        self.is_stopped = False
        self.has_met = False  # another node has said anything since the start
        self.left_behind = (0, 0)  # when it has left: messages that nobody had taken over, and their topics
        self._input: tuple[NodeId | None, str] = (None, "")  # what is taken in: by whom, and its kind

    async def start(self) -> None:
        config = self.config
        self._loop, self._machine = asyncio.get_running_loop(), machine()
        host, port = parse_address(config.advertise or config.listen)
        tls = self.tls = node_credentials(config.tls, self.name)
        gate = self.gate = Gate(self.name, config.access, config.mqtt.users if config.mqtt else "")
        self.transport = Transport(
            Address(self.name, self.life, host, port),
            config.cluster,
            config.overlay,
            config.limits,
            tls,
            on_message=self.exchange.on_message,
            on_peer_down=self._on_peer_down,
            on_peer_ended=self._on_peer_ended,
            is_linked=self.links.__contains__,
            on_pieces=self.exchange.on_pieces,
        )
        self.door = Door(
            *(self, Welcome(self.name, config.cluster, self.life, CLIENT_VERSION), config.limits, self.mesh_topics()),
            gate=gate,
        )
        self.story = Story(self, self.now())
        self.health = Health(self)
        self.mesh.delivery.state.why_unjoined = self.health.seeds.why_unjoined
        self.mends.watcher = self.story
        try:
            self.transport.bind(config.listen)
            self.door.bind(config.client_listen, tls)
            if config.admin_listen:
                self.admin = Admin(self)
                self.admin.bind(config.admin_listen, tls)
            if config.mqtt:
                from trellis.live.mqtt.listener import MqttListener  # not every node has one

                proves_copies = self.mesh.overlay.has_homes and config.delivery.copies > 1
                self.mqtt = MqttListener(self, self.name, self.life, config.mqtt, config.limits, gate, proves_copies)
                self.mqtt.host.state.payload_bytes_max = config.delivery.payload_bytes_max
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
        if self.credentials() or gate.files:
            self._look = self._loop.call_later(config.tls.reload_s, self._look_at_files)

    def credentials(self) -> list[Credentials]:
        """Return the certificates of this node: those of [tls], and those of the MQTT listener."""
        found = (self.tls, self.mqtt.tls if self.mqtt is not None else None)
        return [one for one in found if one is not None]

    def reload(self) -> None:
        """Read certificates and access files again now, changed or not. Streams that stand stay.

        New handshakes use the new certificates. New access rules hold for all clients at once.
        """
        if not self.credentials() and not self.gate.files:
            log.info("%s: was told to load its certificates, and has none", self.name)
        self._read_files(at_once=True)

    def _read_files(self, *, at_once: bool) -> None:
        for one in self.credentials():
            one.look(at_once=at_once)
        if self.gate.files and self.gate.look(at_once=at_once) and self.mqtt is not None:
            self.mqtt.rules_changed()

    def _look_at_files(self) -> None:
        self._read_files(at_once=False)
        self._look = self._loop.call_later(self.config.tls.reload_s, self._look_at_files)

    def now(self) -> float:
        return self._loop.time()

    def mesh_topics(self) -> tuple[Topic, ...]:
        return tuple(self.mesh.wanted)

    def leave(self) -> None:
        """In order: `wait` returns when the others have taken over, or after `leave_s`."""
        if not self.is_stopped and not self.mesh.is_leaving:
            log.info("%s: leaves", self.name)
            self._loop.call_later(self.config.limits.leave_s, self._gone.set)
            if self.mqtt is not None:
                self.mqtt.close()
            self._carry_out(self.mesh.leave())

    async def wait(self) -> None:
        """Until the node has left; then everything is closed. Raises what has broken it."""
        await self._gone.wait()
        self.left_behind = self.mesh.left_behind()
        await self.stop()
        if self.failure is not None:
            raise self.failure

    async def stop(self, *, in_order: bool = True) -> None:
        """Close everything. Not in order: as if the process had died, also where closing in order is under way."""
        if not self.is_stopped or not in_order:
            self.is_stopped = True
            self.timers.close()
            if self._look is not None:
                self._look.cancel()
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

    def take_in(self, sender: NodeId, message: msgspec.Struct) -> None:
        if self.is_stopped:
            return
        self.has_met = True
        self.health.links.hears(sender)
        self._input = (sender, type(message).__name__)
        try:
            self._catch_up()
            effects = self.mesh.on_message(sender, message)
        except Exception:
            self.broke(f"a {type(message).__name__} of {sender}")
            return
        self._carry_out(effects)
        if self.rest is not None:
            self.rest.worked()

    def _on_peer_down(self, peer: NodeId) -> None:
        if not self.is_stopped:
            self._input = (peer, "down")
            try:
                self._catch_up()
                effects = self.mesh.on_peer_down(peer)
            except Exception:
                self.broke(f"the loss of the stream to {peer}")
            else:
                self._carry_out(effects)
            self.exchange.on_peer_down(peer)

    def _on_peer_ended(self, peer: NodeId, is_alone: bool) -> None:
        if not self.is_stopped:
            try:
                self._catch_up()
                effects = self.mesh.on_peer_ended(peer, is_alone=is_alone)
            except Exception:
                self.broke(f"the end of {peer}")
                return
            self._carry_out(effects)

    def _on_timer(self, tag: str) -> None:
        self._catch_up()
        self._input = (None, "timer")
        if tag == PIECES_TIMER:
            self.exchange.tick()
        else:
            self._carry_out(self.mesh.on_timer(tag))

    def _end(self, error: Exception) -> None:
        self.failure = error
        self._gone.set()

    def broke(self, what: str) -> None:
        """Log and count an error of ours. The input counts as lost: none may be able to stop node after node."""
        log.exception("%s: %s broke a handler", self.name, what)
        self.counters["bugs"] += 1

    # Wishes of clients

    def refusal(self, topic: Topic) -> str | None:
        return self.subscriptions.refusal(topic)

    def subscribe(self, topic: Topic) -> None:
        self._carry_out(self.subscriptions.subscribe(topic))

    def unsubscribe(self, topic: Topic) -> None:
        self._carry_out(self.subscriptions.unsubscribe(topic))

    def publish(self, topic: Topic, payload: bytes, client_id: ClientId | None = None) -> None:
        self._catch_up()
        if self.telemetry is not None:
            self.telemetry.published(topic, len(payload))
        self._carry_out(self.mesh.publish(topic, payload, client_id))

    def ask_home(self, topic: Topic) -> None:
        """Ask the home of a canary's topic; `health` is told the answer."""
        if not self.is_stopped:
            self._catch_up()
            self._carry_out(self.mesh.ask_home(topic))

    def change_overlay(self, change: Callable[[], Effects]) -> None:
        """Have the overlay do something that an operator has asked for."""
        self._catch_up()
        self._input = (None, "request")
        self._carry_out(self.mesh.overlay_did(change()))

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
        now_ms = int(self._machine.uptime_s() * 1_000)  # `monotonic_ms` would ask for the running loop every time
        behind_ms = now_ms - self._started_ms - self.mesh.delivery.state.now_ms
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
                self.broke("carrying out an effect")

    def _carry_out_in_turn(self, effects: Iterator[Effect | Outcome]) -> None:
        for effect in effects:
            if isinstance(effect, Send):  # most effects are sends and timers, and a `match` takes longer
                self.exchange.send(effect.to, effect.message)
                continue
            if isinstance(effect, SetTimer):
                self.timers.set(effect.tag, effect.delay_ms / 1_000)
                continue
            match effect:
                case CancelTimer(tag):
                    self.timers.cancel(tag)
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
                        self.story.messages_lost(effect)
                    self.door.tell(effect)
                    if self.mqtt is not None:
                        self.mqtt.tell(effect)
        self.mends.look()
