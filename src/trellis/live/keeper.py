"""The store of a live node: it writes what delivery appends, and tells delivery what is synced.  [docs/durable.md]

    delivery appends records  ->  `Log` gathers them  ->  a thread writes and syncs a batch  ->  `MeshNode.on_synced`

While a batch is being written, the next one gathers. So a sync serves all publications that came during the one before.

K1  What the node says to the outside about a record (`after_sync`) waits until the record is synced.
K2  If a sync fails, the node ends, because nobody knows what is on the disk. It is not tried again.
K3  If the disk is full, nothing is lost: publications are refused, with the reason, until a batch can be written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from trellis.errors import TrellisError
from trellis.live.clock import wall_ms
from trellis.live.machine import machine
from trellis.protocols.delivery.config import DurableConfig
from trellis.protocols.delivery.durable import Durable
from trellis.store.disk import Disk, FolderDisk
from trellis.store.log import Batch, Log, NoSpace

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

log = logging.getLogger("trellis.live")
_AGAIN_S = 1.0  # pause before a full disk is tried again


class Keeper:
    """Runs the store of one node."""

    def __init__(self, node: LiveNode, config: DurableConfig, disk: Disk | None = None) -> None:
        """Open the store. `disk`: a simulated one; None: the folder of the configuration."""
        self.node, self.config = node, config
        self.disk: Disk = disk if disk is not None else FolderDisk(config.path)
        self.log = Log(self.disk, config.segment_bytes, lambda: machine().secret_below(1 << 63), self._snapshot)
        self.durable: Durable | None = None
        self.batches = self.batch_bytes = self.no_space = 0
        self._later: deque[tuple[int, Callable[[], None]]] = deque()  # what waits for a sync (K1)
        self._is_soon = self._is_closed = False
        self._again: asyncio.TimerHandle | None = None

    def restore(self) -> None:
        """Give delivery what the last process has stored. Called before the mesh node starts."""
        state = self.node.mesh.delivery.state
        durable = self.durable = Durable(state, self.log, self.config, wall_ms())
        durable.restore(self.log.restored())
        state.durable = durable
        self.log.begin()
        recovered = self.log.recovered
        log.info("%s: the store has messages: %d", self.node.name, durable.restored)
        if recovered.torn_bytes:
            log.info("%s: the last write to the store was not complete: %d bytes", self.node.name, recovered.torn_bytes)
        for name in recovered.damaged:
            log.warning("%s: a file of the store is damaged and was set aside: %s", self.node.name, name)

    def _snapshot(self) -> list[tuple[bytes, bytes]]:
        return list(self.durable.snapshot()) if self.durable is not None else []

    def look(self) -> None:
        """Write what was appended, at the end of this turn of the loop."""
        if self.log.can_forget and not self.log.is_writing:
            self.log.forget_released()
        if not self._is_soon and self.log.is_due and not self._is_closed:
            self._is_soon = True
            asyncio.get_running_loop().call_soon(self._write)

    def after_sync(self, tell: Callable[[], None]) -> None:
        """Call `tell` when everything that was appended so far is synced. Calls keep their order."""
        if not self._later and self.log.durable >= self.log.next:
            tell()
        else:
            self._later.append((self.log.next, tell))

    def close(self) -> None:
        """Stop writing. A batch that is being written goes on."""
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
        if isinstance(self.disk, FolderDisk) and not self.log.is_writing:
            self.disk.close()

    def metrics(self) -> dict[str, int]:
        """Return what an operator should see."""
        return {
            "bytes": self.log.bytes,
            "segments": len(self.log.segments),
            "batches": self.batches,
            "written_bytes": self.batch_bytes,
            "no_space": self.no_space,
            "unreadable": self.log.unreadable,
            "damaged": len(self.log.recovered.damaged),
        }

    def _write(self) -> None:
        self._is_soon = False
        if self.log.is_due and not self._is_closed:
            self._run(self.log.take_batch())

    def _run(self, batch: Batch) -> None:
        lag_s = self.disk.lag_s
        if lag_s:
            self._again = asyncio.get_running_loop().call_later(lag_s, self._start, batch)
        else:
            self._start(batch)

    def _start(self, batch: Batch) -> None:
        task = asyncio.get_running_loop().run_in_executor(None, batch.write, self.disk)
        task.add_done_callback(partial(self._done, batch))

    def _done(self, batch: Batch, task: asyncio.Future[None]) -> None:
        """Take in the end of a batch."""
        if task.cancelled():
            return
        error = task.exception()
        if self._is_closed:
            if isinstance(self.disk, FolderDisk):
                self.disk.close()
            return
        if isinstance(error, NoSpace):
            self._wait_for_space(batch, str(error))
        elif error is not None:
            log.critical("%s: the store cannot be written, so this node ends: %s", self.node.name, error)
            self._is_closed = True
            self.node.end(TrellisError(f"the store {self.config.path} cannot be written: {error}"))
        else:
            self.batches += 1
            self.batch_bytes += batch.size
            self.log.written(batch)
            self._bound()
            self.node.on_synced(self.log.durable)
            while self._later and self._later[0][0] <= self.log.durable:
                self._later.popleft()[1]()
            self.look()

    def _wait_for_space(self, batch: Batch, why: str) -> None:
        """Refuse publications, and try to write the batch again later (K3)."""
        assert self.durable is not None
        self.no_space += 1
        if not self.durable.why_full:
            log.error("%s: the disk of the store is full: %s; publications are refused", self.node.name, why)
        self.durable.why_full = f"its disk takes no more bytes ({why}); free some space"
        if not self._is_closed:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._run, batch)

    def _bound(self) -> None:
        """Keep the store within `bytes_max`, by the policy of `full`."""
        durable, most = self.durable, self.config.bytes_max
        assert durable is not None
        size, was_full = self.log.bytes, bool(durable.why_full)
        durable.why_full = ""
        if size <= most - (self.config.segment_bytes if was_full and self.config.full == "refuse" else 0):
            if was_full:
                log.info("%s: the store has room again", self.node.name)
            return
        if self.config.full == "refuse":
            durable.why_full = f"durable.bytes_max is {most}; messages leave it after durable.keep_s"
            if not was_full:
                log.error("%s: the store is full: %s; publications are refused", self.node.name, durable.why_full)
            return
        while size > most and (oldest := self.log.oldest()) is not None:
            dropped, before = durable.drop_records(oldest), size
            size = self.log.forget_released()
            if dropped:
                log.warning("%s: the store was full and dropped its oldest messages: %d", self.node.name, dropped)
            if size == before:
                return
