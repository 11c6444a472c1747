"""node.toml: every key by file, environment and flag; errors that name the key and the remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trellis.cli.main import run
from trellis.errors import InputError
from trellis.live.config import LimitsConfig, NodeConfig, known_keys, read_config
from trellis.protocols.delivery import DeliveryConfig

DOCS = Path(__file__).parents[2] / "docs" / "live.md"


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text('name = "file"\ncluster = "file"\nlisten = "127.0.0.1:1"\n[omen]\nperiod_ms = 10\ncoverage = 2\n')
    environment = {"TRELLIS_CLUSTER": "environment", "TRELLIS_LISTEN": "127.0.0.1:2", "TRELLIS_OMEN_PERIOD_MS": "20"}
    config = read_config(file, environment, {"listen": "127.0.0.1:3", "omen.period_ms": "30"})
    assert (config.name, config.cluster, config.listen) == ("file", "environment", "127.0.0.1:3")
    assert (config.omen.period_ms, config.omen.coverage) == (30, 2)


def test_every_overlay_has_a_table_and_tables_have_tables(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text('name = "a"\noverlay = "magnet"\n[magnet]\nsample_ms = 7\n[magnet.skewed]\nlinks = 8\nwalks = 2\n')
    environment = {"TRELLIS_MAGNET_SKEWED_LINKS": "9", "TRELLIS_GOSSIP_NEWSCAST_PERIOD_MS": "50"}
    config = read_config(file, environment, {"vitis.table_size": "6", "spidercast.coverage_greedy": "2"})
    assert (config.overlay, config.magnet.sample_ms, config.magnet.skewed.walks) == ("magnet", 7, 2)
    assert (config.magnet.skewed.links, config.gossip.newscast.period_ms) == (9, 50)
    assert (config.vitis.table_size, config.spidercast.coverage_greedy) == (6, 2)


def test_lists_come_with_commas_and_truth_as_text():
    environment = {"TRELLIS_SEEDS": "127.0.0.1:1, 127.0.0.1:2", "TRELLIS_INSECURE": "true"}
    environment |= {"TRELLIS_PLANNED_NEIGHBOURS": "b, c"}
    config = read_config(None, environment, {"name": "a", "topics": "x,y"})
    assert config.seeds == ("127.0.0.1:1", "127.0.0.1:2")
    assert config.topics == ("x", "y")
    assert config.planned.neighbours == ("b", "c")
    assert config.insecure is True


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("topics", '["n","m"]', ("n", "m")),
        ("topics", "['a,b', 'c']", ("a,b", "c")),
        ("topics", '"a,b","c"', ("a,b", "c")),
        ("topics", " n, m ,", ("n", "m")),
        ("topics", "[]", ()),
        ("seeds", "[::1]:7001,[::1]:7002", ("[::1]:7001", "[::1]:7002")),
        ("seeds", '["[::1]:7001"]', ("[::1]:7001",)),
        ("mqtt.take", '["plant/#"]', ("plant/#",)),
    ],
)
def test_a_list_is_given_as_toml_or_with_commas(key, text, value):
    for environment, flags in (({}, {key: text}), ({f"TRELLIS_{key.replace('.', '_').upper()}": text}, {})):
        found = read_config(None, environment, {"name": "a", **flags})
        for part in key.split("."):
            found = getattr(found, part)
        assert found == value


@pytest.mark.parametrize(
    ("text", "flags", "told"),
    [
        ('name = "a"\ncolour = 1', {}, r'node.toml: there is no key "colour"; trellis node --print-config shows .*'),
        ('name = "a"\n[omen]\nperiod = 1', {}, r'node.toml: there is no key "omen.period"; perhaps omen.period_ms .*'),
        (
            'name = "a"\n[omen]\nperiod_ms = "x"',
            {},
            r'node.toml: omen.period_ms: "x" is no whole number; give one, as in 500',
        ),
        ('name = "a"\n[omen]\nperiod_ms = 1', {}, r"node.toml: omen: period_ms is 1; give 10 or more"),
        ('name = "a"\n[limits]\nidle_s = 0', {}, r"node.toml: limits: idle_s is 0.0; give more than 0"),
        ('name = "a"\noverlay = "ring"', {}, r'node.toml: overlay: there is no overlay "ring"; choose from omen, .*'),
        ('name = "a"\n[vitis]\nsw_neighbors = 1', {}, r"node.toml: vitis: sw_neighbors is 1; give 2 .*"),
        ('name = "a"\n[magnet.control]\nlinks = 1', {}, r"node.toml: magnet: links is 1; give 4 or more"),
        ('name = "a"\n[planned]\nwait_s = 0', {}, r"node.toml: planned: wait_s is 0; give more than 0"),
        ('name = "a"\n[planned]\nneighbours = [""]', {}, r"node.toml: planned.neighbours: 0 letters; give 1 to 255"),
        ('name = "a"\noverlay = "vitis"', {"planned.neighbours": "b"}, r".*planned.neighbours: vitis chooses .*"),
        ('name = "a:1"', {}, r"node.toml: name: 'a:1' cannot name a node; leave out colons, .*"),
        ("name = a", {}, r"node.toml: not TOML: .*; correct the line"),
        ("", {}, r'node.toml: name is missing; add name = "...", or say --name'),
        ('name = "a"', {"listen": "here"}, r'node.toml: listen: "here" is no address; give host:port, .*'),
        ('name = "a"', {"seeds": "127.0.0.1:x"}, r'node.toml: seeds: "127.0.0.1:x" is no address; .*'),
        ('name = "a"', {"sedes": "x"}, r'--set sedes: there is no key "sedes"; perhaps seeds is meant; .*'),
        ('name = "a"\nperiod_ms = 1', {}, r'node.toml: there is no key "period_ms"; perhaps omen.period_ms or .*'),
        ('name = "a"', {"omen.period_ms": "1e99"}, r'.*: omen.period_ms: "1e99" is no whole number; give one, .*'),
        ('name = "a"', {"insecure": "maybe"}, r'.*: insecure: "maybe" is neither true nor false; .*'),
        ('name = "a"\n[limits]\nidle_s = "x"', {}, r'node.toml: limits.idle_s: "x" is no number; give one, .*'),
        ('name = "a"\nseeds = "b"', {}, r'node.toml: seeds: "b" is no list; write \["a", "b"\]'),
        ('name = "a"\nseeds = [1]', {}, r"node.toml: seeds: \[1\] is no text; write it in quotes"),
        ('name = "a"\nomen = 1', {}, r"node.toml: omen: 1 is no table; write its keys below its name .*"),
        ('name = "a"\nomen = 1', {"omen.period_ms": "9"}, r".*: omen is no table in the file; write \[omen\] there"),
        ('name = "a"', {"topics": '["a", b]'}, r'--set topics: \["a", b\] is no list of TOML; write \["a", "b"\], .*'),
        ('name = "a"\n[tls]\ncert = "x"', {}, r"node.toml: tls: cert, key and ca belong together; give all three.*"),
        ('name = "a"\nlisten = "10.0.0.1:1"', {}, r"node.toml: listen: 10.0.0.1 is beyond loopback .*--insecure.*"),
        ('name = "a"\nclient_listen = "[::]:1"', {}, r"node.toml: client_listen: :: is beyond loopback .*"),
        ('name = "a"\nlisten = "0.0.0.0:1"\ninsecure = true', {}, r"node.toml: advertise: others cannot dial .*"),
    ],
)
def test_an_error_names_the_key_and_the_remedy(text, flags, told, tmp_path):
    file = tmp_path / "node.toml"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_config(file, {}, flags)
    assert re.fullmatch(told, str(error.value).removeprefix(f"{tmp_path}/")), str(error.value)


def test_beyond_loopback_needs_tls_or_a_word(tmp_path):
    given = {"name": "a", "listen": "0.0.0.0:1", "advertise": "10.0.0.1:1"}
    assert read_config(None, {}, {**given, "insecure": True}).insecure
    tls = {"tls.cert": "c", "tls.key": "k", "tls.ca": "a"}
    assert read_config(None, {}, {**given, **tls}).tls.cert == "c"


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys):
    for command, told in [
        (["node", "--config", str(tmp_path / "none.toml")], "none.toml: No such file or directory; name a file"),
        (["node", "--name", "a", "--listen", "10.0.0.1:7001"], "beyond loopback"),
        (["node", "--name", "a", "--set", "omen.period_ms"], '--set: "omen.period_ms" has no value; give KEY=VALUE'),
        (["node", "--name", "a", "--set", "="], '--set: "=" names no key; give KEY=VALUE, as in omen.period_ms=500'),
        (["node", "--name", "a", "--set", "tls.cert=x", "--set", "tls.key=x", "--set", "tls.ca=x"], "tls.cert: x"),
        (["pub", "t", "x", "--at", "nowhere"], '"nowhere" is no address'),
        (["pub", "t", "x", "--at", "127.0.0.1:1", "--timeout", "0.1"], "cannot be reached"),
        (["sub", "t", "--ca", "x"], "belong together"),
    ]:
        assert run(command) == 2
        error = capsys.readouterr().err
        assert told in error
        assert len(error.splitlines()) == 1


def test_the_documentation_lists_every_key():
    page = DOCS.read_text() + DOCS.with_name("mqtt.md").read_text()
    for key in known_keys():
        table, field = key.split(".")[0], key.split(".")[-1]
        if table not in ("omen", "spidercast", "gossip", "vitis", "magnet", "delivery"):  # these say it themselves
            assert f"`{field}`" in page, key


def test_no_more_is_under_way_to_a_neighbor_than_its_queue_holds():
    """A neighbor that lacks many messages would be cut off as slow, again and again."""
    small = NodeConfig(name="a", limits=LimitsConfig(queue_bytes=64 << 10))
    assert small.delivery.flight_bytes == 16 << 10
    assert NodeConfig(name="a").delivery == DeliveryConfig()
