"""Relay paths in cycles while nodes join and leave: against the protocol's own, and what nodes know of their links."""

from __future__ import annotations

from collections import deque
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.cycles.churn import firm_links, known_links
from trellis.cycles.instance import make_instance
from trellis.cycles.relays import NONE, ROOT, Relays, leave_paths, make_relays, tick_all
from trellis.cycles.spread import find_standing_paths, make_scratch
from trellis.cycles.tables import Links, Rule, links_of, make_tables
from trellis.protocols.effects import Send
from trellis.protocols.vitis.neighbors import FIRM, Neighbor, Neighbors
from trellis.protocols.vitis.relays import RelayPaths

NAMES = [f"v{number:02}" for number in range(10)]
TOPICS = ["t", "u"]
Pairs = set[tuple[int, int]]


def csr(pairs: Pairs) -> Links:
    rows = [sorted(b for a, b in pairs if a == node) for node in range(len(NAMES))]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Links(offsets, np.array([peer for row in rows for peer in row], np.uint32))


class Twin:
    """The relay paths of the protocol's own code. Messages arrive at once."""

    def __init__(self, wanted: dict[str, tuple[str, ...]], ends: bool) -> None:
        self.wanted, self.ends, self.pairs = wanted, ends, set[tuple[int, int]]()
        self.rounds = [0] * len(NAMES)
        self.neighbors = [Neighbors() for _ in NAMES]
        self.paths = [self.fresh(node) for node in range(len(NAMES))]

    def fresh(self, node: int) -> RelayPaths:
        wanted = self.wanted[NAMES[node]]
        return RelayPaths(NAMES[node], self.neighbors[node], lambda topic: self.ends and topic in wanted, 0)

    def link(self, one: int, other: int, stands: bool) -> None:
        (self.pairs.update if stands else self.pairs.difference_update)(((one, other), (other, one)))
        for node, peer in ((one, other), (other, one)):
            mine = self.neighbors[node]
            known = mine.get(NAMES[peer])
            if known is None and stands:
                known = mine.all[NAMES[peer]] = Neighbor(NAMES[peer], 1, (), 0)
            if known is not None and known.firm != stands:
                known.parting = FIRM if stands else self.rounds[node]
                mine.version += 1
            self.paths[node].compass.set(one.node for one in mine.firm())

    def leave(self, node: int) -> None:
        for peer in range(len(NAMES)):
            known = self.neighbors[peer].all.pop(NAMES[node], None)
            if known is not None:
                self.paths[peer].drop(known)
                self.neighbors[peer].version += 1
            for fading in self.paths[peer]._fading.values():  # No event goes there, unless the node is soon back.
                fading.pop(NAMES[node], None)
        self.pairs = {pair for pair in self.pairs if node not in pair}
        for peer in range(len(NAMES)):
            self.paths[peer].compass.set(one.node for one in self.neighbors[peer].firm())
        self.neighbors[node] = Neighbors()
        self.paths[node] = self.fresh(node)

    def tick(self, node: int, own: list[str]) -> None:
        self.rounds[node] += 1
        mine, paths = self.neighbors[node], self.paths[node]
        for one in [one for one in mine.all.values() if not one.firm]:
            del mine.all[one.node]
            paths.drop(one)
        paths.look_up(own)
        paths.update(self.rounds[node])
        paths.told()
        sent = deque[tuple[int, Send]]()
        for one in mine.firm():
            peer = NAMES.index(one.node)
            self.paths[peer].on_list(
                self.neighbors[peer].all[NAMES[node]], paths.listed_for(one.node), self.rounds[peer]
            )
            sent.extend((peer, effect) for effect in self.paths[peer].ask())  # type: ignore[misc]
        while sent:
            sender, effect = sent.popleft()
            to = NAMES.index(effect.to)  # type: ignore[arg-type]
            self.paths[to].on_relay(self.neighbors[to].all[NAMES[sender]], effect.message.topics)  # type: ignore[attr-defined]
            sent.extend((to, more) for more in self.paths[to].ask())  # type: ignore[misc]
        paths.check()


