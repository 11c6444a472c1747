"""The pages `docs/results/`: what came of every figure, made from the rows that are kept and from nothing else.

README.md     what there is, and how many verdicts of which kind
PAPER.md      every entry of a paper: claim, plot, numbers, verdict, reason, engine, time, command
figures/      a plot for each entry that has rows

A plot says in its last line which rows it was drawn from (`fingerprint`): `write_pages` draws it again only where they
have changed, and a test compares without drawing.
"""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trellis.errors import InputError
from trellis.files import written_whole
from trellis.lab.catalogue import catalogue
from trellis.lab.experiment import PAPERS, Experiment
from trellis.lab.kept import Kept
from trellis.lab.numbers import Numbers, numbers_of
from trellis.lab.page import MEANINGS
from trellis.lab.plots import draw, has_figure
from trellis.lab.report import Judged, judged_all
from trellis.lab.times import time_text
from trellis.lab.verdict import WORDS, Check

SHOWN = ("paper", "beyond")  # scales
LETTERS = 118
DRAWING = 2  # raised by one when plots look different from now on
ENGINES = {
    "cycles": "the [cycle engine](../cycles.md): gossip round by round on arrays",
    "events": "the [event engine](../simulator-engine.md): the protocol's own code, message by message",
    "converged model": "a [model of converged tables](../lab.md#tables-without-gossip), not the protocol itself",
    "central": "an algorithm with central knowledge, or data alone; no protocol was run",
}
MADE = "<!-- Made by `trellis lab pages` from results/: do not edit. -->"


class Written(NamedTuple):
    pages: int
    drawn: int
    words: dict[str, int]


def write_pages(
    results: Path, to: Path, experiments: Sequence[Experiment], progress: Callable[[int, int], None] | None = None
) -> Written:
    """Write all pages and plots of the rows that are kept in `results` to the folder `to`."""
    found = judged_kept(results, experiments)
    try:
        (to / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(to), f"cannot be made ({error.strerror})", "name another folder with --to") from error
    texts = pages_of(found)
    for name, text in texts.items():
        with written_whole(to / name) as part:
            part.write_text(text, "utf-8")
    with_rows = [one for one in found if has_figure(one.experiment, one.table)]
    drawn, wanted = 0, set()
    for place, one in enumerate(with_rows):
        if progress is not None:
            progress(place, len(with_rows))
        path = to / "figures" / figure_name(one)
        wanted.add(path.name)
        drawn += _draw(one, path)
    for path in (to / "figures").glob("*.svg"):
        if path.name not in wanted:
            path.unlink()
    return Written(len(texts), drawn, counted(found))


def judged_kept(results: Path, experiments: Sequence[Experiment]) -> list[Judged]:
    """Judge every entry by the rows that are kept: at its main scale, and at larger ones what was run there."""
    if next(results.glob("*.jsonl"), None) is None:
        raise InputError(str(results), "holds no kept rows", "make them: trellis lab run, then trellis lab keep")
    kept = Kept(results)
    found = [one for scale in SHOWN for one in judged_all(experiments, kept, scale, kept.at_hand)]
    main = {one.experiment.id: one for one in found if is_main(one)}
    return [main[one.id] for one in experiments] + [one for one in found if not is_main(one) and one.was_run]


def is_main(one: Judged) -> bool:
    """Whether an entry was judged at the paper's sizes, or at its first scale beyond them where it has no others."""
    scales = one.experiment.scales
    return one.scale == next((scale for scale in SHOWN if scale in scales), SHOWN[0])


def counted(found: Sequence[Judged]) -> dict[str, int]:
    """How many verdicts of which kind, each entry at its main scale. What has no row at all is `not run`."""
    words = Counter(word_of(one) for one in found if is_main(one))
    return {word: words[word] for word in (*WORDS, "not run") if words[word]}


def word_of(one: Judged) -> str:
    return "not run" if one.verdict.word == "incomplete" and not one.was_run else one.verdict.word


def figure_name(one: Judged) -> str:
    return f"{one.experiment.id}{'' if is_main(one) else f'-{one.scale}'}.svg"


def fingerprint(one: Judged) -> str:
    """Return a short text that differs where the plot of an entry would differ."""
    found = [
        [case.identity, seed, {m: (s.steps.tolist(), s.points.tolist(), s.summary) for m, s in sorted(series.items())}]
        for case, seeds in one.table
        for seed, series in sorted(seeds.items())
    ]
    plots = re.sub(r" at 0x[0-9a-f]+", "", repr(one.experiment.plots))  # a function's address differs in every run
    told = [DRAWING, one.experiment.id, one.experiment.figure, plots, found]
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=8).hexdigest()


