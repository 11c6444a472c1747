"""`trellis doctor`: find out what is wrong with a configuration or a running node.  [docs/runbook.md, Doctor]

`examine` checks a configuration on the machine where the node runs or will run. `examine_running` asks the admin port
of a running node. Each check returns findings, which are sentences for an operator. A finding of level `wrong` keeps
messages from flowing, now or soon. A `note` does not.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from trellis.errors import InputError
from trellis.live.addresses import parse_address, show_address
from trellis.live.clock import life_now
from trellis.live.config import NodeConfig
from trellis.live.doctor_files import check_mqtt_tls, check_named_files, check_tls
from trellis.live.files import files_needed
from trellis.live.findings import Finding, good, note, refused, sentence, wrong
from trellis.live.frames import Address
from trellis.live.http_client import HttpClient
from trellis.live.listen import REMEDIES
from trellis.live.mqtt.probing import RIGHTS
from trellis.live.mqtt.sidecar import parse_broker
from trellis.live.probe import Greeting, ask_broker, greet, names_shown, shake_hands, what_listens
from trellis.live.reasons import is_refused_by_tls, tls_remedy, why_not
from trellis.live.tls import SPEAKS_TLS, load_node
from trellis.live.view import Snapshot
from trellis.protocols.mqtt.echoes import PROBES
from trellis.protocols.mqtt.learn import PROBE_CLIENTS
from trellis.protocols.mqtt.probes import probe_topic

CLOCK_S_MAX = 2.0  # largest difference of two clocks that is no finding
_EVERYWHERE = ("0.0.0.0", "::")  # hosts that stand for all addresses of this machine
_CLOSES = "TLS with it fails: it closes the connection when it has seen our certificate."
_PRIVILEGED = 1_024  # ports below need root
_NAME_LETTERS_MAX = 128  # most letters of a client's name that are shown
_PEER_TIMEOUT_S = 5.0


async def examine(
    config: NodeConfig, timeout_s: float = _PEER_TIMEOUT_S, at: str = "", at_tls: ssl.SSLContext | None = None
) -> list[Finding]:
    """Check a configuration on this machine: files, ports, limits, the clock, seeds, the broker, and the node itself.

    If the node runs, its admin port is asked as well: the one at `at`, or the configured one if `at` is empty.
    """
    findings = check_tls(config)
    tls = None
    if config.tls:
        with suppress(InputError):  # `check_tls` has reported it
            tls = load_node(config.tls, config.name).dialling
    findings += [*check_mqtt_tls(config), *check_named_files(config)]
    busy, is_running = await check_ports(config, tls, timeout_s)
    findings += [*busy, *check_files(config), *check_clock()]
    if at:
        itself = await examine_running(at, at_tls, config)
    else:
        itself = await _ask_itself(config, tls) if is_running else []
    is_well = is_running and all(finding.level == "good" for finding in itself)
    if config.tls and tls is None:
        if config.seeds:
            findings.append(note("seeds", "They were not dialed.", "Correct the certificates first."))
    else:
        each = [check_seed(config, seed, tls, is_running, is_well, timeout_s) for seed in config.seeds]
        for some in await asyncio.gather(*each):
            findings += some
    if config.mqtt.broker:
        findings += await check_broker(config, timeout_s)
    return findings + itself


async def _ask_itself(config: NodeConfig, tls: ssl.SSLContext | None) -> list[Finding]:
    """Ask the configured admin port of this node, which runs, about its health."""
    where = "admin_listen"
    if not config.admin_listen or not parse_address(config.admin_listen)[1]:
        return [note(where, "The node runs, and has no fixed port where it says how it is.", "Set admin_listen.")]
    if config.tls and tls is None:
        return [note(where, "The node runs, and was not asked how it is.", "Correct the certificates first.")]
    return await examine_running(show_address(*_here(config.admin_listen)), tls, config)


# This machine


def listeners(config: NodeConfig) -> dict[str, str]:
    """Return the addresses that the node listens at, by key of node.toml."""
    given = {"listen": config.listen, "client_listen": config.client_listen, "admin_listen": config.admin_listen}
    mqtt = {"mqtt.listen": config.mqtt.listen, "mqtt.websocket": config.mqtt.websocket}
    return {key: text for key, text in {**given, **mqtt}.items() if text}


async def check_ports(config: NodeConfig, tls: ssl.SSLContext | None, timeout_s: float) -> tuple[list[Finding], bool]:
    """Return findings about listeners that cannot be bound, and whether the node of this configuration runs already."""
    findings: list[Finding] = []
    seen: dict[tuple[str, int], str] = {}
    is_this: bool | None = False
    for key, text in listeners(config).items():
        host, port = parse_address(text)
        if port and (host, port) in seen:
            findings.append(
                wrong(key, f"{text} is the address of {seen[host, port]}, too.", "Give each a port of its own.")
            )
            continue
        seen[host, port] = key
        error = _try_bind(host, port)
        if error is None:
            continue
        is_taken = error.errno == errno.EADDRINUSE
        if is_taken and key == "listen":
            is_this = await _is_this_node(config, tls, timeout_s)
            if is_this:
                return [note(key, f"{text} is taken by this node, which runs.", "The ports were not checked.")], True
        if is_taken and is_this is None:
            findings.append(note(key, f"{text} is taken, perhaps by this node.", "Correct the certificates first."))
        else:
            findings.append(_cannot_bind(key, text, port, error))
    return findings or [good("ports", "Every listener can be bound.")], False


def _try_bind(host: str, port: int) -> OSError | None:
    """Bind an address for a moment. Return the error if that fails."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        socket.create_server(address[:2], family=family).close()
    except OSError as error:
        return error
    return None


