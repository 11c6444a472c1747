"""Short runs with real processes, the files that they leave, and the page that is drawn of them."""

from __future__ import annotations

import os
import sys

import pytest
from benchmarks.fire import command
from benchmarks.fire.judge import judge
from benchmarks.fire.keep import read_all, read_events
from benchmarks.fire.links import connections, links
from benchmarks.fire.site import pids_of

from trellis.errors import InputError

linux = pytest.mark.skipif(sys.platform != "linux", reason="the harness reads /proc, which only Linux has")


@linux
@pytest.mark.slow
def test_two_nodes_without_faults_lose_nothing_and_leave_a_page_and_no_process(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    words = ["run", "--systems", "trellis,emqx", "--schedules", "quiet,groups", "--brokers", "2", "--seconds", "2"]
    words += ["--rate", "30", "--topics", "6", "--loopback", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["fire", *words])
    assert command.main(words) == 0, capsys.readouterr().err
    (run,) = read_all(tmp_path)
    verdict = run.verdict
    assert verdict.published == verdict.acknowledged > 10
    assert verdict.delivered == verdict.owed > 10
    assert (verdict.lost, verdict.twice, verdict.repeated, verdict.disorder) == (0, 0, 0, 0)
    assert run.about["costs"]["links"] == 1
    assert run.about["costs"]["cpu_s"] > 0
    assert run.about["costs"]["peer_bytes"] is None
    page = (tmp_path / "fire.html").read_text("utf-8")
    assert "Trellis, MQTT clients at nodes" in page
    assert "emqx, 2 brokers: it has no adapter yet" in page
    assert "groups, 2 brokers: groups of 3 need 6 brokers" in page
    assert {path.suffix for path in tmp_path.glob("fire-2-quiet-128-*")} == {".svg", ".png"}
    assert not any(found for found in pids_of([f"{os.getpid()}-s{site}" for site in range(2)]).values())
    history = next(tmp_path.glob("*.jsonl.xz"))
    assert judge(read_events(history), run.about["since"]).owed == verdict.owed
    assert command.main(["judge", str(next(tmp_path.glob("*.json")))]) == 0
    assert "lost 0" in capsys.readouterr().out


def test_a_partition_on_loopback_addresses_is_skipped_with_the_reason(tmp_path, capsys):
    words = ["run", "--systems", "trellis", "--schedules", "partition", "--loopback", "--out", str(tmp_path)]
    assert command.main(words) == 0
    assert "skipped: partition, 3 brokers: a partition needs network namespaces" in capsys.readouterr().out


def test_a_folder_without_runs_and_a_file_that_is_no_history_are_refused(tmp_path, capsys):
    assert command.main(["page", str(tmp_path)]) == 2
    assert "run the benchmark first" in capsys.readouterr().err
    (tmp_path / "x.jsonl.xz").write_bytes(b"no history")
    with pytest.raises(InputError, match="is no history"):
        read_events(tmp_path / "x.jsonl.xz")


def test_links_are_pairs_of_sites_with_both_ends_of_a_connection():
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: 0100000A:1B59 0200000A:C001 01 00000000:00000000 00:00000000 00000000     0        0 4711 1\n"
    idle = "   1: 0100000A:1B59 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1\n"
    here, there = ("10.0.0.1", 7001), ("10.0.0.2", 49153)
    assert connections(head + row + idle) == {(here, there): 4711}
    assert links({(here, there): 0, (there, here): 1}) == {(0, 1)}
    assert links({(here, there): 0, (there, here): 0}) == set()
    assert links({(here, there): 0}) == set()
