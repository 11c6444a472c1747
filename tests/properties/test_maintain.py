"""Maintenance under churn: a TCO after every event, and the same links as the slow twin."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazy import nx
from reference import shadows as slow
from trellis.model.churn import ChurnEvent, ChurnTrace, Event
from trellis.model.interests import Interests
from trellis.plan.maintain import Maintenance
from trellis.plan.maintain_config import BACKUPS, COMPONENTS, MaintainConfig

TOPICS = [f"t{i}" for i in range(6)]
NODES = [f"n{i}" for i in range(9)]
History = tuple[Interests, ChurnTrace, int]

topic_sets = st.sets(st.sampled_from(TOPICS), min_size=1)
rhos = st.sampled_from([1.0, 1.5, 2.0, 3.0, float("inf")])
MANY = settings(max_examples=150, deadline=None)


@st.composite
def histories(draw: st.DrawFn, events_max: int = 12) -> History:
    """Interests, a trace over them with every kind of event, and a seed."""
    start = {name: draw(topic_sets) for name in draw(st.lists(st.sampled_from(NODES), unique=True, min_size=2))}
    present = {name: set(topics) for name, topics in start.items()}
    rows: list[tuple[float, str, str, str | None]] = []
    for time in range(draw(st.integers(1, events_max))):
        kinds = ["leave", "crash", "unsubscribe", "subscribe"] if len(present) > 1 else []
        kinds += ["join"] if len(present) < len(NODES) else []
        kind = draw(st.sampled_from(kinds))
        if kind == "join":
            node = draw(st.sampled_from([name for name in NODES if name not in present]))
            present[node] = draw(topic_sets)
            rows += [(time, node, "join", None), *((time, node, "subscribe", t) for t in sorted(present[node]))]
            continue
        node = draw(st.sampled_from(sorted(present)))
        if kind in ("leave", "crash"):
            rows.append((time, node, kind, None))
            del present[node]
            continue
        free = present[node] if kind == "unsubscribe" else set(TOPICS) - present[node]
        if free:
            topic = draw(st.sampled_from(sorted(free)))
            rows.append((time, node, kind, topic))
            present[node] ^= {topic}
    return Interests.from_pairs(start), ChurnTrace.from_rows(rows), draw(st.integers(0, 2**32))


def run_of(history: History, **config: object) -> Maintenance:
    """A run from some TCO of those present at the start."""
    interests, trace, seed = history
    return Maintenance(interests, trace, slow.any_tco(interests, seed), MaintainConfig(seed=seed, **config))


class Mirror:
    """The same run as dictionaries and a networkx graph, mended by the slow twin."""

    def __init__(self, run: Maintenance, seed: int) -> None:
        self.run, self.seed, self.rho = run, seed, run.config.rho
        self.interest = slow.named_topics(run.interests())
        self.graph = run.overlay().to_networkx()

    def backups(self, node: str) -> set[str]:
        """Everybody where the algorithm keeps no backups: Alg. 3 and 4 are Alg. 10 and 7 with S = V'."""
        if self.run.config.algorithm == "naive":
            return set(self.interest) - {node}
        current = self.run.current
        return set(current.names.take(self.run.algorithm.shadows.backups.backups_of[current.rank_of[node]]).to_pylist())

    def before(self, event: ChurnEvent) -> None:
        """The shadow set of who loses something is what it was before."""
        if event.event is not Event.join:
            self.shadow = self.backups(event.node) | set(self.graph[event.node])

    def after(self, event: ChurnEvent) -> set[str]:
        """Lets the event happen here too. Returns S, without the node itself."""
        node, topics, how = event.node, set(event.topics), (self.rho, self.seed)
        match event.event:
            case Event.join:
                self.interest[node] = topics
                self.shadow = self.backups(node)
                slow.mend_join(self.graph, self.interest, node, self.shadow, *how)
            case Event.leave | Event.crash:
                slow.mend_leave(self.graph, self.interest, [node], self.shadow, *how)
                del self.interest[node]
            case Event.subscribe:
                self.interest[node] |= topics
                self.shadow = {other for other in self.backups(node) if topics <= self.interest[other]}
                slow.mend_subscribe(self.graph, self.interest, node, event.topics[0], self.shadow, *how)
            case Event.unsubscribe:
                self.interest[node] -= topics
                self.shadow = {other for other in self.shadow if topics <= self.interest[other]}
                slow.mend_unsubscribe(self.graph, self.interest, node, event.topics[0], self.shadow, *how)
        return self.shadow


@MANY
@given(histories(), rhos, st.integers(1, 3), st.sampled_from(sorted(BACKUPS)))
def test_shadows_takes_the_links_of_the_twin(history, rho, coverage_factor, backups):
    follow(run_of(history, rho=rho, coverage_factor=coverage_factor, backups=backups), history[2])


@MANY
@given(histories(), rhos)
def test_naive_takes_the_links_of_the_twin(history, rho):
    follow(run_of(history, algorithm="naive", rho=rho), history[2])


