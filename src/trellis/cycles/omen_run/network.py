"""All state of a run of OMen or OMen-G in cycles: `cycle` moves it on by a round.  [OM §3-5; docs/cycles.md]

A round has three passes. In the first two every node acts once, in an order that is drawn anew: peer sampling
(Newscast) and the identifier ring (T-Man). In the third each node acts twice, at two moments of the round that stay the
same: it has its period (`wanted.py`: whose views it keeps, whom it tells), and it gossips about backups
(`local_views.py`). Then coordinators execute the events that they know of, one after the other (`events.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from trellis.cycles.backups import ROUTINES
from trellis.cycles.chance import stream
from trellis.cycles.churn import begin_views
from trellis.cycles.instance import Instance
from trellis.cycles.network import CONTACTS, LONELY_ROUNDS, contacts_of
from trellis.cycles.newscast import NODES_MAX, make_views, newscast_cycle
from trellis.cycles.omen_run.events import Events
from trellis.cycles.omen_run.repair import Overlay
from trellis.cycles.pool import (
    Pool,
    add_to_row,
    drop_from_row,
    find_in_row,
    is_short,
    make_pool,
    more_room,
    rows_of_links,
)
from trellis.cycles.presence import forget_sample
from trellis.cycles.ring import learn, make_buffer, make_rings, ring_cycle
from trellis.cycles.view_state import LocalViews, Standing, Terms, make_desk, make_local_views
from trellis.cycles.wanted import Periods, bury, end_registrations, forget_views, view_cycle, view_sizes
from trellis.errors import InputError
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.views import JOIN_PARTNERS, REGISTER_PERIODS
from trellis.protocols.tman import TManConfig
from trellis.protocols.wire import PEERS_MAX

SPARE = 4  # nodes that the ring keeps on either side beyond L, as `protocols.ring.Ring` does
SAMPLES, RING_AGE = NewscastConfig(), TManConfig().age_max
FREE = 1 << 16  # entries that a pool gets when it was short
STREAMS = ("newscast", "ring", "backups", "joins", "fallback")


class OMenNetwork:
    """OMen, or OMen-G where `config.knowledge` is global."""

    def __init__(
        self,
        instance: Instance,
        config: OMenConfig,
        seed: int = 1,
        *,
        links: tuple[Any, Any] = ((), ()),
        absent: Sequence[int] = (),
        notice_rounds: int | None = None,
    ) -> None:
        """Create the network. A node that is there and has no link joins.

        links          the ends of the links at the start, as numbers of nodes
        absent         nodes that are not there at the start
        notice_rounds  rounds until a crash is noticed; None: until its silence is
        """
        nodes = len(instance.nodes)
        if nodes >= NODES_MAX:
            raise InputError("", f"{nodes:,} nodes", f"the cycle engine takes less than {NODES_MAX:,}")
        self.instance, self.config, self.seed, self.round = instance, config, seed, 0
        self.notice_rounds = config.silence_max + 1 if notice_rounds is None else notice_rounds
        self._chance = {name: stream(seed, name) for name in STREAMS}
        alive = np.ones(nodes, np.bool_)
        alive[list(absent)] = False
        living = np.flatnonzero(alive).astype(np.int32)
        contacts = np.full((nodes, CONTACTS), -1, np.int32)
        if len(living) > 1:
            drawn = contacts_of(len(living), seed)
            contacts[living, : drawn.shape[1]] = np.where(drawn >= 0, living[drawn], -1)
        self.samples = make_views(contacts, SAMPLES.view_size)
        self.rings = make_rings(nodes, config.resilience + SPARE)
        ends = [np.asarray(end, np.int64) for end in links]
        self.standing = Standing(
            alive,
            rows_of_links(nodes, *ends),
            np.zeros(nodes, np.int32),
            np.full((nodes, 2 * (config.resilience + SPARE)), -1, np.int32),
        )
        self.views: LocalViews = make_local_views(nodes, config.resilience)
        self.terms = Terms(
            ROUTINES[config.backups],
            min(config.coverage, nodes),
            config.resilience,
            config.ready_rounds,
            config.join_rounds,
            config.view_rounds,
            config.knowledge == "global",
            np.uint64(stream(seed, "covers")[0]),
        )
        self.gone = np.zeros(nodes, np.bool_)  # Departed nodes that the ring knows to be gone.
        self.periods = Periods(np.zeros(nodes, np.int32), np.ones(nodes, np.int32), make_pool(nodes, 2, 8, FREE))
        self.joining = alive & (self.standing.links.count == 0)
        self._lapses: dict[int, list[tuple[int, Any, Any]]] = {}  # round -> what backups forget about departed nodes
        drawn = np.random.Generator(np.random.PCG64(int(stream(seed, "moments")[0])))
        self._moments = drawn.random((nodes, 2))  # When a node has its period, and when it gossips, in every round.
        self._acts: Any = None  # The two acts of all living nodes, by their moments.
        self._most = config.coverage * int(np.diff(instance.wants.offsets).max(initial=1))  # backups in a view
        self._mark = np.zeros(nodes, np.int32)
        self._desk = make_desk(instance.wants)
        self.overlay = Overlay(instance, config, seed, alive, self.periods.lives, self.joining)
        self.overlay.links = self.standing.links
        self.events = Events(self)
        self.changed_round = 0  # The last round in which a node or a link came or went.
        self.changes = 0
        self.links_formed = 0
        self.sent = {"NewscastRequest": 0, "TManRequest": 0}

    @property
    def alive(self) -> Any:
        return self.standing.alive

    @property
    def links(self) -> Pool:
        return self.standing.links

    @property
    def lives(self) -> Any:
        return self.periods.lives

    def cycle(self) -> None:
        """Let every node that is there have its round, and coordinators execute their events."""
        order = np.flatnonzero(self.alive).astype(np.int32)
        chance, mark = self._chance, self._mark
        age_max = SAMPLES.age_max
        swaps = newscast_cycle(self.samples, self.alive, order, chance["newscast"], mark, age_max, LONELY_ROUNDS)
        self.sent["NewscastRequest"] += swaps
        rings, places = self.rings, self.instance.wants.places
        self.sent["TManRequest"] += ring_cycle(
            rings, places, self.samples, self.alive, self.gone, order, chance["ring"], mark, RING_AGE
        )
        self._act()
        for node, peers, lives in self._lapses.pop(self.round, ()):
            if not self.alive[node]:
                end_registrations(self.standing.primaries, self.periods.lives, peers, lives)
        self.events.execute()
        self.round += 1

    def _act(self) -> None:
        """Let all nodes have their periods and gossip about backups, each at its own two moments of the round."""
        if self._acts is None:
            living = np.flatnonzero(self.alive)
            acts = (2 * living[:, None] + np.arange(2)).ravel()
            self._acts = acts[np.argsort(self._moments[living].ravel(), kind="stable")]
        events, turn = self.events.by_node(), 0
        while turn < len(self._acts):
            views, periods = self.views, self.periods
            known, backups, told = views.known, views.backups, periods.told
            # A node has at most 1 + JOIN_PARTNERS exchanges. Each lets two tables grow, and all views of both nodes.
            learns, nodes = 2 * (1 + JOIN_PARTNERS), len(self.alive)
            margins = (
                learns * (2 * int(known.room.max(initial=0)) + PEERS_MAX),
                learns * views.whose.shape[1] * (2 * int(backups.room.max(initial=0)) + min(nodes, self._most)),
                2 * int(told.room.max(initial=0)) + nodes,
            )
            turn, exchanges = view_cycle(
                views, self.standing, self.samples, self.rings, self.instance.wants, self.terms, self._desk, periods,
                events, self._acts, turn, self._chance["backups"], margins,
            )  # fmt: skip
            self.sent["TManRequest"] += exchanges
            if turn < len(self._acts):
                known, backups, told = map(_enlarged, (known, backups, told), margins)
                self.views = views._replace(known=known, backups=backups)
                self.periods = periods._replace(told=told)

    # Joins and departures

    def join(self, node: int) -> None:
        """Let a node join, or come back. It knows some of the living."""
        self.alive[node], self.joining[node], self.gone[node], self._acts = True, True, False, None
        self.periods.lives[node] += 1
        self.periods.ticks[node] = self.standing.primaries[node] = 0
        self.standing.buriers[node] = -1
        living = np.flatnonzero(self.alive).astype(np.int32)
        begin_views(self.samples, node, living, self._chance["joins"])
        self.rings.count[node] = self.periods.told.count[node] = 0
        forget_views(self.views, node)
        self._change()

    def leave(self, node: int) -> None:
        """Let a node leave in order. It stays until others are linked without it."""
        self.events.add_departure(node, self.round)

    def crash(self, node: int) -> None:
        """End a node at once."""
        self.alive[node] = self.joining[node] = False
        self._acts = None
        self._change()
        self.events.add_departure(node, self.round + self.notice_rounds)

    def notice(self, node: int) -> None:
        """Let the ring around a node know that it is gone. It is gone from now on."""
        self.alive[node] = self.joining[node] = False
        self._acts = None
        self.gone[node] = True
        self._change()
        near = np.flatnonzero((self.rings.peers == node).any(axis=1) & self.alive)
        for one in near.tolist():
            if (self.rings.peers[one, : self.rings.count[one]] == node).any():
                bury(self.views, self.standing, one, node)
                forget_sample(self.samples, one, node)
        begin = self.periods.told.start[node]
        lines = self.periods.told.data[begin : begin + self.periods.told.count[node]].copy()
        if len(lines) and not any(one == node for some in self._lapses.values() for one, _, _ in some):
            due = self.round + 2 * REGISTER_PERIODS - int(self.periods.ticks[node]) % REGISTER_PERIODS
            self._lapses.setdefault(due, []).append((node, lines[:, 0].copy(), lines[:, 1].copy()))
        self.periods.told.count[node] = 0

    def tell_ring(self, node: int, joiner: int) -> None:
        """Let a node learn of a joiner on the ring."""
        told, kept = make_buffer(1), self.rings.peers.shape[1]
        told.peers[0], told.ages[0] = joiner, 0
        mark, at = np.zeros(len(self.alive), np.int32), np.zeros(len(self.alive), np.int32)
        places, found = self.instance.wants.places, make_buffer(2 * kept + 2)
        learn(self.rings, places, self.gone, node, told, 1, mark, 1, at, RING_AGE, found)

    def open_links(self, pairs: Iterable[tuple[int, int]]) -> int:
        """Open links that do not stand yet. Return how many are new."""
        new = 0
        for one, other in pairs:
            if find_in_row(self.links, one, other) >= 0:
                continue
            wider = 4 * int(self.links.room.max())  # Both rows may have to move.
            if is_short(self.links, wider):
                self.standing = self.standing._replace(links=more_room(self.links, wider + FREE))
                self.overlay.links = self.links
            add_to_row(self.links, one, other)
            add_to_row(self.links, other, one)
            new += 1
        if new:
            self.links_formed += new
            self._change()
        return new

    def close_links(self, node: int) -> None:
        """Close all links of a node that has departed."""
        for peer in self.overlay.neighbors(node):
            drop_from_row(self.links, peer, node)
        self.links.count[node] = 0
        self._change()

    def _change(self) -> None:
        self.changes, self.changed_round = self.changes + 1, self.round

    # What a run has come to

    def pairs(self) -> tuple[Any, Any]:
        """Return the links whose ends are both there, each once: the smaller ends, and the larger ones."""
        links, counts = self.links, self.links.count
        ends = np.cumsum(counts)
        places = np.repeat(links.start - (ends - counts), counts) + np.arange(int(ends[-1]) if len(ends) else 0)
        owners, peers = np.repeat(np.arange(len(counts)), counts), links.data[places, 0].astype(np.int64)
        kept = (owners < peers) & self.alive[owners] & self.alive[peers]
        return owners[kept], peers[kept]

    def sizes(self) -> tuple[Any, Any]:
        """Return the size of the local view of each living node (A-OMN-13), and how many views each node backs."""
        order = np.flatnonzero(self.alive).astype(np.int32)
        sizes, backed = np.zeros(len(order), np.int32), np.zeros(len(self.alive), np.int32)
        view_sizes(self.views, self.standing, self._desk, order, sizes, backed)
        return sizes, backed

    def view_of(self, holder: int, node: int) -> int:
        """Return the slot of the view of `node` at `holder`, or -1."""
        slots = self.views.whose[holder, : self.views.count[holder]].tolist()
        return slots.index(node) if node in slots else -1

    def backups_of(self, holder: int, slot: int) -> list[int]:
        row, pool = self.views.row[holder, slot], self.views.backups
        found: list[int] = pool.data[pool.start[row] : pool.start[row] + pool.count[row], 0].tolist()
        return found

    def is_leaving(self, node: int) -> bool:
        """Return whether a node has left or crashed, and was not repaired around yet."""
        return self.events.departure(node) is not None

    def is_busy(self) -> bool:
        """Return whether an event is still handled, or a view is not ready yet.  [OM §5]"""
        if self.events.open or bool((self.joining & self.alive).any()):
            return True
        used = np.arange(self.views.whose.shape[1]) < self.views.count[:, None]
        return bool((used & ~self.views.ready)[self.alive].any())

    def digest(self) -> str:
        """Return a digest of everything that the run has come to: the same seed gives the same one."""
        hashed = blake2b(digest_size=16)
        sizes, backed = self.sizes()
        state = (*self.pairs(), sizes, backed, self.views.whose, self.standing.primaries, self.alive, self.rings.peers)
        for array in (*state, *self._chance.values()):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()

    def chance(self, name: str) -> Any:
        return self._chance[name]


def _enlarged(pool: Pool, margin: int) -> Pool:
    """Return the pool, or the same rows with more room if fewer than `margin` entries are free."""
    return more_room(pool, margin + FREE) if is_short(pool, margin) else pool
