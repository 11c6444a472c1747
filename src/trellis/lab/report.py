"""One page for people: the paper's claim, our plot, our numbers and the verdict, for every figure.

index.html    self-contained: no other file and no network is needed to read it
summary.md    the table at its top
figures/      every plot as .svg, on request as .png too
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

from trellis.errors import InputError
from trellis.files import written_whole
from trellis.lab.experiment import Case, Experiment, engine_of
from trellis.lab.inputs import AtHand
from trellis.lab.judge import judge, provisional
from trellis.lab.plots import draw
from trellis.lab.store import Outcome, Store
from trellis.lab.table import Table
from trellis.lab.verdict import WORDS, Verdict


class Judged(NamedTuple):
    experiment: Experiment
    verdict: Verdict
    table: Table
    seeds: list[int]
    cpu_seconds: float
    commits: list[str]
    failures: list[str]
    provisional: str
    data: list[str]
    seconds: float = 0.0
    engines: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    scale: str = "paper"
    row_seconds: Mapping[str, float] = MappingProxyType({})  # processor seconds of each row, by its key

    @property
    def was_run(self) -> bool:
        """Whether a row of it is there, be it one that failed."""
        return bool(len(self.table) or self.failures)

    @property
    def beside(self) -> str:
        """Return the numbers that stand beside the verdict; empty while rows or seeds are missing."""
        is_whole = len(self.table) and self.verdict.word != "incomplete"
        return self.experiment.beside(self.table) if self.experiment.beside and is_whole else ""


class Results(Protocol):
    """Rows with their numbers: a folder of the runner (`Store`), or rows that are kept (`Kept`)."""

    def outcomes(self) -> list[Outcome]: ...

    def table(self, cases: Iterable[Case], outcomes: Iterable[Outcome]) -> Table: ...


class NotRun(NamedTuple):
    """Experiments without any result: a report counts them in one sentence."""

    total: int
    cannot: int  # of these, how many no command can run at this scale: data is missing, or they have no such scale

    def sentence(self, scale: str) -> str:
        if not self.total:
            return ""
        how = "" if self.total == self.cannot else f"; to run them: trellis lab run all --scale {scale}"
        why = f"; {self.cannot} of them cannot be run at this scale: trellis lab list says why" if self.cannot else ""
        return f"Not listed, because not run: {self.total}{how}{why}"


class Made(NamedTuple):
    page: Path
    words: dict[str, int]
    not_run: NotRun


def results_in(folder: Path) -> Results | None:
    """Return the results of a folder, whoever wrote them; None where there are none."""
    from trellis.lab.kept import Kept

    if (folder / "rows").is_dir():
        return Store(folder)
    return Kept(folder) if next(folder.glob("*.jsonl"), None) is not None else None


def judged_all(experiments: Sequence[Experiment], results: Results | None, scale: str, at_hand: AtHand) -> list[Judged]:
    outcomes = [] if results is None else results.outcomes()
    return [judged_one(experiment, results or Store("."), outcomes, scale, at_hand) for experiment in experiments]


def judged_one(
    experiment: Experiment, results: Results, outcomes: list[Outcome], scale: str, at_hand: AtHand
) -> Judged:
    if not experiment.can_run or scale not in experiment.scales:
        verdict = judge(experiment, Table(), scale, at_hand) if not experiment.can_run else Verdict(
            "incomplete", reason=f"has no scale {scale}"
        )  # fmt: skip
        return Judged(experiment, verdict, Table(), [], 0.0, [], [], "", [], scale=scale)
    cases = experiment.cases(scale, at_hand)
    wanted = {case.identity for case in cases}
    mine = [outcome for outcome in outcomes if outcome.row.case.identity in wanted]
    table = results.table(cases, mine)
    commits = sorted({str(outcome.about.get("commit") or "unknown") for outcome in mine})
    return Judged(
        experiment,
        judge(experiment, table, scale, at_hand, commits),
        table,
        table.seeds(),
        sum(float(outcome.about.get("cpu_seconds", 0.0)) for outcome in mine),
        commits,
        [f"{outcome.row.case.system}, seed {outcome.row.seed}: {outcome.error}" for outcome in mine if outcome.error],
        provisional(experiment, table, scale),
        data_used(experiment, scale, at_hand),
        sum(float(outcome.about.get("seconds", 0.0)) for outcome in mine),
        tuple(sorted({engine_of(outcome.row.case) for outcome in mine})),
        tuple(sorted({versions_of(outcome) for outcome in mine} - {""})),
        scale,
        {outcome.row.key: float(outcome.about.get("cpu_seconds", 0.0)) for outcome in mine},
    )


def versions_of(outcome: Outcome) -> str:
    return ", ".join(f"{name} {number}" for name, number in dict(outcome.about.get("versions") or {}).items())


def data_used(experiment: Experiment, scale: str, at_hand: AtHand) -> list[str]:
    from trellis.lab.inputs import data_of

    named = [text for case in experiment.cases(scale, at_hand) for text in data_of(case.parameters)]
    return list(dict.fromkeys(named)) or ["generated as the paper defines it"]


def write_report(
    experiments: Sequence[Experiment],
    folder: Path,
    scale: str,
    at_hand: AtHand,
    to: Path,
    *,
    png: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Made:
    from trellis.lab.page import page, summary_table

    if (results := results_in(folder)) is None:
        raise InputError(str(folder), "holds no results", "run first: trellis lab run all --scale smoke")
    judged = judged_all(experiments, results, scale, at_hand)
    found = [one for one in judged if one.was_run]
    idle = [one.experiment for one in judged if not one.was_run]
    if not found:
        what = f"holds no result at scale {scale}"
        raise InputError(str(folder), what, f"run first: trellis lab run all --scale {scale}, or name another --scale")
    not_run = NotRun(len(idle), sum(not one.can_run or scale not in one.scales for one in idle))
    try:
        (to / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(to), f"cannot be made ({error.strerror})", "name another folder with --to") from error
    figures = _figures(found, to / "figures", png, progress)
    with written_whole(to / "index.html") as part:
        part.write_text(page(found, scale, figures, not_run.sentence(scale)), "utf-8")
    with written_whole(to / "summary.md") as part:
        part.write_text(summary_table(found, scale, not_run.sentence(scale)), "utf-8")
    counts = Counter(one.verdict.word for one in found)
    return Made(to / "index.html", {word: counts[word] for word in WORDS if counts[word]}, not_run)


def _figures(
    found: list[Judged], folder: Path, png: bool, progress: Callable[[int, int], None] | None
) -> dict[str, bytes]:
    """The SVG of each experiment that has something to draw."""
    made: dict[str, bytes] = {}
    for place, one in enumerate(found):
        if progress is not None:
            progress(place, len(found))
        paths = [folder / f"{one.experiment.id}.{kind}" for kind in (("svg", "png") if png else ("svg",))]
        if len(one.table) and draw(one.experiment, one.table, paths):
            made[one.experiment.id] = paths[0].read_bytes()
    return made
