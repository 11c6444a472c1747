"""`trellis doctor`: check the files that a configuration names. Nothing is changed."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from trellis.errors import InputError
from trellis.live.access import Gate
from trellis.live.config import NodeConfig
from trellis.live.findings import Finding, good, note, refused, wrong
from trellis.live.mqtt.certificate import make_tls
from trellis.live.mqtt.learned import Damaged, LearnedFile, learned_path
from trellis.live.mqtt.passwords import read_passwords
from trellis.live.mqtt.sidecar import parse_broker
from trellis.live.tls import Loaded, load_listener, load_node, show_date

SOON_DAYS = 21  # Certificates that expire within this time are reported.
_LINE_BYTES_MAX = 1 << 20  # most bytes of a telemetry line that are read


# Certificates


def check_tls(config: NodeConfig) -> list[Finding]:
    """Check the files of [tls] in the same way as other nodes will."""
    if not config.tls:
        return []
    findings = _check_key("tls.key", config.tls.key)
    try:
        loaded = load_node(config.tls, config.name, at_any_time=True)
    except InputError as error:
        return [*findings, refused(error)]
    remedies = {"cert": f"Make a new one: trellis certs node {shlex.quote(config.name)}."}
    findings += _check_dates("tls", loaded, {**remedies, "ca": "See docs/runbook.md on how to change an authority."})
    if any(finding.level == "wrong" for finding in findings):
        return findings
    try:
        load_node(config.tls, config.name)  # now also with the dates of the whole chain
    except InputError as error:
        return [*findings, refused(error)]
    return [*findings, good("tls", "The certificates are good.")]


def check_mqtt_tls(config: NodeConfig) -> list[Finding]:
    """Check the certificate of the MQTT listener."""
    mqtt = config.mqtt
    if not mqtt.cert:
        return []
    findings = _check_key("mqtt.key", mqtt.key)
    try:
        context = make_tls(mqtt)
        assert context is not None, "there is a certificate"
        loaded = load_listener(context, mqtt.cert, mqtt.key, at_any_time=True)
    except InputError as error:
        return [*findings, refused(error)]
    return findings + _check_dates("mqtt", loaded, {"cert": "Renew it."})


def _check_key(where: str, path: str) -> list[Finding]:
    """Report a file with a secret that every user of this machine may read."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return []  # loading the file reports the error
    if mode & stat.S_IROTH:
        return [note(where, f"Everybody on this machine may read {path}.", f"chmod 600 {path}")]
    return []


def _check_dates(section: str, loaded: Loaded, remedies: Mapping[str, str]) -> list[Finding]:
    """Report certificates that are not valid yet, have expired, or expire soon. `remedies`: by key of the section."""
    findings: list[Finding] = []
    now_s = time.time()
    if loaded.begins_s > now_s:
        what = f"It is not valid before {show_date(loaded.begins_s)}, and this machine's clock says {show_date(now_s)}."
        findings.append(wrong(f"{section}.cert", what, "Set the clock, or make a new one."))
    for key, ends_s in loaded.expires_s.items():
        days = int((ends_s - now_s) / 86_400)
        if ends_s <= now_s:
            findings.append(wrong(f"{section}.{key}", f"It has expired on {show_date(ends_s)}.", remedies[key]))
        elif days <= SOON_DAYS:
            what = f"It ends in {days} {'day' if days == 1 else 'days'}, on {show_date(ends_s)}."
            findings.append(wrong(f"{section}.{key}", what, remedies[key]))
    return findings


# Files that the node reads and writes


def check_named_files(config: NodeConfig) -> list[Finding]:
    """Check the files of mqtt.users, [access], mqtt.learn_file and telemetry.file, as far as they are configured."""
    return [*check_users(config), *check_access(config), *check_learned(config), *check_telemetry(config)]


def check_users(config: NodeConfig) -> list[Finding]:
    """Check the file of MQTT users."""
    path = config.mqtt.users
    if not path:
        return []
    try:
        users = read_passwords(path)
    except InputError as error:
        return [refused(error)]
    if not users.users:
        remedy = f"Add users: python -m trellis.live.mqtt.passwords {path} USER."
        return [wrong("mqtt.users", f"{path} names no user, so no MQTT client can connect.", remedy)]
    return []


