"""What the simulated TCP does to a connection, fault by fault."""

from __future__ import annotations

import asyncio
import errno
import socket
from types import NoneType

import pytest

from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.kernel import GIVE_UP_US
from trellis.simulate.whole.network import NetworkConfig
from trellis.simulate.whole.world import World
from whole.programs import PORT, STEADY, Pair, dial, for_ever, serve_nothing

MANY = bytes(range(256)) * 4_096  # a megabyte


def opened(config=STEADY, seed=1):
    world = World(seed, config)
    return world, Faults(world)


def test_bytes_arrive_in_order_and_whole_whatever_the_sizes_of_segments_and_the_losses():
    config = NetworkConfig(split=0.7, loss=0.05, send_buffer=5_000, receive_buffer=3_000)
    world, _ = opened(config)
    with world:
        pair = Pair(world)
        pair.client.transport.write(MANY)
        world.run_until(lambda: len(pair.server.received) == len(MANY), 3_600)
        assert pair.server.received == MANY
        assert world.network.counters["lost by chance"] > 10


def test_a_segment_may_be_cut_anywhere():
    world, _ = opened(NetworkConfig(split=1.0))
    with world:
        pair, sizes = Pair(world), set()
        before = pair.server.data_received
        pair.server.data_received = lambda data: (sizes.add(len(data)), before(data))
        for _ in range(200):
            pair.client.transport.write(b"0123456789")
            world.run_for(0.1)
        assert pair.server.received == b"0123456789" * 200
        assert sizes >= set(range(1, 10))


def test_latency_and_bandwidth_say_when_bytes_arrive():
    world, faults = opened()
    with world:
        pair = Pair(world)
        faults.throttle("client", "server", 100_000)
        begun = world.now_s
        pair.client.transport.write(MANY[:200_000])
        world.run_until(lambda: len(pair.server.received) == 200_000)
        assert world.now_s - begun == pytest.approx(2.0, abs=0.1)
        faults.slow("client", "server", 0.5)
        begun = world.now_s
        pair.server.transport.write(b"x")
        world.run_until(lambda: bool(pair.client.received))
        assert world.now_s - begun == pytest.approx(0.501, abs=0.01)


def test_a_slow_reader_fills_the_buffers_and_makes_the_writer_pause_until_it_reads():
    world, _ = opened()
    with world:
        pair = Pair(world)
        pair.server.transport.pause_reading()
        pair.client.transport.write(MANY)
        world.run_for(100)
        assert not pair.server.received
        assert ("pause", None) in pair.client.said
        held = len(MANY) - pair.client.transport.get_write_buffer_size()
        assert 256 << 10 < held <= 512 << 10, "the buffers of both kernels"
        pair.server.transport.resume_reading()
        world.run_until(lambda: len(pair.server.received) == len(MANY), 10)
        assert pair.client.said[-1] == ("resume", None)
        assert pair.server.received == MANY


def test_a_window_that_opens_during_a_cut_is_found_by_a_probe():
    world, faults = opened()
    with world:
        pair = Pair(world)
        pair.server.transport.pause_reading()
        pair.client.transport.write(MANY)
        world.run_for(5)
        cut = faults.cut(["server"], ["client"])
        pair.server.transport.resume_reading()
        world.run_for(5)
        assert len(pair.server.received) < len(MANY)
        faults.heal(cut)
        world.run_until(lambda: pair.server.received == MANY, 60)


def test_nothing_listens_and_the_connection_is_refused_at_once():
    world, _ = opened()
    with world:
        world.host("server").start(for_ever())
        with pytest.raises(ConnectionRefusedError):
            world.run(world.host("client").start(dial()))
        assert world.now_s < 0.1


def test_an_address_that_nobody_has_cannot_be_reached():
    world, _ = opened()
    with world, pytest.raises(OSError, match="Connect call failed") as caught:
        world.run(world.host("client").start(dial("10.9.9.9")))
    assert caught.value.errno == errno.EHOSTUNREACH


def test_a_lost_syn_is_repeated_after_1_3_and_7_seconds():
    world, faults = opened()
    with world:
        world.host("server").start(serve_nothing())
        world.run_for(1)
        cut = faults.cut(["client"], ["server"])
        world.after(5, faults.heal, cut)
        assert world.run(world.host("client").start(dial())) == pytest.approx(7.0, abs=0.1)


def test_a_kernel_gives_up_connecting_after_two_minutes():
    world, faults = opened()
    with world:
        world.host("server").start(serve_nothing())
        faults.crash_machine("server")
        with pytest.raises(TimeoutError):
            world.run(world.host("client").start(dial()))
        assert world.now_s == pytest.approx(127, abs=1)


