"""How many neighbours want each topic, for all topics at once.

The counts are kept as bit planes: plane i is the bitset of the topics whose count has bit i set. Adding or removing an
interest is a ripple of carries over the planes, so its cost grows with the logarithm of the counts and not with the
number of topics; the topics with fewer than k neighbours are one comparison of the planes with a constant.
"""

from __future__ import annotations


class Coverage:
    """A counter per topic, under bitset operations."""

    def __init__(self) -> None:
        self._planes: list[int] = []  # least significant first; the highest may be empty
        self._known: dict[int, int] = {}  # answers since the last change

    def add(self, interest: int) -> None:
        """Each topic of `interest` has one neighbour more."""
        self._known.clear()
        carry = interest
        for place, plane in enumerate(self._planes):
            if not carry:
                return
            self._planes[place] = plane ^ carry
            carry &= plane
        if carry:
            self._planes.append(carry)

    def remove(self, interest: int) -> None:
        """Each topic of `interest` has one neighbour less. It must have been added before."""
        self._known.clear()
        borrow = interest
        for place, plane in enumerate(self._planes):
            if not borrow:
                return
            self._planes[place] = plane ^ borrow
            borrow &= ~plane
        assert not borrow, "an interest is removed that was not added"

    def at_least(self, count: int) -> int:
        """The topics with `count` neighbours or more. For 0 that is every topic: a bitset of ones without end."""
        known = self._known.get(count)
        if known is None:
            known = self._known[count] = self._compare(count)
        return known

    def count(self, topic: int) -> int:
        """The neighbours that want the topic with this one bit."""
        return sum(1 << place for place, plane in enumerate(self._planes) if plane & topic)

    def _compare(self, count: int) -> int:
        more, equal = 0, -1  # topics already above `count`, and still equal to it, from the highest plane down
        for place in range(max(len(self._planes), count.bit_length()) - 1, -1, -1):
            plane = self._planes[place] if place < len(self._planes) else 0
            if count >> place & 1:
                equal &= plane
            else:
                more |= equal & plane
                equal &= ~plane
        return more | equal
