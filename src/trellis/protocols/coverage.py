"""Count for every topic how many neighbors subscribe to it, for all topics at once.

The counts are kept as bit planes: plane i is the bitset of the topics whose count has bit i set. Adding or removing an
interest carries or borrows from plane to plane. So its cost grows with the logarithm of the counts, and not with the
number of topics. To find the topics with at least k neighbors, the planes are compared once with the constant k.

SpiderCast (`spidercast/goals.py`) and OPT (`opt/node.py`) use it.
"""

from __future__ import annotations


class Coverage:
    """Count the neighbors of each topic, with operations on bitsets."""

    def __init__(self) -> None:
        self._planes: list[int] = []  # Least significant plane first. The highest may be empty.
        self._known: dict[int, int] = {}  # Results of `at_least` by `count`. Cleared at every change.

    def add(self, interest: int) -> None:
        """Count one more neighbor for each topic of `interest`."""
        self._known.clear()
        carry = interest
        for index, plane in enumerate(self._planes):
            if not carry:
                return
            self._planes[index] = plane ^ carry
            carry &= plane
        if carry:
            self._planes.append(carry)

    def remove(self, interest: int) -> None:
        """Count one neighbor less for each topic of `interest`, which must have been added before."""
        self._known.clear()
        borrow = interest
        for index, plane in enumerate(self._planes):
            if not borrow:
                return
            self._planes[index] = plane ^ borrow
            borrow &= ~plane
        assert not borrow, "an interest is removed that was not added"

    def at_least(self, count: int) -> int:
        """Return the topics with `count` neighbors or more. For 0 that is every topic, as -1: all bits are set."""
        known = self._known.get(count)
        if known is None:
            known = self._known[count] = self._compare(count)
        return known

    def count(self, topic: int) -> int:
        """Return the number of neighbors that subscribe to the topic with this one bit."""
        return sum(1 << index for index, plane in enumerate(self._planes) if plane & topic)

    def _compare(self, count: int) -> int:
        """Return the topics whose count is `count` or more, without the cache."""
        # From the highest plane down: topics already known to be above `count`, and topics still equal to it.
        more, equal = 0, -1
        for index in range(max(len(self._planes), count.bit_length()) - 1, -1, -1):
            plane = self._planes[index] if index < len(self._planes) else 0
            if count >> index & 1:
                equal &= plane
            else:
                more |= equal & plane
                equal &= ~plane
        return more | equal
