"""A sidecar remembers what its broker's clients want: across restarts, and where files and brokers misbehave."""

from __future__ import annotations

import asyncio
import signal
import stat
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.lives import run, until
from mqtt.attached import attach, client_of, sidecars
from mqtt.brokers import brokers, free_port, needs_mosquitto
from mqtt.sites import Site, sites, talking
from mqtt.talk import doors, vanish_all
from trellis.live.health import unready
from trellis.live.mqtt import memory
from trellis.live.mqtt.learned import LearnedFile, learned_path
from trellis.live.probe import BrokerAnswer, ask_broker
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import counts, learn
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.bridge import Bridge
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.counts import AWAY, COUNTS, SWEEP, TOLD
from trellis.protocols.mqtt.learn import LOG, Learned, SubscriptionLog

TELLS = "log_dest topic\nlog_type subscribe\nlog_type unsubscribe\nlog_type notice\nsys_interval 1\n"


def hear(one: Bridge, kind: str, line: str, **fields: Any) -> None:
    one.from_broker(p.Publish(topic=LOG + kind, payload=line.encode(), **fields))


def learning(**fields: Any) -> Bridge:
    one = Bridge("trellis-n", MqttConfig(broker="mqtt://b", learn=True, **fields))
    one.up(p.ConnAck(reason=0))
    one.to_broker.clear()
    return one


# Without a broker


LINES = st.lists(
    st.one_of(
        st.tuples(
            st.just("M/subscribe"), st.sampled_from(["a 0 x/#", "a 1 y", "b 1 x/#", "b 1 $share/g/x/#", "c 1 $SYS/#"])
        ),
        st.tuples(st.just("M/unsubscribe"), st.sampled_from(["a x/#", "b x/#", "b $share/g/x/#", "c y"])),
        st.tuples(
            st.just("N"),
            st.sampled_from(
                [
                    "New client connected from 127.0.0.1:1 as a (p2, c1, k60).",
                    "New client connected from 127.0.0.1:1 as b (p5, c0, k60).",
                    "Client a disconnected.",
                    "Client b disconnected.",
                    "Expiring client b due to timeout.",
                ]
            ),
        ),
    )
)


@given(LINES, LINES)
def test_a_log_that_is_restored_goes_on_as_if_it_had_never_stopped(before, after):
    whole, first, second = (SubscriptionLog("trellis-n") for _ in range(3))
    for kind, line in before:
        whole.heard(LOG + kind, line)
        first.heard(LOG + kind, line)
        first.check()
    second.restore(first.remember())
    second.check()
    for kind, line in after:
        told = [sorted(some) for some in whole.heard(LOG + kind, line)]
        assert told == [sorted(some) for some in second.heard(LOG + kind, line)]
        second.check()
    assert sorted(whole.filters) == sorted(second.filters)
    assert (whole.plain, whole.shared) == (second.plain, second.shared)


def test_a_full_log_forgets_clients_that_are_away_and_then_learns_no_more(monkeypatch):
    monkeypatch.setattr(learn, "SUBSCRIPTIONS_MAX", 3)
    one = SubscriptionLog("trellis-n")
    for line in ("a 1 t/1", "b 1 t/2", "c 1 t/3"):
        one.heard(f"{LOG}M/subscribe", line)
    one.heard(f"{LOG}N", "Client b disconnected.")
    assert one.heard(f"{LOG}M/subscribe", "d 1 t/4") == (["t/4"], ["t/2"])
    assert one.heard(f"{LOG}M/subscribe", "e 1 t/5") == ([], [])
    assert (one.forgotten, one.unlearned, one.filters) == (1, 1, ("t/1", "t/3", "t/4"))
    monkeypatch.setattr(learn, "LETTERS_MAX", 20)
    one.heard(f"{LOG}M/unsubscribe", "d t/4")
    assert one.heard(f"{LOG}M/subscribe", "f 1 " + "x" * 30) == ([], [])
    one.check()


