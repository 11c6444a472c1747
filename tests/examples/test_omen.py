"""OMen, by name: the counter-examples to independent repair, links, hints, interests, leaving."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from random import Random

import pytest

from trellis.protocols.effects import Left, LinkDown, LinkUp, Send
from trellis.protocols.omen import OMenConfig, OMenNode
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.links.hints import Hints, root_key
from trellis.protocols.omen.me import REFUTATIONS, Me, run_of
from trellis.protocols.omen.membership.events import DOUBT, EXE, REPAIRING, STANDBY
from trellis.protocols.ring import identifier
from trellis.protocols.topics import TopicTable
from trellis.simulate.check import CheckConfig, check_seed
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems.omen import OMen

ALONE = partial(OMen, net=False)  # repairs without the net below them


def crashed(interests, links, *groups, make=ALONE, seed=1):
    """What is left after groups of nodes crash, each group at one instant, 20 s after the one before."""
    faults = tuple(Fault(30_000 + 20_000 * place, "crash", nodes=group) for place, group in enumerate(groups))
    return check_seed(make, seed, CheckConfig(), interests=interests, overlay=links, schedule=Schedule(faults))


def chain(*names):
    return tuple(pairwise(names))


def test_the_two_middle_nodes_of_a_path_crash_and_the_sides_are_joined():
    """Each side sees itself connected: repairing the two crashes independently adds nothing, for any lambda."""
    names = ["a3", "a2", "a1", "u", "v", "b1", "b2", "b3"]
    for coverage in (0, 1, 5):
        result = crashed(
            dict.fromkeys(names, ("t",)), chain(*names), ("u", "v"), make=partial(ALONE, coverage=coverage)
        )
        assert result.failure is None
        assert result.tco


def test_opposite_corners_of_a_four_cycle_crash_and_the_others_are_joined():
    """Each proof that the others are connected would lead over the other dead corner."""
    names = ["v", "x", "z", "y"]
    others = ["p", "q", "r"]  # so that the ring has successors left
    interests = dict.fromkeys(names, ("t",)) | dict.fromkeys(others, ("s",))
    result = crashed(interests, (*chain(*names, "v"), *chain(*others)), ("v", "z"))
    assert result.failure is None
    assert ("x", "y") in result.links


def test_a_hub_crashes_with_all_but_one_of_its_neighbours_links():
    names = [f"n{number}" for number in range(8)]
    result = crashed({name: ("t", name) for name in names}, tuple(("n0", name) for name in names[1:]), ("n0", "n3"))
    assert result.failure is None
    assert result.tco


def test_groups_that_crash_one_after_the_other_are_mended_each_time():
    names = [f"n{number:02}" for number in range(16)]
    interests = {name: ("t", f"s{number % 3}") for number, name in enumerate(names)}
    links = (*chain(*names), *chain(*names[::3]), *chain(*names[1::3]), *chain(*names[2::3]))
    result = crashed(interests, links, ("n03", "n04"), ("n07", "n08", "n09"), ("n00",))
    assert result.failure is None
    assert result.tco


def test_two_twins_that_join_on_a_topic_of_their_own_meet_at_its_home():
    interests = {f"n{number}": ("t",) for number in range(6)} | {"one": ("t", "new"), "other": ("t", "new")}
    links = chain(*sorted(name for name in interests if name.startswith("n")))
    faults = tuple(Fault(30_000, "join", nodes=(name,), topics=interests[name]) for name in ("one", "other"))
    result = check_seed(
        OMen, 3, CheckConfig(), interests=interests, overlay=links, schedule=Schedule(faults, ("one", "other"))
    )
    assert result.failure is None
    assert result.tco


@pytest.mark.parametrize("knowledge", ["neighbours", "hints", "global"])
def test_a_node_that_leaves_in_order_splits_no_topic_at_any_instant(knowledge):
    names = [f"n{number}" for number in range(8)]
    links = tuple(("n0", name) for name in names[1:])
    engine = Engine(OMen(net=False, knowledge=knowledge), dict.fromkeys(names, ("t",)), seed=1, overlay=links)
    engine.run(25_000)
    assert engine.leave("n0")
    while engine.world.is_living("n0"):
        engine.run(engine.world.now_ms + 10)
        assert engine.world.now_ms < 60_000
    links = engine.world.links()
    reached, more = {"n1"}, True
    while more:
        more = {end for link in links for end in link if set(link) & reached} - reached
        reached |= more
    assert reached == set(names[1:])


def test_nodes_that_all_leave_together_do_not_wait_for_each_other():
    """The last one has nobody left to repair around it."""
    names = ["a", "b", "c"]
    engine = Engine(OMen(net=False), dict.fromkeys(names, ("t",)), seed=1, overlay=chain(*names))
    engine.run(25_000)
    for name in names:
        assert engine.leave(name)
        engine.run(engine.world.now_ms + 700)
    engine.run(engine.world.now_ms + 3_000)
    assert not [name for name in names if engine.world.is_living(name)]


def test_a_node_that_has_left_in_order_is_off_the_ring_of_the_others_at_once():
    names = [f"n{number}" for number in range(5)]
    engine = Engine(OMen(net=False), dict.fromkeys(names, ("t",)), seed=1, overlay=chain(*names))
    engine.run(25_000)
    assert engine.leave("n2")
    while engine.world.is_living("n2"):
        engine.run(engine.world.now_ms + 10)
    engine.run(engine.world.now_ms + 500)  # half a period: messages under way arrive, and nobody's silence is noticed
    for name in names:
        if name != "n2":
            assert "n2" not in engine.world.node(name).ring.tman.peers
            assert "n2" not in engine.world.node(name).ring.successors


def test_only_a_node_itself_says_that_it_has_left():
    names = [f"n{number}" for number in range(5)]
    engine = Engine(OMen(net=False), dict.fromkeys(names, ("t",)), seed=1, overlay=chain(*names))
    engine.run(25_000)
    node = engine.world.node("n0")
    told = m.Finished("n2", engine.world.node("n2").me.incarnation, "leave")
    node.on_message("n1", told)
    assert "n2" in node.ring.tman.peers
    node.on_message("n2", told)
    assert "n2" not in node.ring.tman.peers
    node.on_message("n0", m.Finished("n0", node.me.incarnation, "leave"))
    assert not node.believes_dead("n0")


def test_subscriptions_and_crashes_in_turn_keep_every_topic_connected():
    assert changes(seed=5, count=40).failure is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_changes_of_interest_with_crashes_in_between(seed):
    assert changes(seed=seed, count=1_000).failure is None


def changes(seed, count):
    """Random subscribes and unsubscribes; every tenth time a node crashes, and another one comes back."""
    random = Random(seed)
    topics = [f"t{number}" for number in range(8)]
    wants = {f"n{number:02}": set(random.sample(topics, 3)) for number in range(20)}
    interests = {name: tuple(sorted(chosen)) for name, chosen in wants.items()}
    down: list[str] = []
    faults, now = [], 40_000
    for step in range(count):
        now += 1_500
        name = random.choice([name for name in wants if name not in down])
        if step % 10 == 9:
            now += 15_000
            down.append(name)
            faults.append(Fault(now, "crash", nodes=(name,)))
            if len(down) > 3:
                back = down.pop(0)
                wants[back] = set(interests[back])
                faults.append(Fault(now, "join", nodes=(back,), topics=interests[back]))
            now += 15_000
            continue
        topic = random.choice(topics)
        kind = "unsubscribe" if topic in wants[name] and len(wants[name]) > 1 else "subscribe"
        if kind == "subscribe" and topic in wants[name]:
            continue
        wants[name] ^= {topic}
        faults.append(Fault(now, kind, nodes=(name,), topics=(topic,)))
    return check_seed(OMen, seed, CheckConfig(), interests=interests, schedule=Schedule(tuple(faults)))


# Links


def lonely(name, topics=("t",)):
    node = OMenNode(name, topics, Random(1), OMenConfig())
    node.start()
    return node


def passed(sender, receiver, effects):
    """Hands the messages of `sender` for `receiver` over; gives what the receiver does."""
    messages = [effect.message for effect in effects if isinstance(effect, Send) and effect.to == receiver.id]
    return [effect for message in messages for effect in receiver.on_message(sender.id, message)]


def test_a_link_comes_up_when_both_ends_are_ready():
    a, b = lonely("a"), lonely("b")
    asked = a.on_message("c", m.OpenLink(1, "b"))
    answered = passed(a, b, asked)  # ConnectOk, and ready at once: b has no successors to tell
    assert LinkUp("a") not in answered
    done = passed(b, a, answered)
    assert LinkUp("b") in done
    assert Send("c", m.LinkOpened(1, "b", a.me.topics_version, b.me.topics_version)) in done
    assert LinkUp("a") in passed(a, b, done)
    assert (a.me.degree, b.me.degree) == (1, 1)


def test_a_heartbeat_over_a_link_that_is_not_there_is_answered_so_and_the_link_is_opened_again():
    a, b = lonely("a"), lonely("b")
    passed(a, b, passed(b, a, passed(a, b, a.on_message("c", m.OpenLink(1, "b")))))
    stranger = lonely("b")  # b has forgotten, as if it had cut the link
    beat = [effect for effect in a.on_timer("omen/tick") if isinstance(effect, Send) and effect.to == "b"]
    told = passed(a, stranger, beat)
    assert any(isinstance(effect, Send) and isinstance(effect.message, m.Stranger) for effect in told)
    reopened = passed(stranger, a, told)
    assert LinkDown("b") in reopened
    assert any(isinstance(effect, Send) and isinstance(effect.message, m.Connect) for effect in reopened)


def test_a_node_without_links_leaves_at_once():
    assert Left() in lonely("a").leave()


# Repairs


def before_a_crash(**options):
    """An engine with a mesh of twelve, a victim, and its coordinator."""
    interests = {f"n{number:02}": ("t", f"s{number % 4}") for number in range(12)}
    # In this draw the backup that dies holds no record of an end: a link would wait until that is noticed.
    engine = Engine(OMen(**options), interests, seed=2)
    engine.run(40_000)
    order = sorted(engine.world.living, key=identifier)
    return engine, order[3], engine.world.node(order[4])


def state_of(node, victim):
    (found,) = [event for event in node.parts.events.open() if event.node == victim]
    return found.state


def test_a_coordinator_that_sees_the_stream_break_does_not_go_on_doubting():
    engine, victim, coordinator = before_a_crash()
    incarnation = coordinator.parts.incarnation_of(victim)
    engine.crash(victim)
    coordinator.coordinator.departure(victim, incarnation, certain=False, report=m.Report(victim, incarnation, "n00"))
    assert state_of(coordinator, victim) == DOUBT
    coordinator.on_peer_down(victim)
    assert state_of(coordinator, victim) == REPAIRING


def test_a_false_report_is_forgotten_by_all_who_were_told_of_it_as_soon_as_the_node_answers():
    """With L = 1 the coordinator's successor does not watch the node, and would stand by for 36 periods."""
    engine, victim, coordinator = before_a_crash(resilience=1)
    report = m.Report(victim, coordinator.parts.incarnation_of(victim), "n00")
    engine._perform(engine.world.actors[coordinator.id], coordinator.on_message("n00", report))
    engine.run(engine.world.now_ms + 15)  # latency is 10 ms: told, not yet untold
    (standby,) = coordinator.ring.successors
    assert state_of(coordinator, victim) == DOUBT
    assert state_of(engine.world.node(standby), victim) == STANDBY
    engine.run(engine.world.now_ms + 100)
    assert not [name for name in engine.world.living if list(engine.world.node(name).parts.events.open())]


