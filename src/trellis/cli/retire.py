"""`trellis retire`: end a site's membership, and remove its session from its broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trellis.cli.common import AsJson, examples, note, show
from trellis.errors import InputError

if TYPE_CHECKING:
    from trellis.live.config import NodeConfig
    from trellis.live.mqtt.retire import Waiting

EXAMPLE = examples(
    "trellis retire --config node-3.toml",
    "trellis retire --config node-3.toml --drop",
    "trellis retire --broker mqtt://127.0.0.1:1883 --client trellis-site-3",
)
_TOPICS_TOLD = 5
_LINES_READ = (
    "To look behind them, lines of the broker's log were taken. If clients subscribed to something new since the node "
    "stopped, restart them after it, or name their filters in mqtt.want."
)


def retire(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="node.toml of the site.", metavar="FILE", show_default=False)
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(help="Without --config: the broker, as in mqtt.broker.", metavar="URL", show_default=False),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option(
            help="With --broker: the name of the session, trellis-NAME for a node NAME.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    drop: Annotated[
        bool, typer.Option("--drop", help="End the session even if messages wait in it. They are lost.")
    ] = False,
    keep_learned: Annotated[
        bool, typer.Option("--keep-learned", help="Keep the file that remembers the clients' filters: for a new name.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Retire a site: its node leaves in order, and its session at the broker ends.

    The node is told to leave if it runs on this machine. Then the session at its broker ends, which would otherwise
    keep all that is published there until mqtt.broker_session_s is over, and the file of learned filters is removed.
    Exits 1 if messages wait in the session, or may wait, and --drop is not given: start the node again to carry them
    into the mesh.
    With --broker, stop the node first: a broker cuts off a node that still runs when another client opens its session.
    """
    from trellis.live.config import read_config
    from trellis.live.run import run_loop

    if (config is None) == (broker is None) or (client is not None and broker is None):
        raise InputError("", "no site is named, or two", "give --config, or --broker and --client")
    if config is not None:
        chosen, who = read_config(config, os.environ, {}), ""
        if not chosen.mqtt.broker:
            raise InputError(str(config), "the node is no sidecar: it has no mqtt.broker", "end it with SIGTERM")
    else:
        if not client:
            raise InputError("--broker", "it has many sessions", "name one with --client")
        chosen, who = read_config(None, {}, {"name": "retired", "mqtt.broker": broker}), client
    told = run_loop(_retire(chosen, who, drop, keep_learned))
    show(told, as_json, told["said"])
    if not told["session_ended"]:
        raise typer.Exit(1)


def _warn(client: str) -> None:
    """Say what happens to a node that still runs before it happens. A broker does not tell who is connected."""
    note(f"If a node still uses the session {client}, the broker cuts it off for a moment now. Stop that node first.")
    if sys.stdin.isatty():
        typer.confirm("Is it stopped?", abort=True, err=True)


async def _retire(config: NodeConfig, client: str, drop: bool, keep_learned: bool) -> dict[str, Any]:
    """Open the session. `client` names it if there is no configuration; empty: the configuration names it."""
    from trellis.live.mqtt.learned import LearnedFile, learned_path
    from trellis.live.mqtt.retire import BrokerSession
    from trellis.live.retire import make_leave

    session = BrokerSession(client or f"trellis-{config.name}", config.mqtt)
    said: list[str] = []
    told: dict[str, Any] = {"client": session.client, "broker": session.address, "left": False, "said": said}
    if client:
        _warn(client)
    else:
        note(f"asking node {config.name} to leave, if it runs")
        departure = await make_leave(config)
        told["left"] = departure is not None
        if departure is not None:
            said.append(
                f"Node {config.name} (process {departure.pid}) was told to leave, and has left after "
                f"{departure.seconds:.1f} s."
            )
        else:
            said.append(f"Node {config.name} does not run.")
    waiting = await session.look(drops=drop)
    said += _say_waiting(waiting, session.client, session.address)
    told |= {"session": waiting.is_there, "waiting": waiting.messages, "waiting_is_more": waiting.is_more}
    told |= {"session_ended": False, "file_removed": False}
    if not waiting.is_empty and not drop:
        said.append(
            "Nothing was ended. Start the node again to carry them into the mesh, and retire it later; or drop them "
            "with --drop."
        )
        if waiting.lines:
            said.append(_LINES_READ)
        return told
    await session.end()
    told["session_ended"] = True
    if waiting.is_there:
        said.append(f"The session {session.client} at {session.address} has ended.")
    if not client and not keep_learned:
        file = LearnedFile(learned_path(config.mqtt.learn_file, session.client, session.host, session.port))
        told["file_removed"] = file.remove()
        if told["file_removed"]:
            said.append(f"The file {file.path} was removed.")
    if not client:
        said.append(f"If {config.name} is among the seeds of other nodes, take it out there.")
    return told


def _say_waiting(waiting: Waiting, client: str, address: str) -> Iterator[str]:
    if not waiting.is_there:
        yield f"The broker at {address} has no session {client}."
        return
    if waiting.is_empty:
        yield f"Nothing waits in the session {client} at {address}."
        return
    if not waiting.messages:
        yield f"Messages may wait in the session {client} at {address}: the broker sends lines of its log all the time."
        return
    most = ", ".join(f"{topic} ({count})" for topic, count in waiting.topics.most_common(_TOPICS_TOLD))
    at_least = "At least " if waiting.is_more else ""
    noun = "message waits" if waiting.messages == 1 else "messages wait"
    others = f", and {len(waiting.topics) - _TOPICS_TOLD} other topics" if len(waiting.topics) > _TOPICS_TOLD else ""
    yield f"{at_least}{waiting.messages} {noun} in the session {client} at {address}: {most}{others}."
