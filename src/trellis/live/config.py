"""node.toml: what a live node is told. Each key can be overridden by `TRELLIS_...` and by a flag.

    name = "a"                          # TRELLIS_NAME=a       --name a
    [omen]
    period_ms = 500                     # TRELLIS_OMEN_PERIOD_MS=500   --set omen.period_ms=500

Flags win over the environment, and that wins over the file.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_type_hints

import msgspec

from trellis.errors import InputError
from trellis.live.addresses import parse_address
from trellis.live.settings import bad_value, read_value, unknown_field, unknown_key
from trellis.live.stream import StreamLimits
from trellis.live.telemetry import TelemetryConfig
from trellis.protocols.delivery import DeliveryConfig
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.magnet.config import MagnetConfig
from trellis.protocols.mesh.node import topic_bytes
from trellis.protocols.mqtt.config import MqttConfig, shown
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.spidercast.config import SpiderCastConfig
from trellis.protocols.vitis.config import VitisConfig
from trellis.protocols.wire import TOPICS_BYTES_MAX, TOPICS_MAX, name_fault, node_name_fault


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cert: str = ""
    """This node's certificate (PEM), for peers and for clients. `trellis certs` makes it."""

    key: str = ""
    """Its private key."""

    ca: str = ""
    """The authority that signs the certificates of this cluster. Others are refused."""

    reload_s: float = 5.0
    """How often the files are looked at, and those of [access]. Changed files serve from the next handshake on; SIGHUP
    loads them at once."""

    def __post_init__(self) -> None:
        if not self.reload_s > 0:
            raise InputError("reload_s", f"it is {self.reload_s:g}", "give more than 0")

    def __bool__(self) -> bool:
        return bool(self.cert or self.key or self.ca)


class AccessConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    acl: str = ""
    """The access list: which clients may read and write which topics. Empty: every client may do everything."""

    users: str = ""
    """A file of users and hashed passwords, for the client port, and for the MQTT listener without `mqtt.users`."""

    jwt_key: str = ""
    """A file with the key (32 bytes or more) by which tokens are signed that clients give as passwords (JWT, HS256)."""

    jwt_audience: str = ""
    """The name that these tokens must have in `aud`. Empty: they may have no `aud`."""

    def __post_init__(self) -> None:
        if (self.users or self.jwt_key) and not self.acl:
            raise InputError("acl", "there are users, and no access list says what they may do", "give acl too")
        if self.jwt_audience and not self.jwt_key:
            raise InputError("jwt_audience", "there is no key for tokens", "give jwt_key too")