def state(relays: Relays) -> tuple[dict[tuple[int, str], int], set[tuple[int, str, int]], set[tuple[int, str, int]]]:
    """Return next hops, children, and children that fade."""
    hops, children, fading, parts = {}, set(), set(), relays.parts
    for part in range(int(parts.used[0])):
        key = int(parts.node[part]), TOPICS[parts.topic[part]]
        if relays.up[part] != NONE:
            hops[key] = int(relays.up[part])
        edge, count = relays.first_down[part], 0
        while edge >= 0:
            (fading if relays.fades[edge] else children).add((*key, int(parts.node[relays.child[edge]])))
            count += not relays.fades[edge]
            edge = relays.next_down[edge]
        assert count == relays.children[part]  # L1
    return hops, children, fading


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("ends", [True, False])
def test_relay_paths_are_those_of_the_protocol_after_every_tick(ends, seed):
    random, count = Random(seed), len(NAMES)
    wanted = {name: tuple(topic for topic in TOPICS if random.random() < 0.5) for name in NAMES}
    wanted[NAMES[0]], wanted[NAMES[1]] = ("t", "u"), ("t",)
    wants, twin = make_instance(wanted).wants, Twin(wanted, ends)
    relays, alive = make_relays(count, len(TOPICS), random.choice((8, 4_000))), np.ones(count, np.bool_)
    scratch = make_scratch(count)
    for _ in range(60):
        for _ in range(random.choice((0, 1, 2, 4))):
            one, other = random.sample(range(count), 2)
            twin.link(one, other, random.random() < 0.6)
        if random.random() < 0.05:
            gone = random.randrange(count)
            twin.leave(gone)
            leave_paths(relays, gone, ends)
        node = random.randrange(count)
        own = [topic for topic in wanted[NAMES[node]] if not ends or random.random() < 0.5]
        looks_up = np.zeros(len(wants.topics), np.bool_)
        for slot in range(wants.offsets[node], wants.offsets[node + 1]):
            looks_up[slot] = TOPICS[wants.topics[slot]] in own
        twin.tick(node, own)
        relays = tick_all(relays, wants, csr(twin.pairs), alive, looks_up, np.array([node], np.int32), ends)
        hops, children, fading = state(relays)
        paths = list(enumerate(twin.paths))
        assert hops == {
            (n, topic): ROOT if hop is None else NAMES.index(hop) for n, one in paths for topic, hop in one.up.items()
        }
        assert children == {(n, t, NAMES.index(c)) for n, one in paths for t, found in one._down.items() for c in found}
        assert fading == {(n, t, NAMES.index(c)) for n, one in paths for t, found in one._fading.items() for c in found}
        for topic, name in enumerate(TOPICS):
            find_standing_paths(relays, topic, alive, scratch.paths)
            found = {n: set[str]() for n in range(count)}
            for n in scratch.paths.nodes[: scratch.paths.ends[1]].tolist():
                link = scratch.paths.first[n]
                while link >= 0:
                    found[n].add(NAMES[scratch.paths.to[link]])
                    link = scratch.paths.following[link]
                scratch.paths.first[n] = -1
            scratch.paths.ends[:] = 0
            assert found == {n: set(one.links(name)) for n, one in paths}


@given(st.integers(0, 2**32))
def test_a_node_knows_the_links_that_it_holds_and_those_that_it_was_told_of(seed):
    random, count, size = Random(seed), len(NAMES), 4
    held, told = (
        [random.sample([n for n in range(count) if n != node], random.randrange(size)) for node in range(count)]
        for _ in range(2)
    )
    tables, said = (make_tables(count, Rule(size, 3, True, 0), np.ones(1, np.uint64)) for _ in range(2))
    for rows, table in ((held, tables), (told, said)):
        for node, row in enumerate(rows):
            table.peers[node, : len(row)], table.count[node] = row, len(row)
    order, mark = np.arange(count, dtype=np.int32), np.zeros(count, np.int32)
    links = Links(*links_of(tables, order, mark))
    firm = Links(*firm_links(links, tables, said.peers, said.count))
    heard = Links(*known_links(firm, Links(*links_of(said, order, mark)), mark))
    for node in range(count):
        knows = {peer for peer in range(count) if node in held[peer] and node in told[peer]} | {*held[node]}
        assert set(firm.peers[firm.offsets[node] : firm.offsets[node + 1]].tolist()) == knows
        spoken = {peer for peer in knows if node in told[peer] or peer in told[node]}
        assert set(heard.peers[heard.offsets[node] : heard.offsets[node + 1]].tolist()) == spoken
