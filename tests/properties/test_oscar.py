"""Labels against fractions, routes against the definition, re-spacing against the order that it must keep."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from reference.magnet import clockwise, fraction, greedy_route, label
from trellis.protocols.effects import Send
from trellis.protocols.oscar import Oscar, OscarConfig, Peer
from trellis.protocols.oscar.labels import after, between, grid, grid_label, inside, midpoint
from trellis.protocols.oscar.table import Table

# Few digits, so that equal ones and neighbours are common; long ones too.
labels = st.one_of(
    st.binary(max_size=2), st.binary(max_size=12), st.lists(st.sampled_from([0, 1, 255]), max_size=9).map(bytes)
).map(lambda digits: digits.rstrip(b"\0"))


@given(labels, labels)
def test_labels_compare_as_the_fractions_they_stand_for(one, other):
    assert (one < other) == (fraction(one) < fraction(other))
    assert (one == other) == (fraction(one) == fraction(other))
    assert label(fraction(one)) == one


@given(labels, labels, labels)
def test_arcs_are_clockwise_and_hold_their_end(place, start, end):
    from_start = clockwise(fraction(start), fraction(place)) or 1
    arc = clockwise(fraction(start), fraction(end)) or 1
    assert between(place, start, end) == (from_start <= arc)
    assert inside(place, start, end) == (place != start and place != end and from_start < arc)


@given(labels, labels)
def test_a_midpoint_is_exact_and_lies_on_the_arc_across_zero_too(start, end):
    middle = midpoint(start, end)
    arc = clockwise(fraction(start), fraction(end)) or Fraction(1)
    assert fraction(middle) == (fraction(start) + arc / 2) % 1
    assert inside(middle, start, end)


@given(labels, st.lists(labels, unique=True))
def test_sorting_clockwise_from_a_place_follows_the_distances(start, others):
    ordered = sorted(others, key=after(start))
    distances = [clockwise(fraction(start), fraction(one)) or 1 for one in ordered]
    assert distances == sorted(distances)


@given(labels, st.integers(1, 8))
def test_the_grid_point_of_a_label_is_the_last_one_at_or_before_it(place, size):
    point = grid(place, size)
    assert (
        fraction(grid_label(point, size))
        <= fraction(place)
        < fraction(grid_label(point, size)) + Fraction(1, 256**size)
    )


@st.composite
def rings(draw):
    """Places of nodes, as skewed as hypothesis likes, and fingers."""
    places = draw(st.lists(st.integers(0, 10**9), min_size=2, max_size=9, unique=True))
    skew = draw(st.sampled_from([1, 4, 12]))  # most of them in a small corner of the ring
    names = [f"n{number}" for number in range(len(places))]
    at = {name: label(Fraction(place, 2**30) ** skew) for name, place in zip(names, places, strict=True)}
    if len(set(at.values())) < len(at):
        at = {name: label(Fraction(place, 2**30)) for name, place in zip(names, places, strict=True)}
    fingers = {name: draw(st.lists(st.sampled_from(names), max_size=4, unique=True)) for name in names}
    return {name: fraction(one) for name, one in at.items()}, fingers


def tables(places, fingers):
    ring = sorted(places, key=lambda name: places[name])
    found = {}
    for at, name in enumerate(ring):
        table = found[name] = Table(name, 1)
        table.move(label(places[name]))
        table.successors = [Peer(ring[(at + 1) % len(ring)], label(places[ring[(at + 1) % len(ring)]]))]
        table.fingers = {other: Peer(other, label(places[other])) for other in fingers[name] if other != name}
        table.touch()
    return found


@given(rings())
def test_greedy_routing_reaches_everybody_along_the_defined_route_and_comes_nearer_at_every_hop(ring):
    places, fingers = ring
    routed = tables(places, fingers)
    down = {name: [peer.node for peer in table.down] for name, table in routed.items()}
    for start in places:
        for end in places:
            route = [start]
            while route[-1] != end:
                hop = routed[route[-1]].next_hop(label(places[end]))
                assert hop is not None, f"{route} ends before {end}"
                assert clockwise(places[hop.node], places[end]) < (clockwise(places[route[-1]], places[end]) or 1)
                route.append(hop.node)
            assert route == greedy_route(places, down, start, end)


@given(rings(), labels)
def test_exactly_one_node_is_home_to_any_place(ring, place):
    places, fingers = ring
    order = sorted(places, key=lambda name: places[name])
    found = tables(places, fingers)
    for at, name in enumerate(order):
        found[name].predecessor = Peer(order[at - 1], label(places[order[at - 1]]))
    owners = [name for name in order if found[name].owns(place)]
    assert owners == [min(order, key=lambda name: clockwise(fraction(place), places[name]))]


def crowd(joins, config):
    """All nodes join at one point: each asks `q` for a place. Answers are the ring, in order, and the parts."""
    parts = {"q": Oscar("r", "q", lambda: None, Random(1), config)}
    parts["q"].table.move(b"")
    moves = 0

    def deliver(sender, effects):
        waiting = [(sender, effect) for effect in effects if isinstance(effect, Send)]
        while waiting:
            frm, send = waiting.pop(0)
            if type(send.message).__name__ in ("Walk", "Connect"):
                continue
            answers = parts[send.to].on_message(frm, send.message)
            waiting += [(send.to, effect) for effect in answers if isinstance(effect, Send)]

    order = ["q"]
    for number in range(joins):
        name = f"n{number}"
        given_label, peers, effects = parts["q"].give_place(name, 1, 1)
        assert given_label is not None, f"no place for {name}"
        newcomer = parts[name] = Oscar("r", name, lambda: None, Random(number), config)
        deliver(name, newcomer.enter(given_label, peers))
        deliver("q", effects)
        order.insert(1, name)
    moves = sum(part.respacing.moves for part in parts.values())
    return order, parts, moves


@given(st.integers(1, 60), st.integers(1, 3))
def test_re_spacing_keeps_the_order_in_which_nodes_were_inserted(joins, size):
    order, parts, moves = crowd(joins, OscarConfig(grid_bytes=size, label_bytes_max=size + 1, links=4))
    places = [parts[name].me.label for name in order]
    assert places == sorted(set(places))
    assert moves > 0 or joins < 8 * size + 2


def test_ten_thousand_joins_at_one_point_keep_exact_labels():
    order, parts, moves = crowd(10_000, OscarConfig(links=4, successors=1))
    places = [parts[name].me.label for name in order]
    assert places == sorted(set(places)), "labels are repeated or out of order"
    assert max(map(len, places)) <= 64
    assert moves > 10_000 / 2  # it took re-spacing: 64 bytes hold 512 halvings
