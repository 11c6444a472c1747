"""The page of a folder of runs: one HTML file with everything in it. The pictures are also files of their own."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from benchmarks.fire.keep import Kept
from benchmarks.fire.plots import cpu_us, draw_bars, draw_flow, peer_bytes
from benchmarks.fire.systems import SYSTEMS
from benchmarks.fire.table import in_order

from trellis.files import written_whole

PAGE = "fire.html"
_WORDS = {
    "quiet": "no faults",
    "kills": "one broker after the other is killed (kill -9) and started again",
    "groups": "three brokers at once are killed and started again",
    "hangs": "one broker after the other is stopped (SIGSTOP) and goes on",
    "rolling": "each broker is ended in order (SIGTERM) and started again",
    "partition": "a third of the brokers is cut off from the others",
}
_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #f6f8f9; color: #22313f; font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { margin: 2.4rem 0 .4rem; font-size: 1.25rem; }
section, .card { background: #fff; border: 1px solid #e4e9ed; border-radius: 8px; padding: 1rem; margin: 1rem 0; }
.wide { overflow-x: auto; } img { max-width: 100%; height: auto; display: block; }
table { border-collapse: collapse; font-size: .8rem; width: 100%; }
th, td { padding: .3rem .35rem; text-align: right; border-bottom: 1px solid #e4e9ed; white-space: nowrap; }
th { white-space: normal; } td:first-child { white-space: normal; min-width: 9rem; }
th:first-child, td:first-child { text-align: left; } th { color: #5b6a76; font-weight: 600; vertical-align: bottom; }
td.bad { color: #c0392b; font-weight: 700; } td.good { color: #3c8d6e; } td.none { color: #7b8a97; }
pre { overflow-x: auto; background: #f6f8f9; padding: .6rem; font-size: .8rem; } code { font-size: .88em; }
summary { cursor: pointer; font-weight: 600; padding: .2rem 0; } .small { color: #5b6a76; font-size: .88rem; }
"""


def write_page(runs: Sequence[Kept], folder: Path, skipped: str = "") -> Path:
    """Draw every case, and write the page. Return its path."""
    body = "".join(_case(case, some, folder) for case, some in in_order(runs, list(SYSTEMS)))
    path = folder / PAGE
    with written_whole(path) as temporary:
        temporary.write_text(
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>Brokers under fire</title><style>{_STYLE}</style></head><body><main>"
            f"{_head(runs)}{body}{_systems(runs)}{_skipped(skipped)}</main></body></html>\n",
            "utf-8",
        )
    return path


def _head(runs: Sequence[Kept]) -> str:
    machines = sorted({run.about["machine"].partition(", load")[0] for run in runs})
    loads = [float(run.about["machine"].partition("load ")[2].partition(",")[0]) for run in runs]
    times = sorted(run.about["started"] for run in runs)
    commands = sorted({run.about["command"] for run in runs})
    return (
        "<h1>Brokers under fire</h1><p>The same MQTT clients, topics, interests and faults for every system. QoS 1, "
        "MQTT 3.1.1, persistent sessions. Clients reconnect and repeat as the standard says.</p>"
        f'<div class="card"><b>{len(runs)} runs</b>, {escape(times[0])} to {escape(times[-1])}, on '
        f"{escape('; '.join(machines))}. The load of the machine was {min(loads):.1f} to {max(loads):.1f} after the "
        "runs: other work ran beside them, so times are noisy.<br>Repeat it with "
        + "".join(f"<pre>{escape(one)}</pre>" for one in commands)
        + "</div>"
        "<details class='card'><summary>What the columns mean</summary><ul>"
        "<li><b>lost</b>: an acknowledged message that a subscribed client never got. Nothing is excused, also not "
        "that a broker forgot its client's session.</li>"
        "<li><b>twice</b>: a client got a message again, although no client had lost a connection.</li>"
        "<li><b>repeated</b>: the same, after a client had lost its connection. MQTT allows it with QoS 1.</li>"
        "<li><b>out of order</b>: a message came after a later one of the same publisher on the same topic.</li>"
        "<li><b>no answer</b>: publications that were not acknowledged until the end.</li>"
        "<li><b>down</b>: from a fault until its broker takes connections again: median and most.</li>"
        "<li><b>others flow</b>: from a fault until the last message that took over 0.5 s, or was lost, between "
        "brokers that no fault had hit for 20 s: median and most of all faults. <b>Back flows</b>: the same for "
        "messages from and to a broker that was hit, from the moment when it is up again.</li>"
        "<li><b>links</b>: pairs of brokers with a connection. <b>Strayed</b>: copies of a message that went to "
        "brokers where nobody subscribes, for each publication; measured in quiet runs.</li>"
        "<li><b>computing</b>: of all brokers, per delivery to a client of another broker; <b>bytes</b> between "
        "brokers per byte delivered to them, headers included.</li></ul></details>"
    )