def _cannot_bind(key: str, text: str, port: int, error: OSError) -> Finding:
    """Return the finding for a listener that cannot be bound, with a remedy for this error."""
    if isinstance(error, socket.gaierror):
        return wrong(
            key, f"The host of {text} cannot be resolved: {error.strerror}.", "Give an address of this machine."
        )
    if error.errno == errno.EADDRINUSE:
        return wrong(
            key,
            f"{text} is taken by another program.",
            f"Find it (ss -ltnp 'sport = :{port}'), or choose another port.",
        )
    if error.errno == errno.EACCES and port < _PRIVILEGED:
        return wrong(key, f"Port {port} is privileged: only root may listen there.", "Choose a port from 1024 up.")
    if error.errno == errno.EADDRNOTAVAIL:
        return wrong(
            key, f"{text} is no address of this machine.", "Listen on one that is, and use advertise for others."
        )
    remedy = REMEDIES.get(error.errno or 0, "choose another address")
    what = f"{text} cannot be bound: {(error.strerror or str(error)).lower()}."
    return wrong(key, what, f"{remedy[0].upper()}{remedy[1:]}.")


async def _is_this_node(config: NodeConfig, tls: ssl.SSLContext | None, timeout_s: float) -> bool | None:
    """Return whether the node of this configuration listens. None: without good certificates we cannot tell."""
    address = _here(config.listen)
    if config.tls and tls is None:  # no node accepts us, but each shows its own certificate
        try:
            return config.name in await names_shown(address, config.tls.ca, timeout_s)
        except OSError:
            return None
    greeting = await greet(address, _me(config), config.cluster, config.overlay, tls, timeout_s)
    return greeting.refused is not None and greeting.refused.kind in ("taken", "self")


def _here(address: str) -> tuple[str, int]:
    """Return an address at which this machine can dial one of its own listeners."""
    host, port = parse_address(address)
    return ("::1" if ":" in host else "127.0.0.1") if host in _EVERYWHERE else host, port


def _me(config: NodeConfig) -> Address:
    """Return the address for our hello. Incarnation 0 tells the peer that it is a question of `trellis doctor`."""
    host, port = parse_address(config.advertise or config.listen)
    return Address(config.name, 0, host, port or 1)


