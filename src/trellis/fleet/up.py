"""A whole run of `trellis up`: form the mesh, run it under traffic and faults, let it settle, score it."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import Protocol

import msgspec

from trellis import ids
from trellis.errors import TrellisError
from trellis.fleet.clients import SIDECAR_INFLIGHT_MAX
from trellis.fleet.fleet import Fleet, FleetConfig
from trellis.fleet.interests import InterestsByNode
from trellis.fleet.ledger import Ledger, Missing
from trellis.fleet.scenario import Step
from trellis.fleet.score import Score
from trellis.fleet.steps import Driver, Watch
from trellis.fleet.traffic import FOREIGN, Traffic
from trellis.fleet.watch import Snapshot, links_of, one_sided, percentile, split_topics
from trellis.fleet.witness import Witness
from trellis.judge import write_history
from trellis.live.addresses import parse_address, show_address
from trellis.live.dashboard import Dashboard
from trellis.protocols.delivery import DeliveryConfig

_FORM_S_MAX = 180.0
_SETTLE_S = 60.0
_LOOK_S = 0.25
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # a terminal that is closed sends the last one
REFUSED_MAX_CALM, REFUSED_MAX_DISTURBED = 0.02, 0.1  # without faults; with kills, hangs, departures or cuts
HANG_S = 12.0  # length of a hang: longer than the repair around a node that hangs may take


class UpConfig(msgspec.Struct, frozen=True, kw_only=True):
    seed: int = 1
    rate: float = 20.0
    foreign: float = FOREIGN
    kill_every: float = 8.0
    hang: bool = False
    duration: float | None = None
    steps: tuple[Step, ...] | None = None
    """Faults to carry out. None: one node is killed every `kill_every` seconds."""

    refused_max: float | None = None
    """Share of publications that need not be acknowledged. None: see `refused_max`."""

    absent: tuple[str, ...] = ()
    """Nodes that do not run at the start."""

    dashboard: str | None = None
    """The address of the dashboard. None: there is none."""

    history: str | None = None
    """The file for what clients saw. None: no history is kept."""


class Report(Protocol):
    """The interface of an object that shows the progress of a run to its user."""

    def status(self, text: str) -> None: ...

    def event(self, text: str) -> None: ...


class Interrupted(TrellisError):
    """The run was ended before there was anything to score."""


class Up:
    """One run. `run` may be called once."""

    def __init__(
        self, interests: InterestsByNode, fleet: FleetConfig, config: UpConfig, folder: Path, report: Report
    ) -> None:
        self.interests, self.config, self.report = interests, config, report
        kind = Ledger if config.history is None else Witness
        self.ledger = kind(fleet.copies, may_repeat=fleet.client_kind == "mosquitto")
        if isinstance(self.ledger, Witness) and fleet.client_kind != "trellis":
            self.ledger.speaks = "mqtt"
        self.fleet = Fleet(interests, fleet, folder, self.ledger, mark=secrets.token_hex(4))
        random = Random(ids.stream(config.seed, "fleet"))
        self.traffic = Traffic(self.fleet, config.rate, random, foreign=config.foreign)
        self.watch = Watch(self.fleet, report.event)
        self.driver = Driver(self.fleet, self.traffic, self.watch, random, report.event)
        self.missing: list[Missing] = []
        self.seconds = 0.0
        self._stop = asyncio.Event()  # The run shall end now: settle, and score.
        self._begun = time.monotonic()
        self._dashboard: Dashboard | None = None

    async def run(self) -> Score:
        """Carry out the run and return its score. However this ends, no process is left and no port is taken."""
        loop, work = asyncio.get_running_loop(), asyncio.current_task()
        assert work is not None

        def on_signal() -> None:
            if self._stop.is_set() or not self.seconds:
                work.cancel()  # the second signal, or a signal before there was anything to score
            self._stop.set()

        for number in _ENDS:
            loop.add_signal_handler(number, on_signal)
        try:
            self._show()
            await self._form()
            await self._under_traffic()
            snapshots = await self._settle()
        except asyncio.CancelledError:
            raise Interrupted("interrupted") from None
        finally:
            for number in _ENDS:
                loop.remove_signal_handler(number)
            for part in (self.driver, self.traffic, self.watch):
                part.end()
            await asyncio.shield(self.fleet.end())
            if self._dashboard is not None:
                await self._dashboard.close()
        if isinstance(self.ledger, Witness) and self.config.history is not None:
            write_history(self.ledger.history, self.config.history)
        return self._score(snapshots)

    def _show(self) -> None:
        """Serve the dashboard, if it was asked for."""
        address = self.config.dashboard
        if address is None:
            return
        members = self.fleet.members.values()
        self._dashboard = Dashboard(lambda: [member.admin.address for member in members if member.admin is not None])
        self._dashboard.bind(address)
        self._dashboard.serve()
        shown = show_address(parse_address(address)[0], self._dashboard.port)
        self.report.event(f"dashboard: http://{shown}/")

    async def _form(self) -> None:
        """Start all nodes, and wait until every topic is connected."""
        names = [name for name in self.interests if name not in self.config.absent]
        await self.fleet.start(names, lambda up: self.report.status(f"starting: {up} of {len(names)} nodes"))
        await self._until(self._is_whole, _FORM_S_MAX, "joining")
        if len(self.fleet.joined) < len(names):
            late = [name for name in names if not self.fleet.members[name].is_joined]
            raise TrellisError(f"the mesh did not form within {_FORM_S_MAX:.0f} s: {', '.join(late[:5])} did not join")
        for member in self.fleet.members.values():
            if member.mqtt_address:
                self.report.event(f"mqtt: {member.name} at {member.mqtt_address}")
        self.report.event(f"{len(names)} nodes are up and connected after {time.monotonic() - self._begun:.0f} s")

    async def _under_traffic(self) -> None:
        """Publish and carry out faults until the duration is over, or until a signal comes."""
        config, begun = self.config, time.monotonic()
        tasks = [asyncio.create_task(self.traffic.run())]
        if config.steps is not None:
            tasks.append(asyncio.create_task(self.driver.run(config.steps)))
        elif config.kill_every > 0:
            hang_s = HANG_S if config.hang else 0.0
            tasks.append(asyncio.create_task(self.driver.every(config.kill_every, hang_s=hang_s)))
        try:
            while not self._stop.is_set() and (config.duration is None or self.seconds < config.duration):
                self.seconds = max(time.monotonic() - begun, 0.001)
                self.report.status(self._line())
                for task in tasks:
                    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                        raise error
                self.driver.raise_errors()
                self.ledger.forget(time.monotonic())
                await asyncio.sleep(_LOOK_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle(self) -> dict[str, Snapshot]:
        """End all faults and wait until everything that is owed has been delivered. Return a last set of snapshots."""
        self.driver.heal()
        await self.driver.settled()
        if self.fleet.config.client_kind == "mosquitto":
            # Messages that a broker has acknowledged wait there for its sidecar.
            self.driver.bring_back(member.name for member in self.fleet.among("down") if member.broker is not None)
        await self.driver.settled()
        await self._until(self._is_settled, settle_s_max(self.fleet.config.settings), "settling")
        self.missing = self.ledger.missing()
        if isinstance(self.ledger, Witness):
            self.ledger.settled()
        return await self.fleet.snapshots(self.fleet.joined)

    async def _until(self, is_so: Callable[[], Awaitable[bool]], limit_s: float, doing: str) -> None:
        """Wait until `is_so` returns True, at most for `limit_s`. `doing` says what is waited for."""
        limit = time.monotonic() + limit_s
        while time.monotonic() < limit:
            if await is_so():
                return
            self.report.status(f"{doing}: {self._line()}")
            self.driver.raise_errors()
            await asyncio.sleep(_LOOK_S)

    async def _is_whole(self) -> bool:
        """Tell whether every node that runs has joined, and every topic is connected."""
        up = self.fleet.among("up")
        if len(self.fleet.joined) < len(up) or self.fleet.among("starting", "hung", "leaving"):
            return False
        if not self.fleet.config.is_topic_connected:
            return True
        snapshots = await self.fleet.snapshots(up)
        return not split_topics(snapshots, self.fleet.subscribers(up)) and not one_sided(snapshots)

    async def _is_settled(self) -> bool:
        return not self.ledger.waiting and not self.ledger.missing() and await self._is_whole()

    def _line(self) -> str:
        """Return one line about the state of the run."""
        ledger, counts = self.ledger, self.driver.counts
        repaired = [repair.seconds for repair in self.watch.repairs if repair.seconds is not None]
        parts = [
            f"{self.seconds:.0f} s",
            f"{len(self.fleet.joined)} of {len(self.fleet.members)} nodes joined",
            f"{ledger.acknowledged:,} of {ledger.published:,} acknowledged, {ledger.refused:,} refused",
            f"{len(ledger.missing()):,} of {ledger.expected:,} deliveries under way",
            f"{ledger.duplicates} twice",
            f"{counts['kills']} kills",
        ]
        return ", ".join([*parts, *([f"last repair {repaired[-1] * 1_000:.0f} ms"] if repaired else [])])

    def _score(self, snapshots: dict[str, Snapshot]) -> Score:
        ledger, counts, fleet = self.ledger, self.driver.counts, self.fleet
        subscribers: dict[str, set[str]] = {}
        for name, snapshot in snapshots.items():
            for topic in fleet.members[name].topics:
                subscribers.setdefault(topic, set()).add(snapshot.node)
        links = links_of(snapshots)
        degrees = [sum(name in link for link in links) for name in snapshots]
        repairs = self.watch.repairs
        now = time.monotonic()
        times = {
            cause: [
                1_000 * (repair.seconds if repair.seconds is not None else now - repair.at)
                for repair in repairs
                if repair.cause == cause
            ]
            for cause in ("kill", "hang")
        }
        used = os.times()
        return Score(
            nodes=len(self.interests),
            topics=len({topic for topics in self.interests.values() for topic in topics}),
            overlay=fleet.config.overlay,
            client_kind=fleet.config.client_kind,
            copies=fleet.config.copies,
            seed=self.config.seed,
            seconds=round(self.seconds, 1),
            published=ledger.published,
            acknowledged=ledger.acknowledged,
            refused=ledger.refused,
            refusals=dict(ledger.refusals),
            refused_max=refused_max(self.config, bool(counts["kills"] or counts["hangs"] or counts["leaves"])),
            delivered=ledger.delivered,
            expected=ledger.expected,
            missing=len(self.missing),
            forgone=len(ledger.forgone()),
            duplicates=ledger.duplicates,
            excused=ledger.excused(SIDECAR_INFLIGHT_MAX) if fleet.config.client_kind == "mosquitto" else 0,
            repeats_max=SIDECAR_INFLIGHT_MAX if fleet.config.client_kind == "mosquitto" else 0,
            disordered=ledger.disordered,
            strays=ledger.strays,
            kills=counts["kills"],
            kills_at_once=self.driver.kills_at_once,
            hangs=counts["hangs"],
            leaves=counts["leaves"],
            starts=counts["starts"],
            skipped=counts["skipped"] if self.config.steps is not None or not counts["done"] else 0,
            faults_asked=bool(self.config.steps or (self.config.steps is None and self.config.kill_every)),
            faults_done=counts["done"],
            links=len(links),
            planned_links=sum(len(peers) for peers in fleet.config.planned.values()) // 2,
            degree_max=max(degrees, default=0),
            degree_mean=round(sum(degrees) / max(len(degrees), 1), 2),
            one_sided_links=len(one_sided(snapshots)),
            split_topics=len(split_topics(snapshots, subscribers)),
            repairs_of_splits=sum(bool(repair.split) for repair in repairs if repair.cause == "kill"),
            unrepaired=sum(repair.seconds is None for repair in repairs),
            repair_ms_p50=_whole(percentile(times["kill"], 0.5)),
            repair_ms_p99=_whole(percentile(times["kill"], 0.99)),
            hang_repair_ms_p50=_whole(percentile(times["hang"], 0.5)),
            hang_repair_ms_p99=_whole(percentile(times["hang"], 0.99)),
            delivery_ms_p50=_ms(percentile(ledger.delays, 0.5)),
            delivery_ms_p99=_ms(percentile(ledger.delays, 0.99)),
            repairs=[repair.to_json() for repair in repairs if repair.cause != "resume"],
            processes=fleet.most,
            node_failures=len(fleet.failures),
            client_reconnects=fleet.reconnects,
            cpu_s=round(used.children_user + used.children_system, 1),
        )


def refused_max(config: UpConfig, is_disturbed: bool) -> float:
    """Return the share of publications that may be refused: the given one, or a default that depends on faults."""
    if config.refused_max is not None:
        return config.refused_max
    return REFUSED_MAX_DISTURBED if is_disturbed or config.steps else REFUSED_MAX_CALM


def settle_s_max(settings: Mapping[str, object]) -> float:
    """Return the longest time to wait for what is owed.

    A gap that a dead publisher has left is skipped after a window, and later messages are held back until then.
    """
    window_ms = float(str(settings.get("delivery.window_ms", DeliveryConfig().window_ms)))
    return _SETTLE_S + window_ms / 1_000


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1_000 * seconds, 1)
