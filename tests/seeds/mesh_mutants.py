"""Whole nodes with defects that Trellis once had, put back one at a time: the campaign of whole nodes must find each.

Each function patches the code of today, as close to the defect as that code admits. Its name and its first sentence say
what a client or an operator sees. `seeds.mutants` counts how many seeds it takes until the judge finds it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec
import pytest

from trellis.live.addresses import parse_address
from trellis.live.client import Client
from trellis.live.client_port import ClientPort, ClientState
from trellis.live.dialing import Dialing
from trellis.live.ends import Ends
from trellis.live.exchange import Exchange
from trellis.live.frames import CONTROL, CONTROLS, HELLO_BYTES_MAX, HOST_PATTERN, MESSAGE
from trellis.live.listen import Listener
from trellis.live.proof import Proof
from trellis.live.stream import Stream
from trellis.live.talk import Greet
from trellis.protocols.delivery.copies import Copies
from trellis.protocols.delivery.neighbors import Neighbors
from trellis.protocols.delivery.order import Order
from trellis.protocols.effects import Seed
from trellis.protocols.mesh import MeshNode
from trellis.protocols.mqtt.envelope import Ask
from trellis.protocols.mqtt.introductions import Introductions
from trellis.protocols.mqtt.pattern_holders import PatternHolders
from trellis.protocols.mqtt.publications import Publications
from trellis.protocols.wire import Codec, WireError, node_name_fault
from trellis.simulate.mesh import trial

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]


def _configured(patch: Patch, **tables: dict[str, Any]) -> None:
    """Change fields of every node's configuration: by table, by key."""
    apply = trial.apply_limits

    def changed(*arguments: Any) -> Any:
        config = apply(*arguments)
        for table, fields in tables.items():
            part = msgspec.structs.replace(getattr(config, table), **fields)
            config = msgspec.structs.replace(config, **{table: part})
        return config

    patch.setattr(trial, "apply_limits", changed)


# Acknowledged messages are lost


def a_subscription_goes_on_where_an_earlier_one_ended(patch: Patch) -> None:
    """A subscriber that comes back hears nothing: its node waits for messages of the time between."""

    def keep_baselines(self: Order, topic: Any) -> None:
        topic.confirmed_ms = None
        for stream in topic.streams.values():
            stream.waiting.clear()

    def say_that_others_keep_it(self: Neighbors, stream: Any) -> None:
        if stream.entries:
            stream.left = self.state.floor(stream), self.state.now_ms + self.config.window_ms
        self._drop_all(stream)

    patch.setattr(Order, "end_subscription", keep_baselines)
    patch.setattr(Neighbors, "_note_what_is_left", say_that_others_keep_it)


