"""Gossip in cycles word for word, for tests: dicts, sorted lists, nothing kept from one call to the next.

Draws are made in the same order as by the kernels, from the same stream, so that a whole run can be compared.
"""

from __future__ import annotations

_MASK = 2**64 - 1


class Chance:
    """splitmix64."""

    def __init__(self, state: int) -> None:
        self.state = int(state)

    def draw(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, count: int) -> int:
        return (self.draw() >> 32) * count >> 32

    def shuffle(self, order: list[int]) -> None:
        for last in range(len(order) - 1, 0, -1):
            place = self.below(last + 1)
            order[last], order[place] = order[place], order[last]

    def first(self, among: list, count: int) -> list:
        """The first `count` places of a Fisher-Yates shuffle."""
        among = list(among)
        for place in range(min(count, len(among))):
            other = place + self.below(len(among) - place)
            among[place], among[other] = among[other], among[place]
        return among[:count]


View = dict[int, int]  # peer -> age


class _Contacts:
    def __init__(self, contacts: list[int]) -> None:
        self.known = [contact for contact in contacts if contact >= 0]
        self.tries = dict.fromkeys(self.known, 3)

    def to_greet(self) -> int | None:
        for contact, tries in self.tries.items():
            if tries > 0:
                self.tries[contact] -= 1
                return contact
        return None

    def heard(self, peer: int) -> None:
        if peer in self.tries:
            self.tries[peer] = 0


class Newscast:
    def __init__(self, contacts: list[list[int]], size: int, age_max: int, lonely_rounds: int, chance: Chance) -> None:
        self.size, self.age_max, self.lonely_rounds, self.chance = size, age_max, lonely_rounds, chance
        self.views: list[View] = [{} for _ in contacts]
        self.contacts = [_Contacts(known) for known in contacts]
        self.silent = [0 for _ in contacts]

    def cycle(self, order: list[int]) -> int:
        self.chance.shuffle(order)
        exchanges = 0
        for node in order:
            self.silent[node] += 1
            self.views[node] = {peer: age + 1 for peer, age in self.views[node].items() if age + 1 <= self.age_max}
            partner = self._partner(node)
            if partner is None:
                continue
            mine, theirs = self._told(node), self._told(partner)
            self.views[partner] = self.merged(partner, mine)
            self.views[node] = self.merged(node, theirs)
            for one, other in ((node, partner), (partner, node)):
                self.silent[one] = 0
                self.contacts[one].heard(other)
            exchanges += 1
        return exchanges

    def _partner(self, node: int) -> int | None:
        contacts, view = self.contacts[node], self.views[node]
        greeted = contacts.to_greet()
        if greeted is not None:
            return greeted
        if (not view or self.silent[node] > self.lonely_rounds) and contacts.known:
            return contacts.known[self.chance.below(len(contacts.known))]
        if not view:
            return None
        youngest_first = sorted(view, key=lambda peer: (view[peer], peer))
        return youngest_first[self.chance.below(len(view))]

    def _told(self, node: int) -> View:
        return {node: 0, **{peer: age + 1 for peer, age in self.views[node].items()}}

    def merged(self, node: int, told: View) -> View:
        """The youngest of each; the youngest `size` of all; where the cut falls among equals, chance decides."""
        both = dict(self.views[node])
        for peer, age in told.items():
            if peer != node and age <= self.age_max and age < both.get(peer, self.age_max + 1):
                both[peer] = age
        if len(both) <= self.size:
            return both
        teller = next(iter(told))  # at age 0: the kernel takes it first
        ranked = sorted(both, key=lambda peer: (both[peer], peer != teller, peer))
        cut = both[ranked[self.size - 1]]
        kept = [peer for peer in ranked if both[peer] < cut]
        tied = [peer for peer in ranked if both[peer] == cut]
        room = self.size - len(kept)
        kept += self.chance.first(tied, room) if len(tied) > room else tied
        return {peer: both[peer] for peer in kept}


