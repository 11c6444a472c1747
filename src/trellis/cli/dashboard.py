"""`trellis dashboard`: a page that shows a running mesh, or a recorded run of the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trellis.cli.common import examples, note, say
from trellis.errors import InputError

EXAMPLE = examples(
    "trellis dashboard 127.0.0.1:9001 127.0.0.1:9002",
    "trellis dashboard --replay run --listen 127.0.0.1:8080",
)


def dashboard(
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="HOST:PORT", help="Admin ports of nodes.", show_default=False)
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", help="A run recorded by `trellis simulate --record`.", metavar="RUN"),
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", help="Where the page is served. Port 0: any free one.", metavar="HOST:PORT")
    ] = "127.0.0.1:8080",
    ca: Annotated[Path | None, typer.Option("--ca", help="TLS to nodes: who signs.", metavar="FILE")] = None,
    cert: Annotated[Path | None, typer.Option("--cert", help="TLS to nodes: a certificate.", metavar="FILE")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="TLS to nodes: its key.", metavar="FILE")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve the page beyond loopback. It has no password.")
    ] = False,
) -> None:
    """Serve a page with the identifier circle, topics, events and series, until Ctrl-C.

    Give the admin ports of the nodes (admin_listen in node.toml), or a recorded run.
    """
    from trellis.cli.live import tls_context
    from trellis.live.addresses import parse_address, show_address
    from trellis.live.config import is_loopback
    from trellis.live.dashboard import Dashboard, serve_until_stopped
    from trellis.live.run import run_loop

    if (replay is None) == (not nodes):
        raise InputError("", "nothing to show, or two things", "name admin ports of nodes, or a run with --replay")
    host = parse_address(listen, "--listen")[0]
    if not insecure and not is_loopback(host):
        raise InputError("--listen", f"{host} is beyond loopback and the page has no password", "say --insecure")
    for one in nodes or ():
        parse_address(one)

    async def work() -> None:
        if replay is not None:
            from trellis.lab.film import film

            shown = Dashboard.of_recording(film(replay))
        else:
            shown = Dashboard(nodes or (), tls=tls_context(ca, cert, key), on_trouble=note)
        shown.bind(listen)
        say(f"dashboard: http://{show_address(host, shown.port)}/")
        await serve_until_stopped(shown)

    run_loop(work())