def test_an_accept_queue_that_is_full_lets_connections_wait_until_there_is_room():
    world, _ = opened()
    with world:

        async def serve_later():
            listening = socket.create_server(("0.0.0.0", PORT), backlog=2)
            await asyncio.sleep(10)
            kept = [listening.accept() for _ in range(3)]
            await for_ever()
            return kept

        world.host("server").start(serve_later())
        world.run_for(0.5)
        tasks = []
        for number in range(5):
            tasks.append(world.host(f"client{number}").start(dial()))
            world.run_for(0.1)
        world.run_for(5)
        assert [one.done() for one in tasks] == [True, True, True, False, False]
        assert world.network.counters["accept queue full"] > 2
        for one in tasks:
            world.run(one)
        assert world.now_s > 10


def test_an_accept_queue_that_overflows_after_the_answer_leaves_a_client_that_takes_itself_for_connected():
    world, _ = opened()
    with world:
        world.host("server").start(serve_nothing(backlog=1))
        world.run_for(0.5)

        async def talk():
            reader, writer = await asyncio.open_connection("server", PORT)
            await asyncio.sleep(100)
            writer.write(b"hello")
            return await reader.read()

        tasks = [world.host(f"client{number}").start(talk()) for number in range(4)]  # all at once
        world.run_for(1)
        assert len(world.host("server").ends) == 4
        assert world.network.counters["connected"] == 4, "all four take themselves for connected"
        world.run_for(50)
        assert len(world.host("server").ends) == 2, "the server has given up the others"
        for one in tasks[2:]:
            with pytest.raises(ConnectionResetError):
                world.run(one)


def test_a_fin_is_heard_after_all_bytes_and_the_other_direction_stays_open():
    world, _ = opened()
    with world:
        pair = Pair(world)
        pair.server.keeps_open = True
        pair.client.transport.write(MANY)
        pair.client.transport.write_eof()
        world.run_until(lambda: ("eof", None) in pair.server.said, 60)
        assert pair.server.received == MANY
        pair.server.transport.write(b"still open")
        world.run_for(1)
        assert pair.client.received == b"still open"
        pair.server.transport.close()
        world.run_for(1)
        assert pair.client.said[-1] == ("lost", NoneType)
        assert pair.server.said[-1] == ("lost", NoneType)
        assert not world.host("server").ends
        assert not world.host("client").ends


def test_a_process_that_closes_with_unread_bytes_resets_the_connection():
    world, _ = opened()
    with world:
        pair = Pair(world)
        pair.server.transport.pause_reading()
        pair.client.transport.write(b"never read")
        world.run_for(1)
        pair.server.transport.abort()
        world.run_for(1)
        assert pair.client.error is ConnectionResetError


def test_bytes_for_a_process_that_has_closed_are_answered_by_a_reset():
    world, _ = opened()
    with world:
        pair = Pair(world)
        pair.client.keeps_open = True
        pair.server.transport.close()
        world.run_for(1)
        assert pair.client.said[-1] == ("eof", None)
        pair.client.transport.write(b"too late")
        world.run_for(1)
        pair.client.transport.write(b"and this tells it")
        world.run_for(1)
        assert pair.client.error is BrokenPipeError


def test_a_firewall_resets_both_ends():
    world, faults = opened()
    with world:
        pair = Pair(world)
        assert faults.reset_connections("server", "client") == 1
        world.run_for(1)
        assert pair.client.error is pair.server.error is ConnectionResetError


def test_a_connection_to_a_crashed_machine_is_half_open_until_the_machine_is_back():
    world, faults = opened()
    with world:
        pair = Pair(world)
        faults.crash_machine("server")
        world.run_for(500)
        assert pair.client.said == [("made", None)], "nothing tells the client"
        pair.client.transport.write(b"are you there?")
        world.run_for(10)
        assert pair.client.error is None
        world.host("server").start(for_ever())
        world.run_for(20)
        assert pair.client.error is ConnectionResetError


def test_a_silent_death_is_noticed_when_the_kernel_gives_up_its_retransmissions():
    world, faults = opened()
    with world:
        pair = Pair(world)
        assert faults.darken_connections("server", "client") == 1
        begun = world.now_us
        pair.client.transport.write(b"anybody?")
        world.run_until(lambda: pair.client.error is not None, 2_000)
        assert pair.client.error is TimeoutError
        assert world.now_us - begun == pytest.approx(GIVE_UP_US, rel=0.01)
        # 0.2 s, doubled up to 120 s: the kernel has tried this often.
        assert world.network.counters["retransmitted"] == 16
        assert world.run(world.host("other").start(dial())) < 1, "new connections work"