def a_client_that_restarts_repeats_its_numbers(patch: Patch) -> None:
    """A client that restarts under its name numbers from 1 again, and its node takes that for repetitions."""
    begin = Client.__init__

    def in_one_session(self: Client, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        self.session = 1

    patch.setattr(Client, "__init__", in_one_session)
    patch.setattr(Copies, "again", _taken_before)


def _taken_before(self: Copies, client_id: Any, topic: str, payload: bytes) -> bool:
    """Compare neither topic nor payload."""
    known = self.clients.get(client_id)
    if known is not None and known.outcome is not None:
        self.state.out.append(known.outcome)
    return known is not None


def a_wildcard_that_returns_counts_as_known(patch: Patch) -> None:
    """A wildcard subscriber that comes back misses topics in use: nobody was told that its pattern had gone."""
    hear = PatternHolders.hear

    def only_the_first_time(self: PatternHolders, origin: str, said: Ask, now_ms: int) -> Any:
        before = set(self.nodes[origin].patterns) if origin in self.nodes else set()
        heard = hear(self, origin, msgspec.structs.replace(said, gone=(), is_whole=False), now_ms)
        return heard and ([one for one in heard[0] if one not in before], heard[1])

    patch.setattr(PatternHolders, "hear", only_the_first_time)


def a_sidecar_remembers_nothing(patch: Patch) -> None:
    """A sidecar that restarts does not know what its broker's clients want, and they hear nothing of the mesh."""
    from trellis.live.mqtt.learned import LearnedFile

    patch.setattr(LearnedFile, "read", lambda self: None)


def long_gossip_is_dropped(patch: Patch) -> None:
    """A message with long lists of topics is not sent: clients with many topics cut their node off."""
    encode = Exchange._encode

    def whole_or_not(self: Exchange, to: Any, message: Any) -> tuple[bytes, bytes]:
        encoded, kind = encode(self, to, message)
        if kind != MESSAGE:
            raise WireError(f"a {type(message).__name__} is too large")
        return encoded, kind

    patch.setattr(Exchange, "_encode", whole_or_not)


def dead_streams_are_kept(patch: Patch) -> None:
    """A stream across a cut is kept until the kernel gives it up, and peers are dialled ever less often."""
    patch.setattr(Proof, "is_silent", lambda self, silent_s: False)
    patch.setattr("trellis.live.stream.notice_death", lambda connected, silent_s: None)
    patch.setattr(Dialing, "_healed", lambda self: None)
    _configured(patch, limits={"connect_s": 30.0, "handshake_s": 30.0, "backoff_s_max": 5.0}, omen={"try_soon": 0})


def a_native_client_may_be_called_as_mqtt_is(patch: Patch) -> None:
    """A client named `$mqtt` swallows publications of MQTT clients, which have the same names for its node."""
    greet = ClientPort._greet

    def anybody(self: ClientPort, stream: Stream, message: Any) -> None:
        if isinstance(message, Greet) and message.client.startswith("$"):
            greet(self, stream, msgspec.structs.replace(message, client=message.client[1:]))
            client: ClientState = stream.tag
            self.clients.pop((client.name, client.session), None)
            client.name, client.session = message.client, 0
            self.clients[client.name, client.session] = stream
            return
        greet(self, stream, message)

    patch.setattr(ClientPort, "_greet", anybody)
    patch.setattr(Copies, "again", _taken_before)


# Nodes end, or keep others out


def a_name_with_a_colon_is_taken_for_an_address(patch: Patch) -> None:
    """A name in a peer's message is taken for an address. The error that follows in a timer ends the process."""
    from trellis.live.shell import LiveNode
    from trellis.live.timers import Timers

    lenient, place = Lenient(), Dialing._place

    def on_message(self: Exchange, sender: str, encoded: bytes) -> None:
        self._hand_over(sender, lenient.decode(self.codec, encoded), len(encoded))

    def name_or_address(self: Dialing, to: Any) -> Any:
        return parse_address(lenient.meant[to]) if to in lenient.meant else place(self, to)

    patch.setattr(Exchange, "on_message", on_message)
    patch.setattr(Dialing, "_place", name_or_address)
    patch.setattr(LiveNode, "_carry_out", lambda self, effects: self._carry_out_in_turn(iter(effects)))
    patch.setattr(Timers, "_retry", lambda self, tag, error: self._end(error))


def a_host_that_cannot_be_looked_up_ends_its_dial(patch: Patch) -> None:
    """A host that no name server can be asked for raises an error, and its node is never dialled again."""
    lenient, place = Lenient(), Dialing._place

    def read_control(body: bytes) -> Any:
        if body[:1] != CONTROL:
            raise WireError("a message before the hello")
        return lenient.decode(CONTROLS, body[1:])

    def as_it_was_said(self: Dialing, to: Any) -> Any:
        found = place(self, to)
        return found and (lenient.meant.get(found[0], found[0]), found[1])

    async def connect(self: Dialing, to: Any, host: str, port: int) -> None:
        stream = Stream(self.transport, self.transport.limits, HELLO_BYTES_MAX)
        stream.tag = Ends(dialled=to)
        try:
            async with asyncio.timeout(self.transport.limits.handshake_s):
                host.encode("idna")  # as the resolver of the operating system does
                connected = await self._machine.connect(host, port, self.transport.limits.connect_s)
                await self._loop.create_connection(lambda: stream, sock=connected)
        except (TimeoutError, OSError) as error:
            self.failed(to)
            if not isinstance(to, Seed):
                if isinstance(error, ConnectionRefusedError) and self.transport.book.is_first_hand(to):
                    self._note_ended(to)
                self.transport.book.failed(to)

    patch.setattr("trellis.live.transport.read_control", read_control)
    patch.setattr("trellis.live.handshake.read_control", read_control)
    patch.setattr(Dialing, "_place", as_it_was_said)
    patch.setattr(Dialing, "_connect", connect)


class Lenient:
    """Decodes messages with names and hosts that the types of today refuse.

    Types of messages cannot be changed after they are defined. So each such text is exchanged for one that is valid;
    `meant` tells what was said.
    """

    def __init__(self) -> None:
        self.meant: dict[str, str] = {}

    def decode(self, codec: Codec[Any], data: bytes) -> Any:
        try:
            return codec.decode(data)
        except WireError as error:
            try:
                raw = self._valid(msgspec.msgpack.decode(data))
                return msgspec.convert(raw, codec.union)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                raise error from None

    def _valid(self, raw: Any) -> Any:
        if isinstance(raw, list):
            return [self._valid(one) for one in raw]
        if isinstance(raw, dict):
            return {key: self._valid(one) for key, one in raw.items()}
        if isinstance(raw, str) and (":" in raw or not re.fullmatch(HOST_PATTERN, raw)) and node_name_fault(raw):
            return self._stands_for(raw)
        if isinstance(raw, str) and (raw.startswith(".") or ".." in raw or any(len(x) > 63 for x in raw.split("."))):
            return self._stands_for(raw)
        return raw

    def _stands_for(self, raw: str) -> str:
        valid = f"x{blake2b(raw.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"
        self.meant[valid] = raw
        return valid


def idle_connections_keep_others_out(patch: Patch) -> None:
    """Connections that say nothing share one pool with everybody: when it is full, newcomers are refused."""

    def refuse_when_full(self: Any) -> None:
        for one in [one for one in self._half_open if self._is_over(one)]:
            del self._half_open[one]
        if len(self._half_open) >= self._handshakes_max:
            make = self._make

            def none() -> None:
                self._make = make

            self._make = none

    patch.setattr(Listener, "_make_room", refuse_when_full)


def clients_that_come_at_once_push_each_other_out(patch: Patch) -> None:
    """Of many clients that connect in one moment, some are reset without CONNACK before their packet was read."""
    patch.setattr("trellis.live.listen._YOUNG_S", 0.0)


# Slow, or refused


def a_repair_waits_for_a_node_that_hangs(patch: Patch) -> None:
    """A repair waits for every helper: one that hangs holds it up until it is suspected."""
    _configured(patch, omen={"helper_tries": 0})


def a_process_that_has_ended_is_waited_for(patch: Patch) -> None:
    """A publication waits for the copy of a node that was killed, until its registration has run out."""
    patch.setattr(Dialing, "_note_ended", lambda self, peer: None)
    patch.setattr(Dialing, "look_again", lambda self, peer: None)


def a_publication_waits_for_copies_that_nobody_wants(patch: Patch) -> None:
    """PUBACK waits for copies to empty directories, for which there is no proof while nodes come and go."""
    patch.setattr(Introductions, "needless", lambda self, is_informed: [])


def a_flood_of_qos_0_fills_the_node(patch: Patch) -> None:
    """Publications with QoS 0 of one client fill the table of those that wait: others are refused."""
    is_full = Publications._is_full

    def without_qos_0(self: Publications, session: Any, link: Any) -> bool:
        waiting, session.unanswered = session.unanswered, 0
        try:
            return is_full(self, session, link)
        finally:
            session.unanswered = waiting

    patch.setattr(Publications, "_is_full", without_qos_0)
    patch.setattr("trellis.live.mqtt.listener._TURN_PACKETS", 1 << 30)


def new_topics_are_taken_up_one_by_one(patch: Patch) -> None:
    """A burst of publications on new topics takes seconds of computing: the overlay looks at all topics for each."""

    def publish(self: MeshNode, topic: str, payload: bytes, client_id: Any = None) -> list[Any]:
        effects: list[Any] = []
        if topic not in self.wanted and not self.is_leaving:
            is_new = topic not in self.interested
            self._add_topic(topic)
            self.interested[topic] = self.delivery.state.now_ms
            if is_new:
                self._stay(topic)
                effects += self._after(self.overlay.publish_on([topic]))
        return [*effects, *self.delivery.publish(topic, payload, client_id)]

    patch.setattr(MeshNode, "publish", publish)


# Faults that show a mutant soonest. Seeds without one of them need not be run to find it.
SHOWN_BY = {
    "a_sidecar_remembers_nothing": "sidecar-crash",
    "long_gossip_is_dropped": "many-topics",
    "dead_streams_are_kept": "split",
    "a_native_client_may_be_called_as_mqtt_is": "burst",
    "a_name_with_a_colon_is_taken_for_an_address": "malformed",
    "a_host_that_cannot_be_looked_up_ends_its_dial": "malformed",
    "idle_connections_keep_others_out": "half-open",
    "clients_that_come_at_once_push_each_other_out": "crowd",
    "a_repair_waits_for_a_node_that_hangs": "pause",
    "a_flood_of_qos_0_fills_the_node": "flood",
    "new_topics_are_taken_up_one_by_one": "many-topics",
}

# What the draw lacks to show a mutant. They stay here, so that the lack is known.
NOT_YET: dict[str, str] = {}

MUTANTS: dict[str, Mutant] = {
    one.__name__: one
    for one in (
        a_subscription_goes_on_where_an_earlier_one_ended,
        a_client_that_restarts_repeats_its_numbers,
        a_wildcard_that_returns_counts_as_known,
        a_sidecar_remembers_nothing,
        long_gossip_is_dropped,
        dead_streams_are_kept,
        a_native_client_may_be_called_as_mqtt_is,
        a_name_with_a_colon_is_taken_for_an_address,
        a_host_that_cannot_be_looked_up_ends_its_dial,
        idle_connections_keep_others_out,
        clients_that_come_at_once_push_each_other_out,
        a_repair_waits_for_a_node_that_hangs,
        a_process_that_has_ended_is_waited_for,
        a_publication_waits_for_copies_that_nobody_wants,
        a_flood_of_qos_0_fills_the_node,
        new_topics_are_taken_up_one_by_one,
    )
}
