"""`trellis up --mqtt`: what is refused, what the score excuses, and the client that it publishes with."""

from __future__ import annotations

import pytest

from live.lives import run, until
from mqtt.talk import doors
from trellis.cli.main import run as trellis
from trellis.errors import InputError
from trellis.fleet import mosquitto
from trellis.fleet.clients import mqtt_settings
from trellis.fleet.ledger import SPREAD_S, Ledger
from trellis.live.client import ClientError, NotAcknowledged
from trellis.live.mqtt.client import MqttClient


def test_without_mosquitto_the_command_to_install_it_is_told_and_nothing_is_started(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mosquitto, "_SYSTEM", "")
    assert trellis(["up", "--mqtt", "--broker", "mosquitto", "--keep", str(tmp_path / "kept")]) == 2
    told = capsys.readouterr().err
    assert "mosquitto is not installed" in told
    assert "apt install mosquitto" in told
    assert told.count("\n") == 1
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--broker", "mosquitto"], "give --mqtt as well"),
        (["--mqtt", "--broker", "rabbit"], "give mosquitto"),
        (["--mqtt", "--simulated"], "leave out --simulated"),
    ],
)
def test_doors_that_make_no_sense_are_refused_in_one_line(arguments, said, capsys):
    assert trellis(["up", *arguments]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_topics_that_mqtt_cannot_carry_are_refused_and_others_are_overlay_topics_of_their_own():
    assert mqtt_settings({"a": ("t", "x/y/z")})["mqtt.depth"] == 3
    for topic in ("a/+", "#", "$SYS/x", "x" * 481):
        with pytest.raises(InputError):
            mqtt_settings({"a": (topic,)})


def with_one_publication() -> Ledger:
    ledger = Ledger(copies=2)
    for node in "abc":
        ledger.born(node)
    ledger.confirmed(ledger.incarnation("c"), "t")
    ledger.publish("a", "t", 10)
    ledger.acknowledge(1, (), 10)  # a PUBACK names no holders
    return ledger


def test_a_message_whose_holders_are_not_told_is_forgone_if_its_node_and_enough_others_died_in_time():
    ledger = with_one_publication()
    ledger.died("b", 11)
    assert len(ledger.missing()) == 1
    ledger.died("a", 12)
    assert not ledger.missing()
    assert len(ledger.forgone()) == 1


def test_deaths_after_the_message_had_the_time_to_spread_are_no_excuse():
    ledger = with_one_publication()
    ledger.died("b", 11)
    ledger.died("a", 10 + SPREAD_S + 0.1)
    assert len(ledger.missing()) == 1


def test_what_comes_twice_is_excused_only_if_its_node_died_and_only_so_many():
    ledger = Ledger()
    for node in "abc":
        ledger.born(node)
    for node, count in (("a", 3), ("b", 1)):
        for _ in range(count):
            number = ledger.publish(node, "t", 1)
            for _ in range(2):
                ledger.deliver(ledger.incarnation("c"), "t", number, number, 2)
    assert ledger.duplicates == 4
    assert ledger.excused(256) == 0
    ledger.died("a", 3)
    assert ledger.excused(256) == 3
    assert ledger.excused(2) == 2


@pytest.mark.parametrize("may_repeat", [False, True])
def test_what_a_broker_sends_again_after_a_death_may_be_late_for_those_who_joined_meanwhile(may_repeat):
    ledger = Ledger(may_repeat=may_repeat)
    for node in "ac":
        ledger.born(node)
    for number in (1, 2, 3):
        assert ledger.publish("a", "t", number) == number
    ledger.deliver(ledger.incarnation("c"), "t", 2, 2, 4)
    ledger.died("a", 5)
    ledger.deliver(ledger.incarnation("c"), "t", 1, 1, 6)
    assert ledger.disordered == (0 if may_repeat else 1)
    assert ledger.born("a") == ("a", 1)
    for number, at in ((4, 7), (5, 8)):
        assert ledger.publish("a", "t", at) == number
    for number in (5, 4):  # nothing has died since
        ledger.deliver(ledger.incarnation("c"), "t", number, number, 9)
    assert ledger.disordered == (1 if may_repeat else 2)


def test_our_client_publishes_subscribes_and_comes_back_to_its_session():
    async def work() -> None:
        async with doors("a", "b") as (a, b):
            reader = MqttClient(f"127.0.0.1:{b.mqtt.port}", "reader")
            publisher = MqttClient(f"127.0.0.1:{a.mqtt.port}", "publisher")
            async with reader, publisher:
                await reader.subscribe("t/+")
                await publisher.publish("t/1", b"one")
                assert (await anext(reader)).payload == b"one"
                await until(lambda: not b.mqtt.host.sessions["reader"].flying)  # else it would come again
                for stream in [*a.mqtt.streams.values(), *b.mqtt.streams.values()]:
                    stream.cut("test")
                await publisher.publish("t/1", b"two")  # waits until it is back
                assert (await anext(reader)).payload == b"two"
                await until(lambda: reader.reconnects == publisher.reconnects == 1)
                with pytest.raises(NotAcknowledged):
                    await publisher.publish("$no", b"")
                with pytest.raises(NotAcknowledged):
                    await reader.subscribe("$share/x")
                await reader.unsubscribe("t/+")
                await until(lambda: not b.mqtt.host.tree.count)
            with pytest.raises(ClientError):
                await publisher.publish("t/1", b"three")

    run(work())


def test_our_client_says_where_nobody_answers():
    async def work() -> None:
        with pytest.raises(ClientError, match="cannot be reached"):
            async with MqttClient("127.0.0.1:1", "c", timeout_s=0.2):
                pass

    run(work())
