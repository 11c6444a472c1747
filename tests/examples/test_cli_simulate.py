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
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    assert "is not empty" in refused(capsys, "simulate", "spidercast", interests, "-o", "full")


HUGE = str(10**30)
# Numbers that the options of a run do not take, beside not-a-number and infinity.
WRONG = {
    "--duration": ["0", "-1", "1e300", "0.0004"],
    "--broken-stream": ["-1", "1e300"],
    "--rounds-per-event": ["0", "-1", HUGE],
    "--warmup-rounds": ["-1", HUGE],
    "--loss": ["-1", "1.5"],
    "--duplicate": ["-1", "1e300"],
    "--reorder": ["-1", "1e300"],
    "--view": ["0", "-1", "101", "1e300"],
    "--latency": ["-1", "1e300", "5..inf", "5..4", "lognormal:20,inf", "lognormal:1e300,0.5"],
    "--seeds": ["0", "-1", HUGE],
    "--jobs": ["0", "-1", HUGE],
}
# The same for the options of single systems.
WRONG_OF = {
    "vitis": {
        "--table-size": ["0", HUGE],
        "--sw-neighbors": ["-1", HUGE],
        "--gateway-hops": ["0", "128", HUGE],
        "--period-ms": ["0", HUGE],
        "--silence-max": ["0", HUGE],
        "--linger-rounds": ["-1", HUGE],
        "--publications": ["-1", HUGE],
    },
    "opt": {"--coverage": ["0", HUGE]},
    "omen": {"--lambda": ["-1", HUGE], "--resilience": ["0", HUGE], "--rho": ["0", "1e300", "nan", "inf"]},
    "spidercast": {"--kg": ["-1", HUGE], "--kr": ["-1", HUGE]},
    "similarity": {"--similar": ["-1", HUGE], "--random": ["-1", HUGE]},
    "magnet": {
        "--links": ["0", HUGE],
        "--samples": ["1", HUGE],
        "--rejoin-changes": ["0", HUGE],
        "--improve-rounds": ["-1", HUGE],
        "--join-gap-ms": ["-1", HUGE],
        "--first-gap-ms": ["-1", HUGE],
        "--trees-ms": ["-1", HUGE],
        "--period-ms": ["0", HUGE],
        "--sample-ms": ["0", HUGE],
        "--estimate-ms": ["0", HUGE],
    },
    "delivery": {
        "--copies": ["0", HUGE],
        "--window": ["0", "nan", "inf", "1e300"],
        "--every-ms": ["-1", HUGE],
        "--first-ms": ["-1", HUGE],
        "--foreign": ["-1", "nan", "1.5"],
        "--repair-ms": ["-1", HUGE],
    },
}


@pytest.mark.parametrize("engine", ["events", "cycles"])
@pytest.mark.parametrize("option", WRONG)
def test_a_number_that_no_run_takes_is_refused_with_the_option_the_value_and_the_range(
    interests, capsys, option, engine
):
    for value in [*WRONG[option], "nan", "inf"]:
        words = ["simulate", "spidercast", interests, "--engine", engine, option, value, "-o", "run"]
        said = refused(capsys, *words)
        assert option.removeprefix("--") in said
        assert value in said or f"{float(value):g}" in said or str(float(value)) in said
        assert "give " in said or "write " in said or "valid integer" in said, said
    assert not Path("run").exists()


@pytest.mark.parametrize("protocol", WRONG_OF)
def test_a_number_that_a_system_does_not_take_is_refused_in_the_same_way(interests, capsys, protocol):
    for option, values in WRONG_OF[protocol].items():
        for value in values:
            said = refused(capsys, "simulate", protocol, interests, option, value, "-o", "run")
            assert f"{option} {value if 'e' not in value else float(value)}" in said.replace(".0:", ":"), said
            assert "is not in the range of this option; give " in said
    assert not Path("run").exists()


def test_every_number_of_every_system_has_a_range():
    from typing import get_args

    from trellis.cli.simulate import _own_options
    from trellis.simulate.ranges import SYSTEM
    from trellis.simulate.systems import maker_of

    for protocol in [*PROTOCOLS, "delivery"]:
        for one in _own_options(maker_of(protocol)):
            if get_args(one.annotation)[0] in (int, float):
                SYSTEM[one.name].require(one.default, one.name)


def test_events_after_the_longest_run_are_refused(interests, capsys):
    assert run(f"churn random {interests} --rounds 4 --seed 2 -o c.tsv".split()) == 0
    capsys.readouterr()
    words = f"simulate spidercast {interests} --churn c.tsv --rounds-per-event 10000000 -o run"
    assert "the last event would happen at 3e+07 s" in refused(capsys, *words.split())


def test_options_that_would_be_ignored_are_refused(interests, capsys):
    run_words, check = ["simulate", "spidercast", interests, "-o", "run"], ["simulate", "spidercast", "--check"]
    for option in ("--seeds", "--jobs"):
        assert f"{option}: is for --check; leave it out, or give --check" in refused(capsys, *run_words, option, "2")
    for option, *value in (
        ("--churn", "c.tsv"),
        ("--duration", "5"),
        ("--rounds-per-event", "1"),
        ("--warmup-rounds", "1"),
        ("--broken-stream", "1"),
        ("--record",),
    ):
        assert f"{option}: a check draws the faults" in refused(capsys, *check, option, *value)
    assert "no interests are named" in refused(capsys, *check, "--overlay", "o.tsv")
    for engine in ("events", "cycles"):
        for option in ("--rounds-per-event", "--warmup-rounds"):
            assert "without a trace" in refused(capsys, *run_words, "--engine", engine, option, "2")


def test_the_help_says_that_seeds_and_jobs_are_for_checks(capsys):
    assert run("simulate vitis --help".split()) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "How many, from --seed on; only with --check." in said
    assert "Processes; only with --check. A run takes one." in said


def test_a_run_replaces_the_folder_of_an_earlier_one_whole(interests, monkeypatch, capsys):
    """A run that fails while it writes leaves the earlier run as it was."""
    assert run(f"simulate spidercast {interests} --seed 1 --record -o run".split()) == 0
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("trellis.simulate.figures.draw_run", full)
        assert run(f"simulate spidercast {interests} --seed 2 -o run".split()) == 2
    assert {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()} == before
    assert run(f"simulate spidercast {interests} --seed 2 -o run".split()) == 0
    assert json.loads(Path("run/summary.json").read_text())["seed"] == 2
    assert Path("run/summary.json").read_bytes() != before[Path("run/summary.json")]
