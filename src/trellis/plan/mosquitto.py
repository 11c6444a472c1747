"""Read bridges from configurations of Mosquitto: one file for each broker.

It reads `connection`, `address` (or `addresses`), `topic`, and `listener` or `port`, which distinguish bridges to this
machine. All other lines are ignored. `topic PATTERN [out|in|both [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]]`, as in
mosquitto.conf(5); `""` means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trellis.errors import InputError
from trellis.protocols.mqtt.topics import has_wildcard, is_filter

# first words of lines that are read
KEYS = ("listener", "port", "connection", "address", "addresses", "topic", "include_dir")
DIRECTIONS = ("out", "in", "both")
FILE_BYTES_MAX = 1 << 20
RULES_MAX = 10_000  # in all files together
PORT = 1883


@dataclass(frozen=True)
class Rule:
    """One line `topic ...` of a connection."""

    pattern: str
    direction: str
    qos: int
    local_prefix: str
    remote_prefix: str
    where: str  # file:line

    @property
    def local(self) -> str:
        """Return the filter at the broker whose file has the line."""
        return self.local_prefix + self.pattern

    @property
    def remote(self) -> str:
        """Return the filter at the other broker."""
        return self.remote_prefix + self.pattern


@dataclass
class Connection:
    """A bridge from one broker to another, as its file describes it."""

    name: str
    where: str
    addresses: list[tuple[str, int]] = field(default_factory=list)  # The first one is used; others are fallbacks.
    rules: list[Rule] = field(default_factory=list)


@dataclass
class BrokerFile:
    """The content of one broker's file."""

    name: str
    path: Path
    ports: list[int] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_brokers(paths: list[Path]) -> list[BrokerFile]:
    """Read the files of all brokers. A broker is named after its file, or after the folder of a `mosquitto.conf`."""
    brokers = [read_broker(path) for path in paths]
    seen: dict[str, Path] = {}
    for broker in brokers:
        if broker.name in seen:
            what = f'it is called "{broker.name}", as {seen[broker.name]} is'
            raise InputError(str(broker.path), what, "give each broker a file of its own name, as north.conf")
        seen[broker.name] = broker.path
    if sum(len(connection.rules) for broker in brokers for connection in broker.connections) > RULES_MAX:
        raise InputError("", f"there are more than {RULES_MAX:,} topic lines", "import fewer files at once")
    return brokers


def read_broker(path: Path) -> BrokerFile:
    """Read the file of one broker. A wrong line raises InputError with its number."""
    name = path.resolve().parent.name if path.stem == "mosquitto" else path.stem
    broker = BrokerFile(name or path.stem, path)
    current: Connection | None = None
    for number, words in _lines(path):
        where, key, rest = f"{path}:{number}", words[0], words[1:]
        if key in ("listener", "port"):
            current = None
            if not rest:
                raise InputError(where, f"{key} names no port", f"write {key} 1883")
            broker.ports.append(_port(rest[0], where))
        elif key == "connection":
            if len(rest) != 1:
                raise InputError(where, "a connection has one name", "write for instance: connection to-north")
            if any(connection.name == rest[0] for connection in broker.connections):
                raise InputError(where, f'connection "{rest[0]}" is there twice', "give it another name")
            current = Connection(rest[0], where)
            broker.connections.append(current)
        elif key in ("address", "addresses"):
            if current is None:
                raise InputError(where, f"{key} belongs to no connection", "put it below a line: connection NAME")
            if not rest:
                raise InputError(where, f"{key} names no broker", "write for instance: address north.example.com:1883")
            current.addresses += [_address(word, where) for word in rest]
        elif key == "topic":
            if current is None:
                raise InputError(where, "topic belongs to no connection", "put it below a line: connection NAME")
            current.rules.append(_rule(rest, where))
        elif key == "include_dir":
            broker.notes.append(f"{where}: files of include_dir are not read; name them too")
    for connection in broker.connections:
        if not connection.addresses:
            what = f'connection "{connection.name}" has no address'
            raise InputError(connection.where, what, "add a line: address HOST:PORT")
    return broker


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each line with content, as words. Lines that begin with # are comments."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or error})", "check the path") from error
    if len(data) > FILE_BYTES_MAX:
        raise InputError(str(path), "is larger than 1 MiB", "name a configuration of Mosquitto")
    for number, raw in enumerate(data.split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise InputError(f"{path}:{number}", "the text is not UTF-8", "convert the file to UTF-8") from error
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if words[0] in KEYS and not all(word.isprintable() for word in words):
            raise InputError(f"{path}:{number}", "the line has characters that cannot be printed", "remove them")
        yield number, words


def _rule(words: list[str], where: str) -> Rule:
    if not 1 <= len(words) <= 5:
        what = f"topic has {len(words)} values" if words else "topic names no pattern"
        raise InputError(where, what, "write: topic PATTERN [out|in|both [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]]")
    pattern, direction, qos, local, remote = [*words, *("", "out", "0", "", "")[len(words) :]]
    pattern, local, remote = ("" if word == '""' else word for word in (pattern, local, remote))
    if direction not in DIRECTIONS:
        raise InputError(where, f'direction "{direction}" is not known', f"write one of {', '.join(DIRECTIONS)}")
    if qos not in ("0", "1", "2"):
        raise InputError(where, f'QoS "{qos}" is not known', "write 0, 1 or 2")
    for prefix in (local, remote):
        if has_wildcard(prefix):
            raise InputError(where, f'prefix "{prefix}" has a wildcard', "wildcards belong into the pattern")
    for name in (local + pattern, remote + pattern):
        if not name or not is_filter(name):
            what = f'"{name}" is no topic filter' if name else "pattern and prefix are both empty"
            raise InputError(where, what, "write for instance sensors/# or sensors/+/state")
    return Rule(pattern, direction, int(qos), local, remote, where)


def _address(word: str, where: str) -> tuple[str, int]:
    host, colon, port = word.rpartition(":")
    if not colon or word.endswith("]") or (":" in host and not host.startswith("[")):  # An IPv6 address has colons.
        host, colon, port = word, "", ""
    if not host.strip("[]"):
        raise InputError(where, f'address "{word}" names no host', "write HOST or HOST:PORT")
    return host.strip("[]").lower(), _port(port, where) if colon else PORT


def _port(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise InputError(where, f'"{text}" is no port', "give a number from 0 to 65535")
    return int(text)
