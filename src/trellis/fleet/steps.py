"""Carry out steps on a fleet, measure how long repairs take, and count the faults."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from random import Random

from trellis.fleet.fleet import Fleet, Member
from trellis.fleet.scenario import Step
from trellis.fleet.traffic import Traffic
from trellis.fleet.watch import ROUND_S, Repair, links_of, split_topics

_REPAIR_S_MAX = 60.0  # A repair that takes longer is not watched any more.
LIVING_MIN = 2  # nodes that always stay up: no further one is killed, stopped or told to leave
_AT_ONCE_S = 2.0  # Nodes that die within this time count as killed at once.


class Watch:
    """Takes snapshots of the mesh while a repair runs, to measure how long it takes."""

    def __init__(self, fleet: Fleet, say: Callable[[str], None]) -> None:
        self.fleet, self.say = fleet, say
        self.repairs: list[Repair] = []
        self._open: list[Repair] = []
        self._task: asyncio.Task[None] | None = None

    def begin(self, cause: str, names: Iterable[str], at: float) -> None:
        """Watch a repair that begins now because of faults at `names`."""
        if not self.fleet.config.is_topic_connected:
            return  # The overlay does not promise connected topics, so there is no end to wait for.
        repair = Repair(cause, tuple(names), at)
        self.repairs.append(repair)
        self._open.append(repair)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._rounds())

    async def repaired(self) -> None:
        """Wait until no repair runs."""
        if self._task is not None:
            await asyncio.shield(self._task)

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _rounds(self) -> None:
        while self._open:
            begun = time.monotonic()
            split = await self.split()
            now = time.monotonic()
            for repair in self._open:
                if repair.at <= begun:
                    repair.split |= split
                    repair.rounds += 1
                    if not split:
                        repair.seconds = now - repair.at
                        self.say(str(repair))
            self._open = [repair for repair in self._open if repair.seconds is None and now < repair.at + _REPAIR_S_MAX]
            # Snapshots take computing time that the repair needs as well, so at most half the time goes to them.
            await asyncio.sleep(max(ROUND_S - (now - begun), now - begun))

    async def split(self, members: Sequence[Member] | None = None) -> set[str]:
        """Return the topics that are split now, among `members` or among all that have joined."""
        asked = self.fleet.joined if members is None else members
        answers = await self.fleet.snapshots(asked)
        joined = [member for member in asked if member.is_joined]  # Some may have been killed meanwhile.
        snapshots = {member.name: answers[member.name] for member in joined if member.name in answers}
        return split_topics(snapshots, self.fleet.subscribers(joined))


class Driver:
    """Carries out steps, at their times or one after the other."""

    def __init__(
        self, fleet: Fleet, traffic: Traffic, watch: Watch, random: Random, say: Callable[[str], None]
    ) -> None:
        self.fleet, self.traffic, self.watch, self.random, self.say = fleet, traffic, watch, random, say
        self.counts: Counter[str] = Counter()
        self.kills: list[float] = []  # times of kills, one for each node that was killed
        self._tasks: set[asyncio.Task[None]] = set()
        self._later: dict[asyncio.TimerHandle, Callable[[], object]] = {}
        self._errors: list[BaseException] = []
        fleet.on_kill = self._killed_by_another

    async def run(self, steps: Sequence[Step]) -> None:
        """Carry out each step at its time."""
        begun = time.monotonic()
        for step in steps:
            await asyncio.sleep(max(0.0, begun + step.at - time.monotonic()))
            await self.do(step)

    async def every(self, seconds: float, *, hang_s: float = 0.0) -> None:
        """Every few `seconds`, kill a node and start it again. With `hang_s`, every second node is stopped instead.

        The next fault waits for the repair of the last one, so that repairs are measured one by one.
        """
        due = time.monotonic()
        for number in range(1 << 30):
            due = max(due + seconds, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            await self.watch.repaired()
            if hang_s and number % 2:
                await self.do(Step(at=0, do="hang", lasts=hang_s))
            else:
                await self.do(Step(at=0, do="crash", lasts=min(seconds / 2, 4.0)))

    async def do(self, step: Step) -> None:
        """Carry out a step now. Count it as skipped if too few nodes are up."""
        done = await self._apply(step)
        if done:
            self.counts["done"] += 1
            self.say(" ".join([step.do, *done, *([step.topic] if step.topic else [])]))
        else:
            self.counts["skipped"] += 1
            self.say(f"this could not be done, too few nodes are up: {step}")

    async def settled(self) -> None:
        """Wait until all starts and departures that have begun are over."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self.raise_errors()

    @property
    def kills_at_once(self) -> int:
        """The largest number of nodes that were killed at once."""
        return max((sum(at <= kill < at + _AT_ONCE_S for kill in self.kills) for at in self.kills), default=0)

    def raise_errors(self) -> None:
        """Raise the first error of a start or departure, if there was one."""
        if self._errors:
            raise self._errors[0]

    def heal(self) -> None:
        """End all faults now, before their time: nodes go on, cuts end, and killed nodes start again."""
        for timer, function in list(self._later.items()):
            timer.cancel()
            function()
        self._later.clear()

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        for timer in self._later:
            timer.cancel()

    async def _apply(self, step: Step) -> tuple[str, ...]:
        """Carry out a step. Return the nodes that it hit; none, if it could not be done."""
        match step.do:
            case "crash":
                return await self._crash(step)
            case "restart":
                return self._restart(step)
            case "hang":
                return self._hang(step)
            case "leave":
                hit = self._choose(step)
                for name in hit:
                    self.counts["leaves"] += 1
                    self._begin(self.fleet.leave(name))
                return hit
            case "partition":
                return self._partition(step)
            case "subscribe":
                for name in step.names:
                    self.fleet.subscribe(name, step.topic)
                return step.names
            case "unsubscribe":
                for name in step.names:
                    await self.fleet.unsubscribe(name, step.topic)
                return step.names
            case "publish":
                hit = self._choose(step)[:1]
                for _ in range(step.count):
                    self.traffic.publish(hit[0], step.topic)
                return hit
            case _:
                raise AssertionError(step.do)

    async def _crash(self, step: Step) -> tuple[str, ...]:
        hit = self._choose(step) if step.who in ("any",) or step.names else await self._placed(step)
        if not hit:
            return ()
        self._killed(hit, self.fleet.kill(hit))
        if step.lasts is not None:
            self._after(step.lasts, lambda: self.bring_back(hit))
        return hit

    def _killed(self, hit: tuple[str, ...], at: float) -> None:
        self.counts["kills"] += len(hit)
        self.kills += [at] * len(hit)
        self.watch.begin("kill", hit, at)

    def _killed_by_another(self, name: str, at: float) -> None:
        """A node was killed by a user, or by the system for want of memory. It is not started again."""
        self.say(f"another process has killed {name}")
        self._killed((name,), at)

    def _restart(self, step: Step) -> tuple[str, ...]:
        down = sorted(member.name for member in self.fleet.among("down"))
        hit = tuple(name for name in step.names if name in down)
        hit = hit or tuple(self.random.sample(down, min(step.count, len(down))))
        self.bring_back(hit)
        return hit

    def _hang(self, step: Step) -> tuple[str, ...]:
        hit = self._choose(step)
        for name in hit:
            at = self.fleet.hang(name)
            self.counts["hangs"] += 1
            self.watch.begin("hang", (name,), at)
            assert step.lasts is not None
            self.fleet.ledger.disturbed("hang", (name,), step.lasts)
            self._after(step.lasts, partial(self._resume, name))
        return hit

    def _partition(self, step: Step) -> tuple[str, ...]:
        relays = self.fleet.relays
        assert relays is not None
        assert step.lasts is not None
        side = step.names or tuple(sorted(self.fleet.members))[: step.count]
        relays.cut(side)
        self.fleet.ledger.disturbed("partition", tuple(side), step.lasts)
        self._after(step.lasts, relays.cut)
        return side

    def _choose(self, step: Step) -> tuple[str, ...]:
        """Return the nodes for a step: the named ones that are up, or some that are drawn.

        Return none if fewer than `LIVING_MIN` others would stay.
        """
        if step.names:
            return tuple(name for name in step.names if self.fleet.members[name].state == "up")
        joined = sorted(member.name for member in self.fleet.joined)
        count = 1 if step.do == "publish" else step.count
        return tuple(self.random.sample(joined, count)) if len(joined) - count >= LIVING_MIN else ()

    async def _placed(self, step: Step) -> tuple[str, ...]:
        """Return nodes that are chosen by the links of the overlay: the one with most links, or one with neighbors."""
        links = links_of(await self.fleet.snapshots(self.fleet.joined))
        degrees = Counter(end for link in links for end in link)
        if not degrees or len(degrees) - step.count < LIVING_MIN:
            return ()
        if step.who == "hub":
            return (max(degrees, key=lambda name: (degrees[name], name)),)
        fit = sorted(name for name, degree in degrees.items() if degree + 1 >= step.count)
        if not fit:
            return ()
        first = self.random.choice(fit)
        near = sorted(v if u == first else u for u, v in links if first in (u, v))
        return (first, *self.random.sample(near, step.count - 1))

    def bring_back(self, names: Iterable[str]) -> None:
        """Begin to start nodes that are down."""
        for name in names:
            self.counts["starts"] += 1
            self._begin(self.fleet.start_node(name))

    def _resume(self, name: str) -> None:
        """Let a stopped node go on. The next fault waits until it is connected again."""
        self.fleet.resume(name)
        self.watch.begin("resume", (name,), time.monotonic())

    def _after(self, seconds: float, function: Callable[[], object]) -> None:
        """Call `function` after some seconds, or when everything is healed."""

        def due() -> None:
            self._later.pop(timer)
            function()

        timer = asyncio.get_running_loop().call_later(seconds, due)
        self._later[timer] = function

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)
