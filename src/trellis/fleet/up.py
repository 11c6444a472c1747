"""A mesh of processes from start to end: form, run under traffic and faults, settle, judge.  [`trellis up`]"""

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
HANG_S = 12.0  # longer than a hang may take to be mended around


class UpConfig(msgspec.Struct, frozen=True, kw_only=True):
    seed: int = 1
    rate: float = 20.0
    foreign: float = FOREIGN
    kill_every: float = 8.0
    hang: bool = False
    duration: float | None = None
    steps: tuple[Step, ...] | None = None
    """Instead of a kill now and then."""

    refused_max: float | None = None
    """Share of publications that need not be acknowledged. None: see `refused_max`."""

    absent: tuple[str, ...] = ()
    dashboard: str | None = None
    """Where it listens; None: nowhere."""

    history: str | None = None
    """The file for what clients saw. None: no history is kept."""


class Report(Protocol):
    """Whoever tells people how it goes."""

    def status(self, text: str) -> None: ...

    def event(self, text: str) -> None: ...


class Interrupted(TrellisError):
    """Told to end before there was anything to judge."""


class Up:
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
        self._stop = asyncio.Event()  # enough: settle, and judge
        self._begun = time.monotonic()
        self._dashboard: Dashboard | None = None

    async def run(self) -> Score:
        """However this ends, no process and no port is left."""
        loop, work = asyncio.get_running_loop(), asyncio.current_task()
        assert work is not None

        def on_signal() -> None:
            if self._stop.is_set() or not self.seconds:
                work.cancel()  # the second time, or before there was anything to judge
            self._stop.set()

        for one in _ENDS:
            loop.add_signal_handler(one, on_signal)
        try:
            self._show()
            await self._form()
            await self._under_traffic()
            found = await self._settle()
        except asyncio.CancelledError:
            raise Interrupted("interrupted") from None
        finally:
            for one in _ENDS:
                loop.remove_signal_handler(one)
            for part in (self.driver, self.traffic, self.watch):
                part.end()
            await asyncio.shield(self.fleet.end())
            if self._dashboard is not None:
                await self._dashboard.close()
        if isinstance(self.ledger, Witness) and self.config.history is not None:
            write_history(self.ledger.history, self.config.history)
        return self._score(found)

    def _show(self) -> None:
        address = self.config.dashboard
        if address is None:
            return
        admins = self.fleet.members.values()
        self._dashboard = Dashboard(lambda: [one.admin.address for one in admins if one.admin is not None])
        self._dashboard.bind(address)
        self._dashboard.serve()
        place = show_address(parse_address(address)[0], self._dashboard.port)
        self.report.event(f"dashboard: http://{place}/")

    async def _form(self) -> None:
        names = [name for name in self.interests if name not in self.config.absent]
        await self.fleet.start(names, lambda up: self.report.status(f"starting: {up} of {len(names)} nodes"))
        await self._until(self._is_whole, _FORM_S_MAX, "joining")
        if len(self.fleet.joined) < len(names):
            late = [one.name for one in self.fleet.members.values() if not one.is_joined and one.name in names]
            raise TrellisError(f"the mesh did not form within {_FORM_S_MAX:.0f} s: {', '.join(late[:5])} did not join")
        for member in self.fleet.members.values():
            if member.mqtt_address:
                self.report.event(f"mqtt: {member.name} at {member.mqtt_address}")
        self.report.event(f"{len(names)} nodes are up and connected after {time.monotonic() - self._begun:.0f} s")

    async def _under_traffic(self) -> None:
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
        """Everything healed and nothing new: all that is owed has to come now."""
        self.driver.heal()
        await self.driver.settled()
        if self.fleet.config.client_kind == "mosquitto":  # what a broker has acknowledged waits there for its sidecar
            self.driver.bring_back(one.name for one in self.fleet.among("down") if one.broker is not None)
        await self.driver.settled()
        await self._until(self._is_settled, settle_s_max(self.fleet.config.settings), "settling")
        self.missing = self.ledger.missing()
        if isinstance(self.ledger, Witness):
            self.ledger.settled()
        return await self.fleet.snapshots(self.fleet.joined)

    async def _until(self, is_so: Callable[[], Awaitable[bool]], limit_s: float, doing: str) -> None:
        limit = time.monotonic() + limit_s
        while time.monotonic() < limit:
            if await is_so():
                return
            self.report.status(f"{doing}: {self._line()}")
            self.driver.raise_errors()
            await asyncio.sleep(_LOOK_S)

    async def _is_whole(self) -> bool:
        up = self.fleet.among("up")
        if len(self.fleet.joined) < len(up) or self.fleet.among("starting", "hung", "leaving"):
            return False
        if not self.fleet.config.is_topic_connected:
            return True
        found = await self.fleet.snapshots(up)
        return not split_topics(found, self.fleet.subscribers(up)) and not one_sided(found)

    async def _is_settled(self) -> bool:
        return not self.ledger.waiting and not self.ledger.missing() and await self._is_whole()

    def _line(self) -> str:
        ledger, counts = self.ledger, self.driver.counts
        mended = [one.seconds for one in self.watch.mends if one.seconds is not None]
        parts = [
            f"{self.seconds:.0f} s",
            f"{len(self.fleet.joined)} of {len(self.fleet.members)} nodes joined",
            f"{ledger.acknowledged:,} of {ledger.published:,} acknowledged, {ledger.refused:,} refused",
            f"{len(ledger.missing()):,} of {ledger.expected:,} deliveries under way",
            f"{ledger.duplicates} twice",
            f"{counts['kills']} kills",
        ]
        return ", ".join([*parts, *([f"last mend {mended[-1] * 1_000:.0f} ms"] if mended else [])])

    def _score(self, found: dict[str, Snapshot]) -> Score:
        ledger, counts, fleet = self.ledger, self.driver.counts, self.fleet
        subscribers: dict[str, set[str]] = {}
        for name, snapshot in found.items():
            for topic in fleet.members[name].topics:
                subscribers.setdefault(topic, set()).add(snapshot.node)
        links = links_of(found)
        degrees = [sum(name in link for link in links) for name in found]
        mends = self.watch.mends
        now = time.monotonic()
        times = {
            cause: [
                1_000 * (one.seconds if one.seconds is not None else now - one.at)
                for one in mends
                if one.cause == cause
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
            one_sided_links=len(one_sided(found)),
            split_topics=len(split_topics(found, subscribers)),
            mends_of_splits=sum(bool(one.split) for one in mends if one.cause == "kill"),
            unmended=sum(one.seconds is None for one in mends),
            mend_ms_p50=_whole(percentile(times["kill"], 0.5)),
            mend_ms_p99=_whole(percentile(times["kill"], 0.99)),
            hang_mend_ms_p50=_whole(percentile(times["hang"], 0.5)),
            hang_mend_ms_p99=_whole(percentile(times["hang"], 0.99)),
            delivery_ms_p50=_ms(percentile(ledger.delays, 0.5)),
            delivery_ms_p99=_ms(percentile(ledger.delays, 0.99)),
            mends=[one.to_json() for one in mends if one.cause != "resume"],
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
    """A gap that a dead publisher has left is skipped after a window; what follows it is held back until then."""
    window_ms = float(str(settings.get("delivery.window_ms", DeliveryConfig().window_ms)))
    return _SETTLE_S + window_ms / 1_000


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1_000 * seconds, 1)
