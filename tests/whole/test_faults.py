"""What a fault does to a simulated process, its machine and what it has, fault by fault."""

from __future__ import annotations

import asyncio
import errno
import io
import secrets
import socket
import time
from pathlib import Path
from types import NoneType

import pytest

from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.world import World
from whole.programs import PORT, STEADY, Pair, dial, for_ever, serve_nothing


@pytest.fixture
def world():
    with World(1, STEADY) as made:
        yield made


@pytest.fixture
def faults(world):
    return Faults(world)


def test_a_crash_runs_no_code_of_the_process_and_its_kernel_ends_the_connections(world, faults):
    ran = []

    async def clean():
        try:
            await for_ever()
        finally:
            ran.append("clean-up")

    pair = Pair(world)
    world.host("server").start(clean())
    world.host("server").loop.call_later(1, ran.append, "timer")
    world.run_for(0.5)
    faults.crash("server")
    world.run_for(5)
    assert not ran
    assert pair.client.said[1:] == [("eof", None), ("lost", NoneType)]
    assert pair.server.said == [("made", None)], "the process itself hears of nothing"


def test_a_crash_with_unread_bytes_resets_the_connection(world, faults):
    pair = Pair(world)
    pair.server.transport.pause_reading()
    pair.client.transport.write(b"not read")
    world.run_for(1)
    faults.crash("server")
    world.run_for(1)
    assert pair.client.error is ConnectionResetError


@pytest.mark.parametrize("callbacks", range(12))
def test_a_crash_may_come_before_any_callback(world, faults, callbacks):
    steps = []

    async def walk():
        for number in range(20):
            steps.append(number)
            await asyncio.sleep(0)

    host = world.host("a")
    host.start(walk())
    faults.crash_at("a", callbacks)
    world.run_for(1)
    assert steps == list(range(callbacks))
    assert host.loop is None


def test_a_machine_that_crashes_says_nothing_and_begins_anew_when_it_is_started(world, faults):
    async def clocks():
        return time.monotonic(), time.time()

    pair = Pair(world)
    faults.crash_machine("server")
    world.run_for(100)
    assert pair.client.said == [("made", None)]
    assert not world.host("server").ends
    uptime, wall = world.run(world.host("server").start(clocks()))
    assert uptime == pytest.approx(10, abs=1), "the machine has booted"
    assert wall == pytest.approx(1_767_225_700, abs=2)


def test_a_process_that_restarts_binds_its_port_again_and_draws_otherwise(world, faults):
    async def serve():
        socket.create_server(("0.0.0.0", PORT))
        drawn.append(secrets.randbelow(1 << 60))
        await for_ever()

    drawn: list[int] = []
    for _ in range(2):
        world.host("server").start(serve())
        world.run_for(1)
        assert world.run(world.host("client").start(dial())) < 1
        faults.crash("server")
    assert drawn[0] != drawn[1]


def test_a_paused_process_hears_everything_later_and_its_kernel_goes_on_meanwhile(world, faults):
    pair = Pair(world)
    ticks = []

    async def tick():
        while True:
            await asyncio.sleep(1)
            ticks.append(world.now_s)

    world.host("server").start(tick())
    world.run_for(0.5)
    faults.pause("server")
    pair.client.transport.write(b"hello")
    paused_at = world.now_s
    connected = world.host("other").start(dial())
    world.run_for(30)
    assert connected.done(), "the kernel accepts"
    assert pair.client.error is None
    assert not pair.server.received
    assert not ticks
    faults.resume("server")
    world.run_for(1.5)
    assert pair.server.received == b"hello"
    assert len(ticks) == 2, "one that was due, and the next"
    assert ticks[0] == pytest.approx(paused_at + 30, abs=0.1)


def test_a_frozen_machine_acknowledges_nothing_and_loses_nothing(world, faults):
    pair = Pair(world)
    faults.freeze("server")
    pair.client.transport.write(b"hello")
    with pytest.raises(TimeoutError):
        world.run(world.host("other").start(asyncio.wait_for(dial(), 5)))
    assert not pair.server.received
    faults.thaw("server")
    world.run_for(60)
    assert pair.server.received == b"hello"
    assert pair.server.error is None


