"""A live node: runs a `MeshNode` on sockets and on the clock of the event loop.  [protocols/effects.py]

    frames of peers, timers, requests of clients  ->  `MeshNode`  ->  effects  ->  frames, timers, clients

`LiveNode` owns all parts of a node: the transport to peers, the client port, the MQTT listener, the admin port
and the timers. They call it with inputs. It hands each input to the `MeshNode`, which knows no sockets and no clock,
and then carries out the effects that this returns.

All of this happens in one thread, one input at a time. So the `MeshNode` runs here exactly as in the simulator.

A node is made, then `start`ed. It ends when it has left in order (`leave`, then `wait`), or at once by `stop`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from trellis.live.access import Gate
from trellis.live.addresses import parse_address
from trellis.live.admin import Admin
from trellis.live.client_port import ClientPort
from trellis.live.clock import life_now, monotonic_ms, wall_ms, wall_s
from trellis.live.config import NodeConfig
from trellis.live.exchange import PIECES_TIMER, Exchange
from trellis.live.frames import Address
from trellis.live.health import Health
from trellis.live.machine import machine
from trellis.live.meshes import make_mesh
from trellis.live.repair_times import RepairClock
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
from trellis.protocols.omen import OMenNode

if TYPE_CHECKING:
    from trellis.live.keeper import Keeper
    from trellis.live.kept import KeptClients
    from trellis.live.mqtt.listener import MqttListener
    from trellis.live.pauses import Pauses
    from trellis.store.disk import Disk

log = logging.getLogger("trellis.live")


class LiveNode:
    """One node of a mesh, with its ports."""

    def __init__(self, config: NodeConfig, life: int | None = None, disk: Disk | None = None) -> None:
        """`life`: the incarnation. None: it is taken from the wall clock. `disk`: a simulated one, for the store."""
        self.config, self.name = config, config.name
        self.life = life_now() if life is None else life
        self.started_s = wall_s()
        self.exchange = Exchange(self)
        self.codec, self.pieces = self.exchange.codec, self.exchange.pieces
        self.links: dict[NodeId, None] = {}  # neighbors
        self.counters: Counter[str] = Counter()
        self.mesh = make_mesh(config, self.life)
        self.mesh.delivery.gathers = True  # Messages that result from one turn of the loop share frames.
        self.repairs = RepairClock(wall_ms, monotonic_ms)
        if isinstance(self.mesh.overlay.node, OMenNode):
            self.mesh.overlay.node.moments.subscribe(self.repairs.note)
        self.traffic_in, self.traffic_out = self.exchange.traffic_in, self.exchange.traffic_out
        self.admin: Admin | None = None
        self.telemetry: Telemetry | None = None
        self.mqtt: MqttListener | None = None
        self.keeper: Keeper | None = None  # the store; None: there is none
        self.kept: KeptClients | None = None  # durable subscribers, if there is a store
        self._disk = disk
        self.tls: Credentials | None = None
        self._look: asyncio.TimerHandle | None = None  # the next look at certificates and access files
        self.subscriptions = Subscriptions(self)
        self.failure: Exception | None = None  # the error of a timer that kept failing, which ends the node
        self.pauses: Pauses | None = None  # set only if the process runs nothing but this node
        self.timers = Timers(self.name, self._on_timer, self.end, self.counters)
        self._gone = asyncio.Event()  # The node has left, has failed, or was stopped.
        self.is_stopped = False
        self.has_met = False  # A message of another node has come since the start.
        self.left_behind = (0, 0)  # after it has left: numbers of messages that no node took over, and of their topics
        self._input: tuple[NodeId | None, str] = (None, "")  # the input that is being handled: its sender, and its kind

    async def start(self) -> None:
        """Bind all ports, start the protocols, and accept connections. If a port cannot be bound, stop and raise."""
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
        self.client_port = ClientPort(
            *(self, Welcome(self.name, config.cluster, self.life, CLIENT_VERSION), config.limits, self.mesh_topics()),
            gate=gate,
        )
        self.story = Story(self, self.now())
        self.health = Health(self)
        self.mesh.delivery.state.why_unjoined = self.health.seeds.why_unjoined
        self.repairs.watcher = self.story
        if config.durable:
            self._open_store()
        try:
            self.transport.bind(config.listen)
            self.client_port.bind(config.client_listen, tls)
            if config.admin_listen:
                self.admin = Admin(self)
                self.admin.bind(config.admin_listen, tls)
            if config.mqtt:
                from trellis.live.mqtt.listener import MqttListener  # Imported here, since not every node has one.

                proves_copies = self.mesh.overlay.has_homes and config.delivery.copies > 1
                self.mqtt = MqttListener(self, self.name, self.life, config.mqtt, config.limits, gate, proves_copies)
                self.mqtt.host.state.payload_bytes_max = config.delivery.payload_bytes_max
                self.mqtt.host.state.copies = config.delivery.copies
                self.mqtt.bind()
        except BaseException:
            await self.stop(in_order=False)
            raise
        self._started_ms = monotonic_ms()
        self._carry_out(self.mesh.start())
        self._resume()
        if config.telemetry.file:
            self.telemetry = Telemetry(config.telemetry, self.name, lambda: self.mesh.wanted)
            self.telemetry.start()
        self.transport.serve()  # No message may come in before `MeshNode.start`.
        self.client_port.serve()
        if self.admin is not None:
            self.admin.serve()
        if self.mqtt is not None:
            self.mqtt.serve()
        self.health.start()
        if self.credentials() or gate.files:
            self._look = self._loop.call_later(config.tls.reload_s, self._look_at_files)

    def _open_store(self) -> None:
        """Open the store, and give delivery what it has."""
        from trellis.live.keeper import Keeper  # Imported here, since not every node has a store.
        from trellis.live.kept import KeptClients

        self.keeper = Keeper(self, self.config.durable, self._disk)
        self.keeper.restore()
        assert self.keeper.durable is not None
        self.kept = self.client_port.kept = KeptClients(self, self.keeper.durable)

    def _resume(self) -> None:
        """Take up the topics of the store."""
        if self.keeper is not None and self.kept is not None:
            for topic in self.kept.durable.wanted:
                self.subscribe(topic)
            self._carry_out(self.mesh.resume())

    def credentials(self) -> list[Credentials]:
        """Return the certificates that this node has: those of [tls], and those of the MQTT listener."""
        both = (self.tls, self.mqtt.tls if self.mqtt is not None else None)
        return [credentials for credentials in both if credentials is not None]

    def reload(self) -> None:
        """Read certificates and access files again now, whether or not they have changed.

        Open streams stay open. New handshakes use the new certificates. New access rules hold at once for all clients.
        """
        if not self.credentials() and not self.gate.files:
            log.info("%s: was told to load its certificates, and has none", self.name)
        self._read_files(at_once=True)

    def _read_files(self, *, at_once: bool) -> None:
        for credentials in self.credentials():
            credentials.look(at_once=at_once)
        if self.gate.files and self.gate.look(at_once=at_once) and self.mqtt is not None:
            self.mqtt.rules_changed()

    def _look_at_files(self) -> None:
        """Read certificates and access files that have changed. Runs every `tls.reload_s` seconds."""
        self._read_files(at_once=False)
        self._look = self._loop.call_later(self.config.tls.reload_s, self._look_at_files)

    def now(self) -> float:
        """Return the time of the event loop's clock in seconds."""
        return self._loop.time()

    def mesh_topics(self) -> tuple[Topic, ...]:
        """Return the topics that this node subscribes to."""
        return tuple(self.mesh.wanted)

    def leave(self) -> None:
        """Begin to leave in order. `wait` returns when other nodes have taken over, or after `limits.leave_s`."""
        if not self.is_stopped and not self.mesh.is_leaving:
            log.info("%s: leaves", self.name)
            self._loop.call_later(self.config.limits.leave_s, self._gone.set)
            if self.mqtt is not None:
                self.mqtt.close()
            self._carry_out(self.mesh.leave())

    async def wait(self) -> None:
        """Wait until the node has left or was stopped, and close everything. Raise the error that ended it, if any."""
        await self._gone.wait()
        self.left_behind = self.mesh.left_behind()
        await self.stop()
        if self.failure is not None:
            raise self.failure

    async def stop(self, *, in_order: bool = True) -> None:
        """Close everything. Without `in_order`, cut all streams, as a crash would, even those that are being closed."""
        if not self.is_stopped or not in_order:
            self.is_stopped = True
            self.timers.close()
            if self._look is not None:
                self._look.cancel()
            if self.keeper is not None:
                self.keeper.close()
            self.health.close()
            if self.telemetry is not None:
                self.telemetry.close(in_order=in_order)
            if self.mqtt is not None:
                self.mqtt.close(in_order=in_order)
            self.transport.close(in_order=in_order)
            self.client_port.close(in_order=in_order)
        if self.mqtt is not None:
            await self.mqtt.closed()
        await self.transport.closed()
        await self.client_port.closed()
        if self.admin is not None:
            await self.admin.close()
        self._gone.set()

    # Inputs

    def take_in(self, sender: NodeId, message: msgspec.Struct) -> None:
        """Handle a message of a peer. Called by `Exchange`."""
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
        if self.pauses is not None:
            self.pauses.worked()

    def _on_peer_down(self, peer: NodeId) -> None:
        """Handle the loss of the stream to a peer, or the restart of a peer."""
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
        """Handle the proof that the process of a peer has ended. `is_alone`: all known nodes have ended."""
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

    def on_synced(self, upto: int) -> None:
        """Handle the end of a sync: records of the store below `upto` survive a loss of power."""
        if not self.is_stopped:
            self._catch_up()
            self._carry_out(self.mesh.on_synced(upto))

    def end(self, error: Exception) -> None:
        """End the node, because a timer kept failing, or its store."""
        self.failure = error
        self._gone.set()

    def broke(self, what: str) -> None:
        """Log and count an exception in our own code. The input that caused it is lost, and the node goes on.

        Otherwise a message that is passed on from node to node could stop one node after the other.
        """
        log.exception("%s: %s broke a handler", self.name, what)
        self.counters["bugs"] += 1

    # Requests of clients, called by the client port and the MQTT listener (`client_port.Broker`)

    def refusal(self, topic: Topic) -> str | None:
        """Return why no client may subscribe to this topic here, or None if it may."""
        return self.subscriptions.refusal(topic)

    def subscribe(self, topic: Topic) -> None:
        """Subscribe on behalf of one port. Each port calls this once for a topic, until it unsubscribes."""
        self._carry_out(self.subscriptions.subscribe(topic))

    def unsubscribe(self, topic: Topic) -> None:
        """End a subscription of one port."""
        self._carry_out(self.subscriptions.unsubscribe(topic))

    def publish(self, topic: Topic, payload: bytes, client_id: ClientId | None = None) -> None:
        """Publish a message. The outcome comes later as an effect with the same `client_id`."""
        self._catch_up()
        if self.telemetry is not None:
            self.telemetry.published(topic, len(payload))
        self._carry_out(self.mesh.publish(topic, payload, client_id))

    def ask_home(self, topic: Topic) -> None:
        """Ask the home of a canary's topic whether it is there. `Health` is told the answer (`HomeTold`)."""
        if not self.is_stopped:
            self._catch_up()
            self._carry_out(self.mesh.ask_home(topic))

    def change_overlay(self, change: Callable[[], Effects]) -> None:
        """Carry out a change of links that an operator has asked for."""
        self._catch_up()
        self._input = (None, "request")
        self._carry_out(self.mesh.overlay_did(change()))

    def is_confirmed(self, topic: Topic) -> bool:
        """Return whether this node subscribes to a topic, and its subscription is confirmed now."""
        state = self.mesh.delivery.state.topics.get(topic)
        return state is not None and state.is_wanted and state.was_confirmed and state.is_confirmed

    def metrics(self) -> dict[str, int]:
        """Return all counters of the node by name, for tests."""
        return {
            **{f"delivery {key}": value for key, value in self.mesh.delivery.metrics().items()},
            **{f"peers {key}": value for key, value in sorted(self.transport.counters.items())},
            **{f"clients {key}": value for key, value in sorted(self.client_port.counters.items())},
            **({f"mqtt {key}": value for key, value in self.mqtt.metrics().items()} if self.mqtt is not None else {}),
            **({f"telemetry {key}": n for key, n in self.telemetry.counters.items()} if self.telemetry else {}),
            **({f"store {key}": n for key, n in self.keeper.metrics().items()} if self.keeper else {}),
            **self.counters,
            "links": len(self.links),
            "streams": len(self.transport.peers),
        }

    def _catch_up(self) -> None:
        """Tell the `MeshNode` how much time has passed since its last tick. Called before inputs.

        It counts time in ticks. If ticks are more than one tick late, since the process was stopped or the machine is
        busy, the missing time is added at once (`stood_still`).
        """
        tick_ms = self.config.delivery.tick_ms
        now_ms = int(self._machine.uptime_s() * 1_000)  # `monotonic_ms` would look up the running loop every time.
        behind_ms = now_ms - self._started_ms - self.mesh.delivery.state.now_ms
        if behind_ms > 2 * tick_ms:
            self.counters["stood_still_ms"] += behind_ms - tick_ms
            self.health.stood_still()
            self._carry_out(self.mesh.stood_still(behind_ms - tick_ms))
            behind_ms = tick_ms
        self.mesh.delivery.look_at_clock(behind_ms)

    # Effects

    def _carry_out(self, effects: Iterable[Effect | Outcome]) -> None:
        """Carry out all effects. If one fails, the others are still carried out, since they may set timers."""
        left = iter(effects)
        while True:
            try:
                self._carry_out_in_turn(left)
                if self.keeper is not None:
                    self.keeper.look()
                return
            except Exception:  # `left` goes on after the effect that failed.
                self.broke("carrying out an effect")

    def _carry_out_in_turn(self, effects: Iterator[Effect | Outcome]) -> None:
        for effect in effects:
            if isinstance(effect, Send):  # Most effects are sends and timers, and a `match` is slower.
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
                    if effect.position and self.keeper is not None and self.kept is not None:
                        self.keeper.after_sync(partial(self.kept.turned, effect.position))
                    self.client_port.deliver(effect)
                    if self.mqtt is not None:
                        self.mqtt.deliver(effect)
                case Left():
                    self._gone.set()
                case HomeTold(topic, is_sure):
                    self.health.canary.heard(topic, is_sure)
                case _:
                    if isinstance(effect, Lost | Overflowed):
                        self.story.messages_lost(effect)
                    self.client_port.tell(effect)
                    if self.mqtt is not None:
                        self.mqtt.tell(effect)
        self.repairs.look()
