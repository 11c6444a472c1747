"""Interest views: what they answer, and by which rule ties are broken."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from trellis.protocols.membership import KnownInterests, full_view, static_view

names = st.sampled_from([f"n{number}" for number in range(12)])
bitsets = st.integers(0, 255)
memberships = st.dictionaries(names, bitsets, max_size=12)


class Fixed(Random):
    """Always draws the same place."""

    def __init__(self, place: int) -> None:
        super().__init__(0)
        self.place, self.asked = place, []

    def randrange(self, start, stop=None, step=1):
        self.asked.append(start)
        return self.place


def test_ties_are_drawn_in_the_order_of_the_sorted_names():
    everybody = {"n9": 0b11, "n10": 0b11, "a": 0b01, "n2": 0b111}
    random = Fixed(1)
    view = full_view("me", random, everybody)
    assert view.best_cover(0b011, ()) == "n2"  # n10, n2, n9: text order
    assert view.best_cover(0b011, ["n2"]) == "n9"
    assert random.asked == [3, 2]


def test_a_lonely_candidate_costs_a_draw_and_nobody_costs_none():
    random = Fixed(0)
    view = full_view("me", random, {"a": 1})
    assert view.best_cover(1, ()) == "a"
    assert view.best_cover(2, ()) is None
    assert view.random_cover(2, ()) is None
    assert view.random_node(["a"]) is None
    assert random.asked == [1]


def test_similarity_takes_somebody_even_where_nothing_is_shared():
    view = full_view("me", Random(1), {"a": 0b1, "b": 0b1})
    assert view.similar(0b10, ()) in {"a", "b"}
    assert view.best_cover(0b10, ()) is None


@given(memberships, bitsets, st.sets(names, max_size=4), st.integers(0, 2**32))
def test_every_answer_is_one_that_the_definition_allows(everybody, wanted, exclude, seed):
    view = full_view("n0", Random(seed), everybody)
    others = {node: interest for node, interest in everybody.items() if node != "n0" and node not in exclude}
    gains = {node: (interest & wanted).bit_count() for node, interest in others.items()}
    best = max(gains.values(), default=0)
    assert view.best_cover(wanted, exclude) in ({node for node in gains if gains[node] == best} if best else {None})
    assert view.random_cover(wanted, exclude) in ({node for node in gains if gains[node]} or {None})
    assert view.similar(wanted, exclude) in ({node for node in gains if gains[node] == best} or {None})
    assert view.random_node(exclude) in (set(others) or {None})
    for place in range(8):
        known = sum(1 for node, interest in everybody.items() if node != "n0" and interest >> place & 1)
        assert view.subscribers(1 << place) == known


@given(st.lists(st.tuples(st.booleans(), names, bitsets), max_size=30))
def test_a_view_that_learns_and_forgets_equals_one_made_afresh(steps):
    view, expected = KnownInterests("n0", Random(1)), {}
    for learns, node, interest in steps:
        before = view.version
        if learns:
            view.learn(node, interest)
            changed = node != "n0" and expected.get(node) != interest
            if node != "n0":
                expected[node] = interest
        else:
            view.forget(node)
            changed = expected.pop(node, None) is not None
        assert (view.version != before) == changed
    assert view.names == sorted(expected)
    assert {node: view.interest_of(node) for node in view.names} == expected
    assert view.interest_of("nobody") == 0


@given(st.integers(0, 2**32))
def test_a_static_view_is_a_share_of_all_others(seed):
    everybody = {f"n{number}": number for number in range(41)}
    assert len(static_view("n0", Random(seed), everybody, 5)) == 2
    assert len(static_view("n0", Random(seed), everybody, 0.1)) == 1
    assert static_view("n0", Random(seed), everybody, 100).names == sorted(set(everybody) - {"n0"})


def test_a_static_view_does_not_favour_anybody():
    everybody = {f"n{number}": 0 for number in range(11)}
    seen = [name for seed in range(400) for name in static_view("n0", Random(seed), everybody, 50).names]
    counts = [seen.count(f"n{number}") for number in range(1, 11)]
    assert min(counts) > 160
    assert max(counts) < 240
