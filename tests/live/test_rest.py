"""A node on a crowded machine rests between its turns; one that gets its core does not."""

from __future__ import annotations

import asyncio

import pytest

from trellis.live.rest import REST_S_MAX, Rest, rest_after


def rests(shares):
    rest_s = 0.0
    for share in shares:
        rest_s = rest_after(rest_s, share)
    return rest_s


def test_a_node_that_gets_its_core_never_rests():
    assert rests([0.0, 0.05, 0.09] * 100) == 0.0


def test_a_node_that_waits_for_a_core_most_of_the_time_rests_longer_and_longer_up_to_a_limit():
    assert 0 < rests([0.8]) < rests([0.8] * 2) < rests([0.8] * 10) == rests([0.8] * 11) == REST_S_MAX


def test_rests_stay_while_they_do_their_work_and_go_when_the_machine_is_free():
    crowded = [0.8] * 10
    assert rests([*crowded, *[0.2] * 100]) == REST_S_MAX
    assert 0 < rests([*crowded, 0.0]) < REST_S_MAX
    assert rests([*crowded, *[0.0] * 100]) == 0.0


class Turns:
    """A node's turn as it is: an input, what follows from it, and a write of that. Who sleeps, when."""

    def __init__(self, loop, rest_s):
        self.loop, self.happened = loop, []
        self.rest = Rest(loop, waited=lambda: 0.0, sleep=lambda rest_s: self.happened.append("rest"))
        self.rest.rest_s = rest_s

    def take_in(self):
        self.happened.append("in")
        self.loop.call_soon(self.loop.call_soon, self.happened.append, "out")
        self.rest.worked()


@pytest.mark.parametrize(
    ("rest_s", "expected"), [(0.01, ["in"] * 3 + ["out"] * 3 + ["rest"]), (0.0, ["in"] * 3 + ["out"] * 3)]
)
def test_a_turn_of_several_inputs_is_followed_by_one_rest_after_its_writes(rest_s, expected):
    async def turn():
        turns = Turns(asyncio.get_running_loop(), rest_s)
        for _ in range(3):
            turns.take_in()
        for _ in range(10):
            await asyncio.sleep(0)
        return turns.happened

    assert asyncio.run(turn()) == expected


def test_where_the_system_does_not_tell_nobody_rests():
    async def look():
        loop = asyncio.get_running_loop()
        rest = Rest(loop, waited=lambda: None, sleep=lambda rest_s: pytest.fail("it rests"))
        rest.worked()
        for _ in range(10):
            await asyncio.sleep(0)
        return rest.rest_s

    assert asyncio.run(look()) == 0.0


def test_it_looks_again_and_again_how_long_it_had_to_wait():
    async def look():
        loop = asyncio.get_running_loop()
        looks = []

        def waited():
            looks.append(loop.time())
            return 10.0 * len(looks)  # far more than there is

        rest = Rest(loop, waited=waited)
        while len(looks) < 3:
            await asyncio.sleep(0.01)
        return rest.rest_s

    assert asyncio.run(look()) > 0.0
