"""The figures of a folder of runs as Markdown, one table for each case: for pages in docs/."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.fire.keep import Kept
from benchmarks.fire.plots import cpu_us, peer_bytes

KINDS = ("quiet", "kills", "groups", "hangs", "rolling", "partition")


def in_order(runs: Sequence[Kept], systems: Sequence[str]) -> list[tuple[tuple[int, str, int], list[Kept]]]:
    """Return the cases in the order of payload, brokers and schedule, each with its runs in the order of `systems`."""
    place = {name: number for number, name in enumerate(systems)}
    cases = sorted({run.case for run in runs}, key=lambda case: (case[2], case[0], KINDS.index(case[1])))
    ordered = sorted(runs, key=lambda run: place.get(run.system, len(place)))
    return [(case, [run for run in ordered if run.case == case]) for case in cases]


def faults(runs: Sequence[Kept], systems: Sequence[str]) -> Iterator[str]:
    """Yield the table of what happened to messages in each schedule."""
    heads = "system", "acknowledged", "lost", "twice", "repeated", "out of order", "down", "others flow", "back flows"
    yield f"| schedule | {' | '.join(heads)} |"
    yield "| --- " * (1 + len(heads)) + "|"
    for (_, kind, _), some in in_order(runs, systems):
        for run in some:
            one = run.verdict
            times = " | ".join(_times(values) for values in (one.down_s, one.others_s, one.again_s))
            counts = f"{one.acknowledged:,} | {one.lost:,} | {one.twice:,} | {one.repeated:,} | {one.disorder:,}"
            yield f"| {kind} | {run.system} | {counts} | {times} |"


def costs(runs: Sequence[Kept], systems: Sequence[str]) -> Iterator[str]:
    """Yield the table of what systems cost while nothing is harmed."""
    yield "| system | links | strayed | computing | bytes | memory | delay p50, p99 |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for (_, kind, _), some in in_order(runs, systems):
        for run in some if kind == "quiet" else ():
            cost, delays = run.about["costs"], sorted(run.verdict.delays_s) or [0.0]
            cells = [
                str(cost["links"]),
                _or_none(cost["strayed"], "{:.1f}"),
                _or_none(cpu_us(run), "{:,.0f} µs"),
                _or_none(peer_bytes(run), "{:.1f}"),
                f"{cost['memory_mb']:.0f} MB",
                f"{1e3 * delays[len(delays) // 2]:.0f}, {1e3 * delays[int(0.99 * len(delays))]:.0f} ms",
            ]
            yield f"| {run.system} | {' | '.join(cells)} |"


def _times(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.1f}, {ordered[-1]:.1f} s" if ordered else ""


def _or_none(value: float | None, form: str) -> str:
    return form.format(value) if value is not None else ""
