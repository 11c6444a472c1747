"""`trellis plan` and `trellis maintain` as a user meets them."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from trellis.cli.main import run
from trellis.live.config import read_config


@pytest.fixture
def files(tmp_path, monkeypatch, capsys):
    """A workload of 60 nodes with a churn trace; commands run inside."""
    monkeypatch.chdir(tmp_path)
    assert run("workload zipf --nodes 60 --topics 20 --subs 3:8 --alpha 1 --seed 1 -o i.tsv".split()) == 0
    assert run("churn random i.tsv --rounds 30 --seed 2 -o c.tsv".split()) == 0
    capsys.readouterr()
    return tmp_path


def answer(capsys, *arguments: str) -> dict:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("algorithm", ["gm", "minmax", "lowoda", "ring", "random", "star"])
def test_every_algorithm_gives_a_tco_with_a_true_summary(files, capsys, algorithm):
    summary = answer(capsys, "plan", "i.tsv", "--algorithm", algorithm, "-o", "o.tsv")
    checked = answer(capsys, "check", "i.tsv", "o.tsv")
    assert checked["tco"]
    assert (summary["links"], summary["degree_max"]) == (checked["links"], checked["degree"]["max"])
    assert summary["links"] >= summary["links_lower_bound"] > 0


def test_the_papers_name_of_the_ring_per_topic_is_accepted(files, capsys):
    """[SC §3.9.2] calls it RingPT."""
    for name in ("ring", "ringpt"):
        assert answer(capsys, "plan", "i.tsv", "--algorithm", name, "-o", f"{name}.tsv")["algorithm"] == "ring"
    assert Path("ringpt.tsv").read_bytes() == Path("ring.tsv").read_bytes()


def test_the_same_seed_plans_the_same_bytes(files, capsys):
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert run(["plan", "i.tsv", "--seed", seed, "-o", f"{name}.parquet"]) == 0
    assert Path("a.parquet").read_bytes() == Path("b.parquet").read_bytes()
    assert Path("a.parquet").read_bytes() != Path("c.parquet").read_bytes()


@pytest.mark.parametrize("algorithm", ["gm", "minmax", "lowoda"])
def test_sampled_candidates_give_a_tco_and_are_counted(files, capsys, algorithm):
    sampled = ["--candidates", "sampled", "--sample", "4", "--keep", "3"]
    summary = answer(capsys, "plan", "i.tsv", "--algorithm", algorithm, *sampled, "-o", "o.tsv")
    assert answer(capsys, "check", "i.tsv", "o.tsv")["tco"]
    subscriptions = len(Path("i.tsv").read_text().splitlines()) - 1
    assert summary["links"] <= summary["candidates"] <= 60 * 3 + subscriptions
    whole = answer(capsys, "plan", "i.tsv", "--algorithm", algorithm, "-o", "whole.tsv")
    assert whole["candidates"] is None, "auto looks at all pairs of a small instance"
    assert run(["plan", "i.tsv", *sampled, "-o", "o.tsv"]) == 0
    assert "pairs, sampled" in capsys.readouterr().out


def test_auto_samples_where_all_pairs_take_long_or_do_not_fit(files, capsys, monkeypatch):
    from trellis.plan import tables

    plan = ["plan", "i.tsv", "-o", "o.tsv"]
    with monkeypatch.context() as patch:
        patch.setattr(tables, "EXACT_NS", 1)
        assert answer(capsys, *plan)["candidates"] is None, "60 nodes are below the number where it may sample"
        patch.setattr(tables, "EXACT_NODES", 59)
        assert answer(capsys, *plan)["candidates"] > 0
        assert answer(capsys, *plan, "--candidates", "all")["candidates"] is None
        assert answer(capsys, *plan, "--algorithm", "star")["candidates"] is None
    with monkeypatch.context() as patch:
        patch.setattr("trellis.plan.api.memory_needed", lambda over, sampling=None, *_, **__: 0 if sampling else 10**18)
        assert answer(capsys, *plan)["candidates"] > 0


def test_a_two_connected_plan_is_told_from_a_connected_one(files, capsys):
    once = answer(capsys, "plan", "i.tsv", "-o", "once.tsv")
    twice = answer(capsys, "plan", "i.tsv", "--connectivity", "2", "-o", "twice.tsv")
    assert (once["connectivity"], twice["connectivity"]) == (1, 2)
    assert once["links"] < twice["links"]
    assert answer(capsys, "check", "i.tsv", "once.tsv")["two_connected"] is None, "it was not asked"
    found = answer(capsys, "check", "i.tsv", "twice.tsv", "--connectivity", "2")
    assert (found["two_connected"], found["cuts"]["topics"]) == (True, 0)
    assert run("check i.tsv twice.tsv --connectivity 2".split()) == 0
    assert "no loss of a single node splits a topic" in capsys.readouterr().out
    assert answer(capsys, "plan", "i.tsv", "--existing", "twice.tsv", "--what-if-worst", "3")["worst"] == []
    assert run("check i.tsv once.tsv --connectivity 2 --json".split()) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["tco"], found["two_connected"]) == (True, False)
    worst = found["cuts"]["worst"][0]
    left = answer(capsys, "plan", "i.tsv", "--existing", "once.tsv", "--what-if-leave", worst["node"])["leave"]
    assert worst["topic"] in [split["topic"] for split in left["splits"]]
    assert run("check i.tsv once.tsv --connectivity 2".split()) == 1
    assert f"{worst['topic']} (" in capsys.readouterr().out


def test_an_existing_overlay_is_kept_and_completed(files, capsys):
    Path("half.tsv").write_text("u\tv\nn1\tn2\nn3\tn40\n")
    summary = answer(capsys, "plan", "i.tsv", "--existing", "half.tsv", "-o", "o.tsv")
    links = set(Path("o.tsv").read_text().splitlines())
    assert {"n1\tn2", "n3\tn40"} <= links
    assert summary["links_new"] == summary["links"] - 2


def test_plan_exports_graphml_and_draws(files, capsys):
    assert run("plan i.tsv -o o.tsv --export o.graphml --plot o.png".split()) == 0
    assert Path("o.graphml").read_text().count("<edge ") == len(Path("o.tsv").read_text().splitlines()) - 1
    assert Path("o.png").read_bytes().startswith(b"\x89PNG")


def test_configs_give_every_node_the_lines_of_its_links(files, capsys):
    assert run("plan i.tsv -o o.tsv --configs planned".split()) == 0
    links = {tuple(line.split("\t")) for line in Path("o.tsv").read_text().splitlines()[1:]}
    found = set()
    for path in Path("planned").iterdir():
        node = read_config(path, {}, {"name": path.stem})
        found |= {(node.name, peer) for peer in node.planned.neighbours}
    assert found == links | {(v, u) for u, v in links}
    assert len(list(Path("planned").iterdir())) == 60


def test_a_node_whose_name_is_a_path_gets_a_file_all_the_same(files, capsys):
    Path("odd.tsv").write_text("node\ttopic\n../a b\tt\nc\tt\n")
    assert run("plan odd.tsv -o o.tsv --configs planned".split()) == 0
    assert sorted(path.name for path in Path("planned").iterdir()) == ["..%2Fa b.toml", "c.toml"]
    assert Path("planned/c.toml").read_text() == '[planned]\nneighbours = ["../a b"]\n'


def test_what_if_tells_the_worst_losses_and_how_they_would_be_mended(files, capsys):
    assert run("plan i.tsv -o o.tsv".split()) == 0
    worst = answer(capsys, "plan", "i.tsv", "--existing", "o.tsv", "--what-if-worst", "2")["worst"]
    assert worst[0]["extra_components"] >= worst[-1]["extra_components"] > 0
    node, other = worst[0]["node"], worst[1]["node"]
    leave = answer(capsys, "plan", "i.tsv", "--existing", "o.tsv", "--what-if-leave", node, other)["leave"]
    assert leave["nodes"] == [node, other]
    assert leave["splits"]
    assert leave["links_new"]
    assert run(["plan", "i.tsv", "--existing", "o.tsv", "--what-if-leave", node, "--what-if-worst", "1"]) == 0
    assert f"without {node} " in capsys.readouterr().out


@pytest.mark.parametrize("algorithm", ["naive", "shadows", "rebuild"])
def test_maintain_replays_one_trace_and_ends_with_a_tco(files, capsys, algorithm):
    summary = answer(
        capsys, "maintain", "i.tsv", "--churn", "c.tsv", "--algorithm", algorithm, "--check-every", "10",
        "-o", "h.parquet", "--overlay-out", "o.tsv", "--interests-out", "end.tsv", "--plot", "h.png",
    )  # fmt: skip
    assert (summary["rounds"], summary["complete"], summary["split_topics"]) == (30, True, 0)
    assert answer(capsys, "check", "end.tsv", "o.tsv")["tco"]
    history = pq.read_table("h.parquet")
    assert history.num_rows == 30
    assert history["split_topics"].drop_null().to_pylist() == [0, 0, 0]
    assert set(history["run"].to_pylist()) == {"complete"}


def test_an_interrupted_maintain_leaves_a_valid_history_marked_partial(files, capsys):
    assert run("churn random i.tsv --rounds 4000 --seed 2 -o long.tsv".split()) == 0
    capsys.readouterr()
    before = signal.getsignal(signal.SIGINT)

    def interrupt_once_it_listens() -> None:
        while signal.getsignal(signal.SIGINT) is before:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_once_it_listens, daemon=True).start()
    assert run("maintain i.tsv --churn long.tsv --algorithm rebuild -o h.parquet".split()) == 130
    err = capsys.readouterr().err
    assert "h.parquet is marked partial" in err
    history = pq.read_table("h.parquet")
    assert json.loads(history.schema.metadata[b"trellis.history"])["complete"] is False
    assert 1 <= history.num_rows < 4000
    assert set(history["run"].to_pylist()) == {"partial"}
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("plan i.tsv --rho 0.5 -o x.tsv", "rho"),
        ("plan i.tsv --algorithm best -o x.tsv", "best"),
        ("plan i.tsv", "no output file is named"),
        ("plan i.tsv n1 -o x.tsv", "nothing is asked of this node"),
        ("plan i.tsv --candidates few -o x.tsv", "auto, all, sampled"),
        ("plan i.tsv --candidates sampled --keep 0 -o x.tsv", "keep is 0"),
        ("plan i.tsv --candidates sampled --sample -1 -o x.tsv", "sample is -1"),
        ("plan i.tsv --candidates sampled --algorithm ring -o x.tsv", "ring takes no candidates"),
        ("plan i.tsv --connectivity 3 -o x.tsv", "give 1 or 2"),
        ("check i.tsv o.tsv --connectivity 0", "give 1 or 2"),
        ("plan i.tsv --memory 1KiB -o x.tsv", "trellis pipeline plan"),
        ("plan i.tsv --memory lots -o x.tsv", "is not a size"),
        ("plan i.tsv --existing other.tsv -o x.tsv", 'other.tsv:2: u "z1" is no node of the interests'),
        ("plan i.tsv --what-if-leave nobody", 'there is no node "nobody"'),
        ("plan i.tsv --what-if-worst 0", "0"),
        ("plan i.tsv --what-if-worst 1 --configs planned", "nothing is written"),
        ("plan i.tsv -o o.tsv --configs i.tsv", "i.tsv"),
        ("maintain i.tsv --churn c.tsv --lambda -1 -o x.tsv", "lambda"),
        ("maintain i.tsv --churn c.tsv --rho 0 -o x.tsv", "rho"),
        ("maintain i.tsv --churn c.tsv --algorithm magic -o x.tsv", "magic"),
        ("maintain i.tsv other.tsv --churn c.tsv -o x.tsv", 'other.tsv:2: u "z1" is no node of the interests'),
        ("maintain i.tsv empty.tsv --churn c.tsv -o x.tsv", "the overlay is no TCO"),
        ("maintain i.tsv --churn unfit.tsv -o x.tsv", 'unfit.tsv:2: leave of node "z9", which is not there'),
    ],
)
def test_bad_input_is_refused_in_one_line(files, capsys, arguments, message):
    Path("other.tsv").write_text("u\tv\nz1\tz2\n")
    Path("empty.tsv").write_text("u\tv\n")
    Path("o.tsv").write_text("u\tv\nn1\tn2\n")
    Path("unfit.tsv").write_text("time\tnode\tevent\ttopic\n1\tz9\tleave\t\n")
    assert run(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert not Path("x.tsv").exists()