class LimitsConfig(StreamLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    connections_max: int = 512
    """Streams to peers. Above the degree and the ring neighbours; idle ones are closed first."""

    clients_max: int = 1_024
    """Clients that are connected at once."""

    handshakes_max: int = 128
    """Streams that have not said yet who they are. Beyond it the source address with the most of them loses its
    oldest one, and the newcomer is accepted."""

    handshake_s: float = 5.0
    """They are cut off after so long."""

    idle_s: float = 60.0
    """A stream to a peer that is no neighbour is closed after so long without a word."""

    backoff_s: float = 0.1
    """Pause after a peer could not be reached; doubled each time, up to `backoff_s_max`."""

    backoff_s_max: float = 1.0
    """The longest pause. Raising it saves attempts to reach dead peers; a network that was cut heals later."""

    connect_s: float = 2.0
    """How long one attempt to reach a peer may take, before TLS. Above the slowest round trip. Raising it makes a
    network that was cut heal later: an attempt from before the healing is waited for."""

    silent_s: float = 6.0
    """A peer that answers nothing for so long is cut off, and counts as down. Above `omen.silence_max` periods."""

    subscriptions_max: int = 10_000
    """Topics of one client."""

    topics_max: int = 50_000
    """Topics that clients of a node subscribe to, together. All other nodes may be told of them."""

    topics_bytes_max: int = 2 << 20
    """Bytes of their names, and 8 for each. Raising it costs memory and time at every node of the mesh."""

    leave_s: float = 30.0
    """After SIGTERM the process ends after so long, even if the others have not taken over yet."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if not getattr(self, field) > 0:
                raise InputError("", f"{field} is {getattr(self, field)}", "give more than 0")
        for field, most in (("topics_max", TOPICS_MAX), ("topics_bytes_max", TOPICS_BYTES_MAX)):
            if getattr(self, field) > most:
                raise InputError("", f"{field} is {getattr(self, field)}", f"give {most} or less: peers take no more")


class PlannedConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    neighbours: tuple[str, ...] = ()
    """Names of nodes that it links to at the start, by an overlay that was planned (`trellis plan --configs`); they are
    found through the seeds. A node of a mesh that stands already joins as without them, so does one that restarts."""

    wait_s: float = 30.0
    """How long they are waited for. Start all nodes of the plan within this time; then whatever is not covered is
    joined as usual."""

    def __post_init__(self) -> None:
        if not self.wait_s > 0:
            raise InputError("", f"wait_s is {self.wait_s:g}", "give more than 0")
        for one in self.neighbours:
            if (fault := node_name_fault(one)) is not None:
                raise InputError("neighbours", *fault)


class LiveOMenConfig(OMenConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What live nodes do otherwise than those of the papers' experiments: a topic that is split waits for nobody."""

    repair_wait: int = 0
    optional_tries: int = 1  # streams lose nothing: who is silent is dead, or too busy
    helper_tries: int = 2  # for the same reason
    way_max: int = 1  # a way needs streams between its nodes, and one that hangs holds up the others on it
    watch_unheard: bool = True  # peers may name nodes that do not exist
    try_soon: int = 240  # at 1 s a period, longer than `delivery.window_ms`: what is still kept arrives


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    """Unique in the cluster. A restart under the same name is a new incarnation of the node."""

    cluster: str = "trellis"
    """The mesh that the node belongs to. Nodes of other clusters are refused."""

    listen: str = "127.0.0.1:7001"
    """Where other nodes connect: the mesh port, which others name in `seeds`. Port 0: any free one."""

    advertise: str = ""
    """Where other nodes reach it, if that is not where it listens. Empty: there."""

    client_listen: str = "127.0.0.1:7101"
    """Where clients connect: the client port, for `trellis pub`, `trellis sub` and `trellis.connect`."""

    admin_listen: str = ""
    """Where /healthz, /metrics and /overlay.json are served: the admin port. Empty: nowhere."""

    admin_token: str = ""
    """A file with a secret (32 bytes or more). Whoever gives it at the admin port may have links opened and dropped
    (`trellis replan --apply`). Empty: the admin port only reads."""

    seeds: tuple[str, ...] = ()
    """Mesh ports (`listen`) of some nodes of the cluster. Its own may be among them."""

    topics: tuple[str, ...] = ()
    """The node subscribes to these topics for good, whether or not a client asks."""

    overlay: Literal["omen", "spidercast", "vitis", "magnet"] = "omen"
    """The protocol that chooses and repairs links. All nodes of a cluster run the same one."""

    insecure: bool = False
    """Allow to listen beyond loopback without TLS."""

    tls: TlsConfig = msgspec.field(default_factory=TlsConfig)
    access: AccessConfig = msgspec.field(default_factory=AccessConfig)
    limits: LimitsConfig = msgspec.field(default_factory=LimitsConfig)
    telemetry: TelemetryConfig = msgspec.field(default_factory=TelemetryConfig)
    planned: PlannedConfig = msgspec.field(default_factory=PlannedConfig)
    omen: LiveOMenConfig = msgspec.field(default_factory=LiveOMenConfig)
    spidercast: SpiderCastConfig = msgspec.field(default_factory=SpiderCastConfig)
    gossip: GossipViewConfig = msgspec.field(default_factory=GossipViewConfig)
    """SpiderCast's view of who is there."""

    vitis: VitisConfig = msgspec.field(default_factory=VitisConfig)
    magnet: MagnetConfig = msgspec.field(default_factory=MagnetConfig)
    delivery: DeliveryConfig = msgspec.field(default_factory=DeliveryConfig)
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
        if self.planned.neighbours and self.overlay != "omen":
            raise InputError("planned.neighbours", f"{self.overlay} chooses its links by itself", "leave them out")
        # Otherwise a neighbor that lacks many messages is cut off as slow, each time that it comes back for them.
        under_way = self.limits.queue_bytes // 4
        if self.delivery.flight_bytes > under_way:
            delivery = msgspec.structs.replace(self.delivery, flight_bytes=under_way)
            msgspec.structs.force_setattr(self, "delivery", delivery)
        if self.mqtt:
            self._admit_mqtt()

    def _admit_mqtt(self) -> None:
        host = parse_address(self.mqtt.listen, "mqtt.listen")[0] if self.mqtt.listen else "localhost"
        if not self.mqtt.cert and not self.insecure and not is_loopback(host):
            remedy = "give mqtt.cert and mqtt.key, or say --insecure (insecure = true)"
            raise InputError("mqtt.listen", f"{host} is beyond loopback and there is no TLS", remedy)
        room = self.mqtt.packet_bytes_max + (8 << 10)  # a packet becomes one message, in its envelope
        if self.delivery.payload_bytes_max < room:
            delivery = msgspec.structs.replace(self.delivery, payload_bytes_max=room)
            msgspec.structs.force_setattr(self, "delivery", delivery)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_config(path: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]) -> NodeConfig:
    """`flags` by key; those of tables with a dot, as in `omen.period_ms`."""
    where = str(path) if path is not None else "flags"
    given: dict[str, Any] = {}
    if path is not None:
        try:
            given = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise InputError(where, error.strerror or "cannot be read", "name a file that is there") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(where, f"not TOML: {error}", "mend the line") from None
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
    """Return the keys of `flags` that carry a password, which every user of the machine can read in `ps`."""
    return [key for key, value in flags.items() if shown(key, value) != value]


