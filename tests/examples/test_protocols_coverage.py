"""Counts per topic as bit planes agree with plain counting."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.protocols.coverage import Coverage
from trellis.protocols.topics import places

bitsets = st.integers(0, 2**12 - 1)


@given(st.lists(bitsets, max_size=20), st.data())
def test_bit_planes_count_as_a_counter_does(interests, data):
    coverage, counter = Coverage(), Counter()
    present = []
    for interest in interests:
        coverage.add(interest)
        counter.update(places(interest))
        present.append(interest)
        if data.draw(st.booleans()):
            gone = present.pop(data.draw(st.integers(0, len(present) - 1)))
            coverage.remove(gone)
            counter.subtract(places(gone))
    for count in range(22):
        assert coverage.at_least(count) & 0xFFF == sum(1 << place for place in range(12) if counter[place] >= count)
    for place in range(12):
        assert coverage.count(1 << place) == counter[place]


def test_more_cannot_be_removed_than_was_added():
    coverage = Coverage()
    coverage.add(0b01)
    with pytest.raises(AssertionError):
        coverage.remove(0b10)
