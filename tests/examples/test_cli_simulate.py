"""`trellis simulate`, typed as a user types it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import msgspec
import pytest

from trellis.cli.main import run
from trellis.simulate.check import CheckConfig, check_seed
from trellis.simulate.systems.omen import REPAIRED, OMen

PROTOCOLS = ["omen", "spidercast", "similarity", "random", "vitis", "rvr", "opt", "magnet", "scribe"]


@pytest.fixture
def interests(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("workload uniform --nodes 30 --topics 8 --subs 3 --seed 4 -o i.tsv".split()) == 0
    return "i.tsv"


def summary(capsys) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def refused(capsys, *words: str) -> str:
    assert run(list(words)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


def test_the_same_seed_gives_the_same_digest_and_another_seed_another(interests, capsys):
    found = []
    for seed in (1, 1, 2):
        assert run(f"simulate spidercast {interests} --seed {seed} -o run --json".split()) == 0
        found.append(summary(capsys)["digest"])
    assert found[0] == found[1] != found[2]


def test_encoding_every_message_leaves_the_overlay_as_it_is(interests, capsys):
    found = []
    for more in ("", "--encode"):
        assert run(f"simulate spidercast {interests} -o run --json {more}".split()) == 0
        found.append(summary(capsys))
    assert found[0]["overlay_digest"] == found[1]["overlay_digest"]
    assert found[0]["encoded_bytes"] == 0 < found[1]["encoded_bytes"]
    assert found[0]["encoded_bytes_by_type"] == {}
    assert sum(found[1]["encoded_bytes_by_type"].values()) == found[1]["encoded_bytes"]


def test_a_run_leaves_its_folder_and_its_overlay_passes_the_check(interests, capsys):
    assert run(f"simulate spidercast {interests} -o run".split()) == 0
    assert {path.name for path in Path("run").iterdir()} == {
        "parameters.json",
        "overlay.parquet",
        "series.parquet",
        "summary.json",
        "figures",
    }
    assert any(Path("run/figures").iterdir())
    assert "all 8 connected" in capsys.readouterr().out
    assert run(f"check {interests} run/overlay.parquet".split()) == 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_check_holds_and_its_files_are_judged_topic_connected(interests, capsys, jobs):
    words = f"simulate spidercast {interests} --check --seeds 3 --jobs {jobs} -o checked --json"
    assert run(words.split()) == 0
    found = summary(capsys)
    assert found["holds"] is True
    assert found["seeds"] == 3
    for seed in (1, 2, 3):
        folder = Path("checked") / f"seed-{seed}"
        assert run(["check", str(folder / "interests.tsv"), str(folder / "overlay.tsv")]) == 0


def test_one_process_and_two_give_the_same_digests(interests, capsys):
    found = []
    for jobs in (1, 2):
        assert run(f"simulate spidercast {interests} --check --seeds 3 --jobs {jobs} --json".split()) == 0
        found.append(summary(capsys)["digests"])
    assert found[0] == found[1]
    assert len(set(found[0])) == 3


def test_a_trace_is_replayed_round_by_round_from_a_planned_overlay(interests, capsys):
    assert run(f"churn random {interests} --rounds 4 --seed 2 -o c.tsv".split()) == 0
    words = f"simulate omen {interests} --overlay lowoda --churn c.tsv --warmup-rounds 25 --rounds-per-event 12 -o run"
    capsys.readouterr()
    assert run([*words.split(), "--broken-stream", "0.05", "--json"]) == 0
    found = summary(capsys)
    assert found["tco"] is True
    assert sum(found["events_from_outside"].values()) == 4
    assert json.loads(Path("run/parameters.json").read_text())["run"]["rounds_per_event"] == 12


def test_repairs_of_omen_are_checked_without_the_fallback(capsys):
    """Only faults that repairs promise to survive are drawn, and the run starts from a planned overlay."""
    assert run("simulate omen --check --no-fallback --seeds 2 --seed 7 --json".split()) == 0
    alone = summary(capsys)
    assert alone["holds"] is True
    assert not {"join", "partition", "asymmetric-loss"} & set(alone["injected"])
    assert alone["counts"]["repairs by coordinators"] > 0
    plan = msgspec.structs.replace(OMen().fault_plan, kinds=REPAIRED)
    config = CheckConfig(plan=plan, planned=True)
    assert [check_seed(partial(OMen, net=False), seed, config).digest for seed in (7, 8)] == alone["digests"]
    assert run("simulate omen --check --seeds 1 --seed 7 --json".split()) == 0
    assert summary(capsys)["digests"] != alone["digests"][:1]


def test_the_help_of_omen_shows_how_to_check_without_the_fallback(capsys):
    assert run("simulate omen --help".split()) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--no-fallback" in said
    assert "trellis simulate omen --check --no-fallback --seeds 40" in said


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_says_which_options_it_has(protocol, capsys):
    assert run(["simulate", protocol, "--help"]) == 0
    said = capsys.readouterr().out
    assert "Protocol" in said
    assert "--check" in said


def test_bad_input_is_told_in_one_line(interests, capsys):
    assert "choose from omen, spidercast" in refused(capsys, "simulate")
    assert "there is no such protocol" in refused(capsys, "simulate", "chord", interests, "-o", "run")
    assert "no interests are named" in refused(capsys, "simulate", "omen", "-o", "run")
    assert "no output folder is named" in refused(capsys, "simulate", "omen", interests)
    assert "is not a share" in refused(capsys, "simulate", "spidercast", interests, "--view", "lots", "-o", "run")
    assert "knowledge" in refused(capsys, "simulate", "omen", interests, "--knowledge", "all", "-o", "run")
    assert "No such option" in refused(capsys, "simulate", "spidercast", interests, "--lambda", "3", "-o", "run")
    assert "nothing would be checked" in refused(capsys, "simulate", "spidercast", "--check", "--seeds", "0")
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    assert "is not empty" in refused(capsys, "simulate", "spidercast", interests, "-o", "full")
