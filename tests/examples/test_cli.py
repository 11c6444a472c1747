"""The commands as a user meets them: exit codes, one clear line for bad input, no half-written files."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trellis import __version__
from trellis.cli.main import run

TRELLIS = Path(sys.executable).parent / "trellis"

INTERESTS = "node\ttopic\na\tx\nb\tx\nb\ty\nc\tx\nc\ty\n"
CONNECTED = "u\tv\na\tb\nb\tc\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder of our own with a small instance and an overlay in it; commands run inside."""
    monkeypatch.chdir(tmp_path)
    Path("i.tsv").write_text(INTERESTS)
    Path("o.tsv").write_text(CONNECTED)
    return tmp_path


def refused(capsys, *arguments: str) -> str:
    """Runs a command that must be refused: exit 2, one line on standard error, nothing on standard output."""
    assert run(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("trellis: ")
    assert "Traceback" not in err
    return err


def test_the_program_tells_its_version():
    done = subprocess.run([TRELLIS, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"trellis {__version__}\n")


@pytest.mark.parametrize(
    "command",
    [
        *("", "demo", "workload", "churn", "profile", "check", "convert", "plan", "maintain", "simulate"),
        *("up", "pipeline social", "lab", "lab list", "lab run", "lab report", "lab traces"),
    ],
)
def test_every_command_has_help_with_an_example(capsys, command):
    assert run([*command.split(), "--help"]) == 0
    assert "trellis " in capsys.readouterr().out.split("Usage:")[1].split("\n", 1)[1], "help shows a command to paste"


def test_check_exits_0_on_a_tco_and_says_so(files, capsys):
    assert run(["check", "i.tsv", "o.tsv"]) == 0
    assert "a topic-connected overlay: all 2 topics are connected" in capsys.readouterr().out


def test_check_exits_1_on_a_split_topic_and_names_it(files, capsys):
    Path("o.tsv").write_text("u\tv\na\tb\na\tc\n")  # b and c want y but meet only through a
    assert run(["check", "i.tsv", "o.tsv"]) == 1
    out = capsys.readouterr().out
    assert "not topic-connected: 1 of 2 topics are split" in out
    assert "y: 2 components" in out


def test_check_answers_machines_in_json(files, capsys):
    assert run(["check", "i.tsv", "o.tsv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tco"], found["links"], found["diameter"]["max"]) == (True, 2, 2)


def test_check_exits_2_in_a_real_process_without_a_traceback(files):
    done = subprocess.run([TRELLIS, "check", "i.tsv", "nothing.tsv"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "trellis: nothing.tsv: cannot be read (No such file or directory); check the path and its rights\n"
    )


# Every line of "bad input", through the command that meets it: what is wrong, and where.
@pytest.mark.parametrize(
    ("name", "content", "arguments", "message"),
    [
        ("bad.tsv", b"node\n", ["profile", "bad.tsv"], "bad.tsv:1: column topic is missing"),
        ("bad.tsv", b"", ["profile", "bad.tsv"], "bad.tsv: the file is empty"),
        (
            "bad.tsv",
            b"node\ttopic\na\tx\na\tx\n",
            ["check", "bad.tsv", "o.tsv", "--repeated", "refuse"],
            'bad.tsv:3: node "a" subscribes',
        ),
        ("bad.tsv", b"u\tv\na\ta\n", ["check", "i.tsv", "bad.tsv"], 'bad.tsv:2: node "a" is linked to itself'),
        ("bad.tsv", b"u\tv\na\tb\nb\ta\n", ["check", "i.tsv", "bad.tsv"], 'bad.tsv:3: the link "a" - "b" is repeated'),
        ("bad.tsv", b"u\tv\na\tz\n", ["check", "i.tsv", "bad.tsv"], 'bad.tsv:2: v "z" is no node of the interests'),
        ("bad.tsv", b"node\ttopic\na\t\xe9\n", ["profile", "bad.tsv"], "bad.tsv:2: the text is not UTF-8"),
        (
            "bad.tsv.gz",
            gzip.compress(INTERESTS.encode(), mtime=0)[:-9],
            ["profile", "bad.tsv.gz"],
            "the gzip stream is damaged",
        ),
        ("bad.parquet", b"PAR1 but no more", ["profile", "bad.parquet"], "not a whole Parquet file"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(files, capsys, name, content, arguments, message):
    Path(name).write_bytes(content)
    assert message in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["workload", "uniform", "--subs", "90:10"],
            "--subs 90:10: the interval runs backwards; write the smaller size",
        ),
        (["workload", "uniform", "--topics", "5", "--subs", "10"], "cannot subscribe to 10 different topics of 5"),
        (["workload", "uniform", "--nodes", "0"], "--nodes 0: "),
        (["workload", "uniform", "--topics", "-3"], "--topics -3: "),
        (["workload", "uniform", "--subs", "0"], "--subs 0: "),
        (["workload", "uniform", "--subs", "many"], "--subs many: is neither a size nor an interval"),
        (["workload", "zipf", "--alpha", "-1"], "--alpha -1: "),
        (["workload", "uniform", "--alpha", "1"], "uniform has no such option"),
        (["workload", "nothing-like-it"], "nothing-like-it"),
        (["workload", "--preset", "nothing-like-it"], "there is no such preset"),
        (["workload"], "nothing is named to generate"),
        (["churn", "random", "i.tsv", "--rounds", "0"], "--rounds 0: "),
        (["churn", "sometimes", "i.tsv"], "there is no such churn model"),
        (["churn", "crash-groups", "i.tsv", "--size", "9"], "9"),
    ],
)
def test_wrong_options_are_refused_and_leave_no_file(files, capsys, arguments, message):
    assert message in refused(capsys, *arguments, "-o", "out.tsv")
    assert sorted(path.name for path in files.iterdir()) == ["i.tsv", "o.tsv"]


def test_a_churn_event_of_a_node_that_is_not_there_is_refused(files, capsys):
    from trellis.errors import InputError
    from trellis.model import read_churn, read_interests

    Path("c.tsv").write_text("time\tnode\tevent\ttopic\n1\tz\tleave\t\n")
    with pytest.raises(InputError, match=r'c\.tsv:2: leave of node "z", which is not there'):
        read_churn("c.tsv", read_interests("i.tsv"))


def test_usage_errors_are_one_line_too(capsys):
    assert "see: trellis check --help" in refused(capsys, "check")
    assert "No such option" in refused(capsys, "check", "--colour")
    assert "No such command" in refused(capsys, "chek")


def test_an_output_in_a_missing_folder_is_refused_before_the_work(files, capsys):
    assert 'there is no folder "nowhere"' in refused(capsys, "workload", "uniform", "-o", "nowhere/i.tsv")


def test_workload_gives_the_same_bytes_for_a_seed_and_others_for_another(files, capsys):
    command = "workload zipf --alpha 2.0 --nodes 200 --topics 50 --subs 10:30 --sizes powerlaw".split()
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        assert run([*command, "--seed", str(seed), "-o", f"{name}.tsv"]) == 0
    assert Path("a.tsv").read_bytes() == Path("b.tsv").read_bytes()
    assert Path("a.tsv").read_bytes() != Path("c.tsv").read_bytes()


def test_convert_there_and_back_is_lossless(files, capsys):
    for source, target in (("i.tsv", "i.parquet"), ("i.parquet", "i.csv.gz"), ("i.csv.gz", "again.tsv")):
        assert run(["convert", source, target]) == 0
    assert Path("again.tsv").read_text() == INTERESTS


def test_convert_keeps_the_order_of_the_rows(files, capsys):
    Path("mixed.tsv").write_text("node\ttopic\nb\ty\na\tx\nb\tx\n")
    assert run(["convert", "mixed.tsv", "mixed.csv"]) == 0
    assert Path("mixed.csv").read_text() == "node,topic\nb,y\na,x\nb,x\n"


def test_convert_writes_an_overlay_as_graphml_and_nothing_else(files, capsys):
    assert run(["convert", "o.tsv", "o.graphml"]) == 0
    assert '<edge source="a" target="b"/>' in Path("o.graphml").read_text()
    assert "only an overlay (u, v) becomes GraphML" in refused_after(capsys, "convert", "i.tsv", "i.graphml")


def refused_after(capsys, *arguments: str) -> str:
    capsys.readouterr()
    return refused(capsys, *arguments)


def test_rates_come_as_a_second_output_and_profile_reads_them(files, capsys):
    command = "workload uniform --nodes 20 --topics 10 --subs 3 --rates r.tsv --rate-model powerlaw -o w.tsv".split()
    assert run(command) == 0
    assert run(["profile", "w.tsv", "--rates", "r.tsv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["rates"]["max"] > 1 > found["rates"]["min"]


def test_plots_are_pictures(files, capsys):
    assert run(["profile", "i.tsv", "--plot", "p.png"]) == 0
    assert run(["check", "i.tsv", "o.tsv", "--plot", "c.svg"]) == 0
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in Path("c.svg").read_text()


def test_the_list_shows_every_preset(capsys):
    from trellis.workloads.presets import PRESETS

    assert run(["workload", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in PRESETS)
