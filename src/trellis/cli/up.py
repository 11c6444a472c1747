"""`trellis up`: a live mesh of processes on this machine, under traffic, kills and a score."""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trellis.cli.common import AsJson, examples, note, setting, show, table
from trellis.cli.values import among
from trellis.errors import InputError
from trellis.files import expect_writable
from trellis.protocols.overlays import OVERLAYS, overlay_of

if TYPE_CHECKING:
    from trellis.fleet.clients import ClientKind

EXAMPLE = examples(
    "trellis up --nodes 24 --duration 120",
    "trellis up --nodes 24 --interests interests.parquet --churn churn.parquet --speed 60 --duration 120",
    "trellis up --interests interests.parquet --plan overlay.parquet --duration 120",
    "trellis up --nodes 6 --mqtt --kill-every 3 --refused-max 0.05 --duration 60",
    "trellis up --nodes 6 --mqtt --broker mosquitto --duration 60",
    "trellis up --scenario tests/scenarios/neighbours.toml",
    "trellis up --scenario tests/scenarios/neighbours.toml --simulated",
)
_FAULTS, _WORKLOAD = "Faults", "Interests and traffic"
_PIPED_EVERY_S = 10.0
_KILL_EVERY_S = 8.0


def up(
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="Processes; 24 unless the interests say.", metavar="N")
    ] = None,
    interests: Annotated[
        Path | None,
        typer.Option(help="Table of node, topic; the first --nodes of it.", metavar="FILE", rich_help_panel=_WORKLOAD),
    ] = None,
    topics: Annotated[
        int | None,
        typer.Option(
            help="Without --interests: how many; as many as nodes unless given.",
            metavar="N",
            min=1,
            show_default=False,
            rich_help_panel=_WORKLOAD,
        ),
    ] = None,
    subscriptions: Annotated[
        int, typer.Option(help="Without --interests: of each node.", metavar="N", min=1, rich_help_panel=_WORKLOAD)
    ] = 5,
    rate: Annotated[float, typer.Option(help="Messages a second, in all.", min=0, rich_help_panel=_WORKLOAD)] = 20.0,
    foreign: Annotated[
        float,
        typer.Option(help="Share of them by nodes that do not subscribe.", min=0, max=1, rich_help_panel=_WORKLOAD),
    ] = 0.05,
    kill_every: Annotated[
        float | None,
        typer.Option(
            help="Seconds from one kill -9 to the next; 0: none. Unless given: 8, and none where only two nodes run.",
            min=0,
            metavar="S",
            show_default=False,
            rich_help_panel=_FAULTS,
        ),
    ] = None,
    hang: Annotated[
        bool, typer.Option("--hang", help="Stop every second victim instead of killing it.", rich_help_panel=_FAULTS)
    ] = False,
    churn: Annotated[
        Path | None,
        typer.Option(help="Carry out this churn trace instead.", metavar="TRACE", rich_help_panel=_FAULTS),
    ] = None,
    speed: Annotated[float, typer.Option(help="How much faster than the trace.", rich_help_panel=_FAULTS)] = 60.0,
    scenario: Annotated[
        Path | None, typer.Option(help="All of this in one file.", metavar="FILE", rich_help_panel=_FAULTS)
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Run the scenario in the simulator.", rich_help_panel=_FAULTS)
    ] = False,
    refused_max: Annotated[
        float | None,
        typer.Option(
            help="Share of publications that need not be acknowledged, 0 to 1. Above it the run fails. Unless given: "
            "0.02 without faults, 0.1 with them.",
            min=0,
            max=1,
            metavar="SHARE",
            show_default=False,
            rich_help_panel=_FAULTS,
        ),
    ] = None,
    overlay: Annotated[
        str, typer.Option(help="Protocol for the links.", autocompletion=among(tuple(OVERLAYS)))
    ] = "omen",
    plan: Annotated[
        str | None,
        typer.Option(
            help="Links to start with: lowoda, none (all nodes join), or an overlay's file. Where OMen knows the "
            "interests: lowoda.",
            metavar="NAME|FILE",
            autocompletion=among(["lowoda", "none"], or_file=True),
            show_default=False,
        ),
    ] = None,
    copies: Annotated[int, typer.Option(help="Nodes that hold a message before it is acknowledged.", min=1)] = 2,
    mqtt: Annotated[
        bool, typer.Option("--mqtt", help="Every node has an MQTT listener, and all clients speak MQTT.")
    ] = False,
    broker: Annotated[
        str | None,
        typer.Option(help="With --mqtt: a broker beside each node, which is its sidecar: mosquitto.", metavar="NAME"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any key of node.toml, for all nodes.", metavar="KEY=VALUE", show_default=False),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="Seconds under traffic; until Ctrl-C unless given.", metavar="S")
    ] = None,
    seed: Annotated[int, typer.Option(help="Interests, victims and publishers; processes keep their own time.")] = 1,
    dashboard: Annotated[
        str, typer.Option(help='Where the dashboard is served; "" for none.', metavar="HOST:PORT")
    ] = "127.0.0.1:0",
    keep: Annotated[
        Path | None, typer.Option(help="Keep configurations and logs of the nodes there.", metavar="DIR")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(help="Write what clients saw there, as JSON lines for `trellis judge`.", metavar="FILE"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a mesh of real nodes on this machine: publish, kill, restart, and keep score.

    Exits 1 if an acknowledged message is missing, one is delivered twice, a topic is split at the end, nothing was
    published, more publications than --refused-max were not acknowledged, or no fault that was asked for could be done.
    A run that is over before the first fault is due says so. Ctrl-C ends the traffic and prints the score. A second
    Ctrl-C ends the run at once. No process is left in any case.
    """
    from trellis.fleet.fleet import FleetConfig, check_config
    from trellis.fleet.interests import draw_interests, expect_few, read_interests
    from trellis.fleet.scenario import read_scenario
    from trellis.fleet.settings import shared_settings
    from trellis.fleet.up import UpConfig
    from trellis.live.addresses import parse_address
    from trellis.live.config import is_loopback

    given = shared_settings(dict(setting(one) for one in settings or ()))
    shared: dict[str, Any] = {"seed": seed, "rate": rate, "foreign": foreign, "duration": duration}
    shared |= {"dashboard": dashboard or None, "refused_max": refused_max}
    shared |= {"history": None if history is None else str(history)}
    if history is not None and simulated:
        raise InputError("--history", "the simulator of scenarios writes none", "leave out --simulated")
    if history is not None and not history.parent.is_dir():
        raise InputError("--history", f"the folder {history.parent} does not exist", "make it, or name another one")
    if history is not None:
        expect_writable(history)  # It is written at the end of the run.
    _expect_finite({"--rate": rate, "--foreign": foreign, "--kill-every": kill_every, "--speed": speed})
    _expect_finite({"--duration": duration, "--refused-max": refused_max})
    client_kind = _client_kind(mqtt, broker, simulated)
    if dashboard and not is_loopback(parse_address(dashboard, "--dashboard")[0]):
        raise InputError("--dashboard", f"{dashboard} is beyond loopback", "a mesh of this kind stays on its machine")
    if duration is not None and not duration > 0:
        raise InputError("--duration", f"{duration:g}", "give more than 0")
    if simulated and scenario is None:
        raise InputError("--simulated", "there is no scenario", "give --scenario FILE")
    if scenario is not None:
        chosen = read_scenario(scenario)
        if simulated:
            _simulate(chosen, seed, as_json)
            return
        wanted: Any = chosen.wanted()
        fleet = FleetConfig(
            overlay=chosen.overlay,
            copies=chosen.copies,
            client_kind=client_kind,
            settings=given,
            has_relays=any(step.do == "partition" for step in chosen.steps),
        )
        config = UpConfig(**shared | {"rate": chosen.rate, "duration": chosen.duration, "steps": chosen.steps})
    else:
        fleet = FleetConfig(overlay=overlay, copies=copies, client_kind=client_kind, settings=given)
        if churn is not None:
            from trellis.fleet.trace import read_trace

            if interests is None:
                raise InputError("--churn", "a trace names nodes", "give their --interests as well")
            trace = read_trace(churn, interests, nodes, speed)
            wanted, config = trace.interests, UpConfig(**shared, steps=trace.steps, absent=trace.absent)
        else:
            count = nodes if nodes is not None else 24
            expect_few("--nodes", count)
            if interests is not None:
                wanted = read_interests(interests, nodes)
            else:
                wanted = draw_interests(count, topics or count, min(subscriptions, topics or count), seed)
            config = UpConfig(**shared, kill_every=_kill_every(kill_every, len(wanted), hang), hang=hang)
    check_config(fleet, wanted)
    planned = _planned(plan, wanted, fleet, config)
    notice = ""
    if kill_every is None and config.steps is None and not config.kill_every:
        notice = f"no node is killed: of {len(wanted)} nodes none can be spared; for kills give more --nodes"
    _run(wanted, msgspec.structs.replace(fleet, planned=planned), config, keep, as_json, notice)


def _expect_finite(given: Mapping[str, float | None]) -> None:
    for option, value in given.items():
        if value is not None and not math.isfinite(value):
            raise InputError(option, f"{value:g}", "give a finite number")


def _kill_every(given: float | None, nodes: int, hang: bool) -> float:
    """Return the seconds from kill to kill. A mesh of two has no kills, since two nodes must stay up for traffic."""
    from trellis.fleet.steps import LIVING_MIN

    if nodes > LIVING_MIN:
        return _KILL_EVERY_S if given is None else given
    if given or hang:
        option = "--kill-every" if given else "--hang"
        raise InputError(option, f"of {nodes} nodes none can be spared", f"give --nodes {LIVING_MIN + 1} or more")
    return 0.0


def _planned(plan: str | None, wanted: Any, fleet: Any, config: Any) -> dict[str, tuple[str, ...]]:
    from trellis.fleet.planned import low_links, neighbors_of, read_links

    is_able = overlay_of(fleet.overlay).takes_plans and fleet.client_kind == "trellis"
    if plan == "none" or (plan is None and not is_able):
        return {}
    if not is_able:
        who = fleet.overlay if not overlay_of(fleet.overlay).takes_plans else "a node whose clients speak MQTT"
        raise InputError("--plan", f"{who} starts without a plan", "leave it out")
    present = {name: topics for name, topics in wanted.items() if name not in config.absent}
    links = low_links(present, config.seed) if plan in (None, "lowoda") else read_links(Path(plan), wanted)
    return neighbors_of(links, config.absent)


def _run(wanted: Any, fleet: Any, config: Any, keep: Path | None, as_json: bool, notice: str) -> None:
    from trellis.fleet.up import Interrupted, Up
    from trellis.live.run import run_loop

    report, made = Terminal(), keep is None
    folder = Path(tempfile.mkdtemp(prefix="trellis-up-")) if keep is None else keep
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if notice:
            report.event(notice)

        async def work() -> Any:
            one = Up(wanted, fleet, config, folder, report)
            return await one.run(), one

        score, done = run_loop(work())
    except Interrupted:
        raise KeyboardInterrupt from None
    except OSError as error:
        raise InputError(str(error.filename or folder), error.strerror or str(error), "look at the machine") from error
    finally:
        report.end()
        if made:
            shutil.rmtree(folder, ignore_errors=True)
    for fault in (*done.missing[:5], *done.fleet.failures[:5]):
        note(str(fault))
    show(score.to_json(), as_json, [*table(score.rows()), score.verdict()])
    if any(score.faults()):
        raise typer.Exit(1)


def _simulate(scenario: Any, seed: int, as_json: bool) -> None:
    from trellis.fleet.simulated import simulate_scenario

    result = simulate_scenario(scenario, seed)
    show(result.to_json(), as_json, result.lines())
    if not result.holds:
        raise typer.Exit(1)


def _client_kind(mqtt: bool, broker: str | None, simulated: bool) -> ClientKind:
    if simulated and mqtt:
        raise InputError("--mqtt", "the simulator has no MQTT clients", "leave out --simulated")
    if broker is None:
        return "mqtt" if mqtt else "trellis"
    if not mqtt:
        raise InputError("--broker", "without --mqtt there are no brokers", "give --mqtt as well")
    if broker != "mosquitto":
        raise InputError("--broker", f'"{broker}" is not known', "give mosquitto")
    return "mosquitto"


class Terminal:
    """Shows the progress of a run: on a terminal as one line that changes, else as events and a line now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown = ""
        self._told = time.monotonic()

    def status(self, text: str) -> None:
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._shown = text[:width]
            sys.stderr.write(f"\r\x1b[K{self._shown}")
            sys.stderr.flush()
        elif time.monotonic() >= self._told + _PIPED_EVERY_S:
            self._told = time.monotonic()
            note(text)

    def event(self, text: str) -> None:
        self.end()
        note(text)

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = ""