def test_a_line_of_the_log_is_acknowledged_when_what_it_says_is_saved():
    one = learning()
    one.is_saved = True
    hear(one, "M/subscribe", "a 1 t/1", qos=1, id=5)
    hear(one, "N", "Client nobody disconnected.", qos=1, id=6)
    assert not one.to_broker
    one.saved(one.log.changes)
    assert [packet.id for packet in one.to_broker] == [5, 6]
    hear(one, "N", "New connection from 127.0.0.1:1 on port 2.", qos=1, id=7)  # changes nothing
    assert [packet.id for packet in one.to_broker] == [5, 6, 7]
    hear(one, "M/subscribe", "a 1 t/2", qos=1, id=8)
    one.down()
    one.up(p.ConnAck(reason=0, session_present=True))
    one.to_broker.clear()
    hear(one, "M/subscribe", "a 1 t/2", qos=1, id=8, dup=True)  # told again, and still not saved
    assert not one.to_broker
    one.check()


def test_the_log_is_read_with_qos_1_so_that_the_broker_keeps_it_while_we_are_away():
    one = Bridge("trellis-n", MqttConfig(broker="mqtt://b", learn=True))
    one.up(p.ConnAck(reason=0))
    (asked,) = [packet.asked for packet in one.to_broker if isinstance(packet, p.Subscribe)]
    assert {each.filter: each.qos for each in asked} == {
        "#": 1,
        **dict.fromkeys((*learn.TOPICS, *TOLD), 1),
        "trellis/probe/+": 0,
    }


def test_subscriptions_that_the_broker_counts_and_never_told_are_found():
    one = learning()
    hear(one, "M/subscribe", "a 1 t/1")
    hear(one, "M/subscribe", "a 1 $share/g/t/1")
    ours = 2 + len(learn.TOPICS) + len(TOLD)

    def counted(plain: int, shared: int, ms: int) -> int:
        for topic, count in zip(COUNTS, (plain, shared), strict=True):
            one.from_broker(p.Publish(topic=topic, payload=b"%d" % count))
        one.tick(ms)
        return one.unknown

    assert counted(ours + 1, 1, 100_000) == 0
    assert counted(ours + 3, 2, 110_000) == 0  # the broker's count may be newer than its log
    assert counted(ours + 3, 2, 126_000) == 3
    hear(one, "M/subscribe", "b 1 t/1")
    hear(one, "M/subscribe", "b 1 t/2")
    assert counted(ours + 3, 2, 127_000) == 1
    assert counted(ours + 3, 1, 128_000) == 0
    assert counted(ours, 0, 200_000) == 0  # we know more than there are: that costs messages, and loses none


