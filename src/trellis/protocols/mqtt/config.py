"""Configuration of a node's MQTT broker and sidecar: `[mqtt]` of node.toml."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.protocols.mqtt.topics import is_filter

PACKET_BYTES_MAX = 17 << 20  # a payload of 16 MiB with its topic and properties
QUEUE_BYTES = 8 << 20
KEEP_ALIVE_S_MAX = 65_535  # greatest keep-alive that a CONNECT can hold


class MqttConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be configured. Defaults suit a node with a few hundred clients."""

    listen: str = ""
    """Address of the MQTT listener. Empty: the node has none. Port 0: any free one."""

    websocket: str = ""
    """Address of the listener for MQTT over WebSocket, with TLS if `cert` is given. Empty: the node has none."""

    websocket_origins: tuple[str, ...] = ()
    """Web pages that may connect over WebSocket, as in https://example.org. Empty: all of them."""

    proxy_protocol: bool = False
    """Whether a load balancer stands before `listen` and `websocket`, and tells by the PROXY protocol (version 2) who
    connects. Then every connection must begin with its header, so let nobody else reach these ports."""

    depth: int = 2
    """Number of first levels of an MQTT topic that form its overlay topic; the same on all nodes. More levels make
    interests finer and overlay topics more numerous."""

    broker: str = ""
    """URL of a running broker to which this node is attached as a sidecar: mqtt://[user@]host:port, or mqtts://."""

    broker_password: str = ""
    """Password for the broker. TRELLIS_MQTT_BROKER_PASSWORD or a file is safer: other users can read arguments."""

    broker_password_file: str = ""
    """File with the password in its first line. It is read at every connection, so it may change at any time."""

    broker_ca: str = ""
    """Certificate authority of the broker, if it is not one of the system's (mqtts)."""

    broker_version: Literal["5", "3.1.1"] = "5"
    """Version of MQTT. 3.1.1 is for brokers without MQTT 5 that do not send a bridge its own messages, as Mosquitto."""

    broker_echo: Literal["refuse", "match"] = "refuse"
    """match: accept a broker of 3.1.1 that sends our own messages back. They are recognized by topic and payload."""

    broker_queue_bytes: int = 64 << 20
    """Sidecar: bytes of messages that wait for the broker while it is away or slow. More are dropped and counted."""

    broker_session_s: int = 604_800
    """Sidecar: how long the broker keeps our session, and the messages in it, after we have left (MQTT 5). A week."""

    take: tuple[str, ...] = ("#",)
    """Sidecar: filters of the messages that go from the broker into the mesh."""

    want: tuple[str, ...] = ()
    """Sidecar: filters of the messages that go from the mesh to the broker."""

    learn: bool = False
    """Sidecar: also carry what the broker's clients subscribe to, by its log (Mosquitto with `log_dest topic`)."""

    learn_file: str = ""
    """Sidecar with `learn`: file that keeps these subscriptions across restarts. Empty: one in the state folder."""

    learn_away_s: int = 86_400
    """Sidecar with `learn`: after this absence of a client, its subscriptions do not count until it is back. A day."""

    users: str = ""
    """File of users and hashed passwords (`trellis.live.mqtt.passwords`). Empty: everybody may connect."""

    cert: str = ""
    """Certificate of the MQTT listener (PEM), with `key`."""

    key: str = ""
    """Private key of `cert` (PEM)."""

    ca: str = ""
    """Certificate authority (PEM). If it is given, clients must present a certificate that it has signed."""

    clients_max: int = 1_024
    """Most clients that are connected at once."""

    sessions_max: int = 10_000
    """Most sessions, of clients that are connected or not."""

    session_expiry_s_max: int = 86_400
    """Longest time that the session of a disconnected client is kept."""

    packet_bytes_max: int = 288 << 10
    """Most bytes of one packet, at most 17 MiB. The default holds a payload of 256 KiB with its topic and properties.
    Messages above 480 KiB travel through the mesh in parts. Above 4 MiB,
    `queue_bytes` is raised to twice this size if it is less."""

    payload_bytes_max: int = 0
    """Most bytes of the payload of a publication or a will. 0: as many as `packet_bytes_max` allows."""

    versions: tuple[Literal["3.1", "3.1.1", "5"], ...] = ("3.1", "3.1.1", "5")
    """Versions of MQTT that clients may speak."""

    qos_max: int = 2
    """Greatest QoS of publications and subscriptions of clients. A client that publishes with more is disconnected."""

    retain_available: bool = True
    """Whether clients may publish and get retained messages. The node keeps those of other nodes all the same."""

    subscriptions_max: int = 1_000
    """Most filters of one client."""

    filters_bytes: int = 128 << 20
    """Memory that the filters of all clients may take, roughly 1 KiB for a short one. More are refused."""

    inflight_max: int = 256
    """Unacknowledged messages of one client, in each direction."""

    queue_max: int = 1_000
    """Messages with QoS 1 or 2 that wait for one client, and 20 times as many while it acknowledges messages. More are
    dropped and counted."""

    queue_bytes: int = QUEUE_BYTES
    """Bytes that wait for one client, in its session's queue and in its socket's. If a socket exceeds it, the client is
    disconnected."""

    alias_max: int = 32
    """Most topic aliases that a client may set, and that the node uses towards a client which allows them."""

    reason_texts: bool = True
    """Whether clients of MQTT 5 are told in words why something was refused, beside the reason code."""

    keep_alive_s_max: int = 65_535
    """Longest keep-alive. A client that asks for a longer one, or for none, is told this one (MQTT 5) or refused
    (3.1.1). With the default of 65535, each client's own keep-alive counts."""

    retained_max: int = 10_000
    """Most retained messages that this node keeps. More are refused."""

    retained_bytes: int = 64 << 20
    """Most bytes of these retained messages."""

    suback_s: float = 5.0
    """Longest wait of a SUBACK for the mesh: until the subscription is confirmed and every node knows a wildcard."""

    spread_ms: int = 1_000
    """Nodes that start at the same time assume that they know each other this long after the mesh has acknowledged
    their first question. Choose more than the delay of a mesh that is not busy."""

    ask_s: float = 30.0
    """Interval at which a node repeats its patterns to the others."""

    introduce_s: float = 10.0
    """How long messages on a new overlay topic are copied to nodes of earlier releases, which never say `Joined`."""

    active_s: float = 600.0
    """After this time without a message, an overlay topic counts as new again."""

    hold_ms: int = 1_000
    """How long a message waits for its predecessor, if it is not certain that the predecessor will arrive."""

    share_takeover_s: float = 15.0
    """A message of a shared subscription goes to another member after the node that has it was silent this long."""

    sys_interval_s: int = 10
    """Interval at which the node publishes changed values on `$SYS/broker/...` to its own clients. 0: never."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            may_be_0 = field in ("sys_interval_s", "payload_bytes_max", "qos_max")
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and not value > 0 and not (may_be_0 and value == 0):
                raise InputError(field, f"it is {value}", "give more than 0")
        if 2 * self.packet_bytes_max > max(self.queue_bytes, QUEUE_BYTES):
            msgspec.structs.force_setattr(self, "queue_bytes", 2 * self.packet_bytes_max)
        for field in ("take", "want"):
            for filter_ in getattr(self, field):
                if not is_filter(filter_) or filter_.startswith("$"):
                    what = f'"{filter_}" is no topic filter that is carried'
                    raise InputError(field, what, "give filters as in a/+/b")
        if self.broker and not self.take and not self.want and not self.learn:
            raise InputError("broker", "it would neither take nor give anything", "give take, want or both")
        if self.broker_session_s > 0xFFFF_FFFF:
            raise InputError("broker_session_s", f"it is {self.broker_session_s}", "give 4294967295 or less: for ever")
        if sum(map(bool, (has_password(self.broker), self.broker_password, self.broker_password_file))) > 1:
            remedy = "give broker_password_file alone, or leave the others out"
            raise InputError("broker_password", "the password is given twice", remedy)
        if self.broker_echo == "match" and self.broker_version == "5":
            raise InputError("broker_echo", "a broker of MQTT 5 sends no echoes", 'give broker_version = "3.1.1" too')
        if self.keep_alive_s_max > KEEP_ALIVE_S_MAX:
            raise InputError("keep_alive_s_max", f"it is {self.keep_alive_s_max}", f"give 1 to {KEEP_ALIVE_S_MAX}")
        if self.qos_max not in (0, 1, 2):
            raise InputError("qos_max", f"it is {self.qos_max}", "give 0, 1 or 2")
        if not self.versions:
            raise InputError("versions", "no client could connect", 'give some of "3.1", "3.1.1" and "5"')
        if self.depth > 32:
            raise InputError("depth", f"it is {self.depth}", "give 1 to 32")
        if bool(self.cert) != bool(self.key) or (self.ca and not self.cert):
            raise InputError("cert", "cert and key belong together, and ca to them", "give both, or none")
        if self.packet_bytes_max > PACKET_BYTES_MAX:
            remedy = f"give {PACKET_BYTES_MAX} or less"
            raise InputError("packet_bytes_max", f"it is {self.packet_bytes_max}", remedy)

    def __bool__(self) -> bool:
        """Return whether the node speaks MQTT at all: it has a listener or a sidecar."""
        return bool(self.has_clients or self.broker)

    @property
    def has_clients(self) -> bool:
        """Whether MQTT clients can connect to the node."""
        return bool(self.listen or self.websocket)

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """Return what tools print of this value, without passwords."""
        return [(field, shown(f"mqtt.{field}", getattr(self, field))) for field in self.__struct_fields__]

    def __repr__(self) -> str:
        return f"MqttConfig({', '.join(f'{field}={value!r}' for field, value in self.__rich_repr__())})"


HIDDEN = "***"


def shown(key: str, value: object) -> object:
    """Return the value of a key of node.toml as it may be printed, without passwords."""
    if key == "mqtt.broker" and isinstance(value, str):
        return hide_password(value)
    return HIDDEN if key == "mqtt.broker_password" and value else value


def hide_password(url: str) -> str:
    """Return a broker's URL, which may be malformed, without its password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    user, colon, _ = rest.rpartition("@")[0].partition(":")
    return f"{scheme}{separator}{user}:{HIDDEN}@{rest.rpartition('@')[2]}" if colon else url


def has_password(url: str) -> bool:
    """Return whether a broker's URL contains a password."""
    return hide_password(url) != url
