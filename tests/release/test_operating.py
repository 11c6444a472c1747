"""What an operator relies on: names in logs and metrics, an explained configuration, certificates."""

from __future__ import annotations

import ast
import json
import logging
import re
import shutil
import ssl
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import trellis
from live.lives import client_address, config, mesh, run
from trellis.cli.main import run as trellis_run
from trellis.live.admin import exposition
from trellis.live.config import NodeConfig, TlsConfig, known_keys, read_config
from trellis.live.explain import config_lines, explanations
from trellis.live.log import EVENTS, JsonLines
from trellis.live.shell import LiveNode
from trellis.live.tls import make_context

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text("utf-8")
RULES = (ROOT / "deploy" / "prometheus" / "trellis.rules.yml").read_text("utf-8")
GRAFANA = json.loads((ROOT / "deploy" / "grafana" / "trellis.json").read_text("utf-8"))
METRIC = re.compile(r"\btrellis_[a-z_]+")
SECTIONS = {"trellis_mend_seconds_bucket": "trellis_mend_seconds"}


@pytest.fixture(scope="module")
def exposed() -> set[str]:
    """The metrics of a node, by their names."""
    found: set[str] = set()

    async def work() -> None:
        async with mesh("a") as (node,):
            found.update(re.findall(r"^# TYPE (\S+)", exposition(node), re.MULTILINE))

    run(work())
    return found


def metrics_in(text: str) -> set[str]:
    return {SECTIONS.get(name, name) for name in METRIC.findall(text)}


def expressions() -> list[str]:
    rules = re.findall(r"^ +expr: (.+)$", RULES, re.MULTILINE)
    return rules + [target["expr"] for panel in GRAFANA["panels"] for target in panel["targets"]]


def test_every_metric_in_rules_and_dashboard_exists(exposed):
    used = set().union(*(metrics_in(one) for one in expressions()))
    assert len(used) > 20
    assert used <= exposed


def test_the_runbook_says_what_to_do_about_every_metric_and_names_no_other(exposed):
    table = RUNBOOK.partition("## Metrics")[2].partition("\n## ")[0]
    assert metrics_in(table) == exposed


def test_every_alert_has_a_summary_a_severity_and_balanced_brackets():
    alerts = re.findall(r"- alert: (\w+)\n((?: {8,}.+\n)+)", RULES)
    assert len(alerts) == RULES.count("- alert:") >= 8
    for name, body in alerts:
        assert "summary:" in body, name
        assert re.search(r"severity: (info|warning|critical)", body), name
    for one in expressions():
        assert one.count("(") == one.count(")")
        assert one.count("[") == one.count("]")


# Logs


def sentences() -> dict[str, Path]:
    """What the live node logs: the first argument of every call of `log`."""
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "src" / "trellis" / "live").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and isinstance(call.func.value, ast.Name)
                and call.func.value.id == "log"
            ) or (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "say"):
                assert isinstance(call.args[0], ast.Constant), f"{path.name}: a sentence that is made when it is logged"
                found[call.args[0].value] = path
    return found


def test_every_sentence_that_is_logged_has_a_name():
    named, logged = EVENTS.keys(), sentences()
    assert logged.keys() - named == set(), "give it a name in live/log.py and in docs/runbook.md"
    assert named - logged.keys() == set(), "nobody logs this any more"
    assert len({name for name, _ in EVENTS.values()}) == len(EVENTS)
    for sentence, (_, parts) in EVENTS.items():
        assert len(re.findall(r"%(?:\.\d)?[sdf]", sentence)) == len(parts)


def test_the_runbook_lists_every_event_with_its_parts_and_no_other():
    table = RUNBOOK.partition("## Logs")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    listed = {name: row[3] for row in rows for name in re.findall(r"`([a-z-]+)`", row[1])}
    assert listed.keys() == {name for name, _ in EVENTS.values()} | {"other"}
    for name, parts in EVENTS.values():
        assert all(part in listed[name] for part in parts), name


def test_a_json_line_has_its_event_and_its_parts():
    record = logging.LogRecord("trellis.live", logging.WARNING, "", 0, "%s: %s refuses us: %s", ("a", "b", "no"), None)
    told = json.loads(JsonLines().format(record))
    assert told.pop("time").endswith("Z")
    assert told == {
        "level": "warning", "event": "refused-by-peer", "node": "a", "peer": "b", "why": "no",
        "text": "a: b refuses us: no",
    }  # fmt: skip
    other = logging.LogRecord("asyncio", logging.ERROR, "", 0, "something\nelse", None, None)
    assert json.loads(JsonLines().format(other))["event"] == "other"


