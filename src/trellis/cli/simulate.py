"""`trellis simulate PROTOCOL INTERESTS`: the distributed protocols in virtual time, and checks over many seeds.

There is one command per protocol. Its own options are the parameters of its system (`simulate/systems/`), read from
there when the command is asked for; what all protocols share is `_common`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperGroup

import trellis
from trellis.cli import simulate_mesh
from trellis.cli.common import AsJson, examples, number, progress, say, says_compiling, show, table
from trellis.cli.ending import ending_by_sigterm, telling_what_is_left
from trellis.cli.reading import Reading, reading_of, reading_parameters
from trellis.cli.values import SYSTEM_OPTIONS, among
from trellis.errors import InputError
from trellis.files import removed_on_failure
from trellis.protocols.overlays import OVERLAYS

if TYPE_CHECKING:
    from trellis.simulate.run import Progress
    from trellis.simulate.system import System

PROTOCOLS = {
    **{name: overlay.about for name, overlay in OVERLAYS.items()},
    "similarity": "SpiderCast's baseline: links to similar and to random nodes.",
    "random": "SpiderCast's baseline: random links.",
    "rvr": "Vitis' baseline: rendezvous routing, oblivious to subscriptions.",
    "opt": "Vitis' baseline: an overlay per topic, with correlation.",
    "scribe": "Magnet's baseline: the same trees on a ring of uniform identifiers.",
    "delivery": "Delivery over OMen or SpiderCast: exactly once, in order, acknowledged by copies.",
}
EXAMPLE = examples(
    "trellis simulate spidercast interests.parquet --kg 3 --kr 0 --seed 1 -o run",
    "trellis simulate omen interests.parquet --overlay lowoda --churn churn.parquet --rounds-per-event 1 -o run",
    "trellis simulate omen --check --seeds 40 --jobs 2",
    "trellis simulate mesh --check --seeds 100 --jobs 2",
    "trellis simulate --replay run/recording.jsonl.gz --until 30",
)
# Shown by the help of one protocol, after the example that all have.
MORE_EXAMPLES = {
    "omen": [
        "trellis simulate omen --check --seeds 40 --jobs 2",
        "trellis simulate omen --check --no-fallback --seeds 40 --jobs 2",
    ],
    "spidercast": ["trellis simulate spidercast interests.parquet --engine cycles --view 5% -o run"],
}
_PROTOCOL, _NETWORK, _CHECK = "Protocol", "Network", "Check over seeds"
_SEEDS, _SEEDS_MAX, _JOBS_MAX = 10, 1_000_000_000, 256
_FLAGS = {"duration_s": "--duration", "broken_stream_s": "--broken-stream"}  # where the name of an argument differs


def _common(
    interests_file: Annotated[
        Path | None, typer.Argument(metavar="[INTERESTS]", help="Table of node, topic.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The folder of the run.", metavar="DIR", show_default=False)
    ] = None,
    churn_file: Annotated[
        Path | None,
        typer.Option("--churn", help="Trace of joins and crashes.", metavar="CHURN", show_default=False),
    ] = None,
    overlay_file: Annotated[
        str | None,
        typer.Option(
            "--overlay",
            help="The links to start from; lowoda: planned now.",
            metavar="OVERLAY",
            show_default=False,
            autocompletion=among(["lowoda"], or_file=True),
        ),
    ] = None,
    schedule_file: Annotated[
        Path | None,
        typer.Option("--schedule", help="Faults to inject: .tsv or .json.", metavar="FILE", show_default=False),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="Virtual seconds; until nothing changes unless given.", show_default=False)
    ] = None,
    rounds_per_event: Annotated[
        int | None,
        typer.Option(help="Gossip rounds from one event of --churn to the next; its own times unless given."),
    ] = None,
    warmup_rounds: Annotated[int, typer.Option(help="Gossip rounds before the first event.")] = 0,
    engine: Annotated[
        str,
        typer.Option(
            help="events: message by message; cycles: round by round on arrays, for large networks (omen, vitis, rvr, "
            "opt, spidercast, similarity, random, magnet, scribe).",
            autocompletion=among(["events", "cycles"]),
        ),
    ] = "events",
    seed: Annotated[int, typer.Option(help="The same seed gives the same run, event for event.")] = 1,
    encode: Annotated[bool, typer.Option("--encode", help="Send every message through its wire form.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Record the run, to step through it with --replay.")] = False,
    as_json: AsJson = False,
    view: Annotated[
        str, typer.Option(help="How much of the others each node knows.", rich_help_panel=_PROTOCOL, metavar="P%")
    ] = "100%",
    latency: Annotated[
        str, typer.Option(help="10, 5..20 or lognormal:20,0.5, in ms.", rich_help_panel=_NETWORK, metavar="MS")
    ] = "10",
    loss: Annotated[float, typer.Option(help="Share of messages lost.", rich_help_panel=_NETWORK)] = 0.0,
    duplicate: Annotated[float, typer.Option(help="Share that comes twice.", rich_help_panel=_NETWORK)] = 0.0,
    reorder: Annotated[float, typer.Option(help="Share that is overtaken.", rich_help_panel=_NETWORK)] = 0.0,
    broken_stream: Annotated[
        float | None,
        typer.Option(
            help="Seconds until neighbors notice a crash by its broken streams; unless given only by silence.",
            rich_help_panel=_NETWORK,
            metavar="S",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Draw faults for each seed and assert all promises.", rich_help_panel=_CHECK)
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="How many, from --seed on; only with --check.",
            rich_help_panel=_CHECK,
            metavar="N",
            show_default=str(_SEEDS),
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Processes; only with --check. A run takes one.", rich_help_panel=_CHECK, metavar="N", show_default="1"
        ),
    ] = None,
) -> None: ...


class _Protocols(TyperGroup):
    """A command per protocol, made when it is asked for: a system's module is imported by its own command alone."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*PROTOCOLS, "mesh"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name == "mesh":
            return simulate_mesh.command()
        if cmd_name not in PROTOCOLS:
            raise InputError(cmd_name, "there is no such protocol", f"choose from {', '.join(PROTOCOLS)}")
        return _command(cmd_name)


