"""Clients of a broker choose their names and filters. None of them makes the sidecar lose another one's filter."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.lives import run, until
from mqtt.attached import client_of, sidecars
from mqtt.brokers import brokers, needs_mosquitto
from mqtt.test_remembered import TELLS, Counted
from trellis.protocols.mqtt import learn
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.learn import LOG, SubscriptionLog

ENDS = (
    "Client {} disconnected.",
    "Client {} disconnected: Connection reset by peer.",
    "Client {} disconnected, not authorised.",
    "Client {} disconnected due to protocol error.",
    "Client {} closed its connection.",
    "Client {} has exceeded timeout, disconnecting.",
    "Client {} been disconnected by administrative action.",
    "Socket error on client {}, disconnecting.",
    "Bad socket read/write on client {}: Connection reset by peer",
)
WORDS = (
    "a", "b", "x/#", "0", "1", "7:", "a: b", "as", "'", '"', "\\n", "\n", "", "[127.0.0.1:1]",
    "disconnected", "disconnected.", "disconnected:", "disconnected, b.", "x, disconnecting.", "due to timeout.",
    "due to protocol error.", "closed its connection.", "has exceeded timeout, disconnecting.",
    "been disconnected by administrative action.", "(p2, c1, k60).", "(p2, c1, k60, u'",
)  # fmt: skip
NAMES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join).filter(bool)
# A filter ends with what Mosquitto takes. Newlines are no part of it: a mesh does not carry such topics.
FILTERS = st.lists(st.sampled_from([one for one in WORDS if "#" not in one and one != "\n"]), max_size=3).map(
    lambda words: " ".join((*words, "t/#"))
)


@dataclass
class Session:
    is_clean: bool  # ends with its connection
    is_connected: bool = True
    filters: set[str] = field(default_factory=set)


class Teller:
    """The sessions of a broker, and its log as Mosquitto writes it."""

    def __init__(self, stamp: str = "1794814033: ") -> None:
        self.stamp, self.log = stamp, SubscriptionLog("trellis-n")
        self.sessions: dict[str, Session] = {}

    def tell(self, kind: str, line: str) -> None:
        before = set(self.log.filters)
        wanted, gone = self.log.heard(LOG + kind, self.stamp + line)
        self.log.check()
        assert (before | set(wanted)) - set(gone) == set(self.log.filters)
        for name, session in self.sessions.items():
            assert session.filters <= set(self.log.filters), f"{line!r} takes from {name!r}"

    def connect(self, name: str, version: int = 2, is_clean: bool = True, user: str = "") -> None:
        old = self.sessions.get(name)
        self.sessions[name] = Session(is_clean and version != 5)
        if old is not None and not is_clean:
            self.sessions[name].filters = old.filters
        user = user and f", u'{user}'"
        self.tell("N", f"New client connected from 127.0.0.1:1 as {name} (p{version}, c{int(is_clean)}, k60{user}).")

    def subscribe(self, name: str, filter_: str) -> None:
        self.sessions[name].filters.add(filter_)
        self.tell("M/subscribe", f"{name} 1 {filter_}")

    def unsubscribe(self, name: str, filter_: str) -> None:
        self.sessions[name].filters.discard(filter_)
        self.tell("M/unsubscribe", f"{name} {filter_}")

    def end(self, name: str, how: str = ENDS[0]) -> None:
        self.sessions[name].is_connected = False
        if self.sessions[name].is_clean:
            del self.sessions[name]
        self.tell("N", how.format(name))

    def expire(self, name: str) -> None:
        del self.sessions[name]
        self.tell("N", f"Expiring client {name} due to timeout.")


@given(st.data(), st.sampled_from(["", "1794814033: "]), st.lists(NAMES, min_size=1, max_size=3))
def test_no_client_loses_a_filter_by_the_names_and_filters_of_others(data, stamp, some):
    # The names that the lines of the others may be taken for: beginnings of these names.
    starts = {one[:at].strip("\n") for one in some for at, letter in enumerate(one) if letter in " :,"}
    names = sorted({*some, *starts} - {""})
    one = Teller(stamp)
    # A filter may be the rest of a name and of a filter.
    rests = [name[len(other) + 1 :] for name in names for other in names if name.startswith(f"{other} ")]
    rests = [rest.removeprefix("1 ").removeprefix("0 ") for rest in rests if "\n" not in rest and "#" not in rest]
    filters = FILTERS if not rests else FILTERS | st.sampled_from([f"{rest}{end}" for rest in rests for end in (
        " t/#", " 1 t/#")])  # fmt: skip
    for name in names:
        one.connect(name, data.draw(st.sampled_from([2, 5])), data.draw(st.booleans()))
        if data.draw(st.booleans()):
            one.subscribe(name, data.draw(filters))
    for _ in range(data.draw(st.integers(1, 8))):
        name = data.draw(st.sampled_from(names))
        what = data.draw(st.sampled_from(["subscribe", "unsubscribe", "end", "connect"]))
        session = one.sessions.get(name)
        if session is None or not session.is_connected or what == "connect":
            if session is not None and not session.is_connected and data.draw(st.booleans()):
                one.expire(name)
            else:
                version, is_clean = data.draw(st.sampled_from([2, 5])), data.draw(st.booleans())
                one.connect(name, version, is_clean, data.draw(st.just("") | NAMES))
        elif what == "end":
            one.end(name, data.draw(st.sampled_from(ENDS)))
        else:
            (one.subscribe if what == "subscribe" else one.unsubscribe)(name, data.draw(filters))
    again = SubscriptionLog("trellis-n")
    again.restore(one.log.remember())
    again.check()
    assert set(again.filters) == set(one.log.filters)
    assert (again.plain, again.shared) == (one.log.plain, one.log.shared)
    assert {name: again.counts_of(name) for name in names} == {name: one.log.counts_of(name) for name in names}


def test_a_client_with_blanks_and_digits_in_its_name_is_heard():
    one = Teller()
    one.connect("line 1 pump")
    one.subscribe("line 1 pump", "plant/#")
    assert one.log.filters == ("plant/#",)
    one.subscribe("line 1 pump", "with 2 blanks/#")
    one.unsubscribe("line 1 pump", "with 2 blanks/#")
    assert one.log.filters == ("plant/#",)
    one.end("line 1 pump")
    assert one.log.filters == ()


def test_a_client_whose_connection_is_older_than_the_sidecar_is_heard_by_any_name():
    one = SubscriptionLog("trellis-n")
    one.heard(f"{LOG}M/subscribe", "7: line 1 pump 1 plant/#")
    assert set(one.filters) == {"plant/#", "pump 1 plant/#"}
    assert one.plain == 1
    one.check()


def test_a_client_that_may_be_one_of_two_is_heard_and_counted_once():
    one = Teller()
    one.connect("line")
    one.connect("line 1 pump")
    one.subscribe("line 1 pump", "plant/#")
    assert set(one.log.filters) == {"plant/#", "pump 1 plant/#"}
    assert (one.log.plain, one.log.present()) == (1, (0, 0))
    one.end("line 1 pump")
    one.end("line")
    assert one.log.filters == ()
    assert one.log.plain == 0


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("tail", ["{} x", "{}", "{} [127.0.0.1:1]", "{}: x"])
def test_a_client_does_not_end_another_one_by_its_name(how, tail):
    one = Teller()
    one.connect("victim")
    one.subscribe("victim", "plant/#")
    _, rest = how.split("{}")
    name = "victim" + tail.format(rest)
    one.connect(name)
    for again in ENDS:
        one.end(name, again)
        one.connect(name)
    assert one.log.filters == ("plant/#",)
    assert not list(one.log.away)


def test_a_client_that_is_older_than_the_sidecar_does_not_end_another_one_by_its_name():
    one = Teller()
    one.connect("victim")
    one.subscribe("victim", "plant/#")
    one.tell("N", "Client victim disconnected: x disconnected.")
    assert one.log.filters == ("plant/#",)


def test_a_session_that_may_have_begun_anew_is_kept_when_its_connection_ends():
    one = Teller()
    one.connect("a", is_clean=True)
    one.subscribe("a", "plant/#")
    one.connect("a", is_clean=False, user="(p2, c1, k60")
    one.subscribe("a", "other/#")
    one.connect("a", is_clean=False, user="b (p2, c1, k60")
    one.end("a")
    assert set(one.log.filters) == {"plant/#", "other/#"}


@pytest.mark.parametrize(
    ("victim", "name", "user"),
    [
        ("e (p2, c1, k60, u'", "e", " (p2, c1, k60"),
        ("victim", "victim (p2, c1, k60, u'z", ""),
        ("victim", "victim (p2, c1, k60).", ""),
        ("victim", "victim (p2, c1, k60)", "ann"),
    ],
)
def test_a_client_does_not_begin_the_session_of_another_one_by_its_names(victim, name, user):
    one = Teller()
    one.connect(victim, version=5, is_clean=False)
    one.subscribe(victim, "plant/#")
    one.connect(name, user=user)
    one.subscribe(name, "other/#")
    assert {"plant/#", "other/#"} <= set(one.log.filters)


def test_a_client_does_not_unsubscribe_another_one_by_its_name():
    one = Teller()
    one.connect("v")
    one.subscribe("v", "a b/#")
    one.connect("v a")
    one.unsubscribe("v a", "b/#")
    assert one.log.filters == ("a b/#",)
    one.subscribe("v a", "c/#")
    one.unsubscribe("v", "a c/#")
    assert one.log.filters == ("a b/#", "c/#")


def test_a_client_whose_name_begins_like_the_time_is_not_taken_for_another_one():
    one = Teller(stamp="")
    for name, filter_ in (("x", "mine/#"), ("7: x", "yours/#")):
        one.connect(name)
        one.subscribe(name, filter_)
    one.unsubscribe("7: x", "mine/#")
    one.end("7: x")
    assert "mine/#" in one.log.filters


@pytest.mark.parametrize("start", ["", "$share/g/"])
def test_a_filter_that_the_log_cuts_is_wanted_as_a_wider_one(start):
    one = SubscriptionLog("trellis-n")
    whole = f"7: x 1 {start}a/{'b' * 1500}/c"
    one.heard(f"{LOG}M/subscribe", whole[:999])
    assert one.filters == ("a/#",)
    one.heard(f"{LOG}M/unsubscribe", f"7: x a/{'b' * 1500}"[:999])
    assert one.filters == ("a/#",)
    one.heard(f"{LOG}M/subscribe", f"7: y 1 $share/{'g' * 1500}/z"[:999])
    assert one.filters == ("a/#", "#")


def test_a_line_that_is_longer_than_any_of_the_log_is_counted_and_not_read():
    one = SubscriptionLog("trellis-n")
    one.heard(f"{LOG}M/subscribe", "x 1 " * 2_000)
    assert (one.unread, one.filters) == (1, ())


def test_of_too_many_connected_clients_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(learn, "SUBSCRIPTIONS_MAX", 3)
    one = Teller()
    for number in range(10):
        one.connect(f"line 1 {number}")
    one.subscribe("line 1 8", "plant/#")
    assert one.log.filters == ("plant/#",)
    assert len(one.log._is_clean) == 3


def test_the_counts_end_nobody_because_of_a_line_that_can_be_read_in_two_ways():
    one = Counted()
    one.comes("line")
    one.comes("line 1 pump", "plant/#")
    one.comes("long", "a/1", is_clean=0)
    one.round(2, times=3)
    one.goes("long")
    one.round(2, away=1, times=10)
    assert {"plant/#", "a/1"} <= set(one.bridge.log.filters)
    assert one.bridge.unknown == 0
    one.comes("line 1 pump")  # a new session: it has no subscription any more
    one.round(1, away=1, times=10)
    assert "a/1" in one.bridge.log.filters


def test_a_client_that_may_have_left_is_forgotten_when_the_counts_show_it():
    one = Counted()
    one.comes("victim", "a/1")
    one.comes("victim disconnected: x", "b/1", "b/2")
    one.round(3, times=3)
    one.goes("victim disconnected: x")
    assert set(one.bridge.log.filters) == {"a/1", "b/1", "b/2"}
    one.round(1, times=5)
    assert one.bridge.log.filters == ("a/1",)
    assert one.bridge.unknown == 0


@needs_mosquitto
def test_clients_of_mosquitto_are_heard_whatever_their_names_are(tmp_path):
    async def work() -> None:
        async with brokers(tmp_path, "x", lines=TELLS) as (x,):
            fields = {"want": (), "learn": True, "learn_file": str(tmp_path / "x.json")}
            async with sidecars(x.url, **fields) as (node,):
                log = node.mqtt.sidecar.bridge.log
                await client_of(x, "victim", "v/1", version=p.V311)
                await client_of(x, "line 1 pump", "plant/#", version=p.V311)
                await client_of(x, "a (p2, c1, k60).", "par/1", version=p.V311)
                for name in ("victim disconnected x", "victim disconnected: x", "victim (p2, c1, k60)", "victim [1:2]"):
                    evil = await client_of(x, name, version=p.V311)
                    evil.send(p.Disconnect())
                await client_of(x, "last", "last/" + "x" * 2_000, version=p.V311)
                await until(lambda: "last/#" in log.filters)
                assert set(log.filters) == {"v/1", "plant/#", "par/1", "last/#"}
                log.check()

    run(work())