def test_a_node_logs_json_lines_from_its_start_to_its_end():
    command = [sys.executable, "-m", "trellis", "node", "--name", "a", "--listen", "127.0.0.1:0", "--log-json"]
    command += ["--client-listen", "127.0.0.1:0", "--set", "delivery.leave_ms_max=300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("node a of trellis")
        process.terminate()
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [json.loads(line)["event"] for line in told.splitlines()] == ["node-up", "node-leaving", "node-left"]


def test_an_unknown_level_is_refused_in_one_line(capsys):
    assert trellis_run(["node", "--name", "a", "--log-level", "loud"]) == 2
    assert capsys.readouterr().err == (
        "trellis: --log-level loud: there is no such level; choose from debug, info, warning, error\n"
    )


# The configuration


def kinds(of: type = NodeConfig) -> list[type]:
    tables = [kind for kind in get_type_hints(of).values() if hasattr(kind, "__struct_fields__")]
    return [of, *(one for table in tables for one in kinds(table))]


def test_every_key_is_explained():
    for kind in kinds():
        plain = {name for name, one in get_type_hints(kind).items() if not hasattr(one, "__struct_fields__")}
        assert plain <= explanations(kind).keys(), f"{kind.__name__}: write what it means below the field"


def test_the_printed_configuration_reads_back_as_the_same(tmp_path, capsys):
    assert trellis_run(["node", "--print-config", "--name", "n7", "--set", "omen.period_ms=500"]) == 0
    printed = tmp_path / "node.toml"
    printed.write_text(capsys.readouterr().out, "utf-8")
    again = read_config(printed, {}, {})
    assert again == read_config(None, {}, {"name": "n7", "omen.period_ms": 500})
    assert list(config_lines(again)) == printed.read_text("utf-8").splitlines()
    keys = {f"{table}.{key}" if table else key for table, key in _keys(tomllib.loads(printed.read_text("utf-8")))}
    assert keys == set(known_keys())


def _keys(table: dict[str, Any], name: str = "") -> list[tuple[str, str]]:
    found = []
    for key, value in table.items():
        found += _keys(value, f"{name}.{key}" if name else key) if isinstance(value, dict) else [(name, key)]
    return found


def test_the_keys_that_the_runbook_names_exist():
    tables = {key.partition(".")[0] for key in known_keys() if "." in key}
    named = set(re.findall(rf"`((?:{'|'.join(tables)})\.[a-z_]+)", RUNBOOK))
    assert len(named) > 5
    assert named <= {*known_keys()}


# Certificates

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def tls_of(folder: Path, name: str) -> TlsConfig:
    return TlsConfig(cert=str(folder / f"{name}.pem"), key=str(folder / f"{name}.key"), ca=str(folder / "ca.pem"))


@needs_openssl
def test_two_commands_make_certificates_with_which_a_node_and_a_client_talk(tmp_path):
    folder, others = tmp_path / "certs", tmp_path / "others"
    for place in (folder, others):
        assert trellis_run(["certs", "ca", "--folder", str(place)]) == 0
        assert trellis_run(["certs", "node", "a", "--folder", str(place)]) == 0
    assert stat.S_IMODE((folder / "a.key").stat().st_mode) == stat.S_IMODE((folder / "ca.key").stat().st_mode) == 0o600
    assert sorted(path.name for path in folder.iterdir()) == ["a.key", "a.pem", "ca.key", "ca.pem"]

    async def work() -> None:
        node = LiveNode(config("a", tls=tls_of(folder, "a")))
        await node.start()
        try:
            mine = make_context(tls_of(folder, "a"), server=False)
            async with trellis.connect(client_address(node), tls=mine) as client:
                await client.subscribe("t")
            strange = make_context(tls_of(others, "a"), server=False)
            with pytest.raises((trellis.TrellisError, ssl.SSLError)):
                async with trellis.connect(client_address(node), tls=strange, timeout_s=0.5):
                    raise AssertionError("a certificate of another authority was believed")
        finally:
            await node.stop(in_order=False)

    run(work())


@needs_openssl
def test_a_certificate_names_its_hosts_and_is_renewed_with_a_new_key(tmp_path, capsys):
    place = ["--folder", str(tmp_path)]
    assert trellis_run(["certs", "ca", *place]) == 0
    assert trellis_run(["certs", "node", "b", "--host", "b.example.org", "--host", "10.0.0.7", *place]) == 0
    text = subprocess.run(
        ["openssl", "x509", "-noout", "-text", "-in", str(tmp_path / "b.pem")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "DNS:b.example.org, IP Address:10.0.0.7" in text
    before = (tmp_path / "b.key").read_bytes()
    assert trellis_run(["certs", "node", "b", *place]) == 0
    assert (tmp_path / "b.key").read_bytes() != before
    assert trellis_run(["certs", "ca", *place]) == 2, "an authority is never written over"
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["node", "../a"], "cannot be the name of a file"),
        (["node", "a"], "make an authority first"),
        (["ca", "--name", "x$y"], "cannot be a name here"),
    ],
)
def test_bad_names_of_certificates_are_refused_in_one_line(arguments, told, tmp_path, capsys):
    assert trellis_run(["certs", *arguments, "--folder", str(tmp_path / "none")]) == 2
    assert told in capsys.readouterr().err


def test_without_openssl_the_command_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert trellis_run(["certs", "ca", "--folder", str(tmp_path / "certs")]) == 2
    assert "apt install openssl" in capsys.readouterr().err
