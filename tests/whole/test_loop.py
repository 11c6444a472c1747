"""The simulated event loop: virtual time, and what a process asks of its loop."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import socket
import time
import uuid
from contextvars import Context, ContextVar

import pytest

from trellis.live.machine import machine
from trellis.simulate.whole.handles import NotSimulated
from trellis.simulate.whole.world import NotOver, World
from whole.programs import for_ever


@pytest.fixture
def world():
    with World(1) as made:
        yield made


def test_an_hour_passes_in_no_time_and_the_loop_shows_it(world):
    async def sleep():
        loop = asyncio.get_running_loop()
        begun = loop.time(), time.monotonic(), time.time()
        await asyncio.sleep(3_600)
        return [now - before for now, before in zip((loop.time(), time.monotonic(), time.time()), begun, strict=True)]

    real = time.monotonic()
    for passed in world.run(world.host("a").start(sleep()), limit_s=4_000):
        assert passed == pytest.approx(3_600, abs=0.01)
    assert time.monotonic() - real < 60


def test_timers_fire_in_the_order_of_their_times_and_those_of_one_time_as_they_were_set(world):
    async def order():
        loop, fired = asyncio.get_running_loop(), []
        for number, delay in enumerate((0.3, 0.1, 0.2, 0.1, 0.0)):
            loop.call_later(delay, fired.append, number)
        loop.call_later(0.15, fired.append, "cancelled").cancel()
        loop.call_at(loop.time() + 0.25, fired.append, "at")
        loop.call_soon(fired.append, "soon")
        await asyncio.sleep(1)
        return fired

    assert world.run(world.host("a").start(order())) == ["soon", 4, 1, 3, 2, "at", 0]


def test_a_callback_runs_in_the_context_that_it_was_given_even_if_that_is_empty(world):
    variable = ContextVar("variable", default="unset")

    async def set_it():
        loop, given = asyncio.get_running_loop(), Context()
        variable.set("outer")
        loop.call_soon(variable.set, "inner", context=given)
        loop.call_later(0.1, variable.set, "later", context=given)
        seen = []
        loop.call_soon(lambda: seen.append(variable.get()))
        await asyncio.sleep(0.05)
        seen.append(given[variable])
        await asyncio.sleep(1)
        return [*seen, given[variable], variable.get()]

    assert world.run(world.host("a").start(set_it())) == ["outer", "inner", "later", "outer"]


def test_many_cancelled_timers_leave_the_others_alone(world):
    async def many():
        loop, fired = asyncio.get_running_loop(), []
        timers = [loop.call_later(1 + number / 1_000, fired.append, number) for number in range(1_000)]
        for number, one in enumerate(timers):
            if number % 100:
                one.cancel()
        await asyncio.sleep(3)
        return fired

    assert world.run(world.host("a").start(many())) == list(range(0, 1_000, 100))


def test_time_goes_on_for_a_program_that_polls(world):
    async def poll():
        loop = asyncio.get_running_loop()
        until, turns = loop.time() + 0.01, 0
        while loop.time() < until:
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert 10 < world.run(world.host("a").start(poll())) < 10_000


def test_time_outs_and_locks_and_groups_of_tasks_work_as_they_do_elsewhere(world):
    async def work():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.Event().wait()
        lock, order = asyncio.Lock(), []

        async def one(name):
            async with lock:
                order.append(name)
                await asyncio.sleep(0.1)

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(one(name))
        assert await asyncio.gather(asyncio.sleep(1, "x"), asyncio.sleep(0.5, "y")) == ["x", "y"]
        return order

    assert world.run(world.host("a").start(work())) == ["a", "b", "c"]


def test_work_for_a_thread_is_done_a_little_later_and_its_errors_come_back(world):
    async def work():
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert await loop.run_in_executor(None, divmod, 7, 2) == (3, 1)
        assert loop.time() > begun
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)

    world.run(world.host("a").start(work()))


def test_a_signal_reaches_its_handler_and_nobody_else(world):
    async def wait():
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        await stopped.wait()
        return "stopped"

    task = world.host("a").start(wait())
    world.run_for(1)
    assert not world.host("a").signal(signal.SIGHUP)
    assert world.host("a").signal(signal.SIGTERM)
    assert world.run(task) == "stopped"


def test_names_are_resolved_by_the_network_and_an_unknown_one_fails_as_elsewhere(world):
    world.host("b")
    world.network.names["many"] = ("10.9.9.1", "10.9.9.2")

    async def ask():
        loop = asyncio.get_running_loop()
        assert [one[4] for one in await loop.getaddrinfo("b", 7)] == [(world.host("b").address, 7)]
        assert [one[4] for one in await loop.getaddrinfo("many", 7)] == [("10.9.9.1", 7), ("10.9.9.2", 7)]
        assert [one[4] for one in await loop.getaddrinfo("10.1.2.3", 7)] == [("10.1.2.3", 7)]
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("nobody", 7)

    world.run(world.host("a").start(ask()))


@pytest.mark.parametrize(
    "work",
    [
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.create_subprocess_shell("true"),
        lambda: asyncio.open_unix_connection("/tmp/x"),
        lambda: asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol),
    ],
    ids=["exec", "shell", "unix", "datagram"],
)
def test_what_is_not_simulated_is_refused_with_a_reason(world, work):
    async def ask():
        with pytest.raises(NotSimulated, match=r"simulated (process|network)"):
            await work()

    world.run(world.host("a").start(ask()))


def test_a_process_that_blocks_is_refused(world):
    async def block():
        with pytest.raises(NotSimulated, match="must not block"):
            time.sleep(1)
        with pytest.raises(NotSimulated, match="must not block"):
            socket.socket().setblocking(True)

    world.run(world.host("a").start(block()))


def test_chance_of_a_host_depends_on_the_seed_and_the_host_and_the_start():
    async def draw():
        return secrets.randbelow(1 << 60), random.Random().random(), uuid.uuid4(), os.urandom(4), secrets.token_hex(4)

    def drawn(seed, *names):
        with World(seed) as world:
            return [world.run(world.host(name).start(draw())) for name in names]

    assert drawn(1, "a", "b") == drawn(1, "a", "b")
    first, second, again = drawn(1, "a", "b", "a")
    for one, *others in zip(first, second, again, *drawn(2, "a"), strict=True):
        assert one not in others


def test_the_time_that_a_process_has_computed_depends_on_the_seed_alone():
    async def look():
        return [machine().computed_s() for _ in range(3)]

    def looked(seed):
        with World(seed) as world:
            return world.run(world.host("a").start(look()))

    assert looked(1) == looked(1) == sorted(looked(1))
    assert looked(1) != looked(2)


def test_a_function_that_is_called_for_a_host_sees_its_clocks(world):
    host = world.host("a")
    host.start(for_ever())
    world.run_for(100)
    assert host.call(time.time) == host.wall_s()
    assert abs(time.time() - host.wall_s()) > 1


def test_a_random_with_a_seed_is_the_same_inside_and_outside(world):
    async def draw():
        return random.Random(7).random()

    assert world.run(world.host("a").start(draw())) == random.Random(7).random()


def test_the_library_is_as_before_when_the_last_world_has_ended():
    names = [(time, "time"), (time, "monotonic"), (socket, "socket"), (os, "urandom"), (random.Random, "seed")]
    before = [getattr(owner, name) for owner, name in names]
    with World(1) as world, World(2):
        world.run_for(1)
        assert abs(time.time() - before[0]()) < 60, "outside of simulated processes the clock is the real one"
        assert random.Random(3).random() == random.Random(3).random()
    assert [getattr(owner, name) for owner, name in names] == before


def test_an_exception_that_nobody_handles_is_kept_with_its_host_and_time(world):
    async def fail():
        asyncio.get_running_loop().call_later(2, lambda: 1 / 0)
        await for_ever()

    world.host("a").start(fail())
    world.run_for(5)
    (found,) = world.failures
    assert (found.host, type(found.error)) == ("a", ZeroDivisionError)
    assert 2_000_000 <= found.at_us < 2_001_000


def test_a_process_ends_with_its_first_coroutine_and_closes_its_sockets(world):
    async def leave_open():
        socket.create_server(("0.0.0.0", 80))
        asyncio.get_running_loop().create_task(for_ever())

    host = world.host("a")
    world.run(host.start(leave_open()))
    assert host.loop is None
    assert not host.sockets
    assert not host.listeners
    assert [(one.host, one.error) for one in world.exits] == [("a", None)]


def test_a_program_that_does_not_end_is_reported_and_not_waited_for(world):
    with pytest.raises(NotOver, match="nothing is left to happen"):
        world.run(world.host("a").start(for_ever()), limit_s=3)


def test_the_coroutines_of_a_world_are_closed_with_it():
    closed = []

    async def wait():
        try:
            await for_ever()
        finally:
            closed.append(True)

    with World(1) as world:
        world.host("a").start(wait())
        world.run_for(1)
        assert not closed
    assert closed


def test_a_task_that_fails_unseen_is_found_although_somebody_keeps_it(world):
    """asyncio reports a failed task when it is collected, which never happens to one that is kept."""
    kept = []

    async def fail(text):
        raise ValueError(text)

    async def program():
        kept.append(asyncio.ensure_future(fail("unseen")))
        kept.append(asyncio.ensure_future(fail("seen")))
        for _ in range(200):  # so many that the loop forgets those that are done
            kept.append(asyncio.ensure_future(asyncio.sleep(0)))
            await kept[-1]
        with pytest.raises(ValueError, match="seen"):
            await kept[1]
        await for_ever()

    host = world.host("a")
    host.start(program())
    world.run_for(1)
    assert [str(error) for error in host.loop.unseen_errors()] == ["unseen"]
    assert not world.failures