def check_files(config: NodeConfig) -> list[Finding]:
    """Check whether the process may open as many files as the configuration needs."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # the hard limit: a node raises its own limit up to it
    needed = files_needed(config)
    if most == resource.RLIM_INFINITY or needed <= most:
        return [good("limits", f"{needed} open files are enough, and they are allowed.")]
    what = f"{needed} open files are needed for clients_max, connections_max and handshakes_max"
    remedy = "Raise the limit (ulimit -Hn, LimitNOFILE), or lower clients_max."
    return [wrong("limits.clients_max", f"{what}, and {most} are allowed.", remedy)]


def check_clock(now_s: float | None = None) -> list[Finding]:
    """Check that the clock is not before the day when this program was installed."""
    now_s = time.time() if now_s is None else now_s
    built_s = Path(__file__).stat().st_mtime
    if now_s < built_s - 86_400:
        day = time.strftime("%Y-%m-%d", time.gmtime(now_s))
        what = f"It says {day}, which is before this program was installed."
        return [wrong("clock", what, "Synchronize it: a node's incarnation is the time of its start.")]
    return []


# Other nodes and the broker


async def check_seed(
    config: NodeConfig, seed: str, tls: ssl.SSLContext | None, is_running: bool, is_well: bool, timeout_s: float
) -> list[Finding]:
    """Send a hello to a seed, and report its answer. `is_running`: this node runs. `is_well`: it is healthy, too."""
    where = f"seed {seed}"
    if seed in (config.listen, config.advertise):
        return [note(where, "It is this node itself.", "")] if len(config.seeds) > 1 else []
    greeting = await greet(parse_address(seed), _me(config), config.cluster, config.overlay, tls, timeout_s)
    if greeting.failure:
        return [await _not_a_peer(where, parse_address(seed), greeting, tls, timeout_s)]
    if greeting.hello is not None:
        ahead_s = (greeting.hello.address.incarnation - life_now()) / 10
        if ahead_s > CLOCK_S_MAX:
            what = f"{greeting.hello.address.node} started {ahead_s:.0f} s in the future by this machine's clock."
            return [wrong(where, what, "Synchronize the clocks of both machines.")]
        return [good(where, f"{greeting.hello.address.node} accepts this node.")]
    assert greeting.refused is not None
    kind, text = greeting.refused.kind, greeting.refused.text
    if kind == "old" and is_well:
        return [good(where, "It is connected with this node, which runs.")]
    if kind == "old" and is_running:
        return [note(where, f"It is connected with a node named {config.name}: with this one, or with another.", "")]
    if kind == "taken" and is_running and _is_own_address(config, seed):
        return [note(where, "It is this node itself.", "")]
    if kind in ("old", "taken"):
        what = f"The name {config.name} is taken: {text}."
        return [
            wrong(where, what, "Give each node a name of its own; end the other one first if it is an old process.")
        ]
    return [wrong(where, f"It refuses this node ({kind}): {text}.", _REMEDIES.get(kind, "See its log."))]


def _is_own_address(config: NodeConfig, seed: str) -> bool:
    """Return whether a seed is this node's own mesh port under another host name, as far as this machine can tell."""
    host, port = parse_address(seed)
    listen_host, listen_port = parse_address(config.listen)
    if listen_host in _EVERYWHERE and port == listen_port:
        return any(_try_bind(address, 0) is None for address in _addresses_of(host))
    own = [parse_address(text) for text in (config.listen, config.advertise) if text]
    return any(port == own_port and _addresses_of(host) & _addresses_of(own_host) for own_host, own_port in own)


def _addresses_of(host: str) -> set[str]:
    """Return the IP addresses of a host; none if it cannot be resolved."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return set()


async def _not_a_peer(
    where: str, address: tuple[str, int], greeting: Greeting, tls: ssl.SSLContext | None, timeout_s: float
) -> Finding:
    """Return why a seed gave no hello: nothing listens, TLS fails, or it is another kind of port."""
    if greeting.tls_remedy:
        return wrong(where, f"TLS with it fails: {greeting.failure}.", sentence(greeting.tls_remedy))
    if greeting.has_tls and tls is not None and await shake_hands(address, tls, timeout_s) == "refused":
        return wrong(where, _CLOSES, sentence(tls_remedy(ConnectionResetError())))
    there = await what_listens(address, tls if greeting.has_tls else None, timeout_s) if greeting.is_connected else ""
    if there:
        return wrong(where, f"It is {there}, not a mesh port.", "Name the listen address of that node, or advertise.")
    if greeting.is_connected and tls is not None and not greeting.has_tls:
        return wrong(
            where, f"It is not reached: {greeting.failure}.", "Configure [tls] there, or name another address."
        )
    return wrong(where, f"It is not reached: {greeting.failure}.", "Start it, or look at the address and the network.")


_REMEDIES = {
    "cluster": "Give both the same cluster.",
    "overlay": "Give both the same overlay.",
    "tls": "Configure [tls] here.",
    "version": "Upgrade the older one.",
    "certificate": "Make a certificate that carries this name: trellis certs node NAME.",
}


async def check_broker(config: NodeConfig, timeout_s: float = _PEER_TIMEOUT_S) -> list[Finding]:
    """Connect to the sidecar's broker, subscribe its filters, and look for other sidecars there."""
    try:
        host, port, user, password, tls = parse_broker(config.mqtt.broker, config.mqtt)
    except InputError as error:
        return [refused(error)]
    where = f"broker {show_address(host, port)}"
    client = f"{PROBE_CLIENTS}{os.getpid()}"
    answer = await ask_broker((host, port), tls, user, password, config.mqtt, client, timeout_s)
    if answer.failure:
        return [
            wrong(where, f"It is not used: {answer.failure}.", "Start it, or look at mqtt.broker and its password.")
        ]
    remedy = "Allow it in the broker's access rules, or change take and want."
    findings = [
        wrong(where, f'It refuses the filter "{topic_filter}": {why}.', remedy) for topic_filter, why in answer.refused
    ]
    if answer.is_unheard and config.mqtt.take:
        what = "It accepts the filters, and does not send what is published: a message to ourselves did not come back."
        findings.append(wrong(where, what, RIGHTS))
    me = probe_topic(f"trellis-{config.name}")
    others = [
        sidecar for sidecar in answer.sidecars if PROBES + sidecar != me and not sidecar.startswith(PROBE_CLIENTS)
    ]
    for sidecar in others:
        what = f"Another sidecar, {sidecar[:_NAME_LETTERS_MAX]}, is there, so messages would come more than once."
        findings.append(
            wrong(where, what, "Keep one sidecar beside a broker, and no bridge between brokers of the mesh.")
        )
    findings = findings or [good(where, "It accepts this node and its filters.")]
    if answer.no_probe:
        findings.append(
            note(where, f"It cannot be seen whether it sends what is published: {answer.no_probe}.", RIGHTS)
        )
    return findings