class Counted:
    """A sidecar's bridge whose broker tells its counts in rounds of 10 s."""

    def __init__(self, **fields: Any) -> None:
        self.bridge = learning(**fields)
        self.ours = 2 + len(learn.TOPICS) + len(TOLD)
        self.now_ms = 1_000_000
        self.bridge.tick(self.now_ms)

    def round(self, subscriptions: int, away: int = 0, times: int = 1) -> None:
        """The broker has so many subscriptions beside ours, and so many sessions without a connection."""
        for _ in range(times):
            self._tell(self.now_ms, subscriptions, away)
            self.now_ms += 10_000
            self.bridge.tick(self.now_ms)
            self.bridge.check()

    def is_away(self, ms: int) -> None:
        """The sidecar has no connection for so long."""
        self.bridge.down()
        self.now_ms += ms
        self.bridge.tick(self.now_ms)
        self.bridge.up(p.ConnAck(reason=0, session_present=True))
        self.bridge.tick(self.now_ms)

    def told_late(self, subscriptions: int, ms: int) -> None:
        """The rounds of this time waited for us, and come within six seconds."""
        now_ms = self.now_ms
        for at_ms in range(now_ms - ms, now_ms, 10_000):
            self.now_ms += 6_000 * 10_000 // ms
            self.bridge.tick(self.now_ms)
            self._tell(at_ms, subscriptions, 0)

    def _tell(self, at_ms: int, subscriptions: int, away: int) -> None:
        told = {
            SWEEP: b"%d seconds" % (at_ms // 1_000),
            AWAY: b"%d" % away,
            COUNTS[0]: b"%d" % (self.ours + subscriptions),
        }
        for topic, payload in told.items():
            self.bridge.from_broker(p.Publish(topic=topic, payload=payload))

    def hear(self, kind: str, line: str) -> None:
        hear(self.bridge, kind, line)

    def comes(self, client: str, *filters: str, is_clean: int = 1) -> None:
        self.hear("N", f"7: New client connected from 127.0.0.1:1 as {client} (p5, c{is_clean}, k60).")
        for one in filters:
            self.hear("M/subscribe", f"7: {client} 1 {one}")

    def goes(self, client: str) -> None:
        self.hear("N", f"7: Client {client} disconnected.")

    def unsubscribed(self) -> list[str]:
        found, self.bridge.to_host = self.bridge.to_host, []
        return [one for packet in found if isinstance(packet, p.Unsubscribe) for one in packet.filters]


def test_a_client_of_version_5_that_left_for_good_is_forgotten_when_the_counts_show_it():
    one = Counted()
    one.comes("short", "a/1", "a/2")
    one.comes("stays", "b/1")
    one.round(3)
    one.goes("short")
    one.round(1)  # the first round after it left may be older
    assert one.bridge.log.filters == ("a/1", "a/2", "b/1")
    one.round(1, times=4)
    assert one.bridge.log.filters == ("b/1",)
    assert one.unsubscribed() == ["a/1", "a/2"]
    assert one.bridge.counts.ended == 1


def test_a_client_of_version_5_whose_session_lasts_is_kept_while_it_is_away():
    one = Counted()
    one.comes("long", "a/1", "a/2")
    one.round(2)
    one.goes("long")
    one.round(2, away=1, times=20)
    one.comes("new", "c/1", "c/2")  # what comes between two rounds is not in the counts yet
    one.round(4, away=1, times=20)
    assert one.bridge.log.filters == ("a/1", "a/2", "c/1", "c/2")
    assert one.bridge.unknown == 0


def test_a_client_that_left_does_not_hide_one_that_was_never_told():
    one = Counted()
    one.comes("short", "a/1", "a/2", "a/3")
    one.round(3)
    one.goes("short")
    one.round(2, times=2)  # in the same round it left, and another one subscribed unheard
    one.round(2, times=14)
    assert one.bridge.unknown == 2
    one = Counted()
    one.comes("long", "a/1", "a/2", "a/3", is_clean=0)
    one.comes("short", "b/1", "b/2")
    one.round(5)
    one.goes("long")
    one.goes("short")
    one.round(5, away=1, times=20)  # one of both has a session: at most three of five are theirs
    assert one.bridge.unknown == 2


def test_a_client_that_may_have_left_while_the_log_went_unread_is_forgotten_when_the_counts_show_it():
    one = Counted()
    one.comes("x", "a/1", "a/2")
    one.comes("y", "b/1")
    one.round(3)
    one.bridge.log.doubt()
    one.round(1, times=5)
    assert one.bridge.log.filters == ("b/1",)
    one.comes("z", "c/1", "c/2")
    one.round(3, times=5)
    assert one.bridge.log.filters == ("b/1", "c/1", "c/2")


@pytest.mark.parametrize("unread_ms", [15_000, 40_000])
def test_a_client_that_stays_is_kept_where_lines_behind_an_old_one_have_expired(unread_ms):
    one = Counted()
    one.comes("stays", "a/1")
    one.round(1, times=3)
    one.is_away(unread_ms)
    if unread_ms > 20_000:
        one.bridge.log.doubt()  # as the sidecar does when it connects after so long
    # What the broker still has comes at once. "short" has left, and the line that says so has expired.
    one.comes("short", "b/1")
    one.told_late(1, unread_ms)
    one.round(1, times=10)
    assert one.bridge.log.filters == ("a/1", "b/1")
    one.goes("stays")
    one.round(0, times=5)
    assert one.bridge.log.filters == ()


def test_a_client_in_doubt_that_leaves_is_kept_where_its_session_lasts():
    one = Counted()
    one.comes("long", "a/1", is_clean=0)
    one.comes("short", "b/1")
    one.bridge.log.doubt()
    one.round(2, times=3)
    one.goes("long")
    one.round(2, away=1, times=3)
    one.goes("short")
    one.round(1, away=1, times=5)
    assert "a/1" in one.bridge.log.filters
    one.comes("long", is_clean=0)  # it has its session, and does not subscribe again
    one.round(1, times=5)
    assert one.bridge.log.filters == ("a/1",)


@pytest.mark.parametrize("has_caught_up", [False, True])
def test_a_client_that_may_have_left_unheard_is_in_doubt_after_a_restart_as_well(has_caught_up):
    before, one = Counted(), Counted()
    before.comes("x", "a/1")
    before.comes("long", "b/1", is_clean=0)
    before.bridge.log.doubt()
    before.comes("y", "c/1")  # a line that waited
    before.round(1, times=2 if has_caught_up else 0)
    one.bridge.log.restore(before.bridge.log.remember())
    one.bridge.check()
    one.round(1, times=3)
    one.goes("long")
    one.round(1, away=1, times=10)  # the one subscription is that of "long": its session lasts, and the others left
    assert one.bridge.log.filters == ("a/1", "b/1", "c/1")  # which of them have left cannot be decided


def test_nothing_is_wanted_for_a_client_that_is_away_for_long_until_it_is_back():
    one = Counted(learn_away_s=100)
    one.comes("long", "a/1", "$share/g/a/1", "a/2")
    one.comes("other", "a/2")
    one.round(3)
    one.goes("long")
    one.round(3, away=1, times=9)
    assert not one.unsubscribed()
    one.round(3, away=1, times=3)
    assert one.unsubscribed() == ["a/1"]
    assert one.bridge.wanted == ("a/2",)
    assert one.bridge.unknown == 0
    one.bridge.to_host.clear()
    one.comes("long", is_clean=0)  # it has its session, and does not subscribe again
    (wish,) = one.bridge.to_host
    assert [each.filter for each in wish.asked] == ["a/1"]
    one.round(3)
    assert sorted(one.bridge.wanted) == ["a/1", "a/2"]


def test_probes_of_the_doctor_are_not_learned():
    one = Counted()
    one.comes("trellis-doctor-17", "#")
    assert one.bridge.log.filters == ()
    one.bridge.log.restore(Learned(1, {"trellis-doctor-16": ["#"]}, [], []))
    assert one.bridge.log.filters == ()


@pytest.mark.parametrize(
    "line",
    [
        "Client x disconnected.", "Client x [127.0.0.1:1] disconnected.", "Client x closed its connection.",
        "Client x has exceeded timeout, disconnecting.", "Client x disconnected due to protocol error.",
        "Client x been disconnected by administrative action.", "Socket error on client x, disconnecting.",
        "Bad socket read/write on client x: Connection reset by peer",
    ],
)  # fmt: skip
def test_each_way_in_which_the_log_tells_a_disconnection_is_understood(line):
    one = SubscriptionLog("trellis-n")
    one.heard(f"{LOG}M/subscribe", "7: x 1 t")
    one.heard(f"{LOG}N", f"7: {line}")
    assert list(one.away) == ["x"]


# The file


def test_the_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = LearnedFile(tmp_path / "deep" / "s.json")
    assert file.read() is None
    first = Learned(1, {"a": ["x/#"]}, ["a"], [])
    file.write(first)
    assert file.read() == first
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        file.write(Learned(1, {"b": ["y"]}, [], []))
    assert file.read() == first
    assert [path.name for path in file.path.parent.iterdir()] == ["s.json"]


def test_each_sidecar_has_a_file_of_its_own_unless_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = {learned_path("", *one) for one in (("a/../b", "h", 1), ("a/../b", "h", 2), ("a_.._b", "h", 1))}
    assert len(found) == 3
    assert {path.parent for path in found} == {tmp_path / "trellis"}
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two")
    assert learned_path("", "a", "h", 1).parent == Path("/var/lib/one")
    assert learned_path("~/x.json", "a", "h", 1) == Path("~/x.json").expanduser()


async def beside_a_door(stack: AsyncExitStack, **fields: Any) -> LiveNode:
    """A sidecar of our own MQTT listener, which tells no subscriptions."""
    (outer,) = await stack.enter_async_context(doors("outer"))
    nodes: list[LiveNode] = []

    async def end() -> None:
        await vanish_all()
        for one in nodes:
            await one.stop(in_order=False)

    stack.push_async_callback(end)
    return await attach("s0", f"mqtt://127.0.0.1:{outer.mqtt.port}", nodes, **{"want": (), "learn": True, **fields})


def test_a_node_wants_at_its_start_what_it_had_learned_before(tmp_path):
    path = tmp_path / "s.json"
    LearnedFile(path).write(Learned(1, {"a": ["home/#", "x/y"], "b": ["no/#/filter"], "trellis-s0": ["own"]}, [], []))

    async def work() -> None:
        async with AsyncExitStack() as stack:
            node = await beside_a_door(stack, learn_file=str(path))
            assert node.mqtt.sidecar.bridge.wanted == ("home/#", "x/y")
            host = node.mqtt.host
            await until(lambda: "x/y" in host.interests.wanted and "home/#" in host.interests.patterns)
            assert node.mqtt.metrics()["sidecar filters learned"] == 2

    run(work())


def test_a_sidecar_is_not_ready_before_its_remembered_filters_are_confirmed(tmp_path):
    path = tmp_path / "s.json"
    LearnedFile(path).write(Learned(1, {"a": ["home/#", "x/y", "+/z"]}, [], []))

    async def work() -> None:
        async with AsyncExitStack() as stack:
            node = await beside_a_door(stack, learn_file=str(path), take=("in/#",))
            host, bridge = node.mqtt.host, node.mqtt.sidecar.bridge
            assert unready(node) == "subscribing"
            told = {one.kind: one.text for one in node.health.complaints()}
            assert "subscribing" in told
            while unready(node):
                await asyncio.sleep(0.005)
            assert all(host.directory.is_ready(one) for one in ("home/#", "+/z"))
            assert host.directory.is_confirmed("x/y")
            assert bridge.is_taking
            assert "subscribing" not in [one.kind for one in node.health.complaints()]

    run(work())


def test_a_remembered_filter_that_the_mesh_refuses_is_told_and_not_waited_for(tmp_path):
    path = tmp_path / "s.json"
    LearnedFile(path).write(Learned(1, {"a": ["home/#", "/".join("x" * 250)]}, [], []))

    async def work() -> None:
        async with AsyncExitStack() as stack:
            node = await beside_a_door(stack, learn_file=str(path), take=("in/#",))
            await until(lambda: not unready(node))
            (told,) = [one for one in node.mqtt.complaints() if "refuses the filter" in one]
            assert "more than 201 levels" in told

    run(work())


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"version": 2, "clients": {}, "clean": [], "away": []}', b"[" * 100_000,
     b'{"version": 1, "clients": {"a": [1]}, "clean": [], "away": []}'],
    ids=["empty", "cut off", "not text", "no object", "another version", "deep", "numbers for filters"],
)  # fmt: skip
def test_a_damaged_file_is_set_aside_with_a_warning_and_the_node_goes_on(content, tmp_path, caplog):
    path = tmp_path / "s.json"
    path.write_bytes(content)

    async def work() -> None:
        async with AsyncExitStack() as stack:
            node = await beside_a_door(stack, learn_file=str(path))
            await until(lambda: path.exists())  # a new one
            assert node.mqtt.sidecar.memory.file.read() == Learned(1, {}, [], [])
            assert not [one for one in node.mqtt.complaints() if "saved" in one]

    run(work())
    assert (tmp_path / "s.json.damaged").read_bytes() == content
    assert "is damaged and was set aside" in caplog.text


