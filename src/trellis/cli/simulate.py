"""`trellis simulate PROTOCOL INTERESTS`: the distributed protocols in virtual time, and checks over many seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trellis.cli.common import AsJson, examples, number, progress, say, show, table
from trellis.errors import InputError

if TYPE_CHECKING:
    from trellis.simulate.run import Progress
    from trellis.simulate.system import System

EXAMPLE = examples(
    "trellis simulate spidercast interests.parquet --kg 3 --kr 0 --seed 1 -o run",
    "trellis simulate spidercast interests.parquet --check --seeds 40 --jobs 2",
    "trellis simulate --replay run/recording.jsonl.gz --until 30",
)
PROTOCOLS = ("spidercast", "similarity", "random")
_PROTOCOL, _NETWORK, _CHECK = "Protocol", "Network", "Check over seeds"


def simulate(
    protocol: Annotated[str | None, typer.Argument(help=f"One of {', '.join(PROTOCOLS)}.", show_default=False)] = None,
    interests_file: Annotated[
        Path | None, typer.Argument(metavar="[INTERESTS]", help="Table of node, topic.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The folder of the run.", metavar="DIR", show_default=False)
    ] = None,
    churn_file: Annotated[
        Path | None, typer.Option("--churn", help="Who comes and goes.", metavar="CHURN", show_default=False)
    ] = None,
    overlay_file: Annotated[
        Path | None, typer.Option("--overlay", help="The links to start from.", metavar="OVERLAY", show_default=False)
    ] = None,
    schedule_file: Annotated[
        Path | None,
        typer.Option("--schedule", help="Faults to inject: .tsv or .json.", metavar="FILE", show_default=False),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="Virtual seconds; until nothing changes unless given.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run, event for event.")] = 1,
    encode: Annotated[bool, typer.Option("--encode", help="Send every message through its wire form.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Record the run, to step through it with --replay.")] = False,
    as_json: AsJson = False,
    kg: Annotated[int | None, typer.Option(help="Greedy coverage K_g.", rich_help_panel=_PROTOCOL, metavar="N")] = None,
    kr: Annotated[int | None, typer.Option(help="Random coverage K_r.", rich_help_panel=_PROTOCOL, metavar="N")] = None,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Raise K_r where needed.", rich_help_panel=_PROTOCOL)
    ] = False,
    gossip: Annotated[
        bool, typer.Option("--gossip", help="Nodes build their views by gossip.", rich_help_panel=_PROTOCOL)
    ] = False,
    x: Annotated[
        int | None, typer.Option("--similar", help="similarity: links by similarity.", rich_help_panel=_PROTOCOL)
    ] = None,
    y: Annotated[
        int | None, typer.Option("--random", help="similarity, random: random links.", rich_help_panel=_PROTOCOL)
    ] = None,
    view: Annotated[
        str, typer.Option(help="How much of the others each node knows.", rich_help_panel=_PROTOCOL, metavar="P%")
    ] = "100%",
    latency: Annotated[
        str, typer.Option(help="10, 5..20 or lognormal:20,0.5, in ms.", rich_help_panel=_NETWORK, metavar="MS")
    ] = "10",
    loss: Annotated[float, typer.Option(help="Share of messages lost.", rich_help_panel=_NETWORK)] = 0.0,
    duplicate: Annotated[float, typer.Option(help="Share that comes twice.", rich_help_panel=_NETWORK)] = 0.0,
    reorder: Annotated[float, typer.Option(help="Share that is overtaken.", rich_help_panel=_NETWORK)] = 0.0,
    check: Annotated[
        bool, typer.Option("--check", help="Draw faults for each seed and assert all promises.", rich_help_panel=_CHECK)
    ] = False,
    seeds: Annotated[int, typer.Option(help="How many, from --seed on.", rich_help_panel=_CHECK, metavar="N")] = 10,
    jobs: Annotated[int, typer.Option(help="Processes.", rich_help_panel=_CHECK, metavar="N")] = 1,
    replay: Annotated[
        Path | None, typer.Option(help="Print a recording and stop.", metavar="FILE", show_default=False)
    ] = None,
    since: Annotated[float, typer.Option(help="--replay: from this second on.", metavar="S")] = 0.0,
    until: Annotated[
        float | None, typer.Option(help="--replay: to this second.", metavar="S", show_default=False)
    ] = None,
) -> None:
    """Run a protocol in the deterministic simulator, or check its promises over many seeds.

    A run leaves parameters.json, overlay.parquet, series.parquet, summary.json and figures/ in its folder.
    --check exits 0 when every seed holds and 1 when one fails; a failure prints the command that replays it.
    """
    if replay is not None:
        _replay(replay, since, until)
        return
    if protocol is None:
        raise InputError("", "no protocol is named", f"choose from {', '.join(PROTOCOLS)}")
    if protocol not in PROTOCOLS:
        raise InputError(protocol, "there is no such protocol", f"choose from {', '.join(PROTOCOLS)}")

    from trellis.model import read_churn, read_interests, read_overlay
    from trellis.simulate.network import Latency, NetworkConfig
    from trellis.simulate.schedule import read_schedule

    make = _maker(
        protocol, {"kg": kg, "kr": kr, "adaptive": adaptive or None, "x": x, "y": y, "gossip": gossip or None}
    )
    network = NetworkConfig(Latency.parse(latency), loss, duplicate, reorder)
    share = _share(view)
    schedule = None if schedule_file is None else read_schedule(schedule_file)
    interests = None if interests_file is None else read_interests(interests_file)
    overlay = None if overlay_file is None or interests is None else read_overlay(overlay_file, interests.nodes)
    if check:
        _check(make, protocol, interests, overlay, schedule, network, share, encode, seed, seeds, jobs, output, as_json)
        return
    if interests is None:
        raise InputError("", "no interests are named", "give a table of node, topic; see trellis workload")
    if output is None:
        raise InputError("", "no output folder is named", "say where to write, for instance -o run")

    from trellis.simulate.record import Recorder
    from trellis.simulate.run import RunConfig, make_folder, simulate, write_run

    make_folder(output, "parameters.json")  # refused now, not after the run
    config = RunConfig(
        seed=seed,
        duration_ms=None if duration is None else round(1000 * duration),
        view_share=share,
        network=network,
        encode=encode,
    )
    recorder = Recorder() if record else None
    with progress(f"{protocol}, virtual seconds") as report:
        run = simulate(
            make(),
            interests,
            config,
            overlay=overlay,
            churn=None if churn_file is None else read_churn(churn_file, interests),
            schedule=schedule,
            recorder=recorder,
            progress=_reporter(protocol, report),
        )
    write_run(run, output)
    if recorder is not None:
        recorder.write(output / "recording.jsonl.gz", run.parameters)
    summary = run.summary()
    show({**summary, "folder": str(output)}, as_json, _text(summary, output))


def _maker(protocol: str, options: dict[str, Any]) -> Callable[[], System]:
    from trellis.simulate.systems import maker_of

    given = {name: value for name, value in options.items() if value is not None}
    known = {
        "spidercast": ("kg", "kr", "adaptive", "gossip"),
        "similarity": ("x", "y", "gossip"),
        "random": ("y", "gossip"),
    }
    flags = {
        "kg": "--kg",
        "kr": "--kr",
        "adaptive": "--adaptive",
        "gossip": "--gossip",
        "x": "--similar",
        "y": "--random",
    }
    for name in given:
        if name not in known[protocol]:
            allowed = ", ".join(flags[other] for other in known[protocol])
            raise InputError(flags[name], f"{protocol} has no such option", f"it takes {allowed}")
    return partial(maker_of(protocol), **given)


def _share(view: str) -> float:
    try:
        percent = float(view.rstrip("% "))
    except ValueError:
        percent = -1.0
    if not 0 < percent <= 100:
        raise InputError(f"--view {view}", "is not a share", "write for instance 5%")
    return percent / 100


def _reporter(protocol: str, report: Any) -> Callable[[Progress], None]:
    begun = time.monotonic()

    def tell(now: Progress) -> None:
        rate = now.events / max(time.monotonic() - begun, 1e-3)
        doing = f"{protocol}: {rate / 1000:,.0f}k events/s, {now.connected_topics:.0%} of topics connected"
        report(now.time_ms // 1000, None if now.until_ms is None else now.until_ms // 1000, doing)

    return tell


def _check(
    make: Callable[[], System],
    protocol: str,
    interests: Any,
    overlay: Any,
    schedule: Any,
    network: Any,
    share: float,
    encode: bool,
    first: int,
    seeds: int,
    jobs: int,
    output: Path | None,
    as_json: bool,
) -> None:
    import sys

    from trellis.simulate.check import CheckConfig
    from trellis.simulate.network import NetworkConfig
    from trellis.simulate.run import link_names
    from trellis.simulate.seeds import check_seeds

    if seeds < 1 or jobs < 1:
        raise InputError("--seeds, --jobs", "nothing would be checked", "give 1 or more")
    fields: dict[str, Any] = {"view_share": share, "encode": encode}
    if network != NetworkConfig():  # what was typed takes the place of the check's own latencies
        fields["network"] = network
    with progress(f"{protocol} seeds") as report:
        summary = check_seeds(
            make,
            seeds=seeds,
            first_seed=first,
            config=CheckConfig(**fields),
            interests=interests,
            overlay=tuple(link_names(overlay)) if overlay is not None else (),
            schedule=schedule,
            jobs=jobs,
            folder=output,
            command=_without_seeds(["trellis", *sys.argv[1:]]),
            progress=lambda done, total, failed: report(done, total, f"{protocol} seeds, {failed} failed"),
        )
    show(summary.to_json(), as_json, summary.lines())
    raise typer.Exit(0 if summary.holds else 1)


def _without_seeds(words: list[str]) -> list[str]:
    """The command as it was typed, without the options that choose seeds, processes and the folder."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("--seeds", "--seed", "--jobs", "-o", "--output"):
            skip = True
        elif not word.startswith(("--seeds=", "--seed=", "--jobs=", "--output=")):
            kept.append(word)
    return kept


def _replay(path: Path, since: float, until: float | None) -> None:
    from trellis.simulate.record import replay_lines

    for line in replay_lines(path, since_ms=1000 * since, until_ms=None if until is None else 1000 * until):
        say(line)


def _text(summary: dict[str, Any], output: Path) -> Iterator[str]:
    state = "settled" if summary["settled"] else "ended while it still changed"
    split = summary["split_topics"]
    who = f"{summary['protocol']}, seed {summary['seed']}"
    yield f"{output}: {who}: {state} after {summary['time_s']:g} virtual seconds"
    yield from table(
        [
            (
                "topics",
                f"all {summary['topics']:,} connected" if not split else f"{split:,} of {summary['topics']:,} split",
            ),
            ("nodes, links", f"{summary['nodes']:,}, {summary['links']:,}"),
            ("degree", f"max {summary['degree']['max']}, mean {number(summary['degree']['mean'])}"),
            ("messages", summary["messages"]),
            ("control messages", summary["control_messages"]),
            ("digest", summary["digest"]),
        ]
    )
