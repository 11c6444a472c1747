"""An experiment, the table of its results, a scale: a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from trellis.lab.experiment import Case, Experiment
from trellis.lab.inputs import AtHand, substitutes
from trellis.lab.table import Missing, Table
from trellis.lab.verdict import Verdict, judged

SHOWN_MAX = 3  # cases that a reason names


def judge(experiment: Experiment, table: Table, scale: str, at_hand: AtHand, commits: Sequence[str] = ()) -> Verdict:
    """Return the verdict. `commits`: the different states of the sources that made the rows."""
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
            "incomplete",
            reason=f"{lost} of {len(wanted)} cases have no result: trellis lab run {experiment.id} --scale {scale}",
        )
    if gaps := missing_seeds(experiment, table, scale):
        return Verdict("incomplete", reason=gaps)
    try:
        rule = experiment.rule(table)
    except Missing as gap:
        return Verdict("incomplete", reason=str(gap))
    is_model = any(case.parameters.get("model") == "converged" for case in cases)
    found = limits(experiment, scale, at_hand)
    if experiment.is_timed and len(commits) > 1:
        found.append(f"times of different commits are compared ({', '.join(commits)}): run all rows again at one")
    return judged(rule, found, is_model=is_model)


def limits(experiment: Experiment, scale: str, at_hand: AtHand) -> list[str]:
    """What keeps a verdict from `reproduced`, whatever the rule says."""
    found = [experiment.limit] if experiment.limit else []
    found += [text for case in experiment.cases(scale, at_hand) for text in substitutes(case.parameters)]
    if scale != "paper" and not experiment.always_exact:
        found.append(f"sizes {'larger' if scale == 'beyond' else 'smaller'} than the paper's")
    return list(dict.fromkeys(found))


def missing_seeds(experiment: Experiment, table: Table, scale: str) -> str:
    """Say which seeds some cases lack; empty where no seed is missing.

    Rules compare systems seed by seed. So all cases for which the rules ask for equally many seeds must have the same
    seeds, without a gap. Fewer seeds than the rules ask for are no gap where all cases have them (`provisional`).
    """
    alike: dict[int, list[tuple[Case, set[int]]]] = {}
    for case, found in table:
        alike.setdefault(experiment.seeds_of(case, scale), []).append((case, set(found)))
    told, most = [], 0
    for count, some in alike.items():
        union = set().union(*(seeds for _, seeds in some))
        wanted = union | set(range(1, min(max(union, default=0), count) + 1))
        for case, seeds in some:
            if lost := sorted(wanted - seeds):
                told.append(f"{_called(case, table.cases())} has no seed {', '.join(map(str, lost))}")
                most = max(most, max(lost) if max(lost) > count else 0)
    if not told:
        return ""
    more = f" and {len(told) - SHOWN_MAX} more cases lack seeds" if len(told) > SHOWN_MAX else ""
    asked = f" --seeds {most}" if most else ""
    return f"{'; '.join(told[:SHOWN_MAX])}{more}: trellis lab run {experiment.id} --scale {scale}{asked}"


def _called(case: Case, among: Sequence[Case]) -> str:
    """Return the system, and the parameters in which its cases differ."""
    others = [one.parameters for one in among if one.system == case.system]
    names = [name for name in case.parameters if any(one.get(name) != case.parameters[name] for one in others)]
    told = ", ".join(f"{name} {case.parameters[name]}" for name in names)
    return f"{case.system} ({told})" if told else case.system


def provisional(experiment: Experiment, table: Table, scale: str) -> str:
    """Says so where a case was run with fewer seeds than the rules ask for."""
    counts = [(len(seeds), experiment.seeds_of(case, scale)) for case, seeds in table]
    few = [(found, wanted) for found, wanted in counts if found < wanted]
    return "provisional: {} of {} seeds".format(*min(few)) if few else ""
