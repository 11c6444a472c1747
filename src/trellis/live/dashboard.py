"""The dashboard: one page (`trellis/web/`), fed by the admin ports of nodes or by a recorded run.  [docs/dashboard.md]

    dashboard = Dashboard(["127.0.0.1:9001", "127.0.0.1:9002"])     or a function that returns the present addresses
    dashboard.bind("127.0.0.1:8080"); dashboard.serve(); ...; await dashboard.close()

    /             the page, which reads /mode.json first
    /mode.json    whether it shows a live mesh or a replay
    /mesh.json    the present state of the mesh
    /events       server-sent events: first all of /mesh.json, then one event for each change
    /replay.json  a recorded run: /mesh.json as of its beginning, and all its events

Each node is polled twice a second, in large meshes less often, over a connection that stays open. A node that refuses
or breaks the connection is shown as down at once. A node that does not answer within `SILENT_S` is shown as silent. The
answers go into a `MeshView`, which finds the changes.
"""

from __future__ import annotations

import asyncio
import gzip
import signal
import ssl
from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Any

import msgspec

from trellis.live.addresses import parse_address
from trellis.live.clock import wall_ms
from trellis.live.config import is_loopback
from trellis.live.http import Events, HttpServer, Limits, event
from trellis.live.http_client import HttpClient, NoAnswer
from trellis.live.http_messages import Answer, Request
from trellis.live.reasons import why_not
from trellis.live.view import LIVING, SNAPSHOT, MeshView

