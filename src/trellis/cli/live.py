"""`trellis node`, `trellis pub`, `trellis sub`: run a live node, publish at one, subscribe at one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import trellis
from trellis.cli.common import AsJson, as_line, examples, note, say, setting
from trellis.cli.values import LOG_LEVELS, among
from trellis.errors import InputError

if TYPE_CHECKING:
    import ssl

    from trellis.live.received import Message

NODE_EXAMPLE = examples(
    "trellis node --name a --listen 127.0.0.1:7001 --client-listen 127.0.0.1:7101",
    "trellis node --name a --print-config > node.toml",
    "trellis node --config node.toml --set omen.period_ms=500 --log-json",
)
PUB_EXAMPLE = examples("trellis pub news hello --at 127.0.0.1:7101")
SUB_EXAMPLE = examples("trellis sub news weather --at 127.0.0.1:7101 --count 10")

At = Annotated[str, typer.Option("--at", help="A node's address for clients.", metavar="HOST:PORT")]
Ca = Annotated[Path | None, typer.Option("--ca", help="TLS: who signs the cluster's certificates.", metavar="FILE")]
Cert = Annotated[Path | None, typer.Option("--cert", help="TLS: this client's certificate.", metavar="FILE")]
Key = Annotated[Path | None, typer.Option("--key", help="TLS: its key.", metavar="FILE")]
User = Annotated[str | None, typer.Option("--user", help="Your user name, for a node with an access list.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help="Its first line is the password, or a token (JWT).", metavar="FILE"),
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds in which the node must be reached.")]
_AT = "127.0.0.1:7101"
_PASSWORDS = "give mqtt.broker_password_file, or TRELLIS_MQTT_BROKER_PASSWORD in the environment"


def node(
    config: Annotated[Path | None, typer.Option("--config", "-c", help="node.toml.", metavar="FILE")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Its name, unique in the cluster.")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Nodes of other clusters are cut off.")] = None,
    listen: Annotated[str | None, typer.Option("--listen", help="Where peers connect.", metavar="HOST:PORT")] = None,
    advertise: Annotated[
        str | None, typer.Option("--advertise", help="Where others reach it, if elsewhere.", metavar="HOST:PORT")
    ] = None,
    client_listen: Annotated[
        str | None, typer.Option("--client-listen", help="Where clients connect.", metavar="HOST:PORT")
    ] = None,
    admin_listen: Annotated[
        str | None,
        typer.Option("--admin-listen", help="Where /metrics and /overlay.json are read.", metavar="HOST:PORT"),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="Nodes of the cluster, with commas between.", metavar="HOST:PORT,...")
    ] = None,
    topics: Annotated[
        str | None, typer.Option("--topics", help="Subscribed to for good, with commas between.", metavar="TOPIC,...")
    ] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Listen beyond loopback without TLS.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any key of node.toml; may be repeated.", metavar="KEY=VALUE", show_default=False),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print a whole node.toml, every key explained, and stop.")
    ] = False,
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level",
            help="debug, info, warning or error; to standard error.",
            metavar="LEVEL",
            autocompletion=among(LOG_LEVELS),
        ),
    ] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object a line.")] = False,
    parent: Annotated[int | None, typer.Option("--parent", hidden=True)] = None,  # ends when this process does
    as_json: AsJson = False,
) -> None:
    """Run one node of a live mesh, until SIGTERM or Ctrl-C: it then leaves in order.

    Every key of node.toml can also be given as TRELLIS_... in the environment: TRELLIS_OMEN_PERIOD_MS=500.
    """
    from trellis.live.config import passwords_in, read_config
    from trellis.live.log import start_logging
    from trellis.live.run import run_loop, run_node

    if parent is not None:
        from trellis.live.parent import die_with

        die_with(parent)
    flags: dict[str, object] = dict(setting(one) for one in settings or ())
    named = {
        "name": name,
        "cluster": cluster,
        "listen": listen,
        "advertise": advertise,
        "client_listen": client_listen,
        "admin_listen": admin_listen,
        "seeds": seeds,
        "topics": topics,
        "insecure": insecure,
    }
    flags |= {key: value for key, value in named.items() if value is not None}
    for one in passwords_in(flags):
        note(f"warning: --set {one} carries a password, and every user of this machine can read it (ps): {_PASSWORDS}")
    if print_config:
        from trellis.live.explain import config_lines

        if config is None and "TRELLIS_NAME" not in os.environ:
            flags.setdefault("name", "a")
        for line in config_lines(read_config(config, os.environ, flags)):
            say(line)
        return
    start_logging(log_level, log_json)

    def is_up(about: dict[str, object]) -> None:
        if as_json:
            say(json.dumps(about))
        else:
            where = f"peers {about['listen']}, clients {about['client_listen']}"
            others = {"admin_listen": "admin", "mqtt_listen": "MQTT", "mqtt_broker": "beside the broker at"}
            where += "".join(f", {word} {about[key]}" for key, word in others.items() if key in about)
            say(f"node {about['name']} of {about['cluster']}: {where}")
        sys.stdout.flush()

    run_loop(run_node(read_config(config, os.environ, flags), is_up))


def pub(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="Without it: each line of standard input.")
    ] = None,
    at: At = _AT,
    timeout: Timeout = 10.0,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    user: User = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Publish a message, and wait until enough nodes hold it. Exits 2 if that takes too long."""
    from trellis.live.log import one_line
    from trellis.live.run import run_loop

    payloads = [message.encode()] if message is not None else sys.stdin.buffer

    async def work() -> None:
        tls, password = tls_context(ca, cert, key), _password(password_file)
        async with trellis.connect(at, tls=tls, timeout_s=timeout, user=user, password=password) as client:
            for payload in payloads:
                receipt = await client.publish(topic, payload if message is not None else payload.rstrip(b"\r\n"))
                holders = one_line(", ".join(receipt.holders))
                if as_json:
                    say(json.dumps({"topic": topic, "sequence": receipt.sequence, "holders": receipt.holders}))
                else:
                    note(f"acknowledged: {receipt.copies} {'copy' if receipt.copies == 1 else 'copies'} ({holders})")

    run_loop(work())