def known_keys(of: type = NodeConfig) -> list[str]:
    """Every key, those of tables with dots, as in `magnet.skewed.links`."""
    keys: list[str] = []
    for field, kind in get_type_hints(of).items():
        is_table = hasattr(kind, "__struct_fields__")
        keys += [f"{field}.{one}" for one in known_keys(kind)] if is_table else [field]
    return keys


def read_setting(key: str, value: object, where: str) -> object:
    """Return the value of a key that was given as text: lists as lists. Raises InputError if there is no such key."""
    if key not in known_keys():
        raise unknown_key(where, key, known_keys())
    return read_value(where, _kind_of(key), value) if isinstance(value, str) else value


def _put(given: dict[str, Any], key: str, value: object, where: str) -> None:
    value = read_setting(key, value, where)
    *tables, field = key.split(".")
    for table in tables:
        given = given.setdefault(table, {})
        if not isinstance(given, dict):
            raise InputError(where, f"{table} is no table in the file", f"write [{table}] there")
    given[field] = value


def _kind_of(key: str) -> Any:
    """Return the type of a key; None if there is no such key."""
    kind: Any = NodeConfig
    for part in key.split("."):
        kind = get_type_hints(kind).get(part) if hasattr(kind, "__struct_fields__") else None
    return kind


def _convert(given: dict[str, Any], where: str) -> NodeConfig:
    tables: dict[str, Any] = dict(given)
    for key, kind in get_type_hints(NodeConfig).items():
        if hasattr(kind, "__struct_fields__") and key in given:
            tables[key] = _one(given[key], kind, where, f"{key}.")
    config: NodeConfig = _one(tables, NodeConfig, where, "")
    return config


def _one(given: Any, kind: Any, where: str, prefix: str) -> Any:
    try:
        return msgspec.convert(given, kind, strict=False)  # the environment has only text
    except InputError as error:
        told = f"{prefix}{error.where}" if error.where else prefix.rstrip(".")
        raise InputError(f"{where}: {told}" if told else where, error.what, error.remedy) from None
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$.")
        path = re.sub(r"\[.*?\]", "", at.rstrip("`"))  # without the place in a list
        if (field := unknown_field(what)) is not None:
            raise unknown_key(
                where, ".".join(filter(None, ((prefix + path).rstrip("."), field))), known_keys()
            ) from None
        key = (prefix + path).rstrip(".")
        for part in filter(None, path.split(".")):
            given = given.get(part) if isinstance(given, dict) else None
        raise bad_value(f"{where}: {key}" if key else where, what, shown(key, given), _kind_of(key)) from None
