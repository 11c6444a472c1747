"""An experiment, the table of its results, a scale: a verdict."""

from __future__ import annotations

from trellis.lab.experiment import Experiment
from trellis.lab.inputs import AtHand, substitutes
from trellis.lab.table import Missing, Table
from trellis.lab.verdict import Verdict, judged


def judge(experiment: Experiment, table: Table, scale: str, at_hand: AtHand) -> Verdict:
    if experiment.not_yet:
        return Verdict("not yet", reason=experiment.not_yet)
    if experiment.no_data:
        return Verdict("no data", reason=experiment.no_data)
    cases = experiment.cases(scale, at_hand)
    wanted = {case.identity for case in cases}
    there = {case.identity for case in table.cases()}
    if wanted - there:
        lost = len(wanted - there)
        return Verdict(
            "incomplete", reason=f"{lost} of {len(wanted)} cases have no result: trellis lab run {experiment.id}"
        )
    try:
        rule = experiment.rule(table)
    except Missing as gap:
        return Verdict("incomplete", reason=str(gap))
    is_model = any(case.parameters.get("model") == "converged" for case in cases)
    return judged(rule, limits(experiment, scale, at_hand), is_model=is_model)


def limits(experiment: Experiment, scale: str, at_hand: AtHand) -> list[str]:
    """What keeps a verdict from `reproduced`, whatever the rule says."""
    found = [experiment.limit] if experiment.limit else []
    found += [text for case in experiment.cases(scale, at_hand) for text in substitutes(case.parameters)]
    if scale != "paper" and not experiment.always_exact:
        found.append(f"sizes {'larger' if scale == 'beyond' else 'smaller'} than the paper's")
    return list(dict.fromkeys(found))


def provisional(experiment: Experiment, table: Table, scale: str) -> str:
    """Says so where a case was run with fewer seeds than the rules ask for."""
    counts = [(len(seeds), experiment.seeds_of(case, scale)) for case, seeds in table]
    few = [(found, wanted) for found, wanted in counts if found < wanted]
    return "provisional: {} of {} seeds".format(*min(few)) if few else ""