def _case(case: tuple[int, str, int], runs: Sequence[Kept], folder: Path) -> str:
    brokers, kind, payload = case
    stem = f"fire-{brokers}-{kind}-{payload}"
    pictures = []
    for name, draw in (("figures", draw_bars), ("flow", draw_flow)):
        for suffix in ("svg", "png"):
            draw(runs, folder / f"{stem}-{name}.{suffix}")
        data = base64.b64encode((folder / f"{stem}-{name}.png").read_bytes()).decode("ascii")
        pictures.append(f'<img alt="{escape(kind)}: {name}" src="data:image/png;base64,{data}">')
    load = runs[0].about["load"]
    return (
        f'<h2 id="{stem}">{brokers} brokers, {payload:,} bytes: {escape(_WORDS[kind])}</h2>'
        f'<p class="small">{load["rate"]:g} publications a second for {load["seconds"]:g} s on '
        f"{runs[0].about['topics']} topics. Interests: {escape(runs[0].about['interests'])}. Network: "
        f"{escape(runs[0].about['network'])}.</p>"
        f'<section><div class="wide">{_table(runs)}</div>{_notes(runs)}</section>'
        f"<section>{pictures[0]}</section><section>{pictures[1]}</section>"
    )


def _table(runs: Sequence[Kept]) -> str:
    heads = (
        "system", "acknow&shy;ledged", "lost", "twice", "repeated", "out of order", "no answer", "sessions forgotten",
        "down, s", "others flow, s", "back flows, s", "delay p50, p99, ms", "links", "strayed", "computing, µs",
        "bytes", "memory, MB",
    )  # fmt: skip
    rows = "".join(f"<tr>{''.join(_cells(run))}</tr>" for run in runs)
    return f"<table><thead><tr>{''.join(f'<th>{one}</th>' for one in heads)}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(run: Kept) -> Iterator[str]:
    verdict, costs = run.verdict, run.about["costs"]
    yield f"<td>{escape(run.about['title'])}</td><td>{verdict.acknowledged:,}</td>"
    for count in (verdict.lost, verdict.twice):
        yield f'<td class="{"bad" if count else "good"}">{count:,}</td>'
    yield f"<td>{verdict.repeated:,}</td>"
    for count in (verdict.disorder, verdict.unsettled):
        yield f'<td class="{"bad" if count else "good"}">{count:,}</td>'
    yield f"<td>{verdict.forgotten_sessions:,}</td>"
    for times in (sorted(verdict.down_s), sorted(verdict.others_s), sorted(verdict.again_s)):
        yield f"<td>{times[len(times) // 2]:.1f}; {times[-1]:.1f}</td>" if times else '<td class="none">–</td>'
    delays = sorted(verdict.delays_s)
    if delays:
        yield f"<td>{1e3 * delays[len(delays) // 2]:.0f}; {1e3 * delays[int(0.99 * len(delays))]:.0f}</td>"
    else:
        yield '<td class="none">–</td>'
    yield f"<td>{costs['links']}</td>"
    yield _maybe(costs["strayed"], "{:.1f}") + _maybe(cpu_us(run), "{:,.0f}") + _maybe(peer_bytes(run), "{:.1f}")
    yield f"<td>{costs['memory_mb']:.0f}</td>"


def _maybe(value: float | None, form: str) -> str:
    return f"<td>{form.format(value)}</td>" if value is not None else '<td class="none">–</td>'


def _notes(runs: Sequence[Kept]) -> str:
    lines = []
    for run in runs:
        title, verdict = escape(run.about["title"]), run.verdict
        if verdict.lost:
            hit = ", ".join(f"{count:,}: {who}" for who, count in verdict.lost_by.most_common())
            lines.append(f"{title} lost {verdict.lost:,}. When they were published: {escape(hit)}.")
        lines += [f"{title}: {escape(note)}" for note in run.about["notes"]]
    return f"<ul class='small'>{''.join(f'<li>{line}</li>' for line in lines)}</ul>" if lines else ""


def _systems(runs: Sequence[Kept]) -> str:
    parts = []
    for name in dict.fromkeys(run.system for run in runs):
        about = next(run.about for run in runs if run.system == name)
        said = "".join(f"<li>{escape(one)}</li>" for one in (*about["safe"], *about["known"]))
        files = about["configurations"].items()
        texts = "".join(f"<p><code>{escape(path)}</code></p><pre>{escape(text)}</pre>" for path, text in files)
        parts.append(
            f"<section><b>{escape(about['title'])}</b>: {escape(about['version'])}<ul>{said}</ul>"
            f"<details><summary>configuration of the first broker</summary>{texts}</details></section>"
        )
    return "<h2>Systems, versions and settings</h2>" + "".join(parts)


def _skipped(text: str) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in text.splitlines())
    return f"<h2>Not run</h2><section><ul>{lines}</ul></section>" if lines else ""
