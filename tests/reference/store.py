"""A slow reference of `trellis.store`: a list of what was appended, and a history that breaks the log at any place.

`Story` drives a log on a simulated disk with drawn operations. After each loss of power it compares what the log
restores with the list: what was certain is there, nothing is there that was not appended, and bodies are right.
"""

from __future__ import annotations

import itertools
from random import Random

from trellis.simulate.disks import DiskFaults, PowerLost, SimulatedDisk
from trellis.store.disk import SyncFailed
from trellis.store.log import Batch, Log, NoSpace

SNAPSHOT = b"snapshot"


class Story:
    """One disk, the logs of several processes on it, and the truth."""

    def __init__(self, seed: int, faults: DiskFaults | None = None, segment_bytes: int = 600) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(Random(seed + 1), faults, sector=32)
        self.segment_bytes = segment_bytes
        self.bodies: dict[bytes, bytes] = {}  # every record that was ever appended, by its head
        self.certain: dict[bytes, None] = {}  # those that must survive
        self.released: set[bytes] = set()  # those that may be gone, or not
        self.numbers: dict[bytes, int] = {}  # in the present process
        self.fresh: list[bytes] = []  # appended, and in no batch yet
        self.in_batch: list[bytes] = []
        self.names = itertools.count()
        self.lies = False  # the disk lost a sync or changed a bit: what was certain may be missing
        self.batch: Batch | None = None
        self.has_begun = False  # A snapshot is certain.
        self.open()

    def restart(self) -> None:
        """Open the log, and compare what it restores with the truth."""
        self.log = Log(
            self.disk, self.segment_bytes, lambda: self.random.getrandbits(64), lambda: [(SNAPSHOT, b"everything")]
        )
        self.numbers, self.fresh, self.batch = {}, [], None
        order, snapshots = [], 0
        for number, head in self.log.restored():
            if head == SNAPSHOT:
                snapshots += 1
                continue
            assert head in self.bodies, f"{head!r} was never appended"
            if head in self.numbers:  # the power was lost between the rescue of a segment and its setting aside
                assert number >= self.log.rescued_from, f"{head!r} came back twice"
                continue
            if head in self.released:
                continue
            self.numbers[head] = number
            if number < self.log.rescued_from:
                order.append(int(head))
            self.log.keep(number)
        counts = self.disk.counts
        self.lies = self.lies or bool(counts.get("lost_sync") or counts.get("flip") or counts.get("read_error"))
        # What was rescued from a damaged segment stands behind later records from then on.
        assert order == sorted(order) or self.lies, "records came back in another order"
        assert snapshots or not self.has_begun or self.lies, "there is no snapshot"
        missing = [head for head in self.certain if head not in self.numbers and head not in self.released]
        assert not missing or self.lies, f"{missing} were certain, and are gone"
        if missing:
            for head in missing:
                del self.certain[head]
        for head in self.numbers:
            self._compare(head)
        self.log.begin()
        self.commit()

    def _compare(self, head: bytes) -> None:
        if self.numbers[head] < self.log.durable or self.numbers[head] < self.log.rescued_from:
            body = self.log.read(self.numbers[head])
            if body is None:
                assert self.lies or self.disk.counts.get("read_error"), f"{head!r} cannot be read"
            else:
                assert body == self.bodies[head], f"{head!r} has another body"

    def append(self) -> None:
        """Append one record."""
        head = b"%d" % next(self.names)
        body = self.random.randbytes(self.random.choice((0, 1, 20, 300)))
        self.bodies[head] = body
        self.numbers[head] = self.log.append(head, body)
        self.fresh.append(head)

    def commit(self) -> None:
        """Write a batch. What is in it is certain then."""
        if self.batch is None:
            if not self.log.is_due:
                return
            self.batch, self.fresh, self.in_batch = self.log.take_batch(), [], self.fresh
        try:
            self.batch.write(self.disk)
        except NoSpace:
            return
        self.log.written(self.batch)
        self.certain.update(dict.fromkeys(self.in_batch))
        self.has_begun = True
        self.batch = None

    def release(self) -> None:
        """Release the oldest records that are certain."""
        old = [head for head in self.numbers if head in self.certain][: self.random.randint(1, 5)]
        self.log.release([self.numbers.pop(head) for head in old])
        self.released.update(old)
        for head in old:
            del self.certain[head]

    def read(self) -> None:
        """Read one record back."""
        if self.numbers:
            self._compare(self.random.choice(list(self.numbers)))

    def step(self) -> None:
        """Do something at random."""
        choice = self.random.random()
        if choice < 0.6:
            self.append()
        elif choice < 0.85:
            self.commit()
        elif choice < 0.92:
            self.release()
        else:
            self.read()

    def run(self, steps: int, crash: float = 0.03) -> None:
        """Do `steps` things at random. The power is lost now and then, at any byte. A failed sync ends the process."""
        for _ in range(steps):
            if self.random.random() < crash:
                self.disk.budget = self.random.randrange(700)
            try:
                self.step()
            except (PowerLost, SyncFailed):
                self.crash()
            if self.disk.budget == 0:
                self.crash()

    def crash(self) -> None:
        """Lose the power, and start again. The power may be lost once more while the log is opened."""
        self.disk.budget = None
        self.disk.lose_power()
        if self.random.random() < 0.2:
            self.disk.budget = self.random.randrange(200)
        self.open()

    def open(self) -> None:
        """Start until that succeeds."""
        for _ in range(20):
            try:
                self.restart()
                return
            except (PowerLost, SyncFailed):
                self.disk.budget = None
                self.disk.lose_power()
        raise AssertionError("the log could not be opened in twenty attempts")
