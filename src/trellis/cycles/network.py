"""A network of Vitis, RVR or OPT nodes in cycles: all state of a run, moved on one cycle at a time.  [VI §III, §IV]

A cycle is a round of every node, in random order: first all exchange samples (Newscast), then all exchange tables
(T-Man), then all look for nearer neighbors on the ring, then all renew their gateway proposals. In the protocol each
node does these four at random moments of its period. The order of nodes is drawn anew for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from trellis.cycles.chance import stream
from trellis.cycles.churn import begin_table, begin_views, drop_silent, known_links, leave_tables
from trellis.cycles.cover import SPOKE, make_cover
from trellis.cycles.gateways import elect_cycle, make_proposals
from trellis.cycles.instance import Instance
from trellis.cycles.newscast import AGE_MAX, NODES_MAX, make_views, newscast_cycle
from trellis.cycles.opt import Terms, leave_links, links_with, make_agreed, make_mail, profile_cycle, swap_cycle
from trellis.cycles.presence import GONE, NEVER, ROUND, make_presence
from trellis.cycles.spread import (
    OPT,
    RVR,
    VITIS,
    Instants,
    Lag,
    Tally,
    join_links,
    make_scratch,
    make_tally,
    no_lag,
    spread,
)
from trellis.cycles.tables import Links, Rule, links_of, make_tables, table_cycle
from trellis.errors import InputError
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.opt import OptConfig
from trellis.protocols.vitis import TableConfig, VitisConfig

GRACE_MS = 10_000  # as in `trellis.simulate.dissemination`
CONTACTS = 5  # as many as the event engine gives a node
LONELY_ROUNDS = NewscastConfig().lonely_rounds


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
        self.round = 0
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
        """Let every node that is there have its round. Return how many selections changed a table."""
        alive, since = self.presence.alive, self.presence.since
        if not self._stays:  # A node that has joined acts from the next round on.
            self._order = np.flatnonzero(alive & ((since < self.round) | (self.round == 0))).astype(np.int32)
            self._stays = not (alive & (since >= self.round)).any()
        mark, age_max, order, chance = self._mark, self.config.age_max, self._order, self._chance["newscast"]
        exchanges = newscast_cycle(self.views, alive, order, chance, mark, age_max, LONELY_ROUNDS)
        self.sent["NewscastRequest"] += exchanges
        changes = self._renew()
        self.round += 1
        self.presence.clock[ROUND] = self.round
        return changes

    def join(self, node: int, until: int = NEVER) -> None:
        """Let a node join, before the present round. `until` is the round in which it will leave."""
        self._keep_paths()
        presence = self.presence
        presence.alive[node], presence.since[node], presence.until[node] = True, self.round, until
        presence.clock[GONE] -= 1
        begin_views(self.views, node, np.flatnonzero(presence.alive).astype(np.int32), self._chance["joins"])
        self._begin(node)
        self._stays = False

    def leave(self, node: int) -> None:
        """Let a node leave, before the present round. It tells its neighbors."""
        self._keep_paths()
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

    def _keep_paths(self) -> None:  # noqa: B027  a hook that a system may leave empty
        """Remember the present links before a node joins or leaves, where relay paths lag behind them."""

    def lag(self) -> Lag:
        """Return the links of the instant before, where relay paths lag behind."""
        return no_lag()

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

    def publish(
        self, topics: Sequence[int] | Any, publishers: Sequence[int] | Any, moments: Sequence[float] | None = None
    ) -> Tally:
        """Publish an event on each of `topics`, and return the counts of all events so far.

        `moments` says when in the period, from 0 to 1. It matters only while nodes join and leave.
        """
        if self._scratch is None:
            self._scratch = make_scratch(len(self.instance.nodes))
        instants, carrying = self.instants()
        spread(
            np.asarray(topics, np.int64),
            np.asarray(publishers, np.int64),
            (np.asarray([0.5] * len(topics) if moments is None else moments) * 2**32).astype(np.int64),
            self.instance.wants,
            self.presence,
            carrying,
            instants,
            self.lag(),
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
        self._before: tuple[Links, Any] | None = None  # the instant before, once nodes come and go

    def cycle(self) -> int:
        if self._before is not None:
            self._before = self.links, self.looks_up
        if self.round and self.config.linger_rounds:
            self._past.append((self.links, self.looks_up))
        return super().cycle()

    def _renew(self) -> int:
        wants, order, mark, chance = self.instance.wants, self._order, self._mark, self._chance
        presence = self.presence
        tables = (self.tables, wants, self.views, self.links, presence, order)
        swaps, changes = table_cycle(*tables, chance["tables"], mark, self.rule, False)
        more, changed = table_cycle(*tables, chance["ring"], mark, self.rule, True)
        if presence.clock[GONE]:
            drop_silent(self.tables, self.views, presence, order)
        self.links = Links(*links_of(self.tables, order, mark))
        if self.kind == VITIS:
            proposals, links = self.proposals, self.links
            if self._before is not None:  # Over a new link no proposals have come yet.
                links = Links(*known_links(links, self._before[0], mark))
            bounds = self._hops_max, self._take_back
            elect_cycle(proposals, wants, links, presence.alive, order, chance["gateways"], mark, *bounds)
        self.sent["TManRequest"] += swaps + more
        self.sent["Profile"] += len(self.links.peers)
        return int(changes + changed)

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

    def _keep_paths(self) -> None:
        if self._before is None:
            self._before = self.links, self.looks_up

    def lag(self) -> Lag:
        if self._before is None:
            return no_lag()
        links, looks_up = self._before
        return Lag(self.tables.beats, links.offsets, links.peers, looks_up)

    def _begin(self, node: int) -> None:
        begin_table(self.tables, self.proposals, self.instance.wants.offsets, node)

    def _end(self, node: int) -> None:
        leave_tables(self.tables, self.views, self.links, self.presence, node)

    def instants(self) -> tuple[Instants, Links]:
        kept = [*self._past, (self.links, self.looks_up)]
        starts = np.cumsum([0, *(len(links.peers) for links, _ in kept)])
        offsets = np.stack([links.offsets + start for (links, _), start in zip(kept, starts, strict=False)])
        peers = np.concatenate([links.peers for links, _ in kept])
        instants = Instants(offsets, peers, np.stack([looks_up for _, looks_up in kept]))
        return instants, self.links if len(kept) == 1 else Links(*join_links(offsets, peers, self._mark))


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
