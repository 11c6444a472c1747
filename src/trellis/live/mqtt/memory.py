"""Keeps what a sidecar learned from its broker's log across restarts, and reports if anything is unknown.

The broker logs each subscription once, and a line that nobody reads is gone after `LOG_KEPT_S`. So what was learned is
saved before the line is acknowledged, and read back at the start. If the log went unread for longer, or if the broker
counts more subscriptions than we know, the node complains.  [docs/mqtt.md, What a sidecar remembers]
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from trellis.live.clock import monotonic_s, wall_s
from trellis.live.mqtt.learned import Damaged, LearnedFile, learned_path
from trellis.protocols.mqtt.bridge import Bridge
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.learn import LOG_KEPT_S
from trellis.reached import reached

log = logging.getLogger("trellis.live")

_TOUCH_S = 5.0
_UNREAD_S_MAX = LOG_KEPT_S - _TOUCH_S  # While the log is read, the file's time is at most `_TOUCH_S` old.
_REST = 10  # after a save that took a second, the next one waits this many seconds
_AGAIN_S = 5.0  # pause after a save that failed


class Memory:
    """Saves and restores what the sidecar's `SubscriptionLog` has learned."""

    def __init__(self, node: str, bridge: Bridge, config: MqttConfig, host: str, port: int) -> None:
        assert bridge.log is not None
        self.node, self.bridge, self.log, self.config, self.host, self.port = (
            node,
            bridge,
            bridge.log,
            config,
            host,
            port,
        )
        self.file = LearnedFile(learned_path(config.learn_file, bridge.client, host, port))
        self.gaps = 0  # how often the log went unread for so long that lines are lost
        self._trouble = ""  # why nothing can be saved; empty: it can
        self._read_s = self.file.touched()  # when the log was last read, by the wall clock
        self._saved = -1  # number of changes that are in the file; -1: there is no file
        self._saving: asyncio.Future[None] | None = None
        self._due_s = self._touched_s = 0.0
        self._has_told_unknown = False
        bridge.is_saved = True
        self._restore()

    def _restore(self) -> None:
        """Read the file."""
        try:
            learned = self.file.read()
        except Damaged as error:
            self._set_aside(str(error))
            return
        except OSError as error:
            self._fails(error)
            return
        if learned is not None:
            self.log.restore(learned)
            self._saved = self.log.changes
            self.bridge.saved(self._saved)
            reached("a sidecar remembers what it learned")
            count = len(self.log.filters)
            log.info("%s: remembers %d filters of the broker's clients from %s", self.node, count, self.file.path)

    def _set_aside(self, why: str) -> None:
        """Rename a damaged file."""
        self._read_s = None
        try:
            aside = self.file.set_aside()
        except OSError as error:
            self._fails(error)
        else:
            log.warning("%s: %s is damaged and was set aside as %s: %s", self.node, self.file.path, aside, why)

    # The broker

    def attached(self, session_present: bool) -> None:
        """The broker has accepted us. Warn if it cannot have kept all of its log for us."""
        if self._read_s is None:
            return  # this sidecar was never attached before; the broker's counts show whether clients were
        unread_s = wall_s() - self._read_s
        if session_present and 0 <= unread_s <= _UNREAD_S_MAX:
            return
        self.gaps += 1
        reached("a broker's log went unread for too long")
        self.log.doubt()
        why = f"its log was not read for {unread_s:.0f} s, and it keeps {LOG_KEPT_S} s"
        if not session_present:
            why = "it has lost our session, and its log with it"
        self._warn(why)

    def detached(self, silent_s: float) -> None:
        """The connection has ended. The broker had sent nothing for `silent_s` seconds."""
        self._read_s = wall_s() - silent_s

    def tick(self, is_attached: bool) -> None:
        """Save in a thread if something has changed, and warn about unknown subscriptions."""
        now_s = monotonic_s()
        if self._saving is None and self.log.changes != self._saved and now_s >= self._due_s:
            changes = self.log.changes
            work = partial(self.file.write, self.log.remember())
            self._saving = asyncio.get_running_loop().run_in_executor(None, work)
            self._saving.add_done_callback(partial(self._over, changes, now_s))
        elif is_attached and now_s - self._touched_s >= _TOUCH_S and self._saving is None:
            self._touched_s = now_s
            self.file.touch()
        if bool(self.bridge.unknown) != self._has_told_unknown:
            self._has_told_unknown = bool(self.bridge.unknown)
            if self.bridge.unknown:
                self._warn(f"it has {self.bridge.unknown} more than it told")

    def _warn(self, why: str) -> None:
        log.warning(
            "%s: broker %s:%d: subscriptions of its clients may be unknown here: %s",
            self.node,
            self.host,
            self.port,
            why,
        )

    def _over(self, changes: int, begun_s: float, saving: asyncio.Future[None]) -> None:
        """A save has ended."""
        now_s, self._saving = monotonic_s(), None
        if saving.cancelled():
            return
        error = saving.exception()
        if error is None:
            self._trouble, self._saved = "", changes
            self._due_s = now_s + _REST * (now_s - begun_s)
        else:
            self._fails(error)
            self._due_s = now_s + _AGAIN_S
        self.bridge.saved(changes)  # also after a failure: the broker must not wait for a full disk

    def _fails(self, error: BaseException) -> None:
        """Log that nothing can be saved, once for each reason."""
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if why != self._trouble:
            log.warning("%s: cannot remember what the broker's clients want: %s: %s", self.node, self.file.path, why)
        self._trouble = why

    async def close(self) -> None:
        """Save what is not saved yet."""
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)
        if self.log.changes != self._saved:
            try:
                self.file.write(self.log.remember())
            except OSError as error:
                self._fails(error)

    # Reports

    def complaints(self) -> list[str]:
        """Return what an operator should do something about, one sentence each."""
        told = []
        if self.bridge.unknown and not self.config.want:
            told.append(
                f"The broker at {self.host}:{self.port} has {self.bridge.unknown} subscriptions that its log did not "
                "tell us, so their clients get nothing from other sites: let these clients subscribe again, or name "
                "their filters in mqtt.want."
            )
        if self._trouble:
            told.append(
                f"What the broker's clients want cannot be saved in {self.file.path}: {self._trouble}. After a restart "
                "they would get nothing: name a file that can be written in mqtt.learn_file."
            )
        if self.log.unlearned:
            told.append(
                f"There is no room for {self.log.unlearned} subscriptions of the broker's clients: name wider filters "
                "in mqtt.want."
            )
        return told

    def metrics(self) -> dict[str, int]:
        return {
            "sidecar filters learned": len(self.log.filters),
            "sidecar subscriptions unknown": self.bridge.unknown,
            "sidecar clients ended": self.bridge.counts.ended if self.bridge.counts is not None else 0,
            "sidecar clients lapsed": self.log.lapses,
            "sidecar subscriptions forgotten": self.log.forgotten,
            "sidecar subscriptions not learned": self.log.unlearned,
            "sidecar log gaps": self.gaps,
            "sidecar log unread": self.log.unread,
        }