def test_hearsay_that_a_node_lives_does_not_end_a_leave_that_it_told_us_of():
    engine, victim, coordinator = before_a_crash()
    behind = engine.world.node(coordinator.ring.successors[0])
    incarnation = behind.parts.incarnation_of(victim)
    engine._perform(engine.world.actors[victim], engine.world.node(victim).leave())
    engine.run(engine.world.now_ms + 15)
    assert state_of(behind, victim) == STANDBY
    behind.on_message(coordinator.id, m.ReportOk(victim, incarnation, "alive"))
    assert state_of(behind, victim) == STANDBY


@pytest.mark.parametrize(("repair_wait", "state"), [(20, EXE), (0, REPAIRING)])
def test_a_repair_waits_for_a_ready_view_as_long_as_it_is_told(repair_wait, state):
    engine, victim, coordinator = before_a_crash(repair_wait=repair_wait)
    coordinator.views.views[victim].ready = False
    engine.crash(victim)
    coordinator.on_peer_down(victim)
    assert state_of(coordinator, victim) == state


def test_a_node_that_is_back_is_linked_as_soon_as_its_earlier_life_is_repaired():
    """It does not wait for as long as a standby does."""
    engine, victim, coordinator = before_a_crash()
    incarnation = coordinator.parts.incarnation_of(victim) + (1 << 20)
    engine.crash(victim)
    coordinator.on_peer_down(victim)
    assert state_of(coordinator, victim) == REPAIRING
    coordinator.on_message(victim, m.Join(incarnation, ("t",)))
    joins = coordinator.parts.events.get("join", victim, incarnation)
    coordinator.parts.ticks += coordinator.config.ready_wait
    coordinator.coordinator.tick()
    assert joins.state == EXE
    coordinator.repairs.running.clear()  # the repair is over
    coordinator.coordinator.tick()
    assert joins.state == REPAIRING


