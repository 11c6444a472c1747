"""What docs/lab.md says of the commands is true."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from trellis.cli.main import run
from trellis.lab.catalogue import catalogue
from trellis.lab.inputs import DATA, RAW
from trellis.lab.verdict import WORDS

PAGE = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)
    for line in re.findall(r"^trellis lab .*$", PAGE, re.MULTILINE)
    if line.split()[2] in ("list", "run")
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_of_the_page_is_understood(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    (tmp_path / "DIR").mkdir()
    more = ["--dry-run", "--json"] if words[2] == "run" else ["--json"]
    assert run([*words[1:], *more]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] > 0 if words[2] == "run" else len(told["experiments"]) == len(catalogue())


def test_every_option_verdict_and_data_set_of_the_page_exists(capsys):
    assert run(["lab", "run", "--help"]) == 0
    said = capsys.readouterr().out
    for option in re.findall(r"^\| `(--?[a-z-]+)", PAGE, re.MULTILINE):
        assert option in said
    assert all(f"| `{word}` |" in PAGE for word in WORDS)
    assert all(f"| `{name}` |" in PAGE for name in DATA)
    assert all(place in PAGE for place in RAW.values())
    assert f"There are {len(catalogue())}." in PAGE


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run fig12", "did you mean"),
        ("run nonsense", "see: trellis lab list"),
        ("run all --scale huge", "choose from smoke, medium, paper, beyond"),
        ("run all --seeds 0", "is not 1 or more"),
        ("run all --data nowhere", "is no folder"),
        ("report -o nowhere", "run first: trellis lab run"),
        ("traces raw --days 0", "is not above 0"),
    ],
)
def test_a_wrong_word_is_told_in_one_line(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["lab", *words.split()]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_the_same_seed_gives_the_same_traces(tmp_path, capsys):
    for name, seed in (("one", "7"), ("two", "7"), ("three", "8")):
        assert run(["lab", "traces", str(tmp_path / name), "--users", "40", "--seed", seed]) == 0
    files = [(tmp_path / name / "machine_events.csv").read_bytes() for name in ("one", "two", "three")]
    assert files[0] == files[1] != files[2]
