"""Campaigns of whole nodes: they resume, keep what was new, vary it, and fail with what was never reached."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import pytest

from seeds.test_mesh import SMALL
from trellis.cli.main import run
from trellis.errors import InputError
from trellis.simulate.mesh import campaign as campaigns
from trellis.simulate.mesh import summary as summaries
from trellis.simulate.mesh.campaign import CORPUS, STATE, Campaign, open_folder
from trellis.simulate.mesh.corpus import Case, Corpus, features_of, read_case, read_corpus, run_case
from trellis.simulate.mesh.draw import ALWAYS, TAKE_AWAY, MeshPlan
from trellis.simulate.mesh.reached import SITUATIONS
from trellis.simulate.mesh.summary import MeshSummary
from trellis.simulate.mesh.trial import Trial
from trellis.simulate.mesh.vary import vary

TINY = MeshPlan(nodes_max=2, clients=4, form_s=12.0, span_s=4.0, quiet_s=8.0, crash_gap_s=3.0)


def test_a_campaign_that_was_interrupted_ends_as_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaigns, "BATCH", 4)
    whole, parts = open_folder(tmp_path / "whole"), open_folder(tmp_path / "parts")
    once = Campaign.resume(whole, TINY, 1)
    once.run(9, folder=whole, shrink_runs_max=0)
    for seeds in (3, 9):
        Campaign.resume(parts, TINY, 1).run(seeds, folder=parts, shrink_runs_max=0)
    told = (parts / STATE).read_bytes().replace(b"/parts/", b"/whole/")  # failing cases are in their folders
    assert (whole / STATE).read_bytes() == told
    assert read_corpus(whole / CORPUS) == once.corpus.entries
    assert once.corpus.entries
    assert 4 <= once.state.drawn < 12  # the first batch is drawn; some cases of the others vary what it found
    with pytest.raises(InputError, match="another plan or seed"):
        Campaign.resume(whole, TINY, 2)


def test_a_campaign_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "campaign")
    (folder / STATE).write_text('{"plan": 7}')
    with pytest.raises(InputError, match="this is no campaign"):
        Campaign.resume(folder, TINY, 1)


def test_a_variation_has_a_crash_and_a_partition_and_keeps_crashes_apart() -> None:
    plan = MeshPlan()
    random = Random(7)
    seen: set[str] = set()
    for seed in range(1, 120):
        case = vary(Case(seed), Case(seed + 1), plan, random)
        case = vary(case, Case(seed + 2), plan, random)
        assert case.faults is not None
        kinds = [one.kind for one in case.faults]
        seen.update(kinds)
        assert set(ALWAYS) <= set(kinds), seed
        times = [one.time_ms for one in case.faults if one.kind in TAKE_AWAY]
        assert all(later - one >= 1_000 * plan.crash_gap_s for one, later in pairwise(times)), seed
        of_nodes = [one for one in case.faults if one.kind not in ("partition", "broker-crash", "broker-pause")]
        assert {one.nodes[0] for one in of_nodes} <= set(Trial(case.seed, plan, None, None).names), seed
        assert msgspec.json.decode(msgspec.json.encode(case.to_json()), type=Case) == case
    assert len(seen) > 10


def test_the_corpus_keeps_cases_with_something_new_and_drops_those_that_a_better_one_replaces() -> None:
    corpus = Corpus()
    assert corpus.add(Case(1), ["a x1", "b x1"]) == ["a x1", "b x1"]
    assert corpus.add(Case(2), ["a x1"]) == []
    assert corpus.add(Case(3), ["b x1", "c x1"]) == ["c x1"]
    assert corpus.add(Case(4), ["a x1", "b x1", "d x4"]) == ["d x4"]
    assert [one.case.seed for one in corpus.entries] == [3, 4]
    assert corpus.weights() == [1.0, 1.0]
    corpus.add(Case(5), ["c x1"])
    assert corpus.weights() == [0.5, 1.0]  # the rarer, the more often


def test_a_case_is_one_run_and_its_features_are_what_it_reached() -> None:
    case = vary(Case(3), Case(4), TINY, Random(1))
    first, second = run_case(case, TINY), run_case(case, TINY)
    assert first.digest == second.digest
    assert features_of(first) == features_of(second)
    assert any("a home is not sure" in one for one in features_of(first))


def test_situations_that_were_never_reached_fail_a_campaign_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "_ENOUGH", 4)
    summary = MeshSummary(1, seeds=4, counts={"published": 9}, reached=dict.fromkeys(SITUATIONS[1:], 1))
    assert not summary.holds
    assert f'"{SITUATIONS[0]}" was never reached' in "\n".join(summary.lines())


def test_the_command_goes_on_with_a_campaign_and_runs_a_failing_case_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The defect is put in: a node that hands over every message twice."""
    from trellis.live.door import Door

    deliver = Door.deliver
    monkeypatch.setattr(Door, "deliver", lambda self, effect: (deliver(self, effect), deliver(self, effect)))
    plan = ["--nodes-max", "1", "--clients", "4", "--span", "5"]
    words = ["simulate", "mesh", "--check", *plan]
    folder = tmp_path / "campaign"
    assert run([*words, "--seeds", "2", "--failures-max", "1", "--campaign", str(folder), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    seed = told["failures"][0]["seed"]
    assert told["failures"][0]["replay"].endswith(f"--seeds 1 --seed {seed}")
    case = folder / f"seed-{seed}" / "case.json"
    assert read_case(case) == Case(seed)
    assert run([*words, "--case", str(case)]) == 1
    assert "2 times" in capsys.readouterr().out
    assert run([*words, "--campaign", str(folder), "-o", str(tmp_path / "o")]) == 2
    assert run([*words, "--case", str(tmp_path / "nothing.json")]) == 2
    assert run([*words, "--corpus", str(folder / CORPUS)]) == 2


@pytest.mark.slow
def test_a_campaign_begins_with_the_committed_corpus_and_goes_on_each_time() -> None:
    """Its folder stays: each time these tests run, they add as many trials."""
    folder = open_folder(Path(__file__).parents[2] / ".campaign")
    campaign = Campaign.resume(folder, SMALL, 1, read_corpus(Path(__file__).with_name("corpus.json")))
    summary = campaign.run(campaign.summary.seeds + 320, folder=folder, jobs=2)
    assert not summary.failures, "\n".join(summary.lines())
    assert not summary.never, summary.never
    assert (folder / CORPUS).stat().st_size < 64 << 10
