"""`trellis up`: real processes that are killed, hung and cut off from each other under traffic, and a clean score."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mqtt.brokers import needs_mosquitto

PROGRAM = str(Path(sys.executable).parent / "trellis")
SCENARIOS = Path(__file__).parents[1] / "scenarios"
QUICK = {"omen.period_ms": 200, "delivery.tick_ms": 200, "delivery.register_ms": 1_000, "delivery.registered_ms": 3_000}
QUICK |= {"delivery.confirm_ms": 500, "delivery.ask_ms": 300, "delivery.leave_ms_max": 5_000}
SETTINGS = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
LONG_S = 300  # only a failure takes so long
SMALL = ["--nodes", "6", "--topics", "5", "--subscriptions", "3"]


def up(*arguments: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [PROGRAM, "up", "--json", *SETTINGS, *arguments], capture_output=True, text=True, timeout=LONG_S
    )
    assert done.stdout.count("\n") == 1, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def is_clean(score: dict[str, Any]) -> bool:
    bad = ("missing", "duplicates", "disordered", "strays", "split_topics", "one_sided_links", "node_failures")
    return score["ok"] and not score["faults"] and not any(score[key] for key in bad)


def test_a_mesh_whose_nodes_are_killed_under_traffic_loses_nothing(tmp_path):
    code, score, told = up(*SMALL, "--duration", "7", "--kill-every", "2.5", "--keep", str(tmp_path / "kept"))
    assert code == 0, told
    assert is_clean(score), told
    assert score["kills"] >= 2
    assert score["starts"] == score["kills"]
    assert score["published"] > 100
    assert score["acknowledged"] >= 0.9 * score["published"]
    assert score["delivered"] >= score["expected"] > 200
    assert score["processes"] == 6
    assert 0 < score["degree_mean"] <= score["degree_max"] <= 5
    assert score["links"] == round(score["degree_mean"] * 6 / 2)
    assert 0 < score["mend_ms_p50"] <= score["mend_ms_p99"]
    assert len(list((tmp_path / "kept").glob("*.log"))) == 6
    assert "dashboard: http://127.0.0.1:" in told


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep, which finds it, is not installed")
def test_a_node_that_somebody_else_kills_is_found_by_its_name_and_mended_around(tmp_path):
    (tmp_path / "i.csv").write_text("node,topic\n" + "".join(f"{one},x\n{one},y\n" for one in ("oslo", "rome", "bonn")))
    command = [PROGRAM, "up", "--json", *SETTINGS, "--interests", str(tmp_path / "i.csv"), "--kill-every", "0"]
    command += ["--duration", "5", "--keep", str(tmp_path / "kept")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("are up and connected" in line for line in process.stderr)
        (found,) = subprocess.run(
            ["pgrep", "-f", f"{tmp_path}.*rome.toml"], capture_output=True, text=True
        ).stdout.split()
        os.kill(int(found), signal.SIGKILL)
        told, noted = process.communicate(timeout=LONG_S)
    score = json.loads(told)
    assert process.returncode == 0, noted
    assert is_clean(score)
    assert (score["kills"], score["starts"]) == (1, 0)
    assert "another process has killed rome" in noted
    assert re.search(r"kill of rome: .* split, whole after \d+ ms", noted)


def test_a_mesh_whose_clients_speak_mqtt_loses_nothing_when_nodes_are_killed():
    code, score, told = up(*SMALL, "--duration", "6", "--kill-every", "2.5", "--mqtt")
    assert code == 0, told
    assert is_clean(score), told
    assert score["doors"] == "mqtt"
    assert score["kills"] >= 1
    assert score["acknowledged"] >= 0.85 * score["published"] > 60
    assert score["delivered"] >= score["expected"] > 100
    assert told.count("mqtt: n") == 6


@pytest.mark.slow
def test_clients_of_mqtt_are_acknowledged_while_a_node_is_killed_every_three_seconds():
    """With the periods of every day: homes are never sure of an empty directory, since the ring keeps changing."""
    command = [PROGRAM, "up", "--json", "--nodes", "6", "--mqtt", "--kill-every", "3", "--duration", "30"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S)
    score = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert score["kills"] >= 7
    assert score["refused_share"] <= score["refused_max"] == 0.1
    assert score["refused"] == sum(score["refusals"].values())


@pytest.mark.slow
@needs_mosquitto
def test_a_mesh_of_mosquitto_brokers_loses_nothing_when_their_sidecars_are_killed(tmp_path):
    kept = tmp_path / "kept"
    arguments = [*SMALL, "--duration", "20", "--kill-every", "3", "--rate", "60", "--mqtt", "--broker", "mosquitto"]
    code, score, told = up(*arguments, "--keep", str(kept))
    assert code == 0, told
    assert score["ok"], told
    assert not any(score[key] for key in ("missing", "strays", "split_topics", "node_failures"))
    assert score["duplicates"] == score["excused"]
    assert score["kills"] >= 4
    assert score["starts"] == score["kills"]
    assert score["acknowledged"] >= 0.95 * score["published"] > 900
    assert len(list(kept.glob("*.mosquitto.conf"))) == 6


def test_three_neighbours_that_are_killed_at_once_take_nothing_with_them_that_had_four_copies(tmp_path):
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(
        "nodes = 7\ntopics = 5\nsubscriptions = 4\ncopies = 4\nrate = 60\nduration = 5\n"
        'step = [{ at = 2, do = "crash", who = "neighbours", count = 3 }]\n'
    )
    code, score, told = up("--scenario", str(scenario))
    assert code == 0, told
    assert is_clean(score), told
    assert not score["forgone"]
    assert score["kills"] == 3
    assert score["copies"] == 4


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Up to the moment at which the mesh stands; `folder` is for what is temporary."""
    command = [PROGRAM, "up", "--json", *SETTINGS, "--nodes", "3", "--topics", "2", "--subscriptions", "2", *arguments]
    environment = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    for line in process.stderr:
        if "are up and connected" in line:
            return process
    raise AssertionError(f"exit {process.wait()}")


