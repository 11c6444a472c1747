"""Adapters: the configuration that each writes, and the reason that each gives where it cannot run."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from benchmarks.fire.network import Place
from benchmarks.fire.systems import SYSTEMS, base

from trellis.live.config import read_config

PLACES = [Place(index, f"10.0.0.{index + 1}", f"10.1.0.{index + 1}") for index in range(5)]


def configured(name: str, folder: Path, places: list[Place] | None = None) -> list[str]:
    """Return the text of the configuration of each site."""
    places = places or PLACES
    commands = SYSTEMS[name]().configure(places, folder)
    assert len(commands) == len(places)
    assert all(some[-1].ready is not None for some in commands)  # clients wait until the site is up
    suffix = "toml" if name.startswith("trellis") else "conf"
    return [(folder / f"{place.name}.{suffix}").read_text("utf-8") for place in places]


def bridges(texts: list[str]) -> set[tuple[int, int]]:
    ends = {place.peer_ip: place.index for place in PLACES}
    return {(index, ends[host]) for index, text in enumerate(texts) for host in re.findall(r"address ([\d.]+):", text)}


def reached(texts: list[str], origin: int) -> list[int]:
    """Follow the bridges with the topics of one site. Return every arrival, so that a loop or a copy shows."""
    moves: list[tuple[int, int]] = []
    ends = {place.peer_ip: place.index for place in PLACES}
    for index, text in enumerate(texts):
        for part in text.split("connection ")[1:]:
            other = ends[re.findall(r"address ([\d.]+):", part)[0]]
            moves += [(index, other)] if f"topic s{origin}/# out 1" in part else []
            moves += [(other, index)] if f"topic s{origin}/# in 1" in part else []
    arrivals, front = [], [origin]
    while front and len(arrivals) < 100:
        at = front.pop()
        arrivals += [end for begin, end in moves if begin == at]
        front += [end for begin, end in moves if begin == at]
    return sorted(arrivals)


@pytest.mark.parametrize(("name", "count"), [("mosquitto-star", 4), ("mosquitto-mesh", 10), ("mosquitto-triangle", 5)])
def test_bridges_bring_each_topic_to_every_other_broker_exactly_once(name, count, tmp_path):
    texts = configured(name, tmp_path)
    assert len(bridges(texts)) == count
    for origin in range(5):
        assert reached(texts, origin) == [site for site in range(5) if site != origin]


def test_bridges_keep_sessions_at_both_ends_and_brokers_save_them(tmp_path):
    text = configured("mosquitto-mesh", tmp_path)[0]
    for line in ("persistence true", "autosave_interval 1", "cleansession false", "local_cleansession false"):
        assert f"\n{line}\n" in text


def test_a_triangle_of_three_brokers_is_left_out_because_it_is_the_mesh():
    triangle = SYSTEMS["mosquitto-triangle"]()
    assert triangle.unfit(3)
    assert not triangle.unfit(4)


def test_nats_has_stores_at_three_or_five_servers_with_three_copies(tmp_path):
    assert sum("jetstream" in text for text in configured("nats", tmp_path, PLACES[:3])) == 3
    many = [Place(index, f"10.0.0.{index + 1}", f"10.1.0.{index + 1}") for index in range(12)]
    texts = configured("nats", tmp_path, many)
    assert sum("jetstream" in text for text in texts) == 5
    assert all("stream_replicas: 3" in text for text in texts)


def test_rabbitmq_has_every_other_broker_as_its_upstream_and_a_name_of_its_own(tmp_path):
    texts = configured("rabbitmq", tmp_path)
    assert len({line for text in texts for line in text.splitlines() if line.startswith("cluster_name")}) == 5
    told = json.loads((tmp_path / "s2.definitions.json").read_text("utf-8"))
    assert [one["name"] for one in told["parameters"]] == ["s0", "s1", "s3", "s4"]
    assert all(one["value"]["ack-mode"] == "on-confirm" for one in told["parameters"])


@pytest.mark.parametrize("name", ["trellis", "trellis-mosquitto"])
def test_a_node_takes_the_configuration_that_is_written_for_it(name, tmp_path):
    texts = configured(name, tmp_path)
    config = read_config(tmp_path / "s3.toml", {}, {})
    assert config.name == "s3"
    assert len(tomllib.loads(texts[3])["seeds"]) == 2


def test_a_setting_of_the_command_line_replaces_one_of_the_adapter(tmp_path):
    SYSTEMS["trellis"]({"delivery.copies": "3", "cluster": '"other"'}).configure(PLACES, tmp_path)
    told = tomllib.loads((tmp_path / "s0.toml").read_text("utf-8"))
    assert (told["delivery"]["copies"], told["cluster"]) == (3, "other")


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "trellis"])
def test_a_system_that_is_not_installed_says_where_to_get_it(name, monkeypatch):
    monkeypatch.setattr(base.shutil, "which", lambda *args, **kwargs: None)
    reason = SYSTEMS[name]().missing()
    assert reason
    assert "http" in reason


def test_every_system_says_what_it_was_configured_for():
    assert all(kind.title and kind.safe and kind.known for kind in SYSTEMS.values() if not kind().missing())