def _draw(one: Judged, path: Path) -> bool:
    mark = f"<!-- rows {fingerprint(one)} -->\n"
    if path.is_file() and path.read_text("utf-8").endswith(mark):
        return False
    if not draw(one.experiment, one.table, [path]):
        return False
    text = "".join(f"{_rounded(line)}\n" for line in path.read_text("utf-8").splitlines())
    with written_whole(path) as part:
        part.write_text(text + mark, "utf-8")
    return True


def _rounded(line: str) -> str:
    """Round coordinates, never words: a tenth of a point is as exact as a plot needs to be."""
    words = re.split(r"(>[^<]*<)", line)  # text between tags has odd places
    shorter = (_rounded_part(one) if place % 2 == 0 else one for place, one in enumerate(words))
    return "".join(shorter).strip()


def _rounded_part(text: str) -> str:
    return re.sub(r"-?\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), text)


# Text


def pages_of(found: Sequence[Judged]) -> dict[str, str]:
    """Return every page by its name."""
    pages = {"README.md": _index(found)}
    for paper in PAPERS:
        pages[f"{paper}.md"] = _paper(paper, [one for one in found if one.experiment.paper == paper])
    return pages


def _index(found: Sequence[Judged]) -> str:
    papers = {paper: [one for one in found if one.experiment.paper == paper] for paper in PAPERS}
    words = counted(found)
    lines = [
        MADE,
        "# Results",
        "",
        *_wrapped(
            "For a reader who knows the papers and asks how far Trellis agrees with them. Every figure, table and "
            "claim of the five papers is an entry with a rule that a program evaluates. The rows behind a verdict are "
            "in `results/`, with the commit and the engine that made them. [The lab](../lab.md) explains how entries "
            "are run and judged, and which data stands for data that is not public."
        ),
        *_table(["paper", *words, "entries"], [
            (f"[{PAPERS[paper]}]({paper}.md)",
             [*(str(Counter(word_of(one) for one in some if is_main(one))[word] or "") for word in words),
              str(sum(is_main(one) for one in some))])
            for paper, some in papers.items()
        ] + [("all", [*map(str, words.values()), str(sum(words.values()))])]),
        "## What the verdicts mean",
        "",
        *_table(["", ""], [(f"**{word}**", [text]) for word, text in MEANINGS.items() if words.get(word)]
                + ([("**not run**", ["no row is kept yet"])] if words.get("not run") else [])),
        *_wrapped(
            "A rule that holds on substitute data, or at another size than the paper's, gives “shape only” and never "
            "more. Numbers are means over seeds; ± is half of the 95% interval (Student's t). A condition on "
            "connectivity or on a bound must hold in every seed."
        ),
        "## Every entry",
        "",
        *_table(["entry", "figure", "verdict", "what, and why it is not better"], [
            (f"[{one.experiment.id}]({one.experiment.paper}.md#{_heading(one)})",
             [one.experiment.figure, word_of(one), f"{one.experiment.title}. {_why(one)}".strip()])
            for one in found if is_main(one)
        ]),
        "## Made by",
        "",
        *_wrapped(
            "`trellis lab run all --scale paper` runs what is missing, `trellis lab keep` takes the rows into "
            f"`results/`, and `trellis lab pages` writes these pages. All rows together took {_total(found)} of "
            "processor time. `trellis lab list --scale paper` tells the time of each entry."
        ),
    ]  # fmt: skip
    return _text(lines)


def _paper(paper: str, found: Sequence[Judged]) -> str:
    main = [one for one in found if is_main(one)]
    words = ", ".join(f"{count} {word}" for word, count in counted(main).items())
    run = [one for one in main if one.was_run or not one.experiment.can_run]
    idle = [one for one in main if one not in run]
    lines = [
        MADE,
        f"# {PAPERS[paper]}",
        "",
        *_wrapped(
            f"{len(main)} entries: {words}. Each shows what the paper claims, our plot and numbers, and the rule "
            "behind the verdict. Crosses, dashed lines and rows called “paper” are values that the paper prints. "
            "± is half of the 95% interval over seeds. [All papers](README.md)"
        ),
    ]
    for one in run:
        lines += _entry(one)
        lines += [line for other in found if not is_main(other) and other.experiment is one.experiment
                  for line in _entry(other)]  # fmt: skip
    if idle:
        lines += ["## Not run", "", "No rows of these entries are kept.", ""]
        rows = [
            (f"<a id=\"{one.experiment.id.lower()}\"></a>{one.experiment.id}",
             [one.experiment.figure, one.experiment.claim, f"`{_command(one)}`"])
            for one in idle
        ]  # fmt: skip
        lines += _table(["entry", "figure", "the paper's claim", "command"], rows)
    return _text(lines)


def _entry(one: Judged) -> Iterator[str]:
    experiment, verdict = one.experiment, one.verdict
    beyond = "" if is_main(one) else f" at scale {one.scale}"
    yield from (f"## {experiment.id}{beyond}", "")
    yield from _wrapped(f"**{experiment.figure}. {experiment.title}.** The paper: {experiment.claim}")
    yield from _table(["", ""], [(name, [text]) for name, text in _facts(one) if text])
    if has_figure(experiment, one.table):
        yield from (f"![{experiment.title}](figures/{figure_name(one)})", "")
    for found in numbers_of(experiment, one.table):
        yield from _numbers(found)
    if verdict.r:
        yield from _rule(one)
    if experiment.note:
        yield from _wrapped(f"Note: {experiment.note}")


def _facts(one: Judged) -> Iterator[tuple[str, str]]:
    experiment, verdict = one.experiment, one.verdict
    yield "verdict", f"**{verdict.word}**" + (f" ({one.provisional})" if one.provisional else "")
    yield "reason", _why(one)
    yield "beside it", one.beside
    yield "engine", "; ".join(ENGINES.get(name, name) for name in one.engines)
    yield "data", "; ".join(one.data)
    counts = sorted({len(seeds) for _, seeds in one.table})
    yield "seeds", " to ".join(str(count) for count in dict.fromkeys((*counts[:1], *counts[-1:])))
    if one.cpu_seconds:
        yield "time", f"{time_text(one.cpu_seconds)} of processor time, {time_text(one.seconds)} by the clock"
    yield "commit", ", ".join(commit[:12] for commit in one.commits)
    yield "versions", "; ".join(one.versions)
    yield "command", f"`{_command(one)}`" if experiment.can_run else ""
    if one.failures:
        yield "failed rows", "; ".join(one.failures[:3])


def _why(one: Judged) -> str:
    """Why the verdict is not better."""
    verdict = one.verdict
    if word_of(one) == "not run":
        return ""
    if not verdict.r:
        return verdict.reason
    failing = [check for check in verdict.r if not check.holds]
    words = [f"{check.condition}: found {check.found}" for check in failing[:2]]
    if len(failing) > 2:
        words.append(f"{len(failing) - 2} more of {len(verdict.r)} conditions fail")
    if not failing:
        words.append("every condition of the paper's rule holds")
    return "; ".join([*words, *([verdict.reason] if verdict.reason else [])])


def _rule(one: Judged) -> Iterator[str]:
    def rows(checks: Sequence[Check], name: str) -> list[tuple[str, list[str]]]:
        return [(name, [check.condition, check.found, "yes" if check.holds else "**no**"]) for check in checks]

    listed = rows(one.verdict.r, "paper's")
    if not one.verdict.word.startswith("reproduced"):
        listed += rows(one.verdict.s, "weaker")
    yield from _table(["rule", "condition", "found", "holds"], listed)


def _numbers(found: Numbers) -> Iterator[str]:
    yield from _table([found.title, *found.columns], found.rows)


def _heading(one: Judged) -> str:
    """Where the page of its paper has an entry."""
    return "not-run" if word_of(one) == "not run" else one.experiment.id.lower()


def _command(one: Judged) -> str:
    return f"trellis lab run {one.experiment.id} --scale {one.scale}"


def _total(found: Sequence[Judged]) -> str:
    """Each row counted once, however many entries share it."""
    once: dict[str, float] = {}
    for one in found:
        once |= one.row_seconds
    return f"{time_text(sum(once.values()))} ({len(once):,} rows)"


def _table(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(columns), line(["---"] * len(columns)), *(line([name, *cells]) for name, cells in rows), ""]


def _wrapped(text: str) -> list[str]:
    return [*textwrap.wrap(text, LETTERS, break_long_words=False, break_on_hyphens=False), ""]


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def kept_and_written(results: Path, to: Path) -> list[str]:
    """Return the pages and plots in `to` that are not those of the rows in `results`."""
    found = judged_kept(results, list(catalogue().values()))
    wrong = [name for name, text in pages_of(found).items()
             if not (to / name).is_file() or (to / name).read_text("utf-8") != text]  # fmt: skip
    marks = {figure_name(one): fingerprint(one) for one in found if has_figure(one.experiment, one.table)}
    there = {path.name: path.read_text("utf-8") for path in (to / "figures").glob("*.svg")}
    wrong += [name for name, mark in marks.items() if not there.get(name, "").endswith(f"<!-- rows {mark} -->\n")]
    return wrong + sorted(set(there) - set(marks))
