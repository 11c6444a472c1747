"""OMen's signals: the order in which a node handles them, and states that only change as their tables say."""

from __future__ import annotations

import pytest

from trellis.protocols.omen import OMenConfig
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.links.link import ASKED, UP, Link
from trellis.protocols.omen.membership.events import DONE, DOUBT, EXE, REPAIRING, Event
from trellis.protocols.omen.repair import join, repair
from trellis.protocols.omen.repair.procedure import LINKS, Context, State
from trellis.protocols.omen.shadow import low_edges
from trellis.protocols.omen.signals import (
    LinkLost,
    PeerDown,
    PeerRestarted,
    RecordChanged,
    RepairDone,
    SignalQueue,
    TopicsLeftByNeighbor,
    ToSelf,
)


def lost(peer):
    return LinkLost(peer, 1, 1, "silent", (), True)


def test_signals_are_handled_by_rank_and_all_of_a_rank_together_but_messages_one_by_one():
    queue = SignalQueue()
    first, second = ToSelf(m.JoinDone(1)), ToSelf(m.JoinDone(2))
    left = TopicsLeftByNeighbor(1)
    for signal in (RepairDone(2), first, second, left, PeerDown("a"), PeerRestarted("b"), RecordChanged(), lost("c")):
        queue.add(signal)
    queue.add(lost("d"))
    taken = []
    while signals := queue.take():
        taken.append(signals)
    assert taken == [
        [lost("c"), lost("d")],
        [RecordChanged()],
        [PeerDown("a"), PeerRestarted("b")],
        [left],
        [first],
        [second],
        [RepairDone(2)],
    ]


def test_a_changed_record_is_renewed_once_and_repairs_end_in_the_order_of_their_numbers():
    queue = SignalQueue()
    for signal in (RecordChanged(), RepairDone(7), RecordChanged(), RepairDone(3), RepairDone(7)):
        queue.add(signal)
    assert queue.take() == [RecordChanged()]
    assert queue.take() == [RepairDone(3), RepairDone(7)]
    assert queue.take() == []


def test_a_message_that_a_signal_causes_waits_behind_signals_of_lower_rank():
    queue = SignalQueue()
    queue.add(ToSelf(m.JoinDone(1)))
    queue.add(ToSelf(m.JoinDone(2)))
    assert queue.take() == [ToSelf(m.JoinDone(1))]
    queue.add(lost("a"))
    assert queue.take() == [lost("a")]


def test_no_state_is_entered_that_its_table_does_not_name():
    with pytest.raises(AssertionError, match="from asked to up"):
        Link("a", ASKED).move(UP)
    event = Event("leave", "a", 1, 0, DOUBT)
    with pytest.raises(AssertionError, match="from doubt to repairing"):
        event.move(REPAIRING, 1)
    event.move(EXE, 1)
    event.move(REPAIRING, 2)
    event.move(DONE, 3)
    assert event.since == 3
    made = join.Join(1, "a", 1, Context("me", OMenConfig(), low_edges, len))
    with pytest.raises(AssertionError, match="from new to links"):
        made._move(LINKS)


@pytest.mark.parametrize("table", [repair.TRANSITIONS, join.TRANSITIONS])
def test_every_state_of_a_table_can_be_reached_from_the_first_one(table):
    reached, todo = set(), [State.NEW]
    while todo:
        state = todo.pop()
        if state not in reached:
            reached.add(state)
            todo += table[state]
    assert reached == set(table)