def children(process: subprocess.Popen[str]) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            if int(_fields(path)[1]) == process.pid:
                found.append(int(path.parent.name))
    return found


def _fields(status: Path) -> list[str]:
    """Of /proc/PID/stat, after the name: state, parent, ..."""
    return status.read_text().rpartition(")")[2].split()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with suppress(OSError):
        return _fields(Path(f"/proc/{pid}/stat"))[0] == "Z"  # nobody reaps it here
    return True


def all_gone(pids: list[int]) -> bool:
    until = time.monotonic() + 20
    while not all(is_gone(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize(
    "how", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGHUP))]
)
def test_ctrl_c_ends_every_process_and_still_gives_the_score(how, tmp_path):
    process = started(tmp_path, "--kill-every", "0")
    nodes = children(process)
    assert len(nodes) == 3
    assert list(tmp_path.iterdir())
    time.sleep(1)
    process.send_signal(how)
    told, _ = process.communicate(timeout=LONG_S)
    assert process.returncode == 0
    assert json.loads(told)["published"] > 0
    assert all_gone(nodes)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="only there a stopped process ends with its parent")
def test_no_process_outlives_an_up_that_is_killed_not_even_a_hung_one(tmp_path):
    process = started(tmp_path, "--kill-every", "0")
    nodes = children(process)
    assert len(nodes) == 3
    os.kill(nodes[0], signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=LONG_S)
    assert all_gone(nodes)


@needs_mosquitto
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_broker_outlives_an_up_that_ends_or_is_killed(how, tmp_path):
    process = started(tmp_path, "--kill-every", "0", "--mqtt", "--broker", "mosquitto")
    nodes_and_brokers = children(process)
    assert len(nodes_and_brokers) == 6
    process.send_signal(how)
    process.communicate(timeout=LONG_S)
    assert all_gone(nodes_and_brokers)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_scenario_holds_on_processes(path):
    code, score, told = up("--scenario", str(path))
    assert code == 0, told
    assert is_clean(score), told


@pytest.mark.slow
def test_what_two_copies_lose_when_three_neighbours_die_at_once_is_counted(tmp_path):
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(
        "nodes = 10\ntopics = 8\nsubscriptions = 4\ncopies = 2\nrate = 200\nduration = 12\n"
        'step = [{ at = 3, do = "crash", who = "neighbours", count = 3, lasts = 4 }]\n'
    )
    code, score, told = up("--scenario", str(scenario))
    assert code == 0, told  # what is forgone is no fault; what is missing would be
    assert is_clean(score), told
    assert score["forgone"] >= 0


@pytest.mark.slow
def test_a_mesh_with_hanging_nodes_loses_nothing():
    code, score, told = up(*SMALL, "--duration", "60", "--kill-every", "6", "--hang")
    assert code == 0, told
    assert is_clean(score), told
    assert score["hangs"] >= 3
    assert score["kills"] >= 3


@pytest.mark.slow
def test_a_churn_trace_drives_the_processes(tmp_path):
    interests, churn = tmp_path / "interests.tsv", tmp_path / "churn.tsv"
    rows = [f"n{node}\tt{(node + step) % 4}" for node in range(8) for step in range(2)]
    interests.write_text("node\ttopic\n" + "\n".join(rows) + "\n")
    events = ["120\tn1\tcrash\t", "240\tn1\tjoin\t", "240\tn1\tsubscribe\tt0", "300\tn2\tleave\t"]
    events += ["360\tn3\tsubscribe\tt1", "420\tn2\tjoin\t", "420\tn2\tsubscribe\tt3", "480\tn3\tunsubscribe\tt3"]
    churn.write_text("time\tnode\tevent\ttopic\n" + "\n".join(events) + "\n")
    arguments = ["--interests", str(interests), "--churn", str(churn), "--speed", "20", "--duration", "30"]
    code, score, told = up(*arguments)
    assert code == 0, told
    assert is_clean(score), told
    assert (score["kills"], score["leaves"], score["starts"]) == (1, 1, 2)
