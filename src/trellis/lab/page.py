"""The page itself: HTML with everything in it, and the summary as Markdown."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from trellis.lab.experiment import PAPERS
from trellis.lab.numbers import Numbers, numbers_of
from trellis.lab.times import time_text
from trellis.lab.verdict import WORDS, Check

if TYPE_CHECKING:
    from trellis.lab.report import Judged

MEANINGS = {
    "reproduced": "the paper's rule holds, on its data or a workload that it defines, at its size",
    "reproduced (converged model)": "the same, by an idealised model of converged tables and not by the protocol",
    "shape only": "a weaker rule holds; or the data is a substitute, or the size is not the paper's",
    "not reproduced": "neither rule holds",
    "no data": "needs a data set that is not at hand",
    "not yet": "cannot be judged now; the entry says why",
    "incomplete": "rows are missing or failed",
}


def page(found: list[Judged], scale: str, figures: dict[str, bytes], not_run: str = "") -> str:
    style = (resources.files("trellis.lab") / "page.css").read_text("utf-8")
    sections = "".join(
        f'<h2 id="{paper}">{escape(name)}</h2>'
        + "".join(_figure(one, scale, figures.get(one.experiment.id)) for one in found if one.experiment.paper == paper)
        for paper, name in PAPERS.items()
        if any(one.experiment.paper == paper for one in found)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Trellis lab: {escape(scale)}</title><style>{style}</style></head><body><main>"
        f"{_head(found, scale, not_run)}{_summary(found)}{_deviations(found)}{sections}</main></body></html>\n"
    )


def _head(found: list[Judged], scale: str, not_run: str) -> str:
    counts = Counter(one.verdict.word for one in found)
    chips = "".join(f'<span class="count">{_chip(word)} {counts[word]}</span>' for word in WORDS if counts[word])
    commits = sorted({commit for one in found for commit in one.commits})
    cpu = time_text(sum({id(one): one.cpu_seconds for one in found}.values()))
    meanings = "".join(
        f"<dt>{_chip(word)}</dt><dd>{escape(text)}</dd>" for word, text in MEANINGS.items() if counts[word]
    )
    sizes = {
        "smoke": "Sizes are small: this shows that everything runs, and which shapes hold already. No verdict here is "
        "better than “shape only”, but for examples that have one size only.",
        "medium": "Sizes lie between small ones and the papers': as large as one core runs in an hour. No verdict here "
        "is better than “shape only”.",
        "paper": "Sizes, seeds and rounds are the papers' own.",
        "beyond": "Sizes beyond the papers': what holds there is “shape only” by definition.",
    }[scale]
    return (
        f"<header><p class=kicker>Trellis lab · scale {escape(scale)}</p><h1>{_counted(found)}</h1>"
        f"<p>{sizes} Rules are code, and read only the table of results; numbers are means over seeds with 95% "
        "intervals.</p>"
        + (f"<p>{escape(not_run)}.</p>" if not_run else "")
        + f'<p class="counts">{chips}</p><dl class="meanings">{meanings}</dl>'
        f'<p class="facts">Commit {escape(", ".join(commits) or "unknown")} · processor time of the rows behind the '
        f"figures, shared rows counted for each: {cpu}</p></header>"
    )


def _counted(found: list[Judged]) -> str:
    papers, count = len({one.experiment.paper for one in found}), len(found)
    return f"{count} experiment{'s' * (count != 1)} of {papers} paper{'s' * (papers != 1)}"


def _summary(found: list[Judged]) -> str:
    rows = []
    paper = ""
    for one in found:
        experiment = one.experiment
        if experiment.paper != paper:
            paper = experiment.paper
            rows.append(f'<tr class="paper"><th colspan="5"><a href="#{paper}">{escape(PAPERS[paper])}</a></th></tr>')
        rows.append(
            f'<tr><td><a href="#{experiment.id}">{experiment.id}</a></td><td>{escape(experiment.figure)}</td>'
            f"<td>{_chip(one.verdict.word)}</td><td>{escape(experiment.title)}<br><small>{escape(in_a_line(one))}</small></td>"
            f"<td class=n>{len(one.seeds) or ''}</td></tr>"
        )
    return (
        '<h2 id="summary">Summary</h2><table class="summary"><thead><tr><th>id</th><th>figure</th><th>verdict</th>'
        "<th>what, and why the verdict is not better</th><th>seeds</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def in_a_line(one: Judged) -> str:
    """Why the verdict is not better; the first number where it is the best."""
    verdict = one.verdict
    if not verdict.r:
        return verdict.reason
    failing = [check for check in verdict.r if not check.holds]
    words = [f"{check.condition}: {check.found}" for check in failing[:1]]
    if len(failing) > 1:
        words.append(f"and {len(failing) - 1} more of {len(verdict.r)} conditions fail")
    if not failing:
        words.append("all conditions of the paper's rule hold")
    by_cycles = any(case.parameters.get("engine") == "cycles" for case in one.table.cases())
    engine = "run by the cycle engine, not by the protocol's own code" if by_cycles else ""
    return "; ".join(word for word in (*words, one.provisional, verdict.reason, engine, one.beside) if word)


def _deviations(found: list[Judged]) -> str:
    """Where a rule fails or we know better, in one place."""
    items = []
    for one in found:
        failing = [check for check in one.verdict.r if not check.holds]
        if not (one.experiment.note or failing):
            continue
        checks = "".join(f"<li>{escape(check.condition)}: <b>{escape(check.found)}</b></li>" for check in failing[:4])
        more = f"<li>and {len(failing) - 4} more</li>" if len(failing) > 4 else ""
        note = f"<p>{escape(one.experiment.note)}</p>" if one.experiment.note else ""
        items.append(
            f'<details><summary><a href="#{one.experiment.id}">{one.experiment.id}</a> {_chip(one.verdict.word)} '
            f"{escape(one.experiment.title)}</summary>{note}<ul>{checks}{more}</ul></details>"
        )
    limits = Counter(reason for one in found if one.verdict.r for reason in one.verdict.reason.split("; ") if reason)
    data = "".join(
        f"<li>{escape(reason)} <small>({count} experiments)</small></li>" for reason, count in limits.most_common()
    )
    return (
        '<h2 id="deviations">Where we deviate, and why</h2>'
        "<p>Readings of the papers where they are silent or contradict themselves have ids (A-…, E-…), listed in "
        "docs/papers.md. "
        "What keeps verdicts from “reproduced” beside the rules themselves:</p>"
        f"<ul>{data or '<li>nothing</li>'}</ul>"
        f"<p>Conditions of the papers' rules that fail, and what we know about them:</p>{''.join(items)}"
    )


def _figure(one: Judged, scale: str, svg: bytes | None) -> str:
    experiment, verdict = one.experiment, one.verdict
    image = ""
    if svg is not None:
        data = base64.b64encode(svg).decode()
        image = f'<img alt="{escape(experiment.title)}" src="data:image/svg+xml;base64,{data}">'
    checks = _checks("R", verdict.r) + (_checks("S", verdict.s) if not verdict.word.startswith("reproduced") else "")
    failures = "".join(f"<li>{escape(text)}</li>" for text in one.failures[:5])
    facts = [
        f"data: {'; '.join(one.data)}" if one.data else "",
        f"seeds {', '.join(map(str, one.seeds))}" if one.seeds else "",
        f"{time_text(one.cpu_seconds)} of processor time" if one.cpu_seconds else "",
        f"commit {', '.join(one.commits)}" if one.commits else "",
        one.provisional,
    ]
    return (
        f'<section id="{experiment.id}"><h3><span>{experiment.id}</span> {escape(experiment.title)} '
        f"{_chip(verdict.word)}</h3>"
        f'<p class="claim"><b>{escape(experiment.figure)}, the paper:</b> {escape(experiment.claim)}</p>'
        + (f'<p class="reason">{escape(verdict.reason)}</p>' if verdict.reason else "")
        + (f'<p class="beside">{escape(one.beside)}</p>' if one.beside else "")
        + image
        + (
            f'<details open class="checks"><summary>The rule</summary><table>{checks}</table></details>'
            if checks
            else ""
        )
        + _numbers(one)
        + (f'<p class="note"><b>Note.</b> {escape(experiment.note)}</p>' if experiment.note else "")
        + (f'<ul class="failures">{failures}</ul>' if failures else "")
        + f'<p class="facts">{escape(" · ".join(fact for fact in facts if fact))}<br>'
        + (f"<code>trellis lab run {experiment.id} --scale {scale}</code>" if experiment.can_run else "")
        + "</p></section>"
    )


def _checks(column: str, checks: Sequence[Check]) -> str:
    return "".join(
        f'<tr class="{"yes" if check.holds else "no"}"><td>{column}</td><td>{"✓" if check.holds else "✗"}</td>'
        f"<td>{escape(check.condition)}</td><td>{escape(check.found)}</td></tr>"
        for check in checks
    )


def _numbers(one: Judged) -> str:
    inside = "".join(_table(found) for found in numbers_of(one.experiment, one.table))
    return f"<details><summary>Our numbers</summary>{inside}</details>" if inside else ""


def _table(found: Numbers) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in found.columns)
    body = "".join(
        f"<tr><th>{escape(label)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for label, cells in found.rows
    )
    return (
        f'<div class="wide"><table class="numbers"><caption>{escape(found.title)}</caption>'
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _chip(word: str) -> str:
    return f'<span class="chip {word.partition(" (")[0].replace(" ", "-")}">{word}</span>'


def summary_table(found: list[Judged], scale: str, not_run: str = "") -> str:
    """For a page of the documentation."""
    lines = [
        f"# The papers' figures at scale `{scale}`",
        "",
        f"Made by `trellis lab run all --scale {scale}` and `trellis lab report --scale {scale}`.",
        "",
        *([f"{not_run}.", ""] if not_run else []),
        "| id | figure | verdict | why it is not better | seeds | commit |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        why, commits = in_a_line(one).replace("|", "\\|"), ", ".join(commit[:7] for commit in one.commits)
        lines.append(
            f"| {one.experiment.id} | {one.experiment.figure} | {one.verdict.word} | {why} | {len(one.seeds) or '-'} "
            f"| {commits or '-'} |"
        )
    return "\n".join(lines) + "\n"
