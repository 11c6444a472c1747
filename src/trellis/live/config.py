"""The configuration of a live node: node.toml. Each key can be overridden by `TRELLIS_...` and by a flag.

    name = "a"                          # TRELLIS_NAME=a       --name a
    [omen]
    period_ms = 500                     # TRELLIS_OMEN_PERIOD_MS=500   --set omen.period_ms=500

Flags override the environment, and the environment overrides the file.

Each table is a frozen class that checks its own values. The text below a field explains the key to operators:
`trellis node --print-config` prints it (`explain.py`). `NodeConfig` also checks how the tables fit together.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from trellis.errors import InputError
from trellis.live.addresses import parse_address
from trellis.live.settings import bad_value, read_value, unknown_field, unknown_key
from trellis.live.stream import StreamLimits
from trellis.live.telemetry import TelemetryConfig
from trellis.protocols.delivery import DeliveryConfig
from trellis.protocols.delivery.config import DurableConfig
from trellis.protocols.delivery.messages import PAYLOAD_BYTES_MAX
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.magnet.config import MagnetConfig
from trellis.protocols.mesh.node import topic_bytes
from trellis.protocols.mqtt.config import MqttConfig, shown
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.overlays import overlay_of
from trellis.protocols.spidercast.config import SpiderCastConfig
from trellis.protocols.vitis.config import VitisConfig
from trellis.protocols.wire import TOPICS_BYTES_MAX, TOPICS_MAX, name_fault, node_name_fault


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tls]`: certificates for mutual TLS with peers and clients. False if no file is given."""

    cert: str = ""
    """File with this node's certificate (PEM), for peers and for clients. `trellis certs` makes it."""

    key: str = ""
    """File with the private key of the certificate."""

    ca: str = ""
    """File with the authority that signs the certificates of this cluster. Other certificates are refused."""

    reload_s: float = 5.0
    """Seconds between two checks whether these files or those of [access] have changed. New certificates are used from
    the next handshake on. SIGHUP loads all files at once."""

    def __post_init__(self) -> None:
        if not self.reload_s > 0:
            raise InputError("reload_s", f"it is {self.reload_s:g}", "give more than 0")

    def __bool__(self) -> bool:
        return bool(self.cert or self.key or self.ca)


class AccessConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[access]`: what clients may do, and how they prove who they are.  [docs/access.md]"""

    acl: str = ""
    """File with the access list: which clients may read and write which topics. Empty: clients may do everything."""

    users: str = ""
    """File of users and hashed passwords for the client port, and for the MQTT listener if `mqtt.users` is empty."""

    jwt_key: str = ""
    """File with the key (32 bytes or more) that signs the tokens which clients give as passwords (JWT, HS256)."""

    jwt_audience: str = ""
    """Name that these tokens must have in `aud`. Empty: they must have no `aud`."""

    def __post_init__(self) -> None:
        if (self.users or self.jwt_key) and not self.acl:
            raise InputError("acl", "there are users, and no access list says what they may do", "give acl too")
        if self.jwt_audience and not self.jwt_key:
            raise InputError("jwt_audience", "there is no key for tokens", "give jwt_key too")


class LimitsConfig(StreamLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: bounds on connections, waiting times and topics of one node."""

    connections_max: int = 512
    """Most streams to peers. Choose more than the number of neighbors and of next nodes on the ring. When there are
    too many, the stream without a link that was used longest ago is closed."""

    clients_max: int = 1_024
    """Most connections at the client port."""

    handshakes_max: int = 128
    """Most connections whose other end has not said yet who it is. Beyond it the source address with the most of them
    loses its oldest one, and the new connection is accepted."""

    handshake_s: float = 5.0
    """Seconds after which such a connection is cut off."""

    idle_s: float = 60.0
    """Seconds without a message after which a stream to a peer that is no neighbor is closed."""

    backoff_s: float = 0.1
    """Seconds to wait after a peer could not be reached. They are doubled each time, up to `backoff_s_max`."""

    backoff_s_max: float = 1.0
    """Longest such pause in seconds. Raising it saves attempts to reach dead peers. After a network partition, nodes
    then find each other later."""

    connect_s: float = 2.0
    """Seconds that one attempt to connect to a peer may take, without TLS. Choose more than the slowest round trip.
    Raising it delays recovery after a network partition, because an attempt that began before its end is waited for."""

    silent_s: float = 6.0
    """Seconds without any answer after which a peer is cut off and counts as down. Choose more than
    `omen.silence_max` periods."""

    subscriptions_max: int = 10_000
    """Most topics that one client may subscribe to."""

    topics_max: int = 50_000
    """Most topics that all clients of a node together subscribe to. All other nodes may be told of them."""

    topics_bytes_max: int = 2 << 20
    """Most bytes of these topics: their names, and 8 for each. Raising it costs memory and time at every node of the
    mesh."""

    leave_s: float = 30.0
    """Seconds after SIGTERM at which the process ends, even if other nodes have not taken over its messages yet."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if not getattr(self, field) > 0:
                raise InputError("", f"{field} is {getattr(self, field)}", "give more than 0")
        for field, most in (("topics_max", TOPICS_MAX), ("topics_bytes_max", TOPICS_BYTES_MAX)):
            if getattr(self, field) > most:
                raise InputError("", f"{field} is {getattr(self, field)}", f"give {most} or less: peers take no more")


class PlannedConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[planned]`: links of an overlay that was planned beforehand.  [protocols/omen/links/planned.py]"""

    neighbours: tuple[str, ...] = ()
    """Names of the nodes to link to at the start, from a planned overlay (`trellis plan --configs`). The node finds
    them through its seeds. A node that starts or restarts when the mesh already runs ignores them and joins."""

    wait_s: float = 30.0
    """Seconds to wait for them. Start all nodes of the plan within this time. After it, the node joins in the usual way
    for topics that its links do not cover."""

    def __post_init__(self) -> None:
        if not self.wait_s > 0:
            raise InputError("", f"wait_s is {self.wait_s:g}", "give more than 0")
        for one in self.neighbours:
            if (fault := node_name_fault(one)) is not None:
                raise InputError("neighbours", *fault)


class LiveOMenConfig(OMenConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[omen]`, with other defaults than in the papers' experiments: a live node repairs a split topic without waiting.

    A TCP stream loses no messages. So a node that does not answer a question is dead or overloaded, and few repeated
    questions are enough.
    """

    repair_wait: int = 0
    """Periods that the repair of a departure waits for a ready view at most. 0 repairs at once, with the backups that
    there are. Raising it makes degrees more even, and topics stay split for longer."""

    optional_tries: int = 1
    """Questions to a node whose answer only saves links. Each waits `ask_ms`. Streams lose no messages, so a node that
    does not answer the first one is dead or overloaded."""

    helper_tries: int = 2
    """Questions, `ask_ms` apart, to a silent node that a repair needs, before the repair goes on without it. A required
    node then counts as departed for this repair, and the next successor takes over from a coordinator. Being wrong
    costs links, not correctness. 0: required nodes are asked `ask_tries` times, and others are waited for until they
    are suspected."""

    way_max: int = 1
    """Nodes that one question visits in turn, where answers only save links. Raising it saves messages. It needs
    streams between these nodes, and a node that hangs delays the answers of the others."""

    watch_unheard: bool = True
    """Whether a node also watches all nodes of its ring table that have never answered it, with one message a period.
    A peer may name nodes that do not exist. This finds them out."""

    try_soon: int = 240
    """Periods for which a suspected node is tried in every period. At 1 s a period the default is longer than
    `delivery.window_ms`. So nodes that meet again within that time still have the messages that the others lack."""


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of node.toml."""

    name: str
    """Unique in the cluster. A restart under the same name is a new incarnation of the node."""

    cluster: str = "trellis"
    """The mesh that the node belongs to. Nodes of other clusters are refused."""

    listen: str = "127.0.0.1:7001"
    """Address of the mesh port, where other nodes connect. Others name it in `seeds`. Port 0: any free one."""

    advertise: str = ""
    """Address at which other nodes reach the mesh port, if it differs from `listen`. Empty: it does not."""

    client_listen: str = "127.0.0.1:7101"
    """Address of the client port, for `trellis pub`, `trellis sub` and `trellis.connect`."""

    admin_listen: str = ""
    """Address of the admin port, which serves /healthz, /metrics and /overlay.json. Empty: the node has none."""

    admin_token: str = ""
    """File with a secret (32 bytes or more). A client of the admin port that gives it may open and drop links
    (`trellis replan --apply`). Empty: the admin port is read-only."""

    seeds: tuple[str, ...] = ()
    """Addresses of the mesh ports (`listen`) of some nodes of the cluster. The node's own may be among them."""

    topics: tuple[str, ...] = ()
    """Topics that the node always subscribes to, whether or not a client does."""

    overlay: str = "omen"
    """The protocol that chooses and repairs links: omen, spidercast, vitis or magnet. All nodes of a cluster run the
    same one."""

    insecure: bool = False
    """Whether the node may listen beyond loopback without TLS."""

    tls: TlsConfig = msgspec.field(default_factory=TlsConfig)
    access: AccessConfig = msgspec.field(default_factory=AccessConfig)
    limits: LimitsConfig = msgspec.field(default_factory=LimitsConfig)
    telemetry: TelemetryConfig = msgspec.field(default_factory=TelemetryConfig)
    planned: PlannedConfig = msgspec.field(default_factory=PlannedConfig)
    omen: LiveOMenConfig = msgspec.field(default_factory=LiveOMenConfig)
    spidercast: SpiderCastConfig = msgspec.field(default_factory=SpiderCastConfig)
    gossip: GossipViewConfig = msgspec.field(default_factory=GossipViewConfig)
    """SpiderCast's membership view."""

    vitis: VitisConfig = msgspec.field(default_factory=VitisConfig)
    magnet: MagnetConfig = msgspec.field(default_factory=MagnetConfig)
    delivery: DeliveryConfig = msgspec.field(default_factory=DeliveryConfig)
    durable: DurableConfig = msgspec.field(default_factory=DurableConfig)
    mqtt: MqttConfig = msgspec.field(default_factory=MqttConfig)

    def __post_init__(self) -> None:
        if (fault := node_name_fault(self.name)) is not None:
            raise InputError("name", *fault)
        for field, text in (("cluster", self.cluster), *(("topics", one) for one in self.topics)):
            if (fault := name_fault(text)) is not None:
                raise InputError(field, *fault)
        size = sum(map(topic_bytes, self.topics))
        if len(self.topics) > self.limits.topics_max or size > self.limits.topics_bytes_max:
            told = f"{len(self.topics)} topics, whose names have {size} bytes"
            raise InputError("topics", told, "give fewer, or raise limits.topics_max and limits.topics_bytes_max")
        listeners = ("listen", "client_listen", *(("admin_listen",) if self.admin_listen else ()))
        for field in listeners:
            parse_address(getattr(self, field), field)
        if self.admin_token and not self.admin_listen:
            raise InputError("admin_token", "there is no admin port", "give admin_listen too")
        for one in self.seeds:
            parse_address(one, "seeds")
        if self.advertise:
            parse_address(self.advertise, "advertise")
        elif parse_address(self.listen)[0] in ("0.0.0.0", "::"):
            raise InputError("advertise", f"others cannot dial {self.listen}", "say where they reach this node")
        if self.tls and not (self.tls.cert and self.tls.key and self.tls.ca):
            raise InputError("tls", "cert, key and ca belong together", "give all three, or none")
        for field in listeners:
            host = parse_address(getattr(self, field))[0]
            if not self.tls and not self.insecure and not is_loopback(host):
                remedy = "configure [tls], or say --insecure (insecure = true)"
                raise InputError(field, f"{host} is beyond loopback and there is no TLS", remedy)
        if not overlay_of(self.overlay).takes_plans and self.planned.neighbours:
            raise InputError("planned.neighbours", f"{self.overlay} chooses its links by itself", "leave them out")
        # Keep a queue from filling up with delivery frames. Otherwise a neighbor that lacks many messages is cut off as
        # slow each time it reconnects to get them.
        under_way = self.limits.queue_bytes // 4
        if self.delivery.flight_bytes > under_way:
            delivery = msgspec.structs.replace(self.delivery, flight_bytes=under_way)
            msgspec.structs.force_setattr(self, "delivery", delivery)
        if self.mqtt:
            self._admit_mqtt()

    def _admit_mqtt(self) -> None:
        """Check the addresses of MQTT listeners, and let the mesh carry payloads as large as an MQTT packet."""
        for field, address in (("mqtt.listen", self.mqtt.listen), ("mqtt.websocket", self.mqtt.websocket)):
            host = parse_address(address, field)[0] if address else "localhost"
            if not self.mqtt.cert and not self.insecure and not is_loopback(host):
                remedy = "give mqtt.cert and mqtt.key, or say --insecure (insecure = true)"
                raise InputError(field, f"{host} is beyond loopback and there is no TLS", remedy)
        # A packet is carried as one message, in an envelope, or in parts if it is larger.
        room = min(self.mqtt.packet_bytes_max + (8 << 10), PAYLOAD_BYTES_MAX)
        if self.delivery.payload_bytes_max < room:
            delivery = msgspec.structs.replace(self.delivery, payload_bytes_max=room)
            msgspec.structs.force_setattr(self, "delivery", delivery)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_config(path: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]) -> NodeConfig:
    """Return the configuration of a file, overridden by the environment and by flags. Raise InputError if it is wrong.

    `path`: None if there is no file. `flags`: values by key, with dots for tables as in `omen.period_ms`.
    """
    where = str(path) if path is not None else "flags"
    given: dict[str, Any] = {}
    if path is not None:
        try:
            given = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise InputError(where, error.strerror or "cannot be read", "name a file that is there") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(where, f"not TOML: {error}", "correct the line") from None
    for key in known_keys():
        variable = "TRELLIS_" + key.replace(".", "_").upper()
        if variable in environment:
            _put(given, key, environment[variable], variable)
    for key, value in flags.items():
        _put(given, key, value, f"--set {key}")
    if "name" not in given:
        raise InputError(where, "name is missing", 'add name = "...", or say --name')
    return _convert(given, where)


