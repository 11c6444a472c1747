"""Schedules are data; the injector does what they say, to whom they say, and no more."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from trellis.errors import InputError
from trellis.model import ChurnTrace, Interests
from trellis.simulate.churn import schedule_of
from trellis.simulate.draw import InstanceDraw, draw_interests, draw_schedule
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.schedule import FAULT_KINDS, Fault, FaultPlan, Schedule, read_schedule, write_schedule
from trellis.simulate.system import Watcher
from trellis.simulate.systems.toys import Flooder, Mesh

RING = [(f"n{i}", f"n{(i + 1) % 8}") for i in range(8)]
WANTED = {f"n{i}": ["t", f"t{i}"] for i in range(8)}


class Log(Watcher):
    def __init__(self):
        self.lines = []

    def on_node_up(self, node, topics):
        self.lines.append(("up", node))

    def on_node_down(self, node, how):
        self.lines.append((how, node))

    def on_topics(self, node, topics):
        self.lines.append(("topics", node, topics))


def run(*faults, until=1000, absent=(), overlay=RING, seed=1, **options):
    """The lines behind the start, and the injector."""
    log = Log()
    engine = Engine(Flooder(), WANTED, seed=seed, overlay=overlay, absent=absent, watchers=[log])
    injector = Injector(engine, Schedule(faults, tuple(absent)), **options)
    engine.run(until)
    return log.lines[len(WANTED) - len(absent) :], injector


def test_named_faults_hit_those_they_name_and_nobody_else():
    lines, injector = run(Fault(5, "crash", ("n1",)), Fault(6, "leave", ("n2",)), Fault(7, "join", ("n1",)))
    assert lines == [("crash", "n1"), ("leave", "n2"), ("up", "n1")]
    assert injector.counts == {"crash": 1, "leave": 1, "join": 1}


def test_a_restart_comes_back_under_its_name_with_its_topics_of_then():
    lines, injector = run(Fault(4, "subscribe", ("n1",), topics=("x",)), Fault(5, "restart", ("n1",), duration_ms=100))
    assert lines == [("topics", "n1", ("t", "t1", "x")), ("crash", "n1"), ("up", "n1")]
    assert injector.engine.world.topics_of("n1") == ("t", "t1", "x")
    assert injector.engine.world.incarnation("n1") == 2


def test_healing_brings_back_who_was_to_come_back_wakes_all_and_calms_the_weather():
    _, injector = run(
        Fault(5, "restart", ("n1",), duration_ms=5000),
        Fault(5, "pause", ("n2",), duration_ms=5000),
        Fault(5, "loss", duration_ms=5000, value=0.5),
        Fault(5, "crash", ("n3",)),
        until=10,
    )
    engine = injector.engine
    assert not engine.world.is_living("n1")
    injector.heal()
    assert engine.world.is_living("n1")
    assert engine.network.constant_us == 10_000
    assert engine.pause("n2")  # it was awake
    assert not engine.world.is_living("n3")  # a crash is for good


def test_adjacent_crashes_hit_both_ends_of_a_link():
    for seed in range(5):
        lines, _ = run(Fault(50, "crash-adjacent", value=2), seed=seed)
        (_, first), (_, second) = lines
        assert {first, second} in [set(link) for link in RING]


def test_ring_crashes_hit_nodes_that_follow_each_other_on_the_systems_ring():
    order = sorted(WANTED, key=Flooder().ring_key)
    lines, _ = run(Fault(50, "crash-ring", value=3))
    start = order.index(lines[0][1])
    assert [name for _, name in lines] == [order[(start + step) % 8] for step in range(3)]


def test_a_hub_crash_hits_the_node_with_most_links():
    lines, _ = run(Fault(50, "crash-hub"), overlay=[("n4", f"n{i}") for i in range(8) if i != 4])
    assert lines == [("crash", "n4")]


def test_a_fault_that_cannot_happen_is_skipped_and_counted():
    lines, injector = run(
        Fault(5, "crash", ("n1",)),
        Fault(6, "crash", ("n1",)),
        Fault(7, "subscribe", ("n1",), topics=("x",)),
        Fault(8, "join", ("stranger",)),
    )
    assert lines == [("crash", "n1")]
    assert injector.skipped == 3
    assert [fault.kind for fault in injector.happened.faults] == ["crash"]


def test_no_more_nodes_go_than_the_plan_allows():
    _, injector = run(*[Fault(t, "crash-uniform", value=1) for t in range(5, 15)], down_share_max=0.5)
    assert len(injector.engine.world.living) == 4
    assert injector.skipped == 6


def test_an_interest_change_never_takes_the_last_topic():
    _, injector = run(*[Fault(t, "interest") for t in range(5, 200)])
    world = injector.engine.world
    assert all(world.topics_of(name) for name in world.living)
    assert {fault.kind for fault in injector.happened.faults} == {"subscribe", "unsubscribe"}


def test_weather_lasts_as_long_as_it_says():
    _, injector = run(Fault(100, "partition", ("n1",), duration_ms=50), until=120)
    network = injector.engine.network
    assert network.route(0, "n1", "n2") == -1
    injector.engine.run(149)
    assert network.route(0, "n1", "n2") == -1
    injector.engine.run(150)
    assert network.route(0, "n1", "n2") > 0


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_what_happened_replays_without_choices_to_the_same_digest(kind):
    """Every kind, drawn open, then again as it happened, in a run where it makes a difference."""

    def digest(schedule):
        engine = Engine(Mesh(), draw_interests(InstanceDraw(10, 4, 3), 1), seed=4, absent=schedule.absent)
        injector = Injector(engine, schedule)
        engine.run(12_000)
        return engine.hexdigest(), injector

    plan = FaultPlan(kinds=(kind,), start_ms=1000, span_ms=6000, faults_max=4)
    drawn = draw_schedule(plan, [f"n{i}" for i in range(10)], 11)
    first, injector = digest(drawn)
    assert len(injector.happened.faults) >= 1
    again, _ = digest(injector.happened)
    assert again == first
    assert first != digest(Schedule(absent=drawn.absent))[0]


def test_as_many_seeds_as_kinds_hold_every_kind():
    plan = FaultPlan()
    names = [f"n{i}" for i in range(20)]
    schedules = [draw_schedule(plan, names, seed) for seed in range(100, 100 + len(plan.kinds))]
    assert {fault.kind for schedule in schedules for fault in schedule.faults} == set(plan.kinds)
    assert all(list(s.faults) == sorted(s.faults, key=lambda fault: fault.time_ms) for s in schedules)
    assert draw_schedule(plan, names, 100) == schedules[0] != schedules[1]


def test_a_gap_between_crashes_is_kept():
    plan = FaultPlan(kinds=("crash-uniform", "restart", "leave"), crash_gap_ms=3000, span_ms=10_000)
    for seed in range(20):
        times = [fault.time_ms for fault in draw_schedule(plan, list("abcdef"), seed).faults]
        assert all(later - earlier >= 3000 for earlier, later in pairwise(times))


def test_half_of_the_groups_go_in_two_parts_of_no_more_nodes_in_all():
    plan = FaultPlan(kinds=("crash-uniform", "crash-ring"), crash_gap_ms=9000, stagger_ms=2000, crash_size_max=3)
    alone = msgspec.structs.replace(plan, stagger_ms=0)
    in_parts = 0
    for seed in range(40):
        faults, whole = (draw_schedule(one, list("abcdef"), seed).faults for one in (plan, alone))
        assert sum(fault.value for fault in faults) == sum(fault.value for fault in whole)
        gaps = [later.time_ms - earlier.time_ms for earlier, later in pairwise(faults)]
        assert all(gap <= 2000 or gap >= 9000 for gap in gaps)
        in_parts += sum(gap <= 2000 for gap in gaps)
    assert in_parts > 20


@pytest.mark.parametrize("name", ["s.tsv", "s.json"])
def test_a_schedule_comes_back_from_its_file_as_it_was(tmp_path, name):
    strange = Fault(9, "partition", ("a,b", "c d", '"q"', "[x"), duration_ms=5)
    drawn = draw_schedule(FaultPlan(), [f"n{i}" for i in range(20)], 7)
    schedule = Schedule((*drawn.faults, Fault(99_000, "slow", ("n1",), value=0.1 + 0.2)), ("n1", "n2"))
    for wanted in (Schedule((strange, *schedule.faults), schedule.absent), Schedule()):
        write_schedule(wanted, tmp_path / name)
        assert read_schedule(tmp_path / name) == wanted


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("time_ms\tkind\n", ":1: these are not the columns"),
        ("time_ms\tkind\tnodes\tpeers\ttopics\tduration_ms\tvalue\nx\tcrash\ta\t\t\t0\t0\n", ":2: no fault"),
        ("time_ms\tkind\tnodes\tpeers\ttopics\tduration_ms\tvalue\n1\tflood\ta\t\t\t0\t0\n", '"flood" is not known'),
        ("time_ms\tkind\tnodes\tpeers\ttopics\tduration_ms\tvalue\n-1\tcrash\ta\t\t\t0\t0\n", "not negative"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_with_its_place(tmp_path, text, what):
    (tmp_path / "s.tsv").write_text(text)
    with pytest.raises(InputError, match=what):
        read_schedule(tmp_path / "s.tsv")


def test_a_churn_trace_becomes_a_schedule():
    interests = Interests.from_pairs({"a": ["t"], "b": ["t", "u"], "c": ["u"]})
    rows = [
        (0.5, "c", "join", None),
        (1.0, "d", "join", None),
        (1.0, "d", "subscribe", "u"),
        (1.0, "d", "subscribe", "t"),
        (1.25, "b", "unsubscribe", "u"),
        (2.0, "a", "crash", None),
        (2.0, "b", "leave", None),
    ]
    assert schedule_of(ChurnTrace.from_rows(rows), interests) == Schedule(
        (
            Fault(500, "join", ("c",), topics=("u",)),
            Fault(1000, "join", ("d",), topics=("t", "u")),
            Fault(1250, "unsubscribe", ("b",), topics=("u",)),
            Fault(2000, "crash", ("a",)),
            Fault(2000, "leave", ("b",)),
        ),
        ("c", "d"),
    )