def sub(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)],
    at: At = _AT,
    count: Annotated[int | None, typer.Option("--count", "-n", help="Stop after so many.", min=1)] = None,
    timeout: Timeout = 10.0,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    user: User = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Print messages on some topics, one line each, until Ctrl-C."""
    from trellis.live.run import run_loop

    async def work() -> None:
        tls, password = tls_context(ca, cert, key), _password(password_file)
        async with trellis.connect(at, tls=tls, timeout_s=timeout, user=user, password=password) as client:
            for topic in topics:
                await client.subscribe(topic)
            note(f"subscribed to {', '.join(topics)}")
            left = count
            async for message in client:
                _show(message, as_json)
                left = left - 1 if left is not None else None
                if left == 0:
                    return

    run_loop(work())


def _show(message: Message, as_json: bool) -> None:
    """Print a message. If an MQTT client published it, show the topic that the client gave it."""
    from trellis.live.log import one_line

    mqtt = message.mqtt
    text = message.payload.decode("utf-8", "backslashreplace")
    if as_json:
        about: dict[str, Any] = {"topic": message.topic, "origin": message.origin, "sequence": message.sequence}
        about |= {"mqtt_topic": mqtt.topic, "retain": mqtt.retain} if mqtt is not None else {}
        say(as_line({**about, "payload": text}))
    else:
        # A terminal obeys what it is sent. A pipe gets the payload as it is.
        topic = mqtt.topic if mqtt is not None else message.topic
        say(f"{one_line(topic)}\t{one_line(text) if sys.stdout.isatty() else text}")
    sys.stdout.flush()


def _password(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.readline(8_192).rstrip(b"\r\n")
    except OSError as error:
        remedy = "name a file that this user can read"
        raise InputError("--password-file", f"{path}: {(error.strerror or str(error)).lower()}", remedy) from None


def tls_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    from trellis.live.config import TlsConfig
    from trellis.live.tls import make_context

    if not (ca or cert or key):
        return None
    if not (ca and cert and key):
        raise InputError("--ca, --cert, --key", "they belong together", "give all three, or none")
    return make_context(TlsConfig(cert=str(cert), key=str(key), ca=str(ca)), server=False, prefix="--")
