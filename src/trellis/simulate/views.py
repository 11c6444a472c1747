"""Give every node of a run a view of all nodes, or of a share of them, backed by arrays, for 10,000 nodes.

One `Membership` holds the nodes that are there and their topics, and the engine keeps it up to date. `FullView` and
`ShareView` implement `protocols.membership.InterestView` on it. Interests are stored in words of 64 topics, with one
row per word and one column per node. So ranking all nodes for a few uncovered topics reads only a few rows.

I1  Slots follow `sorted(names)`, so the tie rule of `simulate/system.py` needs no further sorting.
I2  The words of a node that is not there are 0, so it never covers a topic.

A p% view [SC §3.7] holds k = round(p (n - 1)) other nodes, at least one. They are the nodes with the smallest hash of
(seed, owner, node) among those that are there when the view is made. A node that joins later belongs to the view if its
hash is at most that of the k-th, so the share stays p on average. A node that is down is not in the view. No list has
to be kept up to date.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from trellis import ids
from trellis.protocols.effects import NodeId
from trellis.protocols.membership import InterestView
from trellis.protocols.topics import places

Slots = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
_WORD = 64
_MASK = (1 << _WORD) - 1


class Membership:
    """The nodes that are there, and their topics."""

    def __init__(self, seed: int | str, names: Iterable[NodeId] = (), share: float = 1.0) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"a view holds a share of all nodes above 0 and at most 1, not {share}")
        self.seed, self.share = seed, share
        self.version = 0
        self.universe = 0  # grows when slots move: a view that keeps slots must then compute them again
        self.names: list[NodeId] = []
        self.slot_of: dict[NodeId, int] = {}
        self.interests: dict[NodeId, int] = {}  # node -> bitset of its topics, for nodes that are there
        self.subscribers: list[int] = []  # number of subscribers by bit of a bitset
        self.words = np.zeros((1, 0), np.uint64)
        self.present = np.zeros(0, np.bool_)
        self.register(names)

    def register(self, names: Iterable[NodeId]) -> None:
        """Give slots to nodes that may come. Register many at once: each call moves all slots."""
        added = set(names).difference(self.slot_of)
        if not added:
            return
        before, self.names = self.names, sorted([*self.names, *added])
        self.slot_of = {name: slot for slot, name in enumerate(self.names)}
        kept = np.fromiter((self.slot_of[name] for name in before), np.int64, len(before))
        words = np.zeros((len(self.words), len(self.names)), np.uint64)
        present = np.zeros(len(self.names), np.bool_)
        words[:, kept], present[kept] = self.words, self.present
        self.words, self.present = words, present
        self.keys = np.fromiter((ids.key(f"view/{self.seed}", name) for name in self.names), np.uint64, len(self.names))
        self._masked = np.empty(len(self.names), np.uint64)
        self.universe += 1
        self.version += 1

    def put(self, node: NodeId, interest: int) -> None:
        """Note that `node` is there and subscribes to `interest`."""
        if node not in self.slot_of:
            self.register([node])
        before = self.interests.get(node)
        if before == interest:
            return
        self._count(before or 0, -1)
        self._count(interest, 1)
        self.interests[node] = interest
        self._write(node, interest)
        self.present[self.slot_of[node]] = True
        self.version += 1

    def drop(self, node: NodeId) -> None:
        """Note that `node` is gone."""
        if node in self.interests:
            self._count(self.interests.pop(node), -1)
            self._write(node, 0)
            self.present[self.slot_of[node]] = False
            self.version += 1

    def view(self, owner: NodeId, random: Random) -> InterestView:
        made = FullView(self, owner, random) if self.share == 1 else ShareView(self, owner, random)
        return cast(InterestView, made)  # The views' `version` is read-only, because it is the membership's.

    def gains(self, wanted: int, at: Slots | None = None) -> Array:
        """Return for every slot, or for the slots `at`, how many topics of `wanted` its node has."""
        gain: Array = np.zeros(
            len(self.names) if at is None else len(at), np.uint8 if wanted.bit_count() < 255 else np.uint16
        )
        for row in self.words:
            if word := wanted & _MASK:
                if at is None:
                    gain += np.bitwise_count(np.bitwise_and(row, np.uint64(word), out=self._masked))
                else:
                    gain += np.bitwise_count(row[at] & np.uint64(word))
            wanted >>= _WORD
        return gain

    def hashes(self, owner: NodeId) -> npt.NDArray[np.uint64]:
        """Return a number for each node that depends on (seed, owner, node) only: the finalizer of splitmix64."""
        mixed: npt.NDArray[np.uint64] = self.keys ^ np.uint64(int(self.keys[self.slot_of[owner]]) * 3 & _MASK)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))

    def _count(self, interest: int, step: int) -> None:
        for place in places(interest):
            while place >= len(self.subscribers):
                self.subscribers.append(0)
            self.subscribers[place] += step

    def _write(self, node: NodeId, interest: int) -> None:
        needed = -(-interest.bit_length() // _WORD)
        if needed > len(self.words):
            more = np.zeros((max(needed, 2 * len(self.words)) - len(self.words), len(self.names)), np.uint64)
            self.words = np.concatenate([self.words, more])
        column = self.words[:, self.slot_of[node]]
        for word in range(len(column)):
            column[word] = (interest >> (word * _WORD)) & _MASK


class FullView:
    """A view of all nodes except the owner."""

    def __init__(self, membership: Membership, owner: NodeId, random: Random) -> None:
        self.membership, self.owner, self.random = membership, owner, random

    @property
    def version(self) -> int:
        return self.membership.version

    def best_cover(self, uncovered: int, exclude: Collection[NodeId]) -> NodeId | None:
        gain = self._without(self.membership.gains(uncovered), exclude)
        most = gain.max(initial=0)
        return self._any(gain == most) if most else None

    def similar(self, interest: int, exclude: Collection[NodeId]) -> NodeId | None:
        members = self.membership
        gain = members.gains(interest)
        gain += members.present  # Add 1 for being there, so that 0 marks nodes that are no candidates.
        most = self._without(gain, exclude).max(initial=0)
        return self._any(gain == most) if most else None

    def random_cover(self, uncovered: int, exclude: Collection[NodeId]) -> NodeId | None:
        return self._any(self._without(self.membership.gains(uncovered), exclude))

    def random_node(self, exclude: Collection[NodeId]) -> NodeId | None:
        return self._any(self._without(self.membership.present.copy(), exclude))

    def interest_of(self, node: NodeId) -> int:
        return 0 if node == self.owner else self.membership.interests.get(node, 0)

    def subscribers(self, topic: int) -> int:
        place, counts = topic.bit_length() - 1, self.membership.subscribers
        known = counts[place] if place < len(counts) else 0
        return known - bool(self.membership.interests.get(self.owner, 0) & topic)

    def _without(self, gain: Array, exclude: Collection[NodeId]) -> Array:
        slot_of = self.membership.slot_of
        gain[slot_of[self.owner]] = 0
        # For a short list this loop is faster than numpy.
        for node in exclude:
            slot = slot_of.get(node)
            if slot is not None:
                gain[slot] = 0
        return gain

    def _any(self, candidates: Array) -> NodeId | None:
        slots = candidates.nonzero()[0]
        return self.membership.names[slots[self.random.randrange(len(slots))]] if len(slots) else None


class ShareView:
    """A view of the share of the nodes that its owner knows."""

    def __init__(self, membership: Membership, owner: NodeId, random: Random) -> None:
        self.membership, self.owner, self.random = membership, owner, random
        hashes = membership.hashes(owner)
        there = membership.present.copy()
        there[membership.slot_of[owner]] = False
        others = hashes[there]
        count = min(len(others), max(1, round(membership.share * len(others))))
        # If no other node is there yet, nodes that join later are taken at the same share.
        last = np.partition(others, count - 1)[count - 1] if count else int(membership.share * 2**64)
        self._below = np.uint64(last)
        self._universe = -1

    @property
    def version(self) -> int:
        return self.membership.version

    @property
    def slots(self) -> Slots:
        """Return the slots of the view in ascending order, whether their nodes are there or not."""
        members = self.membership
        if self._universe != members.universe:
            known = members.hashes(self.owner) <= self._below
            known[members.slot_of[self.owner]] = False
            self._slots, self._universe = np.flatnonzero(known), members.universe
        return self._slots

    def best_cover(self, uncovered: int, exclude: Collection[NodeId]) -> NodeId | None:
        gain = self._without(self.membership.gains(uncovered, self.slots), exclude)
        most = gain.max(initial=0)
        return self._any(gain == most) if most else None

    def similar(self, interest: int, exclude: Collection[NodeId]) -> NodeId | None:
        gain = self.membership.gains(interest, self.slots)
        gain += self.membership.present[self.slots]
        most = self._without(gain, exclude).max(initial=0)
        return self._any(gain == most) if most else None

    def random_cover(self, uncovered: int, exclude: Collection[NodeId]) -> NodeId | None:
        return self._any(self._without(self.membership.gains(uncovered, self.slots), exclude))

    def random_node(self, exclude: Collection[NodeId]) -> NodeId | None:
        return self._any(self._without(self.membership.present[self.slots], exclude))

    def interest_of(self, node: NodeId) -> int:
        return self.membership.interests.get(node, 0) if self._place(node) >= 0 else 0

    def subscribers(self, topic: int) -> int:
        word, place = divmod(topic.bit_length() - 1, _WORD)
        if word >= len(self.membership.words):
            return 0
        return int(np.count_nonzero(self.membership.words[word, self.slots] & np.uint64(1 << place)))

    def _place(self, node: NodeId) -> int:
        """Return the index of the node in `slots`, or -1 if the view does not contain it."""
        slot, slots = self.membership.slot_of.get(node, -1), self.slots
        place = int(slots.searchsorted(slot))
        return place if place < len(slots) and slots[place] == slot else -1

    def _without(self, gain: Array, exclude: Collection[NodeId]) -> Array:
        for node in exclude:
            place = self._place(node)
            if place >= 0:
                gain[place] = 0
        return gain

    def _any(self, candidates: Array) -> NodeId | None:
        chosen = candidates.nonzero()[0]
        return self.membership.names[self.slots[chosen[self.random.randrange(len(chosen))]]] if len(chosen) else None