def passwords_in(flags: Mapping[str, object]) -> list[str]:
    """Return the keys of `flags` that contain a password. Every user of the machine could read it in `ps`."""
    return [key for key, value in flags.items() if shown(key, value) != value]


def known_keys(of: type = NodeConfig) -> list[str]:
    """Return all keys of a configuration class, with dots for tables as in `magnet.skewed.links`."""
    keys: list[str] = []
    for field, kind in get_type_hints(of).items():
        is_table = hasattr(kind, "__struct_fields__")
        keys += [f"{field}.{one}" for one in known_keys(kind)] if is_table else [field]
    return keys


def read_setting(key: str, value: object, where: str) -> object:
    """Return a value in the form that its key needs: text becomes a list where the key is one.

    Raise InputError if there is no such key.
    """
    if key not in known_keys():
        raise unknown_key(where, key, known_keys())
    return read_value(where, _kind_of(key), value) if isinstance(value, str) else value


def _put(given: dict[str, Any], key: str, value: object, where: str) -> None:
    """Set a key in a nested dict as TOML gives it. `where`: the variable or flag that sets it, for errors."""
    value = read_setting(key, value, where)
    *tables, field = key.split(".")
    for table in tables:
        given = given.setdefault(table, {})
        if not isinstance(given, dict):
            raise InputError(where, f"{table} is no table in the file", f"write [{table}] there")
    given[field] = value