SOURCES_MAX = 1_000  # Most admin ports that are polled. Further ones are left out.
POLL_S = 0.5  # shortest interval between two questions to the same node
ASKED_PER_S = 200  # Most questions to all nodes in a second. With more than 100 nodes each is asked less often.
SAMPLE_S = 1.0  # interval between two rows of the charts
SILENT_S = 3.0  # A node that does not answer for so long is silent.
_KINDS = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
_KINDS |= {"js": "text/javascript; charset=utf-8"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (("Content-Security-Policy", _POLICY), ("Referrer-Policy", "no-referrer"))
JSON = "application/json"


class Dashboard:
    """Poll the admin ports of a mesh, and serve the page that shows it."""

    def __init__(
        self,
        sources: Iterable[str] | Callable[[], Iterable[str]] = (),
        *,
        tls: ssl.SSLContext | None = None,
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`sources`: addresses of admin ports, or a function that returns them. `tls`: for admin ports with TLS.

        `on_trouble` is called with a sentence when a source has no answer, each time that the reason is a new one.
        """
        fixed = () if callable(sources) else tuple(sources)
        self._sources: Callable[[], Iterable[str]] = sources if callable(sources) else lambda: fixed
        self.view = MeshView()
        self.port = 0
        self._tls = tls
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._names: dict[str, str] = {}  # by source: the node that answered there last
        self._on_trouble = on_trouble
        self._troubles: dict[str, str] = {}  # by source: why there is no answer. The page shows it.
        self._events = Events(self._greeting)
        self._pages = {f"/{name}": page for name, page in pages().items()}
        self._pages["/"] = self._pages["/index.html"]
        self._replay: bytes | None = None  # /replay.json, compressed. None: the mesh is live.
        self._http: HttpServer | None = None
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    def of_recording(cls, replay: bytes) -> Dashboard:
        """Return a dashboard that shows a recorded run. `replay`: the content of /replay.json (`trellis.lab.film`)."""
        dashboard = cls()
        dashboard._replay = gzip.compress(replay, 5)
        return dashboard

    def bind(self, address: str) -> None:
        """Bind the port. Nothing is accepted before `serve`."""
        self._http = HttpServer(self.answer, Limits(), is_local=is_loopback(parse_address(address)[0]))
        self._http.bind(address)
        self.port = self._http.port

    def serve(self) -> None:
        """Accept connections, and begin to poll the nodes unless this is a replay."""
        assert self._http is not None
        self._http.serve()
        if self._replay is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        tasks = [*self._asking.values(), *([self._watching] if self._watching is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    def answer(self, request: Request) -> Answer | Events | None:
        """Return the answer to a request, or None for a path that does not exist."""
        if request.path in self._pages:
            return self._pages[request.path]
        if request.path == "/mode.json":
            return Answer(b'{"mode":"%s"}' % (b"live" if self._replay is None else b"replay"), JSON)
        if self._replay is not None:
            packed = (("Content-Encoding", "gzip"),)
            return Answer(self._replay, JSON, headers=packed) if request.path == "/replay.json" else None
        if request.path == "/mesh.json":
            return Answer(msgspec.json.encode(self._whole()), JSON)
        return self._events if request.path == "/events" else None

    # Polling

    async def _watch(self) -> None:
        """Follow the list of sources, and send changes and samples to all readers of /events."""
        loop = asyncio.get_running_loop()
        next_sample = loop.time()
        while True:
            self._hire()
            self.view.settle(_now_ms())
            self._say()
            if loop.time() >= next_sample:
                next_sample += max(SAMPLE_S, loop.time() - next_sample)
                sample = {**self.view.sample(_now_ms()), "troubles": self._troubles}
                self._events.say(event("sample", msgspec.json.encode(sample)))
            await asyncio.sleep(min(POLL_S, max(0.05, next_sample - loop.time())))

    def _hire(self) -> None:
        """Start a task for each new source, and end the tasks of sources that are no longer listed."""
        wanted = list(dict.fromkeys(self._sources()))[:SOURCES_MAX]
        for source in [source for source in self._asking if source not in wanted]:
            self._asking.pop(source).cancel()
            self._troubles.pop(source, None)
            self._lost(source, "down")
        for source in wanted:
            if source not in self._asking:
                self._asking[source] = asyncio.get_running_loop().create_task(self._ask(source))

    async def _ask(self, source: str) -> None:
        """Poll one source until the task is cancelled."""
        client, loop = HttpClient(source, self._tls), asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                try:
                    status, body = await client.get("/overlay.json", timeout_s=SILENT_S)
                    if status != 200:
                        raise ValueError(body[:200].decode("utf-8", "replace").strip() or f"status {status}")
                    snapshot = SNAPSHOT.decode(body)
                    self._names[source] = snapshot.node
                    self.view.take(snapshot, _now_ms())
                    self._troubles.pop(source, None)
                except (OSError, ValueError) as error:  # TimeoutError is an OSError; msgspec's errors are ValueErrors
                    self._lost(source, "silent" if isinstance(error, TimeoutError) else "down")
                    self._note_trouble(source, self._why(error))
                pause_s = max(POLL_S, len(self._asking) / ASKED_PER_S)
                await asyncio.sleep(max(pause_s - (loop.time() - began), pause_s / 4))
        finally:
            client.close()

    def _why(self, error: Exception) -> str:
        """Return why a source did not answer, for people."""
        if isinstance(error, NoAnswer) and self._tls is not None:
            return f"{error}; perhaps it does not accept the certificate (--cert)"
        return why_not(error, has_tls=self._tls is not None)

    def _note_trouble(self, source: str, why: str) -> None:
        """Remember why a source does not answer, and report it when the reason is a new one."""
        if self._troubles.get(source) != why:
            self._troubles[source] = why
            self._on_trouble(f"{source} does not answer: {why}")

    def _lost(self, source: str, how: str) -> None:
        """Show the node of a source that does not answer as down, silent or, if it was leaving, as left."""
        name = self._names.pop(source, None)
        if name is None or name in self._names.values():  # the node answers at another source
            return
        seen = self.view.nodes.get(name)
        if seen is not None and seen.state in LIVING:
            gone = "left" if seen.state == "leaving" else "silent" if how == "silent" else "down"
            self.view.down(name, gone, _now_ms())  # type: ignore[arg-type]

    def _say(self) -> None:
        """Send the changes since the last call to all readers of /events."""
        news = self.view.drain()
        if news and self._events.listeners:
            self._events.say(b"".join(event(kind, msgspec.json.encode(data)) for kind, data in news))

    def _greeting(self) -> bytes:
        """Return the first event for a new reader of /events: the whole mesh."""
        self._say()  # Send pending changes to the other readers first. The new one must not get them after the whole.
        return event("mesh", msgspec.json.encode(self._whole()))

    def _whole(self) -> dict[str, Any]:
        """Return the content of /mesh.json."""
        return {**self.view.whole(_now_ms()), "troubles": self._troubles}


def pages() -> dict[str, Answer]:
    """Return the files of `trellis/web/` as answers, by name."""
    answers: dict[str, Answer] = {}
    for file in files("trellis").joinpath("web").iterdir():
        kind = _KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            answers[file.name] = Answer(file.read_bytes(), kind, headers=_HEADERS)
    return answers


def _now_ms() -> int:
    return wall_ms()


async def serve_until_stopped(dashboard: Dashboard) -> None:
    """Serve until SIGTERM or SIGINT. It is for a process that does nothing else."""
    stopped = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stopped.set)
    dashboard.serve()
    try:
        await stopped.wait()
    finally:
        await dashboard.close()