# A running node


async def examine_running(address: str, tls: ssl.SSLContext | None, config: NodeConfig | None) -> list[Finding]:
    """Ask an admin port for the node's health and clock. `config`: None, or the configuration that it should have."""
    client = HttpClient(address, tls)
    try:
        began = time.time()
        status, body = await client.get("/overlay.json", timeout_s=_PEER_TIMEOUT_S)
        running = _RUNNING.decode(body) if status == 200 else None
        took_s = time.time() - began
        _, health = await client.get("/healthz", timeout_s=_PEER_TIMEOUT_S)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        return [await _not_an_admin_port(address, error, tls)]
    finally:
        client.close()
    if running is None and SPEAKS_TLS.encode() in body:
        return [wrong(address, "It speaks TLS, and this command did not.", "Give --ca, --cert and --key.")]
    if running is None:
        return [wrong(address, f"It answers with status {status}.", "Name the admin_listen of a node.")]
    findings = [*_complaints(address, health), *_other_node(address, running, config)]
    apart_s = running.time_ms / 1_000 - began - took_s / 2
    if running.time_ms and abs(apart_s) > CLOCK_S_MAX + took_s:
        what = f"Its clock differs from this machine's by {apart_s:+.0f} s."
        findings.append(wrong(address, what, "Synchronize both: a node's incarnation is the time of its start."))
    if running.peers_ahead_s > CLOCK_S_MAX:
        what = f"One of its peers started {running.peers_ahead_s:.0f} s in the future by its clock."
        findings.append(wrong(address, what, "Synchronize the clocks of all nodes."))
    return findings or [good(address, f"{running.node} runs and is healthy.")]


async def _not_an_admin_port(address: str, error: Exception, tls: ssl.SSLContext | None) -> Finding:
    """Return why an admin port gave no answer: nothing listens, TLS fails, or it is another kind of port."""
    why = why_not(error, has_tls=tls is not None)
    if is_refused_by_tls(error):
        return wrong(address, f"TLS with it fails: {why}.", sentence(tls_remedy(error)))
    host_port, there = parse_address(address), ""
    if not isinstance(error, ConnectionRefusedError | socket.gaierror):
        shaken = await shake_hands(host_port, tls, _PEER_TIMEOUT_S) if tls is not None else "failed"
        if shaken == "refused":
            return wrong(address, _CLOSES, sentence(tls_remedy(error)))
        spoken = tls if shaken == "accepted" else None
        there = await what_listens(host_port, spoken, _PEER_TIMEOUT_S, asks_mesh=True)
    if there:
        return wrong(address, f"It is {there}, not an admin port.", "Name the admin_listen of a node.")
    remedy = "Is it an admin_listen, and does the node run? With [tls], give --ca, --cert and --key."
    return wrong(address, f"No node answers there: {why}.", remedy)


class Running(Snapshot, frozen=True):
    """/overlay.json with the fields that only the doctor reads."""

    cluster: str = ""
    time_ms: int = 0
    peers_ahead_s: float = 0.0


_RUNNING = msgspec.json.Decoder(Running)


def _complaints(address: str, body: bytes) -> Iterable[Finding]:
    """Yield a finding for each line of /healthz."""
    for line in body.decode("utf-8", "replace").splitlines():
        if line != "ok":
            yield wrong(address, line, "")


def _other_node(address: str, running: Running, config: NodeConfig | None) -> Iterable[Finding]:
    """Yield findings if the node that answers is not the one of the configuration."""
    if config is None:
        return
    expected: Mapping[str, tuple[str, str]] = {
        "name": (config.name, running.node),
        "cluster": (config.cluster, running.cluster),
        "overlay": (config.overlay, running.overlay),
    }
    for key, (wanted, there) in expected.items():
        if there and wanted != there:
            what = f'The node there has {key} "{there}", and the configuration says "{wanted}".'
            yield wrong(address, what, "Name the admin port of this node, or restart it.")