def check_access(config: NodeConfig) -> list[Finding]:
    """Check the access list, its file of users, and the key for tokens."""
    access = config.access
    if not access.acl:
        return []
    findings = _check_key("access.jwt_key", access.jwt_key) if access.jwt_key else []
    try:
        Gate(config.name, access)
    except InputError as error:
        return [*findings, refused(error)]
    ask = f"trellis acl why USER read TOPIC --acl {shlex.quote(access.acl)}"
    return [*findings, good("access", f"The access list is good. To ask it: {ask}")]


def check_learned(config: NodeConfig) -> list[Finding]:
    """Check the file in which a sidecar remembers the filters of its broker's clients."""
    mqtt, where = config.mqtt, "mqtt.learn_file"
    if not mqtt.broker or not mqtt.learn:
        unused = "It is not used: mqtt.learn is off, or there is no mqtt.broker."
        return [note(where, unused, "Leave it out, or set mqtt.learn = true.")] if mqtt.learn_file else []
    try:
        host, port, *_ = parse_broker(mqtt.broker, mqtt)
    except InputError:
        return []  # `check_broker` reports it
    path = learned_path(mqtt.learn_file, f"trellis-{config.name}", host, port)
    # The node makes missing folders, so the first one that exists is checked.
    folder = next((parent for parent in path.parents if _is_there(parent)), path.parent)
    forgets = "Without it, clients that stay connected to the broker hear nothing after a restart of the node."
    if (why := _why_not_written(folder, path)) is not None:
        return [wrong(where, f"{path} cannot be written: {why}. {forgets}", "Name a file that the node may write.")]
    try:
        LearnedFile(path).read()
    except Damaged as error:
        what = f"{path} is damaged: {error}. A node sets such a file aside and begins a new one."
        return [wrong(where, what, "Put a copy of the file back, or let the broker's clients subscribe again.")]
    except OSError as error:
        return [wrong(where, f"{path} cannot be read: {_why(error)}. {forgets}", "Let the node's user read it.")]
    return []


def check_telemetry(config: NodeConfig) -> list[Finding]:
    """Check the file to which telemetry is written."""
    where = "telemetry.file"
    if not config.telemetry.file:
        return []
    path = Path(config.telemetry.file)
    if _is_there(path) and _is_special(path):
        return []
    if not _is_there(path.parent):
        return [wrong(where, f"The folder {path.parent} is not there.", f"Make it: mkdir -p {path.parent}")]
    if (why := _why_not_written(path.parent, path)) is not None:
        return [wrong(where, f"{path} cannot be written: {why}.", "Name a file that the node may write.")]
    try:
        with path.open("rb") as file:
            is_ours = _is_telemetry(file)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [wrong(where, f"{path} cannot be read: {_why(error)}.", "Let the node's user read it.")]
    if not is_ours:
        what = f"{path} holds something else than telemetry, and the node would add its lines to that."
        return [wrong(where, what, "Name another file, or move this one away.")]
    return []


def _is_telemetry(file: BinaryIO) -> bool:
    """Return whether a file is empty, or its first line is one of telemetry."""
    first = file.readline(_LINE_BYTES_MAX)
    try:
        line = msgspec.json.decode(first) if first else {"event": "", "node": ""}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return isinstance(line, dict) and {"event", "node"} <= line.keys()


def _why_not_written(folder: Path, path: Path) -> str | None:
    """Return why a file or its folder cannot be written, or None if both can. Nothing is left behind."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        if _is_there(path):
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK))
    except OSError as error:
        return _why(error)
    return None


def _is_there(path: Path) -> bool:
    """Return whether a path exists. If this user may not see it, return True: trying to write it gives the reason."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _is_special(path: Path) -> bool:
    """Return whether a path is a pipe, a terminal or the like. Those cannot be read without changing them."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
