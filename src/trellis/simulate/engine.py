"""Run events in the order (time, sequence), and carry out the effects that nodes return.

Inside, time is whole microseconds; protocols use whole milliseconds. The heap holds each instant once, as a number. The
events of an instant are in a list, in the order in which they were scheduled, so they need no sequence numbers. Many
events often share an instant (all timers of a round, all messages of one latency), and they cost one heap operation.

    (MESSAGE, receiver, sender, message)
    (TIMER, actor, None, tag)                  stale unless actor.timers[tag] is this same tuple
    (CALL, None, function, arguments)          faults, churn and all other inputs from outside

A message belongs to the incarnation to which it was sent. If its receiver is down, or runs as another incarnation, the
message is dropped, as on a broken stream. A message still arrives if its sender is gone by then. A paused node keeps
its messages and its due timers, and gets them in their order when it resumes. A crash is silent unless
`broken_stream_ms` is given: then every node that claims a link to the crashed one gets `on_peer_down` that much later.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from random import Random
from typing import Any

from trellis import ids
from trellis.protocols.effects import (
    CancelTimer,
    Deliver,
    Effects,
    Left,
    LinkDown,
    LinkUp,
    NodeId,
    Send,
    SetTimer,
    Topic,
)
from trellis.simulate import digest as log
from trellis.simulate.digest import BATCH, CALL, MESSAGE, TIMER, Digest, overlay_digest, pack
from trellis.simulate.network import LOST, Network, NetworkConfig
from trellis.simulate.population import DOWN, PAUSED, UP, Actor, Event, Population
from trellis.simulate.system import System, Violation, Watcher

_GARBAGE_MIN = 2_000_000
_STALE_MIN = 50_000  # stale timers in the queue before they are removed


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Make Python collect garbage less often.

    Events are many, live long and form no cycles. Scanning them again and again took half of the time of a large run.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(_GARBAGE_MIN, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class Engine:
    """One run. Systems and probes read `world`, `run` advances the time, and other methods are inputs from outside."""

    def __init__(
        self,
        system: System,
        interests: Mapping[NodeId, Iterable[Topic]],
        *,
        seed: int,
        network: NetworkConfig | None = None,
        view_share: float = 1.0,
        overlay: Iterable[tuple[NodeId, NodeId]] = (),
        absent: Iterable[NodeId] = (),
        encode: bool = False,
        broken_stream_ms: int | None = None,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        """Prepare a run. `interests` has all nodes that may join. Those in `absent` are not there at the start."""
        self.system, self.encode, self.broken_stream_ms = system, encode, broken_stream_ms
        self.digest = Digest()
        self._numbers: dict[Any, int] = {}  # number of each node, message type and tag, in order of first use
        self.world = Population(system, seed, view_share=view_share, first_links=overlay, number_of=self._number_of)
        self.network = Network(network or NetworkConfig(), Random(ids.stream(seed, "network")))
        self.interests = {name: self.world.topics.normal(topics) for name, topics in sorted(interests.items())}
        self.sent: dict[type, int] = {}  # messages by type, without copies that the network makes
        self.encoded: dict[type, int] = {}  # bytes by type, with `encode`
        self.delivered = self.undeliverable = self.timers_fired = self.deliveries = 0
        self.links_formed = 0  # links that both ends have claimed, counted when the second end does
        # Number of changes of claims, topics, deliveries and living nodes, and the time of the last one.
        self.changes = 0
        self.changed_us = 0
        self.scheduled_until_us = 0  # time of the last input from outside that is scheduled
        self._times: list[int] = []  # a heap of the instants with events
        self._instants: dict[int, list[Event]] = {}  # instant -> its events, in order
        self._stale, self._stale_max = 0, _STALE_MIN
        mine = system.watcher(self.world)
        self.watchers = [*watchers, *([mine] if mine is not None else [])]
        self._perform = self._performer()
        gone = set(absent)
        self._starting = {name: topics for name, topics in self.interests.items() if name not in gone}
        self.world.expect(self._starting, self.interests)
        self.at(0, self._start_all)

    # Time

    def run(self, until_ms: int) -> None:
        """Run all events up to and including `until_ms`."""
        with seldom_collecting():
            self._run(until_ms)

    def _run(self, until_ms: int) -> None:
        times, instants, until, pop = self._times, self._instants, until_ms * 1000, heappop
        world, perform, numbers = self.world, self._perform, self._numbers
        logged, record = self.digest.events, self.digest.events.append
        watching = [w.on_message for w in self.watchers if type(w).on_message is not Watcher.on_message]
        now, actor, delivered, fired = world.now_us, None, 0, 0
        try:
            while times and times[0] <= until:
                now = world.now_us = pop(times)
                # The list may grow while it is read: an event that is due now is appended to it.
                for event in instants[now]:
                    kind, actor, other, payload = event
                    if kind == MESSAGE:
                        if actor.state:
                            self._not_up(event)
                            continue
                        record(pack(now, MESSAGE, actor.number, other.number, numbers[type(payload)]))
                        delivered += 1
                        for watch in watching:
                            watch(other.name, actor.name, payload)
                        effects = actor.on_message(other.name, payload)
                    elif kind == TIMER:
                        timers = actor.timers
                        if timers.get(payload) is not event:
                            self._stale -= 1
                            continue
                        if actor.state:
                            self._not_up(event)
                            continue
                        del timers[payload]
                        record(pack(now, TIMER, actor.number, 0, numbers.get(payload) or self._number_of(payload)))
                        fired += 1
                        effects = actor.on_timer(payload)
                    else:
                        other(*payload)
                        continue
                    if effects:
                        perform(actor, effects)
                del instants[now]
                if len(logged) >= BATCH:
                    self.digest.flush()
        except Exception as error:
            who = f"{actor.name} (incarnation {actor.incarnation})" if actor is not None else "an input from outside"
            error.add_note(f"at {now / 1000:g} ms, {who}")
            raise
        finally:
            self.delivered += delivered
            self.timers_fired += fired
        world.now_us = max(world.now_us, until)

    @property
    def events(self) -> int:
        """Return the number of messages delivered and timers fired."""
        return self.delivered + self.timers_fired

    @property
    def quiet_from_ms(self) -> int:
        """Return the time since which nothing has changed, or the time of the last scheduled input if that is later."""
        return -(-max(self.changed_us, self.scheduled_until_us) // 1000)

    def at(self, time_ms: int, function: Callable[..., object], *arguments: object) -> None:
        """Call `function` at that time, as one of the events of the run."""
        time_us = max(time_ms * 1000, self.world.now_us)
        self.scheduled_until_us = max(self.scheduled_until_us, time_us)
        self._push(time_us, (CALL, None, function, arguments))

    def hexdigest(self) -> str:
        return self.digest.hexdigest()

    def overlay_digest(self) -> str:
        return overlay_digest(self.world.links())

    def sent_by_type(self) -> dict[str, int]:
        return _by_name(self.sent)

    def encoded_by_type(self) -> dict[str, int]:
        """Return the bytes of all encoded messages by type. Empty without `encode`."""
        return _by_name(self.encoded)

    def check_always(self) -> None:
        """Check the invariants of every node, then the safety of the system."""
        for name in self.world.living:
            try:
                self.world.node(name).check()
            except AssertionError as error:
                error.add_note(f"at {self.world.now_ms} ms, check() of {name}")
                raise
        self.system.check_always(self.world)

    # Inputs from outside. Each returns whether it could happen.

    def join(self, name: NodeId, topics: Iterable[Topic] = ()) -> bool:
        """Start a node, or a new incarnation of one that is down. By default it has its topics of `interests`."""
        wanted = self.world.topics.normal(topics) or self.interests.get(name, ())
        if name in self.world.actors or not wanted:
            return False
        actor = self.world.bring_up(name, wanted)
        self._log(log.NODE_UP, actor)
        self._changed()
        for watcher in self.watchers:
            watcher.on_node_up(name, wanted)
        self._perform(actor, actor.node.start())
        return True

    def crash(self, name: NodeId) -> bool:
        """End a node at once, with no message from it."""
        actor = self.world.actors.get(name)
        if actor is None:
            return False
        self._down(actor, "crash")
        if self.broken_stream_ms is not None:
            for peer in self.world.living:
                if name in self.world.actors[peer].claims:
                    self._push_call(self.broken_stream_ms, self._peer_down, self.world.actors[peer], name)
        return True

    def leave(self, name: NodeId) -> bool:
        """Let a node leave in order, so that it can tell others. A paused node cannot leave."""
        actor = self.world.actors.get(name)
        if actor is None or actor.state != UP:
            return False
        self._perform(actor, actor.node.leave())
        if not self.system.nodes_linger:
            self._down(actor, "leave")
        return True

    def pause(self, name: NodeId) -> bool:
        """Stop a node for a while. Its messages and timers wait until `resume`."""
        actor = self.world.actors.get(name)
        if actor is None or actor.state != UP:
            return False
        actor.state = PAUSED
        self._log(log.PAUSE, actor)
        return True

    def resume(self, name: NodeId) -> bool:
        actor = self.world.actors.get(name)
        if actor is None or actor.state != PAUSED:
            return False
        actor.state = UP
        self._log(log.RESUME, actor)
        now = self.world.now_us
        for event in actor.waiting:
            self._push(now, event)
        actor.waiting.clear()
        return True

    def subscribe(self, name: NodeId, topic: Topic) -> bool:
        return self._change_topics(name, topic, wanted=True)

    def unsubscribe(self, name: NodeId, topic: Topic) -> bool:
        return self._change_topics(name, topic, wanted=False)

    def publish(self, name: NodeId, topic: Topic, payload: bytes = b"") -> bool:
        actor = self.world.actors.get(name)
        if actor is None or actor.state != UP:
            return False
        self._log(log.PUBLISH, actor, self._number_of(topic))
        for watcher in self.watchers:
            watcher.on_publish(name, topic, payload)
        self._perform(actor, actor.node.publish(topic, payload))  # type: ignore[attr-defined]
        return True

    # Helpers, in the order of their calls

    def _number_of(self, key: Any) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers) + 1
            self.digest.name(key if isinstance(key, str) else key.__name__)
        return number

    def _start_all(self) -> None:
        actors = [self.world.bring_up(name, topics) for name, topics in self._starting.items()]
        for actor in actors:
            self._log(log.NODE_UP, actor)
            for watcher in self.watchers:
                watcher.on_node_up(actor.name, actor.topics)
        for actor in actors:
            self._perform(actor, actor.node.start())
        self._changed()

    def _performer(self) -> Callable[[Actor, Effects], None]:
        """Return the function that carries out the effects of an actor. It binds its variables once, for speed."""
        world, network, times, instants, push = self.world, self.network, self._times, self._instants, heappush
        actors, sent, encode, codec = world.actors, self.sent, self.encode, self.system.codec
        encoded = self.encoded
        others: dict[type, Callable[[Actor, Any], None]] = {
            CancelTimer: self._cancel,
            LinkUp: self._link_up,
            LinkDown: self._link_down,
            Deliver: self._deliver,
            Left: self._left,
        }

        def perform(actor: Actor, effects: Effects) -> None:
            now = world.now_us
            for effect in effects:
                kind = type(effect)
                if kind is Send:
                    to: NodeId = effect.to  # type: ignore[union-attr, assignment]  # nobody here has seeds
                    message = effect.message  # type: ignore[union-attr]
                    message_type = type(message)
                    try:
                        sent[message_type] += 1
                    except KeyError:
                        sent[message_type] = 1
                        self._number_of(message_type)
                    if encode:
                        data = codec.encode(message)
                        encoded[message_type] = encoded.get(message_type, 0) + len(data)
                        message = codec.decode(data)
                    receiver = actors.get(to)
                    if receiver is None:
                        self._lose(log.NOBODY, actor, to, message_type)
                        continue
                    arrival = network.constant_us
                    if arrival >= 0:
                        arrival += now
                    else:
                        arrival = network.route(now, actor.name, to)
                        if arrival == LOST:
                            self._lose(log.LOSS, actor, to, message_type)
                            continue
                        if network.second_us >= 0:
                            self._push(network.second_us, (MESSAGE, receiver, actor, message))
                    instant = instants.get(arrival)
                    if instant is not None:
                        instant.append((MESSAGE, receiver, actor, message))
                    else:
                        instants[arrival] = [(MESSAGE, receiver, actor, message)]
                        push(times, arrival)
                elif kind is SetTimer:
                    tag, timers = effect.tag, actor.timers  # type: ignore[union-attr]
                    if tag in timers:
                        self._stale += 1
                    event = timers[tag] = (TIMER, actor, None, tag)
                    due = now + effect.delay_ms * 1000  # type: ignore[union-attr]
                    instant = instants.get(due)
                    if instant is not None:
                        instant.append(event)
                    else:
                        instants[due] = [event]
                        push(times, due)
                else:
                    others[kind](actor, effect)
            if self._stale > self._stale_max:
                self._sweep()

        return perform

    def _not_up(self, event: Event) -> None:
        """Handle an event of an actor that is not up: keep it if the actor is paused, else drop it."""
        kind, actor, other, payload = event
        if actor.state == PAUSED:
            actor.waiting.append(event)
        elif kind == MESSAGE:
            self._lose(log.NOBODY, other, actor.name, type(payload))

    def _lose(self, why: int, sender: Actor, to: NodeId, message_type: type) -> None:
        if why == log.NOBODY:
            self.undeliverable += 1
        names = (self._number_of(to), sender.number, self._number_of(message_type))
        self.digest.events.append(pack(self.world.now_us, why, *names))

    def _cancel(self, actor: Actor, effect: CancelTimer) -> None:
        if actor.timers.pop(effect.tag, None) is not None:
            self._stale += 1

    def _link_up(self, actor: Actor, effect: LinkUp) -> None:
        peer = effect.peer
        if peer == actor.name:
            raise Violation(f"{peer} claims a link to itself")
        if peer in actor.claims:
            return
        actor.claims[peer] = None
        other = self.world.actors.get(peer)
        if other is not None and actor.name in other.claims:
            self.links_formed += 1
        self._claimed(log.LINK_UP, actor, peer)

    def _link_down(self, actor: Actor, effect: LinkDown) -> None:
        if effect.peer in actor.claims:
            del actor.claims[effect.peer]
            self._claimed(log.LINK_DOWN, actor, effect.peer)

    def _claimed(self, kind: int, actor: Actor, peer: NodeId) -> None:
        self._log(kind, actor, self._number_of(peer))
        self._changed()
        for watcher in self.watchers:
            watcher.on_claim(actor.name, peer, kind == log.LINK_UP)

    def _deliver(self, actor: Actor, effect: Deliver) -> None:
        self._log(log.DELIVER, actor, self._number_of(effect.topic), effect.sequence)
        self.deliveries += 1
        self._changed()
        for watcher in self.watchers:
            watcher.on_deliver(actor.name, effect)

    def _sweep(self) -> None:
        """Remove stale timers. The instant that is being read stays as it is, because its reader iterates over it."""
        now, held = self.world.now_us, len(self._instants)  # Empty instants stay and cost a look at the next sweep.
        for time_us, instant in self._instants.items():
            if time_us != now:
                instant[:] = [event for event in instant if event[0] != TIMER or event[1].timers.get(event[3]) is event]
            held += len(instant)
        self._stale, self._stale_max = 0, max(_STALE_MIN, held)

    def _left(self, actor: Actor, effect: Left) -> None:
        if actor.state != DOWN:
            self._down(actor, "leave")

    def _down(self, actor: Actor, how: str) -> None:
        self._stale += len(actor.timers)
        self._log(log.NODE_DOWN, actor, int(how == "leave"))
        self.world.bring_down(actor)
        self._changed()
        for watcher in self.watchers:
            watcher.on_node_down(actor.name, how)

    def _push_call(self, delay_ms: int, function: Callable[..., object], *arguments: object) -> None:
        self._push(self.world.now_us + delay_ms * 1000, (CALL, None, function, arguments))

    def _push(self, time_us: int, event: Event) -> None:
        instant = self._instants.get(time_us)
        if instant is not None:
            instant.append(event)
        else:
            self._instants[time_us] = [event]
            heappush(self._times, time_us)

    def _peer_down(self, actor: Actor, peer: NodeId) -> None:
        if actor.state == PAUSED:
            actor.waiting.append((CALL, None, self._peer_down, (actor, peer)))
        elif actor.state != DOWN:
            self._log(log.PEER_DOWN, actor, self._number_of(peer))
            self._perform(actor, actor.node.on_peer_down(peer))

    def _change_topics(self, name: NodeId, topic: Topic, *, wanted: bool) -> bool:
        actor = self.world.actors.get(name)
        if actor is None or actor.state != UP or (topic in actor.topics) == wanted:
            return False
        kept = [other for other in actor.topics if other != topic]
        self.world.set_topics(actor, [*kept, topic] if wanted else kept)
        self._log(log.SUBSCRIBE if wanted else log.UNSUBSCRIBE, actor, self._number_of(topic))
        self._changed()
        for watcher in self.watchers:
            watcher.on_topics(name, actor.topics)
        self._perform(actor, actor.node.subscribe(topic) if wanted else actor.node.unsubscribe(topic))
        return True

    def _log(self, kind: int, actor: Actor, first: int = 0, second: int = 0) -> None:
        self.digest.events.append(pack(self.world.now_us, kind, actor.number, first, second))

    def _changed(self) -> None:
        self.changes += 1
        self.changed_us = self.world.now_us


def _by_name(numbers: dict[type, int]) -> dict[str, int]:
    return {kind.__name__: numbers[kind] for kind in sorted(numbers, key=lambda kind: kind.__name__)}
