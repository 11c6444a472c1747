"""`trellis doctor`: report what is wrong with a configuration, or with a running node."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from trellis.cli.common import AsJson, examples, show
from trellis.cli.live import Ca, Cert, Key, tls_context
from trellis.errors import InputError

EXAMPLE = examples(
    "trellis doctor --config node.toml",
    "trellis doctor --at 127.0.0.1:9001",
    "trellis doctor --config node.toml --at 127.0.0.1:9001 --json",
)


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The node.toml to check.", metavar="FILE", show_default=False)
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Admin port of a running node.", metavar="HOST:PORT", show_default=False),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that each seed and broker may take.")] = 5.0,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Check a configuration on this machine, a running node, or both, and say what is wrong and what to do.

    Looks at certificates, ports, open files, clocks, seeds (each is dialed), the broker's filters, and names that are
    taken. Run it where the node runs, as the node's user. Exits with 1 if something is wrong.
    """
    from trellis.live.addresses import parse_address
    from trellis.live.config import NodeConfig, read_config
    from trellis.live.doctor import examine, examine_running
    from trellis.live.findings import Finding, refused
    from trellis.live.run import run_loop
    from trellis.live.tls import make_context

    if config is None and at is None:
        raise InputError("", "nothing to check", "give --config FILE, --at HOST:PORT, or both")
    if at is not None:
        parse_address(at, "--at")
    tls = tls_context(ca, cert, key)
    findings: list[Finding] = []
    read: NodeConfig | None = None
    if config is not None:
        try:
            read = read_config(config, os.environ, {})
        except InputError as error:
            findings.append(refused(error, str(config)))

    if tls is None and read is not None and read.tls and at is not None:
        with suppress(InputError):  # Errors in these files are among the findings.
            tls = make_context(read.tls, server=False)

    async def work() -> list[Finding]:
        if read is not None:
            return await examine(read, timeout, at or "", tls)
        return await examine_running(at, tls, None) if at is not None else []

    findings += run_loop(work())
    count = sum(one.level == "wrong" for one in findings)
    verdict = "All is well." if not count else f"{count} {'thing is' if count == 1 else 'things are'} wrong."
    told = [{"level": one.level, "where": one.where, "what": one.what, "remedy": one.remedy} for one in findings]
    show({"wrong": count, "findings": told}, as_json, [*(one.line() for one in findings), verdict])
    if count:
        raise typer.Exit(1)
