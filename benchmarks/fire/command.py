"""What the command line takes, and what it does."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import signal
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.fire import interests, schedule
from benchmarks.fire.judge import Verdict, judge
from benchmarks.fire.keep import FIGURES, keep, name_of, read, read_all, read_events
from benchmarks.fire.network import network
from benchmarks.fire.run import Load, Run, started
from benchmarks.fire.schedule import SCHEDULES, Unfit
from benchmarks.fire.site import SiteFailed
from benchmarks.fire.systems import SYSTEMS, System

from trellis.errors import TrellisError

_SKIPPED = "skipped.txt"


def main(argv: Sequence[str] | None = None) -> int:
    given = parser().parse_args(argv)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)  # so that brokers and namespaces are removed then, too
    try:
        return int(given.act(given))
    except TrellisError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def parser() -> ArgumentParser:
    top = ArgumentParser("python -m benchmarks.fire", description=__doc__)
    acts = top.add_subparsers(required=True, metavar="COMMAND")
    one = acts.add_parser("run", help="run every system under every schedule, and draw the page")
    one.add_argument("--systems", default="all", help=f"names with commas between: {', '.join(SYSTEMS)}")
    one.add_argument("--schedules", default=",".join(SCHEDULES), help="names with commas between")
    one.add_argument("--brokers", type=int, default=3)
    one.add_argument("--seconds", type=float, default=45.0, help="of load in each run")
    one.add_argument("--rate", type=float, default=60.0, help="publications a second, in all")
    one.add_argument("--payload", type=int, default=128, help="bytes of a message")
    one.add_argument("--topics", type=int, default=0, help="0: eight for each broker")
    one.add_argument("--interests", choices=("auto", "trace", "made"), default="auto")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--loopback", action="store_true", help="no network namespaces, although they could be made")
    one.add_argument("--set", action="append", default=[], metavar="SYSTEM:KEY=VALUE", help="a setting of a system")
    one.add_argument("--out", type=Path, default=Path("fire-results"))
    one.add_argument("--again", action="store_true", help="repeat runs that the folder has already")
    one.add_argument("--logs", action="store_true", help="print the end of each log if a run fails")
    one.set_defaults(act=_run)
    one = acts.add_parser("page", help="draw the page of a folder of runs anew")
    one.add_argument("folder", type=Path)
    one.set_defaults(act=_page)
    one = acts.add_parser("table", help="print the figures of a folder of runs as Markdown")
    one.add_argument("folder", type=Path)
    one.set_defaults(act=_table)
    one = acts.add_parser("judge", help="judge one kept run again")
    one.add_argument("file", type=Path, help="figures (.json), or a history alone (.jsonl, .jsonl.xz)")
    one.set_defaults(act=_judge)
    one = acts.add_parser("systems", help="say which systems can run here")
    one.set_defaults(act=_systems)
    return top


def _systems(given: Namespace) -> int:
    for name, kind in SYSTEMS.items():
        system = kind()
        print(f"{name:20} {system.missing() or system.version()}")
    return 0


def _judge(given: Namespace) -> int:
    is_whole = given.file.suffix == FIGURES
    for line in told(read(given.file).verdict if is_whole else judge(read_events(given.file))):
        print(line)
    return 0


def _table(given: Namespace) -> int:
    from benchmarks.fire.table import costs, faults

    runs = read_all(given.folder)
    for line in (*faults(runs, list(SYSTEMS)), "", *costs(runs, list(SYSTEMS))):
        print(line)
    return 0


def _page(given: Namespace) -> int:
    from benchmarks.fire.page import write_page

    skipped = given.folder / _SKIPPED
    path = write_page(read_all(given.folder), given.folder, skipped.read_text("utf-8") if skipped.exists() else "")
    print(f"wrote {path}")
    return 0


def _run(given: Namespace) -> int:
    names = list(SYSTEMS) if given.systems == "all" else given.systems.split(",")
    for name in names:
        if name not in SYSTEMS:
            raise SystemExit(f"--systems {name}: there are {', '.join(SYSTEMS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    command = "python -m benchmarks.fire " + shlex.join(sys.argv[1:])
    skipped, failed = [], 0
    for kind in given.schedules.split(","):
        for name in names:
            system = SYSTEMS[name](_settings(given.set, name))
            if reason := system.missing() or system.unfit(given.brokers):
                skipped.append(f"{name}, {given.brokers} brokers: {reason}")
                continue
            try:
                failed += not _one(given, system, kind, command)
            except Unfit as reason_:
                skipped.append(f"{kind}, {given.brokers} brokers: {reason_}")
    lines = sorted(set(skipped))
    for line in lines:
        print(f"skipped: {line}")
    path = given.out / _SKIPPED
    old = path.read_text("utf-8").splitlines() if path.exists() else []
    path.write_text("".join(f"{line}\n" for line in sorted({*old, *lines})), "utf-8")
    if any(given.out.glob(f"*{FIGURES}")):
        given.folder = given.out
        _page(given)
    return 1 if failed else 0


def _one(given: Namespace, system: System, kind: str, command: str) -> bool:
    """Run one case, and keep it. Return False if it failed."""
    stem = name_of(system.name, given.brokers, kind, given.payload, given.seed)
    if (given.out / f"{stem}{FIGURES}").exists() and not given.again:
        print(f"{stem}: is there already")
        return True
    faults = schedule.make(kind, given.brokers, given.seconds, given.seed)
    net = network(given.brokers, loopback=given.loopback)
    if kind == "partition" and net.no_cut:
        raise Unfit(net.no_cut)
    print(f"{stem}: {system.version()}", flush=True)
    wanted = interests.make(given.brokers, given.topics or 8 * given.brokers, given.seed, source=given.interests)
    load = Load(given.brokers, kind, given.seconds, given.rate, given.payload, given.seed)
    with tempfile.TemporaryDirectory(prefix="fire-") as folder:
        run = Run(system, net, wanted, load, faults, Path(folder), lambda line: print(line, flush=True))
        begin, then = started(), time.monotonic()
        try:
            outcome = asyncio.run(run.go())
        except SiteFailed as error:
            print(f"  failed: {error}", file=sys.stderr, flush=True)
            if given.logs:
                for site in run.sites:
                    print(f"  {site.name}: {site.last_words()}", file=sys.stderr)
            return False
    about = {"started": begin, "took_s": time.monotonic() - then, "machine": machine(), "command": command}
    path = keep(outcome, given.out, **about)
    for line in told(read(path).verdict):
        print(f"  {line}", flush=True)
    return True


def told(verdict: Verdict) -> Iterator[str]:
    """Return the verdict in a few lines."""
    yield (
        f"published {verdict.published:,}, acknowledged {verdict.acknowledged:,}, owed {verdict.owed:,}: "
        f"lost {verdict.lost:,}, twice {verdict.twice:,}, repeated {verdict.repeated:,}, "
        f"out of order {verdict.disorder:,}, without an answer {verdict.unsettled:,}"
    )
    if verdict.lost:
        yield "lost when " + "; ".join(f"{who}: {count:,}" for who, count in verdict.lost_by.most_common())
    for where, times in (("between other brokers", verdict.others_s), ("at a broker that is back", verdict.again_s)):
        if times:
            most = sorted(times)
            yield f"flows again {where} after {most[len(most) // 2]:.2f} s (median), {most[-1]:.2f} s (most)"


def machine() -> str:
    """Return what the figures were measured on."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.system()} {platform.machine()}"


def _settings(given: Sequence[str], name: str) -> dict[str, str]:
    found = {}
    for one in given:
        system, _, rest = one.partition(":")
        key, equals, value = rest.partition("=")
        if system not in SYSTEMS or not equals:
            raise SystemExit(f"--set {one}: write it as SYSTEM:KEY=VALUE, such as trellis:delivery.copies=3")
        if system == name:
            found[key] = value
    return found
