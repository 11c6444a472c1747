"""What a run tells while rows are under way: whose rows, and the time that is left."""

from __future__ import annotations

import os

import pytest

from trellis.cli.lab import _under_way
from trellis.lab.experiment import Case, Row
from trellis.lab.runner import Progress, _Watch
from trellis.lab.store import Store

ROWS = [Row(Case("own.measure", "mine", {"nodes": nodes}), 1, (f"omen-fig{nodes}", "other")) for nodes in (1, 2, 3)]
COSTS = {ROWS[0].key: 100.0, ROWS[1].key: 40.0, ROWS[2].key: 60.0}
ABOUT = {"seconds": 1.0, "cpu_seconds": 1.0, "error": None}
BEGUN = 1_000_000.0


@pytest.fixture
def watched(tmp_path):
    store, told = Store(tmp_path), []
    store.open()
    return store, _Watch(store, ROWS, told.append, lambda row: COSTS[row.key]), told


def begin(store: Store, row: Row, at: float) -> None:
    store.begin(row.key)
    os.utime(store.rows / f".running-{row.key}", (at, at))


def end(store: Store, row: Row, at: float) -> None:
    store.write(row, {"x": 1.0}, ABOUT)
    os.utime(store.rows / row.key / "row.json", (at, at))


def test_nothing_is_expected_before_a_row_has_begun(watched):
    _, watch, told = watched
    watch.look(BEGUN, BEGUN + 5)
    assert told == [Progress(0, 0, 0, 3, None, ())]


def test_the_time_left_is_told_while_the_first_row_is_under_way(watched):
    """A row may take an hour: until it has ended, the expected costs of all rows tell the time."""
    store, watch, told = watched
    begin(store, ROWS[0], BEGUN + 10)
    watch.look(BEGUN, BEGUN + 30)
    assert told == [Progress(0, 1, 0, 3, 200 - 20, ("omen-fig1",))]
    begin(store, ROWS[2], BEGUN + 20)
    watch.look(BEGUN, BEGUN + 30)
    assert told[-1] == Progress(0, 2, 0, 3, 85, ("omen-fig1", "omen-fig3"))  # (200 - 20 - 10) / 2


def test_rows_that_have_ended_tell_how_fast_it_goes(watched):
    store, watch, told = watched
    begin(store, ROWS[1], BEGUN)
    end(store, ROWS[1], BEGUN + 80)  # twice as long as expected
    begin(store, ROWS[0], BEGUN + 80)
    watch.look(BEGUN, BEGUN + 80)
    assert told[-1].seconds_left == pytest.approx(2 * 160)
    assert (told[-1].done, told[-1].running) == (1, 1)


def test_a_row_that_takes_longer_than_expected_never_counts_as_done(watched):
    store, watch, told = watched
    for row in ROWS[1:]:
        begin(store, row, BEGUN)
        end(store, row, BEGUN + 50)
    begin(store, ROWS[0], BEGUN + 50)
    watch.look(BEGUN, BEGUN + 5_000)
    assert told[-1].seconds_left >= 10


def test_the_command_names_the_entries_that_are_under_way():
    now = Progress(3, 5, 1, 20, 300.0, ("omen-fig9a", "vitis-fig4a", "vitis-fig5", "shadows-fig4"))
    said = "5 running (omen-fig9a, vitis-fig4a, vitis-fig5 and 1 more), 1 failed, about 5 min left"
    assert _under_way(now) == said
    assert _under_way(Progress(0, 0, 0, 2, None)) == "0 running"
