"""A network of Vitis, RVR or OPT nodes in cycles: all state of a run, moved on one cycle at a time.  [VI §III, §IV]

A cycle is a round of every node, in random order: first all exchange samples (Newscast), then all exchange tables
(T-Man), then all look for nearer neighbors on the ring, then all renew their gateway proposals. In the protocol each
node does these four at random moments of its period. The order of nodes is drawn anew for each.

While nodes join and leave, this is not fine enough for Vitis and RVR. Each node has moments of the period then at which
it swaps samples, swaps tables, and sends its profile, and a round is played in `STEPS` steps. A step has the same
passes, each for the nodes whose moment falls into it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from trellis.cycles.chance import stream
from trellis.cycles.churn import (
    begin_table,
    begin_views,
    drop_silent,
    firm_links,
    known_links,
    leave_tables,
    tell_tables,
)
from trellis.cycles.cover import SPOKE, make_cover
from trellis.cycles.gateways import elect_cycle, make_proposals
from trellis.cycles.instance import Instance
from trellis.cycles.newscast import AGE_MAX, NODES_MAX, make_views, newscast_cycle
from trellis.cycles.opt import Terms, leave_links, links_with, make_agreed, make_mail, profile_cycle, swap_cycle
from trellis.cycles.perfect import fill_tables
from trellis.cycles.presence import GONE, GRACE, NEVER, ROUND, make_presence
from trellis.cycles.relays import leave_paths, make_relays, no_relays, relay_parts, tick_all
from trellis.cycles.spread import OPT, RVR, VITIS, Instants, Tally, join_links, make_scratch, make_tally, spread
from trellis.cycles.tables import NO_LINKS, Links, Rule, draw_moments, links_of, make_tables, table_cycle
from trellis.errors import InputError
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.opt import OptConfig
from trellis.protocols.vitis import TableConfig, VitisConfig

GRACE_MS = 10_000  # as in `trellis.simulate.dissemination`
CONTACTS = 5  # as many as the event engine gives a node
LONELY_ROUNDS = NewscastConfig().lonely_rounds
STEPS = 16  # of a round, while nodes join and leave
PASSES_MAX = 1000  # of elections over links that stay


class Network(ABC):
    """What Vitis, RVR and OPT share: samples, links, and events."""

    kind: int
    streams: tuple[str, ...]

    def __init__(self, instance: Instance, config: TableConfig, seed: int = 1, absent: Sequence[int] = ()) -> None:
        """Create the network. The nodes `absent` are not there at the start."""
        nodes = len(instance.nodes)
        if nodes >= NODES_MAX or config.age_max > AGE_MAX:
            what = f"{nodes:,} nodes, age_max {config.age_max}"
            raise InputError("", what, f"the cycle engine takes less than {NODES_MAX:,} nodes and ages to {AGE_MAX}")
        self.instance, self.config, self.seed = instance, config, seed
        self.round = self.step = 0
        self.steps = 1  # of a round
        self.relays = no_relays()
        self._chance = {name: stream(seed, name) for name in ("newscast", "joins", *self.streams)}
        self.presence = make_presence(nodes, config.silence_max, -(-GRACE_MS // config.period_ms))
        self.presence.alive[list(absent)] = False
        self.presence.clock[GONE] = len(absent)
        living = np.flatnonzero(self.presence.alive).astype(np.int32)
        contacts = np.full((nodes, CONTACTS), -1, np.int32)
        drawn = contacts_of(len(living), seed)
        contacts[living, : drawn.shape[1]] = np.where(drawn >= 0, living[drawn], -1)
        self.views = make_views(contacts, config.view_size)
        self.links = Links(np.zeros(nodes + 1, np.int64), np.empty(0, np.uint32))
        self._order, self._mark = living, np.zeros(nodes, np.int32)
        self._stays = True  # Nobody has joined or left since `_order` was made.
        self._scratch: Any = None
        self._relays_flood = False
        self.tally = make_tally(nodes)
        self.sent = {"NewscastRequest": 0, "TManRequest": 0, "Profile": 0}

    def cycle(self) -> int:
        """Play the rest of the round. Return how many selections changed a table."""
        changes = self.advance()
        while self.step:
            changes += self.advance()
        return changes

    def advance(self) -> int:
        """Play the next step of the round. Return how many selections changed a table."""
        changes = self._play()
        self.step = (self.step + 1) % self.steps
        if self.step == 0:
            self.round += 1
            self.presence.clock[ROUND] = self.round
        return changes

    def _play(self) -> int:
        """Let every node that is there have its round."""
        alive, since = self.presence.alive, self.presence.since
        if not self._stays:  # A node that has joined acts from the next round on.
            self._order = np.flatnonzero(alive & ((since < self.round) | (self.round == 0))).astype(np.int32)
            self._stays = not (alive & (since >= self.round)).any()
        mark, age_max, order, chance = self._mark, self.config.age_max, self._order, self._chance["newscast"]
        exchanges = newscast_cycle(self.views, alive, order, chance, mark, age_max, LONELY_ROUNDS)
        self.sent["NewscastRequest"] += exchanges
        return self._renew()

    def play_in_steps(self) -> None:  # noqa: B027  a hook that a system may leave empty
        """Play rounds in steps from now on, because nodes join or leave. Call it between two rounds."""

    def join(self, node: int, until: int = NEVER) -> None:
        """Let a node join, before the present step. `until` is the round in which it will leave."""
        self.play_in_steps()
        presence = self.presence
        presence.alive[node], presence.since[node], presence.until[node] = True, self.round, until
        presence.clock[GONE] -= 1
        begin_views(self.views, node, np.flatnonzero(presence.alive).astype(np.int32), self._chance["joins"])
        self._begin(node)
        self._stays = False

    def leave(self, node: int) -> None:
        """Let a node leave, before the present step. It tells its neighbors."""
        self.play_in_steps()
        self.presence.alive[node] = False
        self.presence.clock[GONE] += 1
        self._end(node)
        self._stays = False

    @property
    def standing(self) -> tuple[Any, Any]:
        """Return both ends of every link between nodes that are there, the smaller number first."""
        owners = np.repeat(np.arange(len(self.instance.nodes), dtype=np.uint32), np.diff(self.links.offsets))
        alive, peers = self.presence.alive, self.links.peers
        once = (owners < peers) & alive[owners] & alive[peers]
        return owners[once], peers[once]

    @property
    def degrees(self) -> Any:
        """Return the links of each node that is there."""
        found = np.bincount(np.concatenate(self.standing), minlength=len(self.instance.nodes))
        return found[self.presence.alive]

    @abstractmethod
    def _begin(self, node: int) -> None:
        """Reset the state of a node that joins."""

    @abstractmethod
    def _end(self, node: int) -> None:
        """Let others forget a node that has left."""

    @abstractmethod
    def _renew(self) -> int:
        """Renew tables and links, and return how many selections changed a table."""

    @property
    @abstractmethod
    def table_counts(self) -> Any:
        """Return the number of entries of each routing table."""

    @property
    @abstractmethod
    def looks_up(self) -> Any:
        """Return for each subscription whether its node looks up the topic."""

    @abstractmethod
    def instants(self) -> tuple[Instants, Links]:
        """Return the instants whose links and paths carry events now, and their links together."""

    @abstractmethod
    def _arrays(self) -> Iterable[Any]:
        """Return the arrays that make up the state of the system."""

    def publish(self, topics: Sequence[int] | Any, publishers: Sequence[int] | Any) -> Tally:
        """Publish an event on each of `topics` now, and return the counts of all events so far."""
        if self._scratch is None:
            self._scratch = make_scratch(len(self.instance.nodes))
        instants, carrying = self.instants()
        spread(
            np.asarray(topics, np.int64),
            np.asarray(publishers, np.int64),
            self.instance.wants,
            self.presence,
            carrying,
            instants,
            self.relays,
            self.kind,
            self._relays_flood,
            self._scratch,
            self.tally,
        )
        return self.tally

    def digest(self) -> str:
        """Return a digest of everything that the run has come to: the same seed gives the same one."""
        hashed = blake2b(digest_size=16)
        for array in (*self.views[1:3], *self._arrays(), *self.links, *self.tally):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()


class RingNetwork(Network):
    """Vitis where `config` is a `VitisConfig`, else RVR."""

    streams = ("tables", "ring", "gateways")

    def __init__(self, instance: Instance, config: TableConfig, seed: int = 1, absent: Sequence[int] = ()) -> None:
        super().__init__(instance, config, seed, absent)
        self.kind = RVR
        sw_neighbors, strangers = config.table_size, True
        self._hops_max, self._take_back = 0, False
        if isinstance(config, VitisConfig):
            self.kind, sw_neighbors, strangers = VITIS, config.sw_neighbors, config.strangers
            self._hops_max = config.gateway_hops - (config.hop_limit == "below")
            self._take_back, self._relays_flood = config.take_back, config.relays_flood
        self.rule = Rule(config.table_size, sw_neighbors, strangers, config.network_size)
        self.tables = make_tables(len(instance.nodes), self.rule, stream(seed, "long links"))
        self.proposals = make_proposals(instance.wants)
        self._past: deque[tuple[Links, Any]] = deque(maxlen=config.linger_rounds)
        if len(absent):
            self.play_in_steps()

    def play_in_steps(self) -> None:
        if self.steps > 1:
            return
        nodes, tables, wants = len(self.instance.nodes), self.tables, self.instance.wants
        self.steps = STEPS
        self.relays = make_relays(nodes, len(self.instance.topics), relay_parts(len(wants.topics)))
        # The links that each node knows of: it holds them, or the other end has told it.
        self._firm = self.links
        # The tables that nodes had at their last ticks.
        self._told = tables._replace(peers=tables.peers.copy(), count=tables.count.copy())
        samples = np.empty(nodes, np.uint32)
        draw_moments(samples, samples.copy(), stream(self.seed, "moments"))
        # The step in which each node swaps samples, swaps tables, and sends its profile (its tick).
        self._moments = [step_of(moments) for moments in (samples, tables.turns, tables.beats)]
        self._by_beat = np.argsort(tables.beats, kind="stable").astype(np.int32)
        self._tick(self._by_beat[self.presence.alive[self._by_beat]])

    def _play(self) -> int:
        if self.step == 0 and self.round and self.config.linger_rounds:
            self._past.append((self.known_links, self.looks_up))
        return super()._play() if self.steps == 1 else self._play_step()

    def _play_step(self) -> int:
        """Play one step of a round."""
        alive, chance, mark, wants = self.presence.alive, self._chance, self._mark, self.instance.wants
        living = np.flatnonzero(alive).astype(np.int32)
        samples, turns = (living[moments[living] == self.step] for moments in self._moments[:2])
        ticks = self._by_beat[(alive & (self._moments[2] == self.step))[self._by_beat]]
        self.sent["NewscastRequest"] += newscast_cycle(
            self.views, alive, samples, chance["newscast"], mark, self.config.age_max, LONELY_ROUNDS
        )
        shared = self.tables, wants, self.views
        swaps, changes = table_cycle(
            *shared, self._firm, self.presence, turns, chance["tables"], mark, self.rule, False, NO_LINKS
        )
        if self.presence.clock[GONE]:
            drop_silent(self.tables, self.views, self.presence, ticks)
        told = Links(*links_of(self._told, living, mark))
        tell_tables(self.tables, self._told.peers, self._told.count, ticks)
        self._set_links(living)
        heard = Links(*known_links(self._firm, told, mark))
        if self.kind == VITIS:
            bounds = self._hops_max, self._take_back
            elect_cycle(self.proposals, wants, heard, alive, ticks.copy(), chance["gateways"], mark, *bounds)
        self._tick(ticks)
        more, changed = table_cycle(
            *shared, self._firm, self.presence, ticks.copy(), chance["ring"], mark, self.rule, True, heard
        )
        self.sent["TManRequest"] += swaps + more
        self.sent["Profile"] += int((self._firm.offsets[ticks + 1] - self._firm.offsets[ticks]).sum())
        self._set_links(living)
        return int(changes + changed)

    def _set_links(self, living: Any) -> None:
        """Set the links after tables have changed."""
        self.links = Links(*links_of(self.tables, living, self._mark))
        self._firm = Links(*firm_links(self.links, self.tables, self._told.peers, self._told.count))

    @property
    def known_links(self) -> Links:
        """Return the links that each node knows of. A new one may be known at one end only while nodes come and go."""
        return self.links if self.steps == 1 else self._firm

    def _tick(self, order: Any) -> None:
        """Let nodes renew their relay paths, in this order."""
        wants, alive = self.instance.wants, self.presence.alive
        self.relays = tick_all(self.relays, wants, self._firm, alive, self.looks_up, order, self.kind == VITIS)

    def _renew(self) -> int:
        wants, order, mark, chance = self.instance.wants, self._order, self._mark, self._chance
        presence = self.presence
        tables = (self.tables, wants, self.views, self.links, presence, order)
        swaps, changes = table_cycle(*tables, chance["tables"], mark, self.rule, False, NO_LINKS)
        more, changed = table_cycle(*tables, chance["ring"], mark, self.rule, True, NO_LINKS)
        if presence.clock[GONE]:
            drop_silent(self.tables, self.views, presence, order)
        self.links = Links(*links_of(self.tables, order, mark))
        if self.kind == VITIS:
            bounds = self._hops_max, self._take_back
            elect_cycle(self.proposals, wants, self.links, presence.alive, order, chance["gateways"], mark, *bounds)
        self.sent["TManRequest"] += swaps + more
        self.sent["Profile"] += len(self.links.peers)
        return int(changes + changed)

    def know_all(self) -> int:
        """Give each node the table that it would choose if it saw all others, instead of gossip. Call it once, first.

        Return the passes that elections took. Nodes count as there for long: they are expected to get every event.
        """
        fill_tables(self.tables, self.instance.wants, self.presence, self.rule, stream(self.seed, "perfect tables"))
        self.presence.since[:] = -self.presence.clock[GRACE]
        return self.settle()

    def settle(self) -> int:
        """Make links of the present tables, and let elections run until no proposal changes. Return their passes."""
        order, mark, wants, chance = self._order, self._mark, self.instance.wants, self._chance["gateways"]
        self.links = Links(*links_of(self.tables, order, mark))
        bounds, alive, passes = (self._hops_max, self._take_back), self.presence.alive, 0
        while self.kind == VITIS:
            passes += 1
            if not elect_cycle(self.proposals, wants, self.links, alive, order, chance, mark, *bounds):
                break
            assert passes < PASSES_MAX, "elections do not come to rest"
        return passes

    @property
    def table_counts(self) -> Any:
        return self.tables.count

    @property
    def looks_up(self) -> Any:
        """Gateways look up their topics, in RVR all subscribers."""
        owners = np.repeat(np.arange(len(self.instance.nodes), dtype=np.uint32), np.diff(self.instance.wants.offsets))
        if self.kind != VITIS:
            return np.ones(len(owners), np.bool_)
        return self.proposals.gateway == owners

    def _arrays(self) -> Iterable[Any]:
        return (*self.tables, *self.proposals)

    def _begin(self, node: int) -> None:
        begin_table(self.tables, self.proposals, self.instance.wants.offsets, node)
        self._told.count[node] = 0

    def _end(self, node: int) -> None:
        leave_tables(self.tables, self.views, self.links, self.presence, node)
        self._told.count[node] = 0
        leave_paths(self.relays, node, self.kind == VITIS)

    def instants(self) -> tuple[Instants, Links]:
        kept = [*self._past, (self.known_links, self.looks_up)]
        starts = np.cumsum([0, *(len(links.peers) for links, _ in kept)])
        offsets = np.stack([links.offsets + start for (links, _), start in zip(kept, starts, strict=False)])
        peers = np.concatenate([links.peers for links, _ in kept])
        instants = Instants(offsets, peers, np.stack([looks_up for _, looks_up in kept]))
        return instants, kept[0][0] if len(kept) == 1 else Links(*join_links(offsets, peers, self._mark))


class OptNetwork(Network):
    """OPT."""

    kind, streams = OPT, ("tables", "profiles")
    config: OptConfig

    def __init__(self, instance: Instance, config: OptConfig, seed: int = 1, absent: Sequence[int] = ()) -> None:
        super().__init__(instance, config, seed, absent)
        nodes, wants = len(instance.nodes), instance.wants
        most = config.table_size + config.incoming_max
        self.terms = Terms(config.table_size if config.bounded else most, most, config.coverage, config.refusal_rounds)
        self.agreed = make_agreed(nodes, self.terms, config.table_size)
        self._mail = make_mail(nodes, self.terms)
        candidates = 2 * (self.terms.bound + config.view_size + 2)
        topics_max = int(np.diff(wants.offsets).max(initial=0))
        self._cover = make_cover(nodes, len(instance.topics), topics_max, candidates)

    def _renew(self) -> int:
        parts = (self.agreed, self.instance.wants, self.views, self.presence, self._order)
        scratch, chance = (self._cover, self._mail, self.terms), self._chance
        swaps, changes = swap_cycle(*parts, chance["tables"], *scratch)
        profiles, changed = profile_cycle(*parts, chance["profiles"], *scratch)
        self.links = Links(*links_with(self.agreed, np.uint8(0), True))
        self.sent["TManRequest"] += swaps
        self.sent["Profile"] += profiles
        return int(changes + changed)

    @property
    def table_counts(self) -> Any:
        return self.agreed.count

    @property
    def looks_up(self) -> Any:
        return np.zeros(self.instance.subscriptions, np.bool_)

    def instants(self) -> tuple[Instants, Links]:
        """A link carries the events of those that know that the other end agrees."""
        carrying = Links(*links_with(self.agreed, SPOKE, False))
        return Instants(carrying.offsets[None], carrying.peers, self.looks_up[None]), carrying

    def _arrays(self) -> Iterable[Any]:
        return self.agreed

    def _begin(self, node: int) -> None:
        self.agreed.ticks[node] = 0

    def _end(self, node: int) -> None:
        leave_links(self.agreed, self.views, self.presence, node)


def make_network(instance: Instance, config: TableConfig, seed: int = 1, absent: Sequence[int] = ()) -> Network:
    """Return a network of the system to which `config` belongs."""
    if isinstance(config, OptConfig):
        return OptNetwork(instance, config, seed, absent)
    return RingNetwork(instance, config, seed, absent)


def step_of(moments: Any) -> Any:
    """Return the step of the round into which each of these moments falls."""
    return (moments.astype(np.uint64) * np.uint64(STEPS) >> np.uint64(32)).astype(np.int8)


def contacts_of(nodes: int, seed: int) -> Any:
    """Draw a few other nodes for each: whom it knows when it joins."""
    count = min(CONTACTS, nodes - 1)
    drawn = np.random.Generator(np.random.PCG64(int(stream(seed, "contacts")[0])))
    found = drawn.integers(0, max(1, nodes - 1), (nodes, count), np.int32)
    while True:  # drawn again where a node has drawn another twice
        ordered = np.sort(found, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if not twice.any():
            break
        found[twice] = drawn.integers(0, nodes - 1, (int(twice.sum()), count), np.int32)
    found += found >= np.arange(nodes, dtype=np.int32)[:, None]  # others only
    return found if count else np.full((nodes, 1), -1, np.int32)