def repaired_after_ms(**options):
    """A node crashes, and with it one of its backups that is no neighbour of it."""
    engine, victim, coordinator = before_a_crash(**options)
    view = coordinator.views.views[victim]
    near = engine.world.claims(victim)
    backup = next(name for name in view.backups if name not in near and name != coordinator.id)
    engine.crash(victim)
    engine.crash(backup)
    at = engine.world.now_ms
    engine._perform(engine.world.actors[coordinator.id], coordinator.on_peer_down(victim))
    while any(event.node == victim for event in coordinator.parts.events.open()):
        engine.run(engine.world.now_ms + 10)
    return engine.world.now_ms - at


def test_a_dead_backup_that_no_split_topic_needs_holds_no_repair_up():
    assert repaired_after_ms() < 200


# Traces


def test_a_node_that_is_to_come_back_while_it_still_leaves_joins_when_it_has_gone():
    names = [f"n{number}" for number in range(8)]
    star = tuple(("n0", name) for name in names[1:])
    engine = Engine(OMen(), dict.fromkeys(names, ("t",)), seed=1, overlay=star)
    again = Fault(25_010, "join", nodes=("n0",), topics=("t",))
    injector = Injector(engine, Schedule((Fault(25_000, "leave", nodes=("n0",)), again)))
    engine.run(25_500)
    assert engine.world.incarnation("n0") == 1
    engine.run(60_000)
    assert engine.world.incarnation("n0") == 2
    assert injector.skipped == 0
    assert [fault.kind for fault in injector.happened.faults] == ["leave", "join"]


