"""Histories survive their file, and a damaged file is refused with the number of its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.cli.main import run
from trellis.errors import InputError
from trellis.fleet.witness import Witness
from trellis.judge import History, read_history, write_history
from trellis.judge.filters import matches
from trellis.judge.history import (
    Acknowledged,
    Confirmed,
    Connected,
    Event,
    Publishing,
    Received,
    Refused,
    Settled,
    Subscribing,
)
from trellis.protocols.mqtt.topics import is_filter
from trellis.protocols.mqtt.topics import matches as node_matches


def some() -> list[Event]:
    return [
        Connected(0.5, "p", "p", "a"),
        Publishing(1.0, "p", "m1", "x/ä"),
        Acknowledged(1.5, "p", "m1", ("a",)),
    ]


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_history(History(some()), tmp_path / "h.jsonl")
    assert read_history(tmp_path / "h.jsonl").events == some()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('{"event":"sang","t":2}', "no event"),
        ('{"event":"received","t":2}', "no event"),
        ("[]", "no event"),
        ("{", "no event"),
        ('{"event":"up","t":0.1,"node":"a"}', "goes back"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, word: str) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(History(some()).to_bytes() + line.encode() + b"\n")
    with pytest.raises(InputError, match=rf"h.jsonl:4: .*{word}"):
        read_history(path)


def test_the_command_judges_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.jsonl"
    write_history(History(some()), path)
    assert run(["judge", str(path), "--json"]) == 1, "no delivery was owed, so nothing was shown"
    assert json.loads(capsys.readouterr().out)["acknowledged"] == 1
    wants = [Connected(0.1, "s", "s", "a"), Subscribing(0.2, "s", "x/ä"), Confirmed(0.3, "s", "x/ä")]
    write_history(History([*wants, *some(), Received(2.0, "s", "m1", "x/ä"), Settled(9.0)]), path)
    assert run(["judge", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["owed"] == 1
    write_history(History([*some(), Received(2.0, "p", "m1", "x/ä")]), path)
    assert run(["judge", str(path)]) == 1
    assert "without a subscription" in capsys.readouterr().out
    assert run(["judge", str(tmp_path / "none.jsonl")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":"connected","t":2,"session":"\xff\xfe","client":"c","node":"n"}',
        b'{"event":"up","t":2,"node":"a","x":' + b"[" * 200_000,
    ],
    ids=["broken UTF-8", "deeply nested"],
)
def test_a_line_that_cannot_be_decoded_is_named_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes
) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(History(some()).to_bytes() + line + b"\n")
    assert run(["judge", str(path)]) == 2
    told = capsys.readouterr().err
    assert "h.jsonl:4: this is no event" in told
    assert len(told.strip().splitlines()) == 1


def test_the_command_judges_refusals_where_it_is_told_which_are_right(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    wants = [Connected(0.1, "s", "s", "a"), Subscribing(0.2, "s", "x/ä"), Confirmed(0.3, "s", "x/ä"), *some()]
    events = [*wants, Received(2.0, "s", "m1", "x/ä"), Publishing(30.0, "p", "m2", "x/ä")]
    write_history(History([*events, Refused(30.1, "p", "m2", "I do not like it"), Settled(40.0)]), path)
    assert run(["judge", str(path)]) == 0
    assert run(["judge", str(path), "--may-refuse", "quota"]) == 1
    assert run(["judge", str(path), "--may-refuse", "quota", "--may-refuse", "like it"]) == 0


def test_an_old_history_does_not_tell_which_client_it_is(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text('{"event":"connected","t":1,"session":"p","client":"p","node":"a"}\n')
    assert read_history(path).events == [Connected(1.0, "p", "p", "a", "", "")]


def test_trellis_up_writes_which_clients_it_has() -> None:
    native, mqtt = Witness(), Witness()
    mqtt.speaks = "mqtt"
    for witness in (native, mqtt):
        witness.born("a")
    said = [[one.speaks for one in each.history.events if isinstance(one, Connected)] for each in (native, mqtt)]
    assert said == [["native"], ["mqtt"]]


LEVEL = st.sampled_from(["", "a", "b", "$x"])


@given(
    st.lists(LEVEL, min_size=1, max_size=4), st.lists(st.sampled_from(["a", "b", "+", "#", ""]), min_size=1, max_size=4)
)
def test_filters_match_as_the_node_matches_them(topic: list[str], wanted: list[str]) -> None:
    """Two implementations that share no code agree: the judge's, and the node's."""
    one, other = "/".join(wanted), "/".join(topic)
    if other and is_filter(one):
        assert matches(one, other) == node_matches(one, other)
