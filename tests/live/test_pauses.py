"""A node on a crowded machine pauses between its turns. A node that gets its core does not."""

from __future__ import annotations

import asyncio

import pytest

from trellis.live.pauses import PAUSE_S_MAX, Pauses, pause_after


def pauses_after(shares):
    pause_s = 0.0
    for share in shares:
        pause_s = pause_after(pause_s, share)
    return pause_s


def test_a_node_that_gets_its_core_never_pauses():
    assert pauses_after([0.0, 0.05, 0.09] * 100) == 0.0


def test_a_node_that_waits_for_a_core_most_of_the_time_pauses_longer_and_longer_up_to_a_limit():
    assert 0 < pauses_after([0.8]) < pauses_after([0.8] * 2) < pauses_after([0.8] * 10)
    assert pauses_after([0.8] * 10) == pauses_after([0.8] * 11) == PAUSE_S_MAX


def test_pauses_stay_while_they_do_their_work_and_go_when_the_machine_is_free():
    crowded = [0.8] * 10
    assert pauses_after([*crowded, *[0.2] * 100]) == PAUSE_S_MAX
    assert 0 < pauses_after([*crowded, 0.0]) < PAUSE_S_MAX
    assert pauses_after([*crowded, *[0.0] * 100]) == 0.0


class Turns:
    """A turn of a node: an input, its results, and their write. `happened` says when the process slept."""

    def __init__(self, loop, pause_s):
        self.loop, self.happened = loop, []
        self.pauses = Pauses(loop, waited=lambda: 0.0, sleep=lambda pause_s: self.happened.append("pause"))
        self.pauses.pause_s = pause_s

    def take_in(self):
        self.happened.append("in")
        self.loop.call_soon(self.loop.call_soon, self.happened.append, "out")
        self.pauses.worked()


@pytest.mark.parametrize(
    ("pause_s", "expected"), [(0.01, ["in"] * 3 + ["out"] * 3 + ["pause"]), (0.0, ["in"] * 3 + ["out"] * 3)]
)
def test_a_turn_of_several_inputs_is_followed_by_one_pause_after_its_writes(pause_s, expected):
    async def turn():
        turns = Turns(asyncio.get_running_loop(), pause_s)
        for _ in range(3):
            turns.take_in()
        for _ in range(10):
            await asyncio.sleep(0)
        return turns.happened

    assert asyncio.run(turn()) == expected


def test_where_the_system_does_not_tell_nobody_pauses():
    async def look():
        loop = asyncio.get_running_loop()
        pauses = Pauses(loop, waited=lambda: None, sleep=lambda pause_s: pytest.fail("it sleeps"))
        pauses.worked()
        for _ in range(10):
            await asyncio.sleep(0)
        return pauses.pause_s

    assert asyncio.run(look()) == 0.0


def test_it_looks_again_and_again_how_long_it_had_to_wait():
    async def look():
        loop = asyncio.get_running_loop()
        looks = []

        def waited():
            looks.append(loop.time())
            return 10.0 * len(looks)  # far more than there is

        pauses = Pauses(loop, waited=waited)
        while len(looks) < 3:
            await asyncio.sleep(0.01)
        return pauses.pause_s

    assert asyncio.run(look()) > 0.0
