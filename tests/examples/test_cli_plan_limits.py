"""`trellis plan` with costs and caps, as a user meets it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from trellis.cli.main import run
from trellis.model import write_table
from trellis.model.read import read_rows


@pytest.fixture
def files(tmp_path, monkeypatch, capsys):
    """A workload of 60 nodes in two regions; commands run inside."""
    monkeypatch.chdir(tmp_path)
    assert run("workload zipf --nodes 60 --topics 20 --subs 3:8 --alpha 1 --seed 1 -o i.tsv".split()) == 0
    names = [f"n{number}" for number in range(1, 61)]
    write("regions.csv", "node,region", *(f"{name},{'ab'[place % 2]}" for place, name in enumerate(names)))
    write("between.csv", "u,v,cost", "a,a,1", "b,b,1", "a,b,9")
    pairs = [f"{u},{v},{place % 7 + 1}" for place, u in enumerate(names) for v in names[place + 1 :]]
    write("costs.csv", "u,v,cost", *pairs)
    write("caps.csv", "node,links_max", "n1,2", "n2,4")
    capsys.readouterr()
    return tmp_path


def write(name: str, *lines: str) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines))


def answer(capsys, *arguments: str, code: int = 0) -> dict:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def links() -> list[tuple[str, str]]:
    return [tuple(line.split("\t")) for line in Path("o.tsv").read_text().splitlines()[1:]]


def test_costs_are_spent_less_of_and_told(files, capsys):
    plain = answer(capsys, "plan", "i.tsv", "-o", "plain.tsv")
    made = answer(capsys, "plan", "i.tsv", "--costs", "costs.csv", "-o", "o.tsv")
    rows = [line.split(",") for line in Path("costs.csv").read_text().splitlines()[1:]]
    prices = {frozenset((u, v)): int(cost) for u, v, cost in rows}
    assert made["cost"] == sum(prices[frozenset(link)] for link in links())
    before = [line.split("\t") for line in Path("plain.tsv").read_text().splitlines()[1:]]
    assert made["cost"] < sum(prices[frozenset(link)] for link in before)
    assert (plain["cost"], plain["excess"]) == (None, [])
    assert answer(capsys, "check", "i.tsv", "o.tsv")["tco"]
    assert run("plan i.tsv --costs costs.csv -o o.tsv".split()) == 0
    assert f"cost of all links                {made['cost']:.2f}" in capsys.readouterr().out


def test_regions_and_parquet_are_read_as_other_tables_are(files, capsys):
    for name in ("regions", "between", "caps"):
        write_table(read_rows(f"{name}.csv").table, f"{name}.parquet")
    of_text = ["--regions", "regions.csv", "--costs", "between.csv", "--caps", "caps.csv"]
    of_parquet = [word.replace(".csv", ".parquet") for word in of_text]
    made = answer(capsys, "plan", "i.tsv", *of_text, "-o", "o.tsv")
    region = dict(line.split(",") for line in Path("regions.csv").read_text().splitlines()[1:])
    assert made["cost"] == sum(1 if region[u] == region[v] else 9 for u, v in links())
    assert sum(region[u] == region[v] for u, v in links()) > len(links()) / 2
    text = Path("o.tsv").read_bytes()
    answer(capsys, "plan", "i.tsv", *of_parquet, "-o", "o.tsv")
    assert Path("o.tsv").read_bytes() == text


def test_a_table_of_more_regions_than_there_are_is_taken_and_counted(files, capsys):
    write("between.csv", "u,v,cost", "a,a,1", "b,b,1", "a,b,9", "a,z,3", "y,z,3")
    assert run("plan i.tsv --regions regions.csv --costs between.csv -o o.tsv".split()) == 0
    assert "rows about regions without a node of the interests: 2" in capsys.readouterr().err


def test_caps_are_kept_where_they_can_be(files, capsys):
    plain = answer(capsys, "plan", "i.tsv", "-o", "o.tsv")
    degree = Counter(end for link in links() for end in link)
    busiest = [name for name, count in degree.items() if count == plain["degree_max"]]
    write("caps.csv", "node,links_max", *(f"{name},{plain['degree_max'] - 1}" for name in busiest))
    made = answer(capsys, "plan", "i.tsv", "--caps", "caps.csv", "-o", "o.tsv")
    degree = Counter(end for link in links() for end in link)
    assert max(degree[name] for name in busiest) < plain["degree_max"]
    assert made["excess"] == []
    assert answer(capsys, "check", "i.tsv", "o.tsv")["tco"]


def test_a_cap_that_cannot_be_kept_is_told_with_the_reason_and_the_overlay_is_written(files, capsys):
    write("caps.csv", "node,links_max", "n1,0", "n2,4")
    made = answer(capsys, "plan", "i.tsv", "--caps", "caps.csv", "-o", "o.tsv", "--configs", "planned", code=1)
    (excess,) = made["excess"]
    assert (excess["node"], excess["links_max"], excess["proven"]) == ("n1", 0, True)
    assert excess["links"] == sum("n1" in link for link in links())
    assert excess["topics"]
    assert answer(capsys, "check", "i.tsv", "o.tsv")["tco"]
    assert len(list(Path("planned").iterdir())) == 60
    assert run("plan i.tsv --caps caps.csv -o o.tsv".split()) == 1
    out = capsys.readouterr().out
    assert "caps exceeded by " in out
    assert f"n1: {excess['links']} links, 0 allowed: its " in out


def test_what_if_answers_use_costs_and_caps(files, capsys):
    limits = ["--regions", "regions.csv", "--costs", "between.csv", "--caps", "caps.csv"]
    answer(capsys, "plan", "i.tsv", *limits, "-o", "o.tsv")
    asked = ["--existing", "o.tsv", "--what-if-worst", "2", "--what-if-leave", "n5"]
    found = answer(capsys, "plan", "i.tsv", *limits, *asked)
    region = dict(line.split(",") for line in Path("regions.csv").read_text().splitlines()[1:])
    cost = {link: 1 if region[link[0]] == region[link[1]] else 9 for link in links()}
    assert found["leave"]["cost"]["lost"] == sum(price for link, price in cost.items() if "n5" in link)
    assert found["leave"]["cost"]["before"] == sum(cost.values())
    for loss in found["worst"]:
        assert loss["links_cost"] == sum(price for link, price in cost.items() if loss["node"] in link)
    assert run(["plan", "i.tsv", *limits, *asked]) == 0
    out = capsys.readouterr().out
    assert "cost of links" in out
    assert f"{found['leave']['cost']['lost']:.2f} for links lost" in out


def test_a_bound_of_hops_is_kept_and_its_price_told(files, capsys):
    plain = answer(capsys, "plan", "i.tsv", "-o", "plain.tsv")
    made = answer(capsys, "plan", "i.tsv", "--hops-max", "3", "-o", "o.tsv")
    checked = answer(capsys, "check", "i.tsv", "o.tsv")
    assert (checked["tco"], checked["diameter"]["max"]) == (True, 3)
    price = made["hops"]
    assert (price["links_before"], price["links_added"]) == (plain["links"], made["links"] - plain["links"])
    assert (price["degree_max_before"], price["unmet"]) == (plain["degree_max"], [])
    assert price["diameter_before"] == answer(capsys, "check", "i.tsv", "plain.tsv")["diameter"]["max"] > 3
    assert run("plan i.tsv --hops-max 3 -o o.tsv".split()) == 0
    assert f"{plain['links']:,} before, {made['links']:,} now" in capsys.readouterr().out


def test_topics_that_caps_keep_from_a_bound_of_hops_are_named(files, capsys):
    write("caps.csv", "node,links_max", *(f"n{number},6" for number in range(1, 61)))
    made = answer(capsys, "plan", "i.tsv", "--caps", "caps.csv", "--hops-max", "2", "-o", "o.tsv", code=1)
    assert (made["degree_max"], made["excess"]) == (6, [])
    assert made["hops"]["unmet"]
    assert answer(capsys, "check", "i.tsv", "o.tsv")["diameter"]["max"] == made["hops"]["unmet"][0]["diameter"]
    assert run("plan i.tsv --caps caps.csv --hops-max 2 -o o.tsv".split()) == 1
    out = capsys.readouterr().out
    assert "topics stay longer than 2 hops, as caps forbid the links:" in out
    assert f"  {made['hops']['unmet'][0]['topic']}: " in out


@pytest.mark.parametrize(
    ("name", "rows", "options", "message"),
    [
        ("c.csv", ["u,v,cost", "n1,z9,1"], "--costs c.csv", 'c.csv:2: v "z9" is no node of the interests'),
        ("c.csv", ["u,v,cost", "n1,n2,-1"], "--costs c.csv", "c.csv:2: cost -1 is negative"),
        ("c.csv", ["u,v,cost", "n1,n2,1e30"], "--costs c.csv", "c.csv:2: cost 1e+30 is too great"),
        ("c.csv", ["u,v,cost", "n1,n2,"], "--costs c.csv", 'c.csv:2: cost "" is not a number'),
        ("c.csv", ["u,v,cost", "n1,n2,nan"], "--costs c.csv", "c.csv:2: cost is not a finite number"),
        ("c.csv", ["u,v,cost", "n1,n1,1"], "--costs c.csv", 'c.csv:2: "n1" has no link to itself'),
        ("c.csv", ["u,v,cost", "n1,n2,1", "n2,n1,1"], "--costs c.csv", 'c.csv:3: "n2" and "n1" have a cost already'),
        ("c.csv", ["u,v", "n1,n2"], "--costs c.csv", "c.csv:1: column cost is missing"),
        ("c.csv", ["u,v,cost", "n1,n2,1"], "--costs c.csv", "c.csv: there is no cost between "),
        ("c.csv", ["u,v,cost", "n1,n2,1"], "--costs c.csv --cost-default -1", "--cost-default: -1 is no cost"),
        ("c.csv", ["u,v,cost", "a,a,1"], "--regions regions.csv --costs c.csv", 'no cost between "a" and "b"'),
        ("r.csv", ["node,region", "n1,a"], "--regions r.csv --costs between.csv", 'node "n2" has no region (and 58 '),
        ("r.csv", ["node,region", "z,a"], "--regions r.csv --costs between.csv", 'r.csv:2: node "z" is no node'),
        ("r.csv", ["node,region", "n1,a", "n1,b"], "--regions r.csv --costs between.csv", "r.csv:3: node "),
        ("c.csv", ["node,links_max", "z,1"], "--caps c.csv", 'c.csv:2: node "z" is no node of the interests'),
        ("c.csv", ["node,links_max", "n1,-1"], "--caps c.csv", "c.csv:2: links_max -1 is no number of links"),
        ("c.csv", ["node,links_max", "n1,1.5"], "--caps c.csv", "c.csv:2: links_max 1.5 is no number of links"),
        ("c.csv", ["node,links_max", "n1,1", "n1,2"], "--caps c.csv", 'c.csv:3: node "n1" has a cap already'),
        ("c.csv", ["node,links_max", "n1,"], "--caps c.csv", "c.csv:2: links_max "),
        ("c.csv", ["node,links_max", "n1,1"], "--caps c.csv --algorithm minmax", "minmax takes no caps"),
        ("c.csv", ["u,v,cost"], "--costs c.csv --algorithm star", "star takes no costs"),
        ("c.csv", ["u,v,cost"], "--regions regions.csv", "--regions: says nothing without costs"),
        ("c.csv", ["u,v,cost"], "--cost-default 1", "--cost-default: says nothing without costs"),
        ("c.csv", ["u,v,cost"], "--costs no.csv", "no.csv: cannot be read"),
        ("c.csv", ["u,v,cost"], "--hops-max 0", "--hops-max: 0 cannot be met by any topic of two subscribers"),
    ],
)
def test_bad_tables_are_refused_in_one_line(files, capsys, name, rows, options, message):
    write(name, *rows)
    assert run(["plan", "i.tsv", *options.split(), "-o", "x.tsv"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert not Path("x.tsv").exists()
