"""A network of Vitis or RVR nodes in cycles: all state of a run, moved on one cycle at a time.  [VI §III, §IV]

A cycle is a round of every node, in random order: first all exchange samples (Newscast), then all exchange tables
(T-Man), then all look for nearer neighbors on the ring, then all renew their gateway proposals. In the protocol each
node does these four at random moments of its period. The order of nodes is drawn anew for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from trellis.cycles.chance import stream
from trellis.cycles.gateways import elect_cycle, make_proposals
from trellis.cycles.instance import Instance
from trellis.cycles.newscast import AGE_MAX, NODES_MAX, make_views, newscast_cycle
from trellis.cycles.spread import RVR, VITIS, Instants, Tally, join_links, make_scratch, make_tally, spread
from trellis.cycles.tables import Links, Rule, links_of, make_tables, table_cycle
from trellis.errors import InputError
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.vitis import TableConfig, VitisConfig

CONTACTS = 5  # as many as the event engine gives a node
LONELY_ROUNDS = NewscastConfig().lonely_rounds


class Network:
    """Vitis where `config` is a `VitisConfig`, else RVR."""

    def __init__(self, instance: Instance, config: TableConfig, seed: int = 1) -> None:
        nodes = len(instance.nodes)
        if nodes >= NODES_MAX or config.age_max > AGE_MAX:
            what = f"{nodes:,} nodes, age_max {config.age_max}"
            raise InputError("", what, f"the cycle engine takes less than {NODES_MAX:,} nodes and ages to {AGE_MAX}")
        self.instance, self.config, self.seed, self.kind = instance, config, seed, RVR
        sw_neighbors, strangers = config.table_size, True
        self._hops_max, self._take_back, self._relays_flood = 0, False, False
        if isinstance(config, VitisConfig):
            self.kind, sw_neighbors, strangers = VITIS, config.sw_neighbors, config.strangers
            self._hops_max = config.gateway_hops - (config.hop_limit == "below")
            self._take_back, self._relays_flood = config.take_back, config.relays_flood
        self.rule = Rule(config.table_size, sw_neighbors, strangers, config.network_size)
        self.round = 0
        self._chance = {name: stream(seed, name) for name in ("newscast", "tables", "ring", "gateways")}
        self.views = make_views(contacts_of(nodes, seed), config.view_size)
        self.tables = make_tables(nodes, self.rule, stream(seed, "long links"))
        self.proposals = make_proposals(instance.wants)
        self.links = Links(np.zeros(nodes + 1, np.int64), np.empty(0, np.uint32))
        self._order, self._mark = np.arange(nodes, dtype=np.int32), np.zeros(nodes, np.int32)
        self._past: deque[tuple[Links, Any]] = deque(maxlen=config.linger_rounds)
        self._scratch: Any = None
        self.tally = make_tally(nodes)
        self.sent = {"NewscastRequest": 0, "TManRequest": 0, "Profile": 0}

    def cycle(self) -> int:
        """Let every node have its round. Return how many selections changed a table."""
        wants, order, mark, chance = self.instance.wants, self._order, self._mark, self._chance
        if self.round and self.config.linger_rounds:
            self._past.append((self.links, self.looks_up))
        exchanges = newscast_cycle(self.views, order, chance["newscast"], mark, self.config.age_max, LONELY_ROUNDS)
        tables = (self.tables, wants, self.views, self.links, order)
        swaps, changes = table_cycle(*tables, chance["tables"], mark, self.rule, False)
        more, changed = table_cycle(*tables, chance["ring"], mark, self.rule, True)
        self.links = Links(*links_of(self.tables, order, mark))
        if self.kind == VITIS:
            proposals, links = self.proposals, self.links
            elect_cycle(proposals, wants, links, order, chance["gateways"], mark, self._hops_max, self._take_back)
        self.round += 1
        self.sent["NewscastRequest"] += exchanges
        self.sent["TManRequest"] += swaps + more
        self.sent["Profile"] += len(self.links.peers)
        return int(changes + changed)

    @property
    def looks_up(self) -> Any:
        """Return for each subscription whether its node looks up the topic: gateways do, in RVR all."""
        owners = np.repeat(np.arange(len(self.instance.nodes), dtype=np.uint32), np.diff(self.instance.wants.offsets))
        if self.kind != VITIS:
            return np.ones(len(owners), np.bool_)
        return self.proposals.gateway == owners

    def publish(self, topics: Sequence[int] | Any, publishers: Sequence[int] | Any) -> Tally:
        """Publish an event on each of `topics`, and return the counts of all events so far."""
        if self._scratch is None:
            self._scratch = make_scratch(len(self.instance.nodes))
        instants, carrying = self.instants()
        spread(
            np.asarray(topics, np.int64),
            np.asarray(publishers, np.int64),
            self.instance.wants,
            carrying,
            instants,
            self.kind,
            self._relays_flood,
            self._scratch,
            self.tally,
        )
        return self.tally

    def digest(self) -> str:
        """Return a digest of everything that the run has come to: the same seed gives the same one."""
        hashed = blake2b(digest_size=16)
        for array in (*self.views[1:3], *self.tables, *self.proposals, *self.links, *self.tally):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()

    def instants(self) -> tuple[Instants, Links]:
        """Return the instants whose links and paths carry events now, and their links together."""
        kept = [*self._past, (self.links, self.looks_up)]
        starts = np.cumsum([0, *(len(links.peers) for links, _ in kept)])
        offsets = np.stack([links.offsets + start for (links, _), start in zip(kept, starts, strict=False)])
        peers = np.concatenate([links.peers for links, _ in kept])
        instants = Instants(offsets, peers, np.stack([looks_up for _, looks_up in kept]))
        return instants, self.links if len(kept) == 1 else Links(*join_links(offsets, peers, self._mark))


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