def test_a_file_that_cannot_be_written_is_complained_about_and_the_node_goes_on(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")

    async def work() -> None:
        async with AsyncExitStack() as stack:
            node = await beside_a_door(stack, learn_file=str(tmp_path / "file" / "s.json"))
            await until(lambda: any("cannot be saved" in one for one in node.mqtt.complaints()))
            await until(lambda: any("refuses our subscription" in one for one in node.mqtt.complaints()))

    run(work())
    assert 1 <= caplog.text.count("cannot remember") <= 2  # it cannot be read, and cannot be written


def test_a_broker_that_is_away_is_complained_about(tmp_path):
    async def work() -> None:
        nodes: list[LiveNode] = []
        node = await attach("s0", f"mqtt://127.0.0.1:{free_port()}", nodes, learn_file=str(tmp_path / "s.json"))
        try:
            await until(lambda: any("is away" in one and "refused" in one for one in node.mqtt.complaints()))
        finally:
            await node.stop(in_order=False)

    run(work())


# Mosquitto


async def hears(site: Site, talk: Any, topic: str, payload: bytes, *, again: str = "") -> None:
    """Publish at another site until it comes: the mesh may need a moment. `again`: subscribe to this each time."""
    async with talking(site.port, "publisher") as publisher:
        while True:
            if again:  # the sidecar may not have read the log yet
                await talk.subscribe(again)
            await publisher.publish(topic, payload)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    while await talk.message() != payload:
                        pass
                    return


@needs_mosquitto
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_clients_that_stay_at_the_broker_hear_the_mesh_after_a_restart_of_the_sidecar(how, tmp_path, monkeypatch):
    """Those that subscribed before it went, and those that subscribed while it was away."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    async def work() -> None:
        async with (
            brokers(tmp_path, "x", "y", lines=TELLS) as both,
            sites(tmp_path, list(both), learn=True) as (a, b),
            talking(b.port, "before") as before,
            talking(b.port, "meanwhile") as meanwhile,
        ):
            await hears(a, before, "plant/oven/temperature", b"1", again="plant/+/temperature")
            b.node.signal(how)
            await b.node.ended()
            await meanwhile.subscribe("other/x")
            await b.start_node([a.node.about["listen"]])
            await hears(a, before, "plant/oven/temperature", b"2")
            await hears(a, meanwhile, "other/x", b"3")

    run(work())


@needs_mosquitto
def test_a_client_that_subscribes_at_a_restarted_broker_before_its_sidecar_is_back_hears_the_mesh(tmp_path):
    lines = f"{TELLS}persistence true\npersistence_location {tmp_path}/NAME/\nautosave_interval 1\nuser root\n"

    async def work() -> None:
        fields = {"want": (), "learn": True, "learn_file": str(tmp_path / "y.json")}
        async with brokers(tmp_path, "x", "y", lines=lines) as (x, y), sidecars(x.url) as nodes:
            node = await attach("sy", y.url, nodes, **fields)
            bridge = node.mqtt.sidecar.bridge
            await until(lambda: bridge.is_taking)
            stayer = await client_of(y, "stayer", "old/1", clean_start=False, expiry_s=600)
            await until(lambda: "old/1" in node.mqtt.host.interests.wanted)
            y.process.send_signal(signal.SIGUSR1)  # it saves its sessions
            await asyncio.sleep(0.2)
            node.mqtt.sidecar.port = free_port()  # it does not find its broker for a while
            await y.kill()
            await y.start()
            stayer = await client_of(y, "stayer", clean_start=False, expiry_s=600)  # and subscribes to nothing
            newcomer = await client_of(y, "newcomer", "new/1")
            node.mqtt.sidecar.port = y.port
            publisher = await client_of(x, "p")
            for reader, topic in ((stayer, "old/1"), (newcomer, "new/1")):
                await until(lambda topic=topic: node.mqtt.host.directory.is_confirmed(topic))
                await publisher.publish(topic, b"1")
                assert (await reader.message()).payload == b"1"

    run(work())


@needs_mosquitto
def test_subscriptions_that_are_older_than_the_sidecar_are_complained_about_until_they_are_known(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(counts, "_UNKNOWN_MS", 2_000)

    async def work() -> None:
        async with brokers(tmp_path, "x", lines=TELLS) as (x,):
            old = await client_of(x, "old", "t/1", "t/2")
            fields = {"want": (), "learn": True, "learn_file": str(tmp_path / "x.json")}
            async with sidecars(x.url, **fields) as (node,):
                await until(lambda: any("has 2 subscriptions" in one for one in node.mqtt.complaints()))
                assert node.mqtt.metrics()["sidecar subscriptions unknown"] == 2
                await old.subscribe("t/1", "t/2")
                await until(lambda: not node.mqtt.complaints())

    run(work())
    assert "subscriptions of its clients may be unknown here: it has 2 more than it told" in caplog.text


@needs_mosquitto
def test_clients_of_version_5_that_left_mosquitto_are_forgotten_and_hide_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(counts, "_UNKNOWN_MS", 1_000)
    monkeypatch.setattr(counts, "_SETTLE_MS", 0)

    async def work() -> None:
        async with brokers(tmp_path, "x", lines=TELLS) as (x,):
            deaf = await client_of(x, "deaf", "d/1", "d/2")  # older than the sidecar, which knows nothing of it
            fields = {"want": (), "learn": True, "learn_file": str(tmp_path / "x.json")}
            async with sidecars(x.url, **fields) as (node,):
                bridge = node.mqtt.sidecar.bridge
                gone = await client_of(x, "gone", "g/1", "g/2", "g/#", version=p.V5)
                kept = await client_of(x, "kept", "k/1", version=p.V5, expiry_s=600)
                await until(lambda: len(bridge.log.filters) == 4 and len(bridge.counts._rounds) == 3)
                for one in (gone, kept):
                    one.send(p.Disconnect())
                await until(lambda: bridge.log.filters == ("k/1",))
                assert set(node.mqtt.host.interests.wanted) >= {"k/1"}
                assert not {"g/1", "g/2"} & set(node.mqtt.host.interests.wanted)
                await until(lambda: any("has 2 subscriptions" in one for one in node.mqtt.complaints()))
                await deaf.subscribe("d/1", "d/2")
                await until(lambda: not node.mqtt.complaints())

    run(work())


@needs_mosquitto
def test_a_probe_of_the_broker_leaves_no_filter_behind(tmp_path):
    """Not even under a name that is not one of `trellis doctor`."""

    async def work() -> None:
        async with brokers(tmp_path, "x", lines=TELLS) as (x,):
            fields = {"want": (), "learn": True, "learn_file": str(tmp_path / "x.json")}
            async with sidecars(x.url, **fields) as (node,):
                bridge = node.mqtt.sidecar.bridge
                asked = MqttConfig(broker=x.url, take=("#", "a/+"), want=("b",))
                answer = await ask_broker(("127.0.0.1", x.port), None, None, None, asked, "probe", 10.0)
                assert answer == BrokerAnswer(sidecars=("trellis-s0",))
                await client_of(x, "last", "last/1")
                await until(lambda: "last/1" in bridge.log.filters)
                assert bridge.log.filters == ("last/1",)

    run(work())


@needs_mosquitto
def test_a_log_that_went_unread_for_longer_than_the_broker_keeps_it_is_told(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(memory, "_UNREAD_S_MAX", 0.0)

    async def work() -> None:
        async with brokers(tmp_path, "x", lines=TELLS) as (x,):
            fields = {"want": (), "learn": True, "learn_file": str(tmp_path / "x.json")}
            for gaps in (0, 1):
                async with sidecars(x.url, **fields) as (node,):
                    await until(lambda: (tmp_path / "x.json").exists())
                    assert node.mqtt.sidecar.memory.gaps == gaps

    run(work())
    assert "its log was not read for" in caplog.text
