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
from trellis.simulate.mesh import seeds as checks
from trellis.simulate.mesh import summary as summaries
from trellis.simulate.mesh.campaign import CORPUS, STATE, Campaign, open_folder
from trellis.simulate.mesh.corpus import Case, Corpus, Entry, features_of, read_case, read_corpus, run_case
from trellis.simulate.mesh.draw import ALWAYS, TAKE_AWAY, MeshPlan
from trellis.simulate.mesh.reached import SITUATIONS
from trellis.simulate.mesh.summary import MeshSummary
from trellis.simulate.mesh.trial import Trial
from trellis.simulate.mesh.vary import vary
from trellis.simulate.schedule import Fault

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
    told = (whole / STATE).read_text("utf-8").replace(str(whole), str(parts))  # failures say where their files are
    assert told == (parts / STATE).read_text("utf-8")
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


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("seen", {}, "a case is kept for nothing"),
        ("seen", {"fault, crash": -1}, "this is no campaign"),
        ("version", 99, "of version 99, not 1"),
    ],
)
def test_a_campaign_whose_numbers_make_no_sense_is_named(tmp_path: Path, key: str, value: object, said: str) -> None:
    folder = open_folder(tmp_path / "campaign")
    campaign = Campaign(TINY, 1)
    campaign.corpus = Corpus([Entry(Case(1), ["fault, crash"])])
    campaign.write(folder)
    Campaign.resume(folder, TINY, 1)
    (folder / STATE).write_text(json.dumps(json.loads((folder / STATE).read_text("utf-8")) | {key: value}))
    with pytest.raises(InputError, match=said):
        Campaign.resume(folder, TINY, 1)


def failing(monkeypatch: pytest.MonkeyPatch, case: Case, *, is_cut_short: bool = False) -> None:
    """Let every trial hold but the one of `case`, and end the process after it if `is_cut_short`."""
    held = run_case(Case(1), TINY)

    def trial(one: Case, plan: MeshPlan) -> object:
        if is_cut_short and one.seed == case.seed + 1:
            raise KeyboardInterrupt
        return msgspec.structs.replace(held, seed=one.seed, failures=["lost: m"] if one == case else [])

    monkeypatch.setattr(checks, "run_case", trial)


def test_a_campaign_that_was_stopped_in_its_first_batch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_folder(tmp_path / "campaign")
    failing(monkeypatch, Case(2), is_cut_short=True)
    with pytest.raises(KeyboardInterrupt):
        Campaign.resume(folder, TINY, 1).run(8, folder=folder, shrink_runs_max=0)
    assert (folder / "seed-2").is_dir()
    failing(monkeypatch, Case(2))
    summary = Campaign.resume(open_folder(folder), TINY, 1).run(8, folder=folder, shrink_runs_max=0)
    assert (summary.seeds, len(summary.failures)) == (8, 1)


def test_a_case_that_has_failed_counts_until_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(tmp_path / "campaign")
    failing(monkeypatch, Case(2))
    assert len(Campaign.resume(folder, TINY, 1).run(4, folder=folder, shrink_runs_max=0).failures) == 1
    assert len(Campaign.resume(folder, TINY, 1).run(4, folder=folder, shrink_runs_max=0).failures) == 1
    failing(monkeypatch, Case(-1))
    assert not Campaign.resume(folder, TINY, 1).run(4, folder=folder, shrink_runs_max=0).failures
    assert not Campaign.resume(folder, TINY, 1).summary.failures, "that is written as well"


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


def test_most_variations_take_a_new_seed_and_keep_what_was_rare() -> None:
    """An attacker of the same seed does the same again. The node that it attacks may not be there in another mesh."""
    plan, random = MeshPlan(nodes_max=5), Random(3)
    rare = Case(
        7, (Fault(25_000, "malformed", ("n4",), duration_ms=6_000), *Trial(7, plan, None, None).schedule.faults)
    )
    varied = [vary(rare, Case(8), plan, random) for _ in range(60)]
    anew = [one for one in varied if one.seed != rare.seed]
    assert len(anew) > 30
    assert len({one.seed for one in anew}) == len(anew)
    kept = [one for one in anew if any(fault.kind == "malformed" for fault in one.faults or ())]
    assert len(kept) > 0.8 * len(anew)


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


def test_a_campaign_fails_with_the_situations_that_it_never_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three times the same campaign: too short to say, long enough, and with a situation fewer to be reached."""
    monkeypatch.setattr(summaries, "_ENOUGH", 2)
    monkeypatch.setattr(summaries, "SITUATIONS", ("a home is not sure", "nobody comes here"))
    words = ["simulate", "mesh", "--check", "--nodes-max", "1", "--clients", "4", "--span", "5"]
    words += ["--campaign", str(tmp_path / "campaign")]
    assert run([*words, "--seeds", "1"]) == 0
    assert "never reached" not in capsys.readouterr().out
    assert run([*words, "--seeds", "2"]) == 1
    told = capsys.readouterr().out
    assert '"nobody comes here" was never reached' in told
    assert '"a home is not sure" was never reached' not in told
    assert told.endswith("not all was reached\n")
    monkeypatch.setattr(summaries, "SITUATIONS", ("a home is not sure",))
    assert run([*words, "--seeds", "2"]) == 0


def test_a_campaign_first_runs_the_cases_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    add = Corpus.add

    def noted(self: Corpus, case: Case, features: list[str]) -> list[str]:
        ran.append(case.seed)
        return add(self, case, features)

    monkeypatch.setattr(Corpus, "add", noted)
    monkeypatch.setattr(campaigns, "BATCH", 2)
    given = [Entry(Case(seed), ["what it reached with other code"]) for seed in (71, 72, 73)]
    folder = open_folder(tmp_path / "campaign")
    for seeds in (1, 4):
        campaign = Campaign.resume(folder, TINY, 1, given)
        campaign.run(seeds, folder=folder, shrink_runs_max=0)
    assert ran[:3] == [71, 72, 73]
    assert len(ran) == 4
    assert campaign.corpus.entries
    assert not any("other code" in feature for one in campaign.corpus.entries for feature in one.holds)


def test_the_command_goes_on_with_a_campaign_and_runs_a_failing_case_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The defect is put in: a node that hands over every message twice."""
    from trellis.live.client_port import ClientPort

    deliver = ClientPort.deliver
    monkeypatch.setattr(ClientPort, "deliver", lambda self, effect: (deliver(self, effect), deliver(self, effect)))
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
    """Its folder stays, so each run of these tests adds as many trials: enough to ask for every situation."""
    folder = open_folder(Path(__file__).parents[2] / ".campaign")
    campaign = Campaign.resume(folder, SMALL, 1, read_corpus(Path(__file__).with_name("corpus.json")))
    summary = campaign.run(campaign.summary.seeds + 512, folder=folder, jobs=2)
    assert summary.seeds >= summaries._ENOUGH
    assert not summary.failures, "\n".join(summary.lines())
    assert not summary.never, summary.never
    assert (folder / CORPUS).stat().st_size < 64 << 10