def follow(run: Maintenance, seed: int) -> None:
    mirror = Mirror(run, seed)
    rounds = run.rounds()
    for event in run.events:
        before = mirror.graph.copy()
        mirror.before(event)
        round_ = next(rounds)
        shadow = mirror.after(event)
        assert slow.named_topics(run.interests()) == mirror.interest
        assert nx.utils.graphs_equal(run.overlay().to_networkx(), mirror.graph), event
        added, removed = nx.difference(*both(mirror.graph, before)), nx.difference(*both(before, mirror.graph))
        assert (round_.links_added, round_.links_removed) == (added.size(), removed.size())
        assert round_.repair_ratio == ((added.size() + removed.size()) / before.size() if before.size() else None)
        assert round_.shadow_set == len(shadow) + (event.event in (Event.join, Event.subscribe))
        assert round_.degree_max == max(degree for _, degree in mirror.graph.degree)
        assert (round_.nodes, round_.links) == (mirror.graph.order(), mirror.graph.size())
        assert round_.degree_mean == pytest.approx(2 * round_.links / round_.nodes)
    assert run.history.complete


def both(one: nx.Graph, other: nx.Graph) -> tuple[nx.Graph, nx.Graph]:
    """Both over the nodes of either: what networkx wants before it compares their links."""
    nodes = set(one) | set(other)
    copies = one.copy(), other.copy()
    for copy in copies:
        copy.add_nodes_from(nodes)
    return copies


@settings(max_examples=300, deadline=None)
@given(
    histories(events_max=20),
    st.sampled_from(["naive", "rebuild", "shadows", "shadows"]),
    st.integers(0, 3),
    st.sampled_from(sorted(BACKUPS)),
    st.sampled_from(sorted(COMPONENTS)),
)
def test_every_topic_stays_connected(history, algorithm, coverage_factor, backups, components):
    run = run_of(
        history,
        algorithm=algorithm,
        coverage_factor=coverage_factor,
        backups=backups,
        components=components,
        check_every=3,
    )
    for round_ in run.rounds():
        assert slow.split_topics(run.overlay().to_networkx(), slow.named_topics(run.interests())) == {}
        assert round_.split_topics == (None if round_.round % 3 else 0)


@MANY
@given(histories(), st.sampled_from(sorted(COMPONENTS)))
def test_new_links_stay_inside_the_shadow_set_and_no_survivor_loses_a_link(history, components):
    run = run_of(history, components=components)
    mirror = Mirror(run, history[2])
    rounds = run.rounds()
    for event in run.events:
        before = run.overlay().to_networkx()
        mirror.graph = before.copy()
        mirror.before(event)
        next(rounds)
        shadow = mirror.after(event)
        after = run.overlay().to_networkx()
        added = [link for link in after.edges if not before.has_edge(*link)]
        if event.event in (Event.join, Event.subscribe):
            assert all(event.node in link and set(link) <= shadow | {event.node} for link in added)
        else:
            assert all(set(link) <= shadow for link in added)
        lost = [link for link in before.edges if not after.has_edge(*link)]
        assert all(event.node in link for link in lost)
        if event.event in (Event.join, Event.subscribe):
            assert not lost


@settings(max_examples=50, deadline=None)
@given(histories())
def test_the_same_seed_gives_the_same_history(history):
    tables = []
    for _ in range(2):
        run = run_of(history)
        list(run.rounds())
        tables.append((run.history.to_table(times=False), run.overlay().to_table()))
    assert tables[0] == tables[1]


@MANY
@given(histories(events_max=20), st.integers(0, 3), st.sampled_from(sorted(BACKUPS)))
def test_backup_sets_keep_their_promises(history, coverage_factor, backups):
    """Primaries mirror backups, backups share a topic, and cover each topic as often as others could since it came."""
    run = run_of(history, coverage_factor=coverage_factor, backups=backups)
    sets, names = run.algorithm.shadows.backups, run.current.names
    fewest: dict[tuple[str, str], int] = {}  # of each subscription: the fewest others that its topic ever had
    while True:
        interest = slow.named_topics(run.interests())
        held = {names[v]: set(names.take(sets.backups_of[v]).to_pylist()) for v in range(len(names))}
        owed = {names[v]: set(names.take(sets.primaries_of[v]).to_pylist()) for v in range(len(names))}
        assert owed == {name: {other for other in held if name in held[other]} for name in held}
        for name, mine in held.items():
            assert not mine or name in interest
            assert name not in mine
            assert all(interest[name] & interest[other] for other in mine)
        now = {(name, topic) for name in interest for topic in interest[name]}
        fewest = {place: fewest.get(place, len(interest)) for place in now}
        for name, topic in now:
            others = sum(topic in interest[other] for other in interest) - 1
            fewest[name, topic] = min(fewest[name, topic], others)
            covered = sum(topic in interest[other] for other in held[name])
            assert covered >= min(coverage_factor, fewest[name, topic])
        if next(run.rounds(), None) is None:
            break