app = typer.Typer(cls=_Protocols, invoke_without_command=True, epilog=EXAMPLE)


@app.callback()
def simulate(
    ctx: typer.Context,
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
    --check exits 0 if every seed holds, and 1 if one fails. A failure prints the command that replays it.
    """
    ctx.with_resource(ending_by_sigterm())
    if replay is not None:
        _replay(replay, since, until)
    elif ctx.invoked_subcommand is None:
        raise InputError("", "no protocol is named", f"choose from {', '.join(PROTOCOLS)}")


def _command(protocol: str) -> Any:
    """Make the command of one protocol: the common options, and the parameters of its system."""
    from trellis.simulate.ranges import require_options
    from trellis.simulate.systems import maker_of

    own = _own_options(maker_of(protocol))
    flags = {one.name: get_args(one.annotation)[1].default.partition("/")[0] for one in own}
    hints = get_type_hints(_common, include_extras=True)
    shared = [one.replace(annotation=hints[one.name]) for one in inspect.signature(_common).parameters.values()]
    added = reading_parameters()

    def command(**values: Any) -> None:
        options = {one.name: values.pop(one.name) for one in own}
        given = {one.name: options[one.name] for one in own if options[one.name] != one.default}
        require_options(protocol, given, flags.__getitem__)
        where = values["output"]
        with telling_what_is_left(lambda: "nothing was written" + (f" to {where}" if where else "")):
            _simulate(protocol, given, reading_of(values), **values)

    command.__signature__ = inspect.Signature([*shared, *own, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in (*shared, *own, *added)}
    command.__doc__ = PROTOCOLS[protocol]
    made = typer.Typer(add_completion=False)
    shown = [f"trellis simulate {protocol} interests.parquet -o run", *MORE_EXAMPLES.get(protocol, [])]
    made.command(protocol, epilog=examples(*shown))(command)
    return typer.main.get_command(made)


def _own_options(maker: Callable[..., System]) -> list[inspect.Parameter]:
    """Return the parameters of a system that are annotated with a line of help, and perhaps with a flag."""
    hints = get_type_hints(maker.__init__, include_extras=True)
    parameters = []
    for one in inspect.signature(maker.__init__).parameters.values():
        kind, *notes = get_args(hints.get(one.name)) if hasattr(hints.get(one.name), "__metadata__") else (None,)
        if not notes:
            continue
        if kind not in (int, float, str):
            kind = bool
        flag = notes[1] if len(notes) > 1 else f"--{one.name.replace('_', '-')}"
        if kind is bool and one.default:
            flag = f"{flag}/--no-{flag[2:]}"
        values = among(SYSTEM_OPTIONS[one.name]) if one.name in SYSTEM_OPTIONS else None
        option = typer.Option(flag, help=notes[0], rich_help_panel=_PROTOCOL, autocompletion=values)
        parameters.append(
            inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=Annotated[kind, option]
            )
        )
    return parameters


def _simulate(
    protocol: str,
    options: dict[str, Any],
    reading: Reading,
    *,
    interests_file: Path | None,
    output: Path | None,
    churn_file: Path | None,
    overlay_file: str | None,
    schedule_file: Path | None,
    duration: float | None,
    rounds_per_event: int | None,
    warmup_rounds: int,
    engine: str,
    seed: int,
    encode: bool,
    record: bool,
    as_json: bool,
    view: str,
    latency: str,
    loss: float,
    duplicate: float,
    reorder: float,
    broken_stream: float | None,
    check: bool,
    seeds: int | None,
    jobs: int | None,
) -> None:
    from trellis.simulate.network import Latency, NetworkConfig
    from trellis.simulate.ranges import Range, require_run
    from trellis.simulate.schedule import read_schedule
    from trellis.simulate.systems import maker_of

    numbers = {
        "duration_s": duration,
        "broken_stream_s": broken_stream,
        "rounds_per_event": rounds_per_event,
        "warmup_rounds": warmup_rounds,
        "loss": loss,
        "duplicate": duplicate,
        "reorder": reorder,
    }
    require_run(numbers, lambda name: _FLAGS.get(name, f"--{name.replace('_', '-')}"))
    for option, number_given, most in (("--seeds", seeds, _SEEDS_MAX), ("--jobs", jobs, _JOBS_MAX)):
        if number_given is not None:
            Range(1, most).require(number_given, option)
            if not check:
                raise InputError(option, "is for --check", "leave it out, or give --check")
    network = NetworkConfig(Latency.parse(latency), loss, duplicate, reorder)
    share = _share(view)
    schedule = None if schedule_file is None else read_schedule(schedule_file)
    interests = None if interests_file is None else reading.interests(interests_file)
    overlay = None if overlay_file is None or interests is None else _overlay(overlay_file, interests, seed)
    if check and engine != "events":
        raise InputError(f"--engine {engine}", "faults are drawn for the engine `events` alone", "leave --engine out")
    if check:
        ignored = {
            "--churn": churn_file is not None,
            "--duration": duration is not None,
            "--rounds-per-event": rounds_per_event is not None,
            "--warmup-rounds": bool(warmup_rounds),
            "--broken-stream": broken_stream is not None,
            "--record": record,
        }
        for option in [option for option, is_given in ignored.items() if is_given]:
            raise InputError(option, "a check draws the faults and the length of each run by itself", "leave it out")
        if overlay_file not in (None, "lowoda") and interests is None:
            raise InputError("--overlay", "no interests are named that its nodes have", "give their table as well")
        planned = overlay_file == "lowoda" and overlay is None
        fields: dict[str, Any] = {"view_share": share, "encode": encode, "planned": planned}
        if network != NetworkConfig():  # The options replace the latencies of the check.
            fields["network"] = network
        make = partial(maker_of(protocol), **options)
        asked = _SEEDS if seeds is None else seeds
        _check(make, protocol, interests, overlay, schedule, fields, seed, asked, jobs or 1, output, as_json)
        return
    if interests is None:
        raise InputError("", "no interests are named", "give a table of node, topic; see trellis workload")
    if output is None:
        raise InputError("", "no output folder is named", "say where to write, for instance -o run")

    from trellis.simulate.record import Recorder
    from trellis.simulate.run import make_folder, write_run

    is_written = False

    def left() -> str:
        return f"the run is in {output}" if is_written else f"nothing was written to {output}"

    with telling_what_is_left(left), removed_on_failure(output):
        make_folder(output, "parameters.json")  # refused now, not after the run
        recorder = Recorder() if record else None
        with progress(f"{protocol}, virtual seconds") as report, says_compiling():
            run = trellis.simulate(
                protocol,
                interests,
                options=options,
                engine=engine,
                overlay=overlay,
                churn=None if churn_file is None else trellis.read_churn(churn_file, interests),
                schedule=schedule,
                duration_s=duration,
                rounds_per_event=rounds_per_event,
                warmup_rounds=warmup_rounds,
                seed=seed,
                view_share=share,
                network=network,
                encode=encode,
                broken_stream_s=broken_stream,
                recorder=recorder,
                progress=_reporter(protocol, report),
            )
        write_run(run, output, recorder=recorder)
        is_written = True
    summary = run.summary()
    show({**summary, "folder": str(output)}, as_json, _text(summary, output))


def _overlay(named: str, interests: Any, seed: int) -> Any:
    if named != "lowoda":
        return trellis.read_overlay(Path(named), interests.nodes)
    with says_compiling():
        return trellis.plan(interests, "lowoda", seed=seed).overlay


def _share(view: str) -> float:
    try:
        percent = float(view.rstrip("% "))
    except ValueError:
        percent = -1.0
    if not 0 < percent <= 100:
        raise InputError(f"--view {view}", "is not a share", "give more than 0% and at most 100%, for instance 5%")
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
    fields: dict[str, Any],
    first: int,
    seeds: int,
    jobs: int,
    output: Path | None,
    as_json: bool,
) -> None:
    import sys

    from trellis.simulate.check import CheckConfig
    from trellis.simulate.run import link_names
    from trellis.simulate.seeds import check_seeds

    finished = 0

    def tell(done: int, total: int, failed: int) -> None:
        nonlocal finished
        finished = done
        report(done, total, f"{protocol} seeds, {failed} failed")

    def left() -> str:
        where = "nothing was written" if output is None else f"{output} has them"
        return f"{finished:,} of {seeds:,} seeds were checked, and {where}"

    with telling_what_is_left(left), progress(f"{protocol} seeds") as report:
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
            progress=tell,
        )
    show(summary.to_json(), as_json, summary.lines())
    raise typer.Exit(0 if summary.holds else 1)


def _without_seeds(words: list[str]) -> list[str]:
    """Return the command as it was typed, without the options that choose seeds, processes and the folder."""
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
    encoded, node_seconds = summary["encoded_bytes"], max(1, summary["nodes"]) * max(1, summary["time_s"])
    sizes = [("bytes", f"{encoded:,}, {number(encoded / node_seconds)} a node and second")] if encoded else []
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
            *sizes,
            ("digest", summary["digest"]),
        ]
    )
