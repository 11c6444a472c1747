"""Backup sets: the five routines choose what their slow twins choose, in disjoint covers."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import shadows as slow
from strategies import interests, overlays, seeds
from trellis import ids
from trellis.model.interests import Interests
from trellis.plan.backups import ROUTINES, BackupSets, first_states
from trellis.plan.maintain_config import BACKUPS
from trellis.plan.maintain_overlay import CurrentOverlay

MANY = settings(max_examples=150, deadline=None)
routines = st.sampled_from(sorted(BACKUPS))


@st.composite
def currents(draw: st.DrawFn) -> tuple[CurrentOverlay, int]:
    """Any interests, any overlay over them, connected or not: backups do not ask for a TCO."""
    over, seed = draw(interests()), draw(seeds)
    return CurrentOverlay.of(over, draw(overlays(over)), seed), seed


class Twin:
    """Backup sets by name, built by the slow routines."""

    def __init__(self, current: CurrentOverlay, routine: str, seed: int) -> None:
        self.interest = slow.named_topics(current.interests())
        self.degree = dict(current.overlay().to_networkx().degree)
        self.backups: dict[str, set[str]] = {name: set() for name in self.interest}
        self.routine, self.seed = routine, seed

    def build(self, node: str, covers: int, round_: int, topic: str | None = None) -> list[set[str]]:
        already = self.backups[node] if topic else ()
        if topic is None:
            self.backups[node] = set()
        weight = {
            name: self.degree[name] + sum(name in backups for backups in self.backups.values())
            for name in self.interest
        }
        keys = np.array([ids.key(self.seed, node)], np.uint64)
        chance = slow.Chance(int(first_states(self.seed, round_, keys)[0]))
        topics = [topic] if topic else None
        found = slow.build_backups(
            self.routine, node, covers, self.interest, weight, chance, self.seed, topics, already
        )
        self.backups[node] = self.backups[node].union(*found)
        return found


def named(sets: BackupSets) -> dict[str, set[str]]:
    names = sets.current.names
    return {name: set(names.take(sets.backups_of[rank]).to_pylist()) for rank, name in enumerate(names)}


def test_every_routine_that_can_be_named_exists():
    assert set(ROUTINES) == set(BACKUPS)


@MANY
@given(currents(), routines, st.integers(0, 4))
def test_all_sets_are_those_of_the_twin_built_by_rank_and_built_again(drawn, routine, coverage_factor):
    current, seed = drawn
    sets, twin = BackupSets(current, routine, coverage_factor, seed), Twin(current, routine, seed)
    for round_ in range(2):  # the second time each set is dropped before it is built again
        sets.build(current.everyone, round_)
        for node in current.names:
            twin.build(node, coverage_factor, round_)
        assert named(sets) == twin.backups


@MANY
@given(currents(), routines, st.integers(0, 3), st.data())
def test_a_set_is_extended_as_by_the_twin_and_only_as_far_as_needed(drawn, routine, coverage_factor, data):
    current, seed = drawn
    sets, twin = BackupSets(current, routine, coverage_factor, seed), Twin(current, routine, seed)
    first = data.draw(st.sampled_from(range(coverage_factor + 1)))
    sets.coverage_factor = first  # as if lambda had been smaller when they were built
    sets.build(current.everyone, 0)
    for node in current.names:
        twin.build(node, first, 0)
    sets.coverage_factor = coverage_factor
    node = data.draw(st.sampled_from(list(current.names)))
    topic = data.draw(st.sampled_from(sorted(twin.interest[node])))
    covered = sum(topic in twin.interest[backup] for backup in twin.backups[node])
    sets.extend(np.array([current.rank_of[node]], np.int32), current.topic_names.id_of(topic), 1)
    twin.build(node, max(coverage_factor - covered, 0), 1, topic)
    assert named(sets) == twin.backups


@MANY
@given(currents(), routines, st.integers(0, 4))
def test_covers_are_disjoint_and_each_covers_all_that_is_left_to_cover(drawn, routine, coverage_factor):
    current, seed = drawn
    sets = BackupSets(current, routine, coverage_factor, seed)
    interest = slow.named_topics(current.interests())
    offsets, chosen, cover = sets.choose(current.everyone, coverage_factor, 0)
    for place, node in enumerate(current.names):
        mine = slice(offsets[place], offsets[place + 1])
        names, numbers = current.names.take(chosen[mine]).to_pylist(), cover[mine].tolist()
        assert len(set(names)) == len(names)
        assert node not in names
        assert all(interest[node] & interest[name] for name in names)
        free = set(interest) - {node}
        for number in range(coverage_factor):
            piece = {name for name, its in zip(names, numbers, strict=True) if its == number}
            coverable = {topic for topic in interest[node] if any(topic in interest[name] for name in free)}
            assert interest[node] & set().union(*(interest[name] for name in piece)) == coverable
            free -= piece
        assert set(numbers) <= set(range(coverage_factor))


def test_the_routines_differ():
    """An instance on which no two of the five agree: they are five algorithms, not five names."""
    chance = random.Random(1)
    over = Interests.from_pairs({f"n{v}": chance.sample(range(20), chance.randint(2, 8)) for v in range(60)})
    current = CurrentOverlay.of(over, slow.any_tco(over, 1), 1)
    chosen = {}
    for routine in BACKUPS:
        sets = BackupSets(current, routine, 3, 1)
        sets.build(current.everyone, 0)
        chosen[routine] = named(sets)
    assert all(chosen[one] != chosen[other] for one in BACKUPS for other in BACKUPS if one < other)