class Cyclon:
    """Views are lists, in the order in which the kernel keeps them: it decides which entry a draw means."""

    def __init__(self, contacts: list[list[int]], size: int, shuffle_size: int, age_max: int, chance: Chance) -> None:
        self.size, self.shuffle_size, self.age_max, self.chance = size, shuffle_size, age_max, chance
        self.views: list[list[list[int]]] = [[] for _ in contacts]  # [peer, age]
        self.contacts = [_Contacts(known) for known in contacts]

    def cycle(self, order: list[int]) -> int:
        self.chance.shuffle(order)
        exchanges = 0
        for node in order:
            self._grow_older(node)
            partner = self._partner(node)
            if partner is None:
                continue
            self._forget(node, partner)
            mine = self._offer(node, self.shuffle_size - 1)
            theirs = [one for one in self._offer(partner, self.shuffle_size) if one[0] != node]
            self.contacts[partner].heard(node)
            self.contacts[node].heard(partner)
            self._take(partner, [[node, 0], *mine], theirs)
            self._take(node, theirs, mine)
            self._take(node, [[partner, 0]], [])
            exchanges += 1
        return exchanges

    def _grow_older(self, node: int) -> None:
        for one in self.views[node]:
            one[1] += 1
        while old := [peer for peer, age in self.views[node] if age > self.age_max]:
            self._forget(node, old[0])

    def _partner(self, node: int) -> int | None:
        greeted, view = self.contacts[node].to_greet(), self.views[node]
        if greeted is not None:
            return greeted
        if not view:
            known = self.contacts[node].known
            return known[self.chance.below(len(known))] if known else None
        oldest = max(age for _, age in view)
        tied = [peer for peer, age in view if age == oldest]
        return tied[self.chance.below(len(tied))]

    def _offer(self, node: int, most: int) -> list[list[int]]:
        return [[peer, age + 1] for peer, age in self.chance.first(self.views[node], most)]

    def _take(self, node: int, told: list[list[int]], given: list[list[int]]) -> None:
        left = [peer for peer, _ in given]
        for peer, age in told:
            known = {one[0]: one for one in self.views[node]}
            if peer not in known and len(known) >= self.size:
                left = [one for one in left if one in known]
                if not left:
                    continue
                self._forget(node, left.pop())
            if peer == node or age > self.age_max:
                continue
            if peer not in known:
                self.views[node].append([peer, age])
            elif age < known[peer][1]:
                known[peer][1] = age

    def _forget(self, node: int, peer: int) -> None:
        """The last entry takes the place of the one that goes."""
        view = self.views[node]
        for place, one in enumerate(view):
            if one[0] == peer:
                last = view.pop()
                if place < len(view):
                    view[place] = last
                return


class Ring:
    def __init__(self, places: list[int], kept: int, age_max: int, newscast: Newscast, chance: Chance) -> None:
        self.places, self.kept, self.age_max, self.newscast, self.chance = places, kept, age_max, newscast, chance
        self.rings: list[View] = [{} for _ in places]  # clockwise

    def cycle(self, order: list[int]) -> int:
        self.chance.shuffle(order)
        exchanges = 0
        for node in order:
            self.rings[node] = {peer: age + 1 for peer, age in self.rings[node].items() if age < self.age_max}
            ring, view = list(self.rings[node]), self.newscast.views[node]
            among = ring or sorted(view, key=lambda peer: (view[peer], peer))
            if not among:
                continue
            partner = among[self.chance.below(len(among))]
            mine, theirs = self._told(node), self._told(partner)
            self._learn(partner, mine)
            self._learn(node, theirs)
            exchanges += 1
        return exchanges

    def _told(self, node: int) -> View:
        known = {**self.newscast.views[node], **self.rings[node]}
        return {node: 0, **{peer: age + 1 for peer, age in known.items()}}

    def _learn(self, node: int, told: View) -> None:
        both = dict(self.rings[node])
        for peer, age in told.items():
            if peer != node and age <= self.age_max:
                both[peer] = min(age, both.get(peer, age))
        around = sorted(both, key=lambda peer: (self.places[peer] - self.places[node]) % 2**64)
        if len(around) > 2 * self.kept:
            around = around[: self.kept] + around[-self.kept :]
        self.rings[node] = {peer: both[peer] for peer in around}