def test_a_user_time_out_ends_a_silent_connection_early():
    world, faults = opened()
    with world:
        pair = Pair(world)
        options = pair.client.transport.get_extra_info("socket")
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 6_000)
        faults.cut(["client"], ["server"])
        begun = world.now_s
        pair.client.transport.write(b"anybody?")
        world.run_until(lambda: pair.client.error is not None, 100)
        assert pair.client.error is TimeoutError
        assert world.now_s - begun == pytest.approx(6.0, abs=0.1)


def test_keep_alive_notices_a_dead_machine_while_nothing_is_sent():
    world, faults = opened()
    with world:
        pair = Pair(world)
        options = pair.client.transport.get_extra_info("socket")
        options.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 3)
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        world.run_for(100)
        assert pair.client.error is None, "the other kernel answers"
        faults.crash_machine("server")
        begun = world.now_s
        world.run_until(lambda: pair.client.error is not None, 100)
        assert pair.client.error is TimeoutError
        assert 3 < world.now_s - begun < 7


def test_a_cut_of_one_way_stops_one_way_only():
    world, faults = opened()
    with world:
        pair = Pair(world)
        cut = faults.cut(["server"], ["client"])
        pair.client.transport.write(b"arrives")
        pair.server.transport.write(b"does not")
        world.run_for(30)
        assert (pair.server.received, pair.client.received) == (b"arrives", b"")
        faults.heal(cut)
        world.run_for(60)
        assert pair.client.received == b"does not"


def test_a_connection_survives_a_long_partition_and_goes_on_when_it_next_retransmits():
    world, faults = opened()
    with world:
        pair = Pair(world)
        cuts = faults.partition(["server"], ["client"])
        pair.client.transport.write(b"one")
        world.run_for(300)
        pair.client.transport.write(b" two")
        faults.heal(*cuts)
        assert not pair.server.received
        begun = world.now_s
        world.run_until(lambda: bool(pair.server.received), 300)
        assert 1 < world.now_s - begun < 121, "not at once: the kernel waits for its back-off"
        world.run_for(1)
        assert pair.server.received == b"one two"


def test_what_is_under_way_when_a_cut_begins_arrives():
    world, faults = opened()
    with world:
        pair = Pair(world)
        pair.client.transport.write(b"sent before")
        faults.partition(["server"], ["client"])
        world.run_for(1)
        assert pair.server.received == b"sent before"


def test_a_client_that_vanishes_between_syn_and_answer_leaves_nothing_behind():
    world, faults = opened()
    with world:
        world.host("server").start(serve_nothing())
        world.run_for(1)
        world.host("client").start(dial())
        world.run_for(0.001_5)  # the SYN has arrived, its answer has not
        faults.crash("client")
        world.run_for(1)
        assert not world.host("server").ends


def test_a_handshake_that_is_never_completed_is_forgotten_after_a_minute():
    world, faults = opened()
    with world:
        world.host("server").start(serve_nothing())
        world.run_for(1)
        world.host("client").start(dial())
        world.run_for(0.001_5)  # the SYN has arrived, its answer has not
        faults.crash_machine("client")
        world.run_for(30)
        assert len(world.host("server").ends) == 1
        world.run_for(60)
        assert not world.host("server").ends


def test_a_kernel_sends_what_is_left_when_the_process_has_ended_however_long_that_takes():
    world, faults = opened()
    with world:
        pair = Pair(world)
        faults.throttle("client", "server", 1_000)
        pair.client.transport.write(MANY[:200_000])
        world.run_for(1)
        faults.crash("client")
        world.run_for(250)
        assert pair.server.received == MANY[:200_000]
        assert pair.server.error is NoneType
        assert not world.host("client").ends


def test_a_reset_that_meets_a_frozen_machine_is_lost_and_comes_again():
    world, faults = opened()
    with world:
        pair = Pair(world)
        pair.client.transport.pause_reading()
        pair.server.transport.write(b"never read")
        world.run_for(1)
        faults.freeze("server")
        pair.client.transport.abort()
        world.run_for(5)
        faults.thaw("server")
        world.run_for(5)
        assert pair.server.error is None, "it knows nothing"
        pair.server.transport.write(b"are you there?")
        world.run_for(5)
        assert pair.server.error is ConnectionResetError


def test_a_server_that_closes_resets_what_waits_to_be_accepted():
    world, faults = opened()
    with world:
        world.host("server").start(serve_nothing())
        world.run_for(1)

        async def wait():
            reader, _ = await asyncio.open_connection("server", PORT)
            return await reader.read()

        task = world.host("client").start(wait())
        world.run_for(1)
        faults.crash("server")
        with pytest.raises(ConnectionResetError):
            world.run(task)