def test_bytes_keep_their_order_when_only_the_first_of_two_bursts_meets_a_frozen_machine(world, faults):
    pair = Pair(world)
    pair.client.transport.write(b"first ")
    world.run_for(0.000_5)
    pair.client.transport.write(b"second")
    world.run_for(0.000_4)
    faults.freeze("server")
    world.run_for(0.000_3)  # the first arrives now
    faults.thaw("server")
    world.run_for(0.05)
    assert pair.server.received == b"", "the second waits for the first"
    world.run_for(1)
    assert pair.server.received == b"first second"


def test_a_machine_that_sleeps_has_slept_by_one_of_its_clocks_and_not_by_the_other(world, faults):
    async def look():
        begun = time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
        await asyncio.sleep(10)
        return time.monotonic() - begun[0], time.clock_gettime(time.CLOCK_BOOTTIME) - begun[1]

    task = world.host("a").start(look())
    world.run_for(5)
    faults.suspend("a")
    world.run_for(100)
    faults.wake("a")
    assert world.run(task) == pytest.approx((10, 110), abs=0.1)


@pytest.mark.parametrize("seconds", [3_600.0, -3_600.0])
def test_a_clock_that_jumps_changes_the_wall_clock_alone(world, faults, seconds):
    async def look():
        begun = time.time(), time.monotonic()
        await asyncio.sleep(10)
        return time.time() - begun[0], time.monotonic() - begun[1]

    task = world.host("a").start(look())
    world.run_for(5)
    faults.jump_clock("a", seconds)
    assert world.run(task) == pytest.approx((10 + seconds, 10), abs=0.1)


def test_hosts_have_clocks_of_their_own(world):
    async def look():
        return time.monotonic(), time.time()

    first, second = (world.run(world.host(name).start(look())) for name in "ab")
    assert abs(first[0] - second[0]) > 1
    assert 0.001 < abs(first[1] - second[1]) < 0.101


def test_without_file_descriptors_nothing_is_opened_and_accepted_connections_wait(world, faults):
    async def serve():
        listening = socket.create_server(("0.0.0.0", PORT))
        while True:
            await asyncio.sleep(1)
            try:
                accepted.append(listening.accept())
            except BlockingIOError:
                continue
            except OSError as error:
                refused.append(error.errno)

    accepted: list[object] = []
    refused: list[int | None] = []
    world.host("server").start(serve())
    world.run_for(0.5)
    faults.limit_files("server")
    world.run(world.host("client").start(dial()))
    world.run_for(5)
    assert not accepted
    assert set(refused) == {errno.EMFILE}
    faults.unlimit_files("server")
    world.run_for(5)
    assert len(accepted) == 1


def test_without_file_descriptors_a_client_cannot_dial(world, faults):
    world.host("server").start(serve_nothing())
    world.run_for(0.5)

    async def try_it():
        with pytest.raises(OSError, match="Too many open files"):
            await dial()
        with pytest.raises(OSError, match="Too many open files"):
            io.open("/dev/null", "rb")  # noqa: UP020, SIM115
        faults.unlimit_files("client")
        return await dial()

    task = world.host("client").start(try_it())
    faults.limit_files("client")
    assert world.run(task) < 1


def test_a_full_disk_takes_nothing_and_gives_what_it_has(world, faults, tmp_path):
    path: Path = tmp_path / "file"

    async def write():
        path.write_bytes(b"before")
        faults.fill_disk("a")
        with pytest.raises(OSError, match="No space left") as caught, path.open("ab") as file:
            file.write(b"never")
        assert caught.value.errno == errno.ENOSPC
        assert path.read_bytes() == b"before"
        faults.empty_disk("a")
        with path.open("ab") as file:
            file.write(b" after")

    world.run(world.host("a").start(write()))
    assert path.read_bytes() == b"before after"


def test_faults_are_in_the_history_and_counted(world, faults):
    world.host("a").start(for_ever())
    faults.pause("a")
    faults.resume("a")
    faults.crash_machine("a")
    faults.heal(*faults.partition(["a"], ["b"]))
    assert world.counters == {
        "fault pause": 1,
        "fault resume": 1,
        "fault machine crash": 1,
        "fault cut": 2,
        "fault heal": 1,
    }
    assert world.history.count == 6