def _kind_of(key: str) -> Any:
    """Return the type of a key, or None if there is no such key."""
    kind: Any = NodeConfig
    for part in key.split("."):
        kind = get_type_hints(kind).get(part) if hasattr(kind, "__struct_fields__") else None
    return kind


def _convert(given: dict[str, Any], where: str) -> NodeConfig:
    """Convert the tables one by one, then the whole, so that errors name the table."""
    tables: dict[str, Any] = dict(given)
    for key, kind in get_type_hints(NodeConfig).items():
        if hasattr(kind, "__struct_fields__") and key in given:
            tables[key] = _one(given[key], kind, where, f"{key}.")
    config: NodeConfig = _one(tables, NodeConfig, where, "")
    return config


def _one(given: Any, kind: Any, where: str, prefix: str) -> Any:
    """Convert one table into its class. Turn errors into an InputError that names file, key and remedy."""
    try:
        return msgspec.convert(given, kind, strict=False)  # not strict: values from the environment are text
    except InputError as error:
        told = f"{prefix}{error.where}" if error.where else prefix.rstrip(".")
        raise InputError(f"{where}: {told}" if told else where, error.what, error.remedy) from None
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$.")
        path = re.sub(r"\[.*?\]", "", at.rstrip("`"))  # without the index in a list
        if (field := unknown_field(what)) is not None:
            raise unknown_key(
                where, ".".join(filter(None, ((prefix + path).rstrip("."), field))), known_keys()
            ) from None
        key = (prefix + path).rstrip(".")
        for part in filter(None, path.split(".")):
            given = given.get(part) if isinstance(given, dict) else None
        raise bad_value(f"{where}: {key}" if key else where, what, shown(key, given), _kind_of(key)) from None
