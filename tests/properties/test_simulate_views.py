"""Views backed by arrays answer as plain Python views do, draw for draw, while nodes come, go and change."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.protocols.membership import KnownInterests
from trellis.simulate.views import FullView, Membership, ShareView

NAMES = [f"n{number}" for number in range(12)]
bits = st.integers(0, 2**5 - 1) | st.integers(0, 2**150)  # small ones tie often, large ones need several words
changes = st.lists(st.tuples(st.sampled_from(NAMES), st.none() | bits), max_size=30)
questions = st.lists(
    st.tuples(
        st.sampled_from(["best_cover", "random_cover", "similar", "random_node"]),
        bits,
        st.lists(st.sampled_from([*NAMES, "stranger"]), max_size=6),
    ),
    min_size=1,
    max_size=6,
)


def membership_after(rows, share=1.0, names=NAMES):
    members = Membership(1, names, share)
    truth = {}
    for name, interest in rows:
        if interest is None:
            members.drop(name)
            truth.pop(name, None)
        else:
            members.put(name, interest)
            truth[name] = interest
    return members, truth


def same_answers(view, plain, asked):
    for question, wanted, exclude in asked:
        arguments = (exclude,) if question == "random_node" else (wanted, exclude)
        assert getattr(view, question)(*arguments) == getattr(plain, question)(*arguments), question
    for name in [*NAMES, "stranger"]:
        assert view.interest_of(name) == plain.interest_of(name)
    for place in (0, 1, 4, 70, 149, 400):
        assert view.subscribers(1 << place) == plain.subscribers(1 << place)


@given(changes, questions)
def test_a_full_view_answers_as_the_plain_one_does(rows, asked):
    members, truth = membership_after(rows)
    view, plain = FullView(members, "n3", Random(5)), KnownInterests("n3", Random(5), truth)
    same_answers(view, plain, asked)


@given(changes, changes, questions, st.sampled_from([0.2, 0.5, 0.9]))
def test_a_share_view_answers_as_the_plain_one_over_the_nodes_it_knows(before, after, asked, share):
    members, _ = membership_after(before, share)
    members.put("n3", 1)
    view = ShareView(members, "n3", Random(5))
    truth = dict(members.interests)
    for name, interest in after:
        if interest is None:
            members.drop(name)
            truth.pop(name, None)
        else:
            members.put(name, interest)
            truth[name] = interest
    known = {name: truth[name] for name in truth if members.slot_of[name] in view.slots}
    same_answers(view, KnownInterests("n3", Random(5), known), asked)


@given(changes, changes, questions)
def test_names_that_nobody_expected_move_the_slots_and_no_answer(before, after, asked):
    """`n5` sorts into the middle of what is registered."""
    late = [name for name in NAMES if name != "n5"]
    expected, surprised = Membership(1, NAMES, 0.5), Membership(1, late, 0.5)
    views = []
    for members in (expected, surprised):
        members.put("n3", 1)
        for name, interest in before:
            if name != "n5" and interest is not None:
                members.put(name, interest)
        views.append(ShareView(members, "n3", Random(5)))
        for name, interest in [("n5", 7), *after]:
            if interest is None:
                members.drop(name)
            else:
                members.put(name, interest)
    for question, wanted, exclude in asked:
        arguments = (exclude,) if question == "random_node" else (wanted, exclude)
        first, second = (getattr(view, question)(*arguments) for view in views)
        assert first == second


@pytest.mark.parametrize(("share", "nodes", "known"), [(0.05, 1000, 50), (0.05, 10, 1), (0.5, 21, 10), (0.999, 5, 4)])
def test_a_share_view_holds_its_share_of_the_others_and_never_its_owner(share, nodes, known):
    names = [f"n{number}" for number in range(nodes)]
    members, _ = membership_after([(name, 1) for name in names], share, names)
    for owner in names[:20]:
        slots = ShareView(members, owner, Random(1)).slots
        assert len(slots) == known
        assert members.slot_of[owner] not in slots


def test_share_views_are_spread_evenly_and_differ_from_owner_to_owner():
    names = [f"n{number}" for number in range(400)]
    members, _ = membership_after([(name, 1) for name in names], 0.1, names)
    seen = [0] * len(names)
    for owner in names:
        for slot in ShareView(members, owner, Random(1)).slots:
            seen[slot] += 1
    # Each node is in 40 of 400 views on average; a binomial with that mean has a standard deviation of 6.
    assert min(seen) > 40 - 5 * 6
    assert max(seen) < 40 + 5 * 6


def test_newcomers_are_taken_into_views_at_the_same_share():
    names = [f"n{number}" for number in range(1000)]
    members = Membership(3, names, 0.2)
    for name in names[:500]:
        members.put(name, 1)
    views = [ShareView(members, owner, Random(1)) for owner in names[:50]]
    for name in names[500:]:
        members.put(name, 1)
    late = sum(sum(slot in set(view.slots) for slot in map(members.slot_of.get, names[500:])) for view in views)
    assert late / (50 * 500) == pytest.approx(0.2, abs=0.02)


def test_a_version_changes_with_every_answer_that_could_change():
    members, _ = membership_after([("n1", 3), ("n2", 1)])
    view = members.view("n3", Random(1))
    versions = [view.version]
    for change in (lambda: members.put("n1", 2), lambda: members.drop("n2"), lambda: members.put("n9", 0)):
        change()
        versions.append(view.version)
    assert len(set(versions)) == len(versions)
    members.put("n9", 0)
    assert view.version == versions[-1]