# Lives


def test_a_refutation_is_louder_than_the_suspicion_and_a_restart_louder_than_both():
    me = Me("a", (), TopicTable(), 3)
    assert me.refute(me.incarnation)
    assert me.incarnation == 3 * REFUTATIONS + 1
    assert not me.refute(3 * REFUTATIONS)  # an old suspicion: it has been answered
    assert run_of(me.incarnation) == 3
    assert Me("a", (), TopicTable(), 4).incarnation > me.incarnation


# Hints


def hints_of(name):
    hints = Hints(Me(name, ("t",), TopicTable(), 1))
    hints.refresh()
    return hints


def test_a_node_takes_the_smallest_root_over_the_shortest_path_and_never_over_itself():
    names = sorted((f"n{number}" for number in range(5)), key=lambda name: root_key("t", name))
    root, near, far, me, worst = names
    hints = hints_of(me)
    assert hints.paths[0] == ()
    hints.told(worst, [m.Hint("t", ())])
    assert hints.paths[0] == ()  # a greater root is none of ours
    hints.told(far, [m.Hint("t", (near, root))])
    hints.told(near, [m.Hint("t", (root,))])
    assert hints.paths[0] == (near, root)
    hints.told(near, [m.Hint("t", (me, root))])
    assert hints.paths[0] == (far, near, root)
    hints.forget(far)
    assert hints.paths[0] == ()


def test_only_what_has_changed_is_told():
    hints = hints_of("b")
    known = hints.me.version
    assert hints.news(1, known) == ((), known)
    other = min(("a", "c", "d"), key=lambda name: root_key("t", name))
    if root_key("t", other) < root_key("t", "b"):
        hints.told(other, [m.Hint("t", ())])
        assert hints.news(1, known) == ((m.Hint("t", (other,)),), known + 1)
        assert hints.news(0, known) == ((), known + 1)


def test_a_node_that_takes_up_a_topic_of_its_neighbour_hears_its_root_and_is_not_linked_to_it():
    """Its neighbour's hint has not changed for long: unless told again, the node is a root for ever."""
    root, middle, node = sorted(("n1", "n2", "n3"), key=lambda name: root_key("u", name))
    interests = {root: ("u",), middle: ("t", "u"), node: ("t",)}
    engine = Engine(OMen(), interests, seed=1, overlay=((root, middle), (middle, node)))
    engine.run(30_000)
    links = engine.world.links()
    engine.subscribe(node, "u")
    engine.run(33_000)
    hints = engine.world.node(node).parts.hints
    assert hints.paths[hints.me.table.bit("u").bit_length() - 1] == (middle, root)
    engine.run(80_000)
    assert engine.world.links() == links


def test_a_connect_that_comes_late_does_not_take_topics_from_a_neighbour_for_good():
    """Streams that replace each other can overtake: the topics of long ago come last, and nobody repeats the new."""
    engine = Engine(OMen(), {name: ("t", "u") if name in "cd" else ("t",) for name in "abcdef"}, seed=1)
    engine.run(20_000)
    of = {name: engine.world.node(name) for name in "ab"}
    engine._perform(engine.world.actors["a"], of["a"].links.open("b"))
    engine.run(30_000)
    late = of["a"].links._connect(of["a"].links.links["b"])
    for name in "ab":
        engine.subscribe(name, "u")
    engine.run(40_000)
    bit = of["b"].me.table.bit("u")
    assert of["b"].links.links["a"].interest & bit
    engine._perform(engine.world.actors["b"], of["b"].on_message("a", late))
    engine.run(60_000)
    assert of["b"].links.links["a"].interest & bit
