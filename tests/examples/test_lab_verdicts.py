"""Words and conditions of verdicts: what follows from which conditions, and that no substitute is ever `reproduced`."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.lab.experiment import Case, Experiment, Row, cases, merged
from trellis.lab.inputs import DATA, NOTHING, AtHand, substitutes
from trellis.lab.judge import judge, provisional
from trellis.lab.table import Missing, Table, half_width, last, spearman
from trellis.lab.verdict import (
    Check,
    Rule,
    at_most,
    each_of,
    falling,
    in_order,
    judged,
    never_rising,
    rising,
    within,
)

YES, NO = Check("c", "1", True), Check("c", "1", False)


@pytest.mark.parametrize(
    ("rule", "limits", "word"),
    [
        (Rule([YES]), [], "reproduced"),
        (Rule([YES], [YES]), [], "reproduced"),
        (Rule([NO], [YES]), [], "shape only"),
        (Rule([NO, YES], [NO]), [], "not reproduced"),
        (Rule([NO]), [], "not reproduced"),
        (Rule([YES]), ["substitute data"], "shape only"),
        (Rule([NO]), ["substitute data"], "not reproduced"),
        (Rule([]), [], "not reproduced"),  # a rule that looked at nothing proves nothing
        (Rule([], []), [], "not reproduced"),
    ],
)
def test_a_verdict_follows_from_its_conditions(rule, limits, word):
    assert judged(rule, limits).word == word


def test_what_an_idealised_model_shows_is_never_called_reproduced_without_saying_so():
    assert judged(Rule([YES]), is_model=True).word == "reproduced (converged model)"
    assert judged(Rule([NO], [YES]), is_model=True).word == "shape only"
    assert judged(Rule([YES]), ["substitute data"], is_model=True).word == "shape only"
    one = experiment(cases=lambda scale, at_hand: cases("magnet.cost", "a", {"nodes": (1, 2)}, model="converged"))
    table = Table()
    for case in one.cases("paper", NOTHING):
        table.add(case, 1, {"x": 0})
    assert judge(one, table, "paper", NOTHING).word == "reproduced (converged model)"


def of(*values: float) -> np.ndarray:
    return np.array(values, float)


def test_a_step_may_go_wrong_by_one_standard_error_and_no_more():
    assert falling("", [of(3, 3), of(2, 2)]).holds
    assert not falling("", [of(2, 2), of(2, 2)]).holds  # equal, and no error to excuse it
    assert falling("", [of(2.0, 2.0), of(2.3, 1.8)]).holds  # +0.05 on average, with an error of 0.25
    assert not falling("", [of(2.0, 2.0), of(3.3, 2.8)]).holds
    assert rising("", [of(1, 1), of(2, 2), of(3, 3)]).holds
    assert not rising("", [of(1)]).holds  # one point has no direction


def test_conditions_compare_as_they_say():
    assert at_most("x", 1.0, 1.0).holds
    assert not at_most("x", float("nan"), 1.0).holds
    assert within("x", 11, 10, 10).holds
    assert not within("x", 11.1, 10, 10).holds
    assert in_order("x", [1, 2, 3]).holds
    assert not in_order("x", [1, 1]).holds
    assert in_order("x", [1, 1], strict=False).holds
    assert never_rising("x", [3, 2, 2.1], slack=0.2).holds
    assert not each_of("x", [], lambda value: True).holds  # nothing was looked at
    assert not each_of("x", [0, 1], lambda value: value == 0).holds


CASES = cases("spidercast.settled", "a", {"nodes": (1, 2)})


def experiment(**more) -> Experiment:
    told = {"rule": lambda table: Rule([at_most("x", table.mean("x", nodes=2), 1)]), **more}
    return Experiment(
        "omen-x",
        "t",
        "Fig. 0",
        "c",
        more.pop("cases", lambda scale, data: CASES),
        **{k: v for k, v in told.items() if k != "cases"},
    )


def table_of(found: dict[int, float]) -> Table:
    table = Table()
    for case in CASES:
        if case.parameters["nodes"] in found:
            table.add(case, 1, {"x": found[case.parameters["nodes"]]})
    return table


def test_the_papers_size_decides_whether_a_rule_that_holds_is_reproduced():
    table = table_of({1: 0.0, 2: 0.5})
    assert judge(experiment(), table, "paper", NOTHING).word == "reproduced"
    assert judge(experiment(), table, "smoke", NOTHING).word == "shape only"
    assert judge(experiment(), table, "beyond", NOTHING).word == "shape only"
    assert judge(experiment(always_exact=True), table, "smoke", NOTHING).word == "reproduced"
    assert judge(experiment(), table_of({1: 0.0, 2: 5.0}), "paper", NOTHING).word == "not reproduced"


@pytest.mark.parametrize("name", [name for name, data in DATA.items() if not data.is_papers])
def test_no_substitute_data_set_is_ever_reproduced(name):
    case = Case("omen.churned", "a", {"interests": name, "nodes": 1})
    table = Table()
    table.add(case, 1, {"x": 0.0})
    one = experiment(cases=lambda scale, data: [case], rule=lambda table: Rule([at_most("x", table.mean("x"), 1)]))
    verdict = judge(one, table, "paper", NOTHING)
    assert verdict.word == "shape only"
    assert [check.holds for check in verdict.r] == [True]
    assert "substitute" in verdict.reason


def test_the_papers_own_trace_is_no_substitute():
    assert substitutes({"churn": "google-2011"}) == []
    assert substitutes({"churn": "machines", "interests": "friends"}) != []


def test_a_gap_in_the_results_is_no_verdict():
    assert judge(experiment(), table_of({1: 0.0}), "paper", NOTHING).word == "incomplete"
    asking = experiment(rule=lambda table: Rule([at_most("x", table.mean("nothing", nodes=2), 1)]))
    assert judge(asking, table_of({1: 0.0, 2: 0.0}), "paper", NOTHING).word == "incomplete"


def test_what_cannot_be_judged_says_why_and_has_no_rows():
    for field, word in (("not_yet", "not yet"), ("no_data", "no data")):
        one = experiment(**{field: "because"})
        verdict = judge(one, Table(), "paper", NOTHING)
        assert (verdict.word, verdict.reason) == (word, "because")
        assert one.rows("paper", NOTHING) == []


def test_fewer_seeds_than_the_rules_ask_for_make_a_verdict_provisional():
    assert provisional(experiment(), table_of({1: 0.0, 2: 0.0}), "paper") == "provisional: 1 of 5 seeds"
    assert provisional(experiment(), Table(), "paper") == ""


def test_a_row_is_known_by_what_it_does_and_not_by_who_asks():
    one, other = (
        Row(Case("m", "s", told), 1, (who,)) for told, who in (({"a": 1, "b": 2}, "x"), ({"b": 2, "a": 1}, "y"))
    )
    assert one.key == other.key
    assert merged([one, other])[0].experiments == ("x", "y")
    different = [
        Row(Case("m", "s", {"a": 2, "b": 2}), 1),
        Row(Case("m", "t", {"a": 1, "b": 2}), 1),
        one._replace(seed=2),
    ]
    assert len({row.key for row in (one, *different)}) == 4


def test_from_ten_thousand_nodes_on_three_seeds_are_enough():
    large = cases("m", "s", {"nodes": (9_999, 10_000)})
    found = experiment(cases=lambda scale, data: large).rows("paper", NOTHING)
    assert [row.case.parameters["nodes"] for row in found] == [9_999] * 5 + [10_000] * 3


def test_a_table_gives_numbers_by_seed_and_names_what_is_missing():
    table = Table()
    for seed, values in ((1, [1, 2, 3]), (2, [3, 4, 8])):
        table.add(CASES[0], seed, {"x": values, "at": ([10, 20], [5, 6])})
    assert table.each("x", nodes=1).tolist() == [2, 5]
    assert table.mean("x", "a", last, nodes=1) == 5.5
    assert table.path("x", nodes=1).values.tolist() == [2, 3, 5.5]
    assert table.path("at", nodes=1).steps.tolist() == [10, 20]
    assert table.seeds() == [1, 2]
    with pytest.raises(Missing):
        table.mean("x", nodes=2)
    with pytest.raises(Missing):
        table.mean("y", nodes=1)


def test_intervals_are_those_of_the_t_distribution():
    assert half_width(of(1, 2, 3)) == pytest.approx(4.302653 * 1 / np.sqrt(3), rel=1e-6)
    assert np.isnan(half_width(of(1)))


def test_data_at_hand_is_found_by_its_files(tmp_path, monkeypatch):
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    assert AtHand.find(None).friends(100) == "friends"
    graph = tmp_path / "ego-facebook" / "facebook_combined.txt.gz"
    graph.parent.mkdir()
    graph.touch()
    there = AtHand.find(tmp_path)
    assert (there.friends(4039), there.friends(4040), there.machines()) == ("ego-facebook", "friends", "machines")


def test_results_made_of_raw_traces_are_judged_without_them(tmp_path, monkeypatch):
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    (tmp_path / "ego-facebook-40-1").mkdir()
    there = AtHand.find(None, made=tmp_path)
    assert (there.friends(40), there.machines()) == ("ego-facebook", "machines")


def test_rank_correlation_is_spearmans():
    assert spearman([1, 2, 3], [10, 100, 1000]) == pytest.approx(1)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 2, 3, 4], [1, 1, 2, 2]) == pytest.approx(0.894427, rel=1e-5)  # ties at their mean rank
    assert spearman([1, 2, 3], [5, 5, 5]) == 0
