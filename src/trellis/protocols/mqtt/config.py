"""What an MQTT door can be told: `[mqtt]` of node.toml."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.protocols.mqtt.topics import is_filter

KEEP_ALIVE_S_MAX = 65_535  # that a CONNECT can say


class MqttConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    listen: str = ""
    """Where MQTT clients connect. Empty: there is no door. Port 0: any free one."""

    depth: int = 2
    """Levels of an MQTT topic that make its overlay topic, alike on all nodes. More: finer interests, more topics."""

    broker: str = ""
    """A running broker that this node is the sidecar of: mqtt://[user@]host:port, or mqtts://."""

    broker_password: str = ""
    """The password for it. Better give TRELLIS_MQTT_BROKER_PASSWORD or a file: other users can read arguments."""

    broker_password_file: str = ""
    """A file with the password in its first line. It is read at every connection, so it may change meanwhile."""

    broker_ca: str = ""
    """Who signs the broker's certificate, if that is not the system's business (mqtts)."""

    broker_version: Literal["5", "3.1.1"] = "5"
    """3.1.1: as a bridge, for brokers without MQTT 5 that send a bridge nothing of its own (Mosquitto does)."""

    broker_echo: Literal["refuse", "match"] = "refuse"
    """match: a broker of 3.1.1 that knows no bridges may send us what is ours; it is known by topic and payload."""

    broker_queue_bytes: int = 64 << 20
    """Sidecar: what waits for the broker while it is away or slow. More is dropped and counted."""

    broker_session_s: int = 604_800
    """Sidecar: the broker ends our session, and what waits in it, so long after we have left (MQTT 5). A week."""

    take: tuple[str, ...] = ("#",)
    """Sidecar: what is published at the broker on these filters goes into the mesh."""

    want: tuple[str, ...] = ()
    """Sidecar: what the broker's clients want of the mesh."""

    learn: bool = False
    """Sidecar: also what the broker's log says that they subscribe to (Mosquitto with `log_dest topic`)."""

    learn_file: str = ""
    """Sidecar with `learn`: the file that remembers it across restarts. Empty: one in the user's state folder."""

    learn_away_s: int = 86_400
    """Sidecar with `learn`: a client of the broker that is away for so long gets nothing until it is back. A day."""

    users: str = ""
    """A file of users and hashed passwords (`trellis.live.mqtt.passwords`). Empty: everybody may come in."""

    cert: str = ""
    """TLS of this door (PEM), with `key`."""

    key: str = ""
    """Its private key."""

    ca: str = ""
    """Clients must show a certificate that this authority has signed."""

    clients_max: int = 1_024
    """Clients that are connected at once."""

    sessions_max: int = 10_000
    """Clients remembered, connected or not."""

    session_expiry_s_max: int = 86_400
    """A session of a client that is away lasts no longer."""

    packet_bytes_max: int = 288 << 10
    """One packet: a payload of 256 KiB, its topic and its properties."""

    subscriptions_max: int = 1_000
    """Filters of one client."""

    filters_bytes: int = 128 << 20
    """Memory that the filters of all clients may take, about: 1 KiB for a short one. More are refused."""

    inflight_max: int = 256
    """Messages of one client that wait for an acknowledgement, each way."""

    queue_max: int = 1_000
    """QoS 1 messages that wait for one client; 20 times as many while it acknowledges. More are dropped and counted."""

    queue_bytes: int = 8 << 20
    """Bytes that wait for one client: its session's queue, and its socket's. A reader slower than that is cut off."""

    alias_max: int = 32
    """Topic aliases that a client may set."""

    keep_alive_s_max: int = 65_535
    """A client must say something at least so often; one that asks for more, or for no limit, is told so (MQTT 5), or
    turned away (3.1.1). At most 65535: then each client's own wish counts."""

    retained_max: int = 10_000
    """Retained messages that this node keeps. More are refused."""

    retained_bytes: int = 64 << 20
    """Their bytes."""

    suback_s: float = 5.0
    """SUBACK waits for the mesh to confirm, and for every node to know a wildcard, and no longer than this."""

    spread_ms: int = 1_000
    """Nodes that start together believe that they know each other so long after the mesh has acknowledged their first
    question. Above a quiet mesh's delay."""

    ask_s: float = 30.0
    """Nodes with wildcards repeat them to the others so often."""

    introduce_s: float = 10.0
    """Messages on a new overlay topic are copied for so long to nodes of earlier releases, which never say `Joined`."""

    active_s: float = 600.0
    """An overlay topic that was silent for so long counts as new again."""

    hold_ms: int = 1_000
    """A message that came before its predecessor waits for it so long, unless that one comes for certain."""

    share_takeover_s: float = 15.0
    """A message of a shared subscription goes to another member, if the node that has it was silent for so long."""

    sys_interval_s: int = 10
    """The node tells its own clients on `$SYS/broker/...` what has changed so often. 0: it tells nothing."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            may_be_0 = field == "sys_interval_s"
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and not value > 0 and not (may_be_0 and value == 0):
                raise InputError(field, f"it is {value}", "give more than 0")
        for field in ("take", "want"):
            for one in getattr(self, field):
                if not is_filter(one) or one.startswith("$"):
                    raise InputError(field, f'"{one}" is no topic filter that is carried', "give filters as in a/+/b")
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
        if self.depth > 32:
            raise InputError("depth", f"it is {self.depth}", "give 1 to 32")
        if bool(self.cert) != bool(self.key) or (self.ca and not self.cert):
            raise InputError("cert", "cert and key belong together, and ca to them", "give both, or none")
        if self.packet_bytes_max > 480 << 10:
            raise InputError("packet_bytes_max", f"it is {self.packet_bytes_max}", "give 491520 or less: see delivery")

    def __bool__(self) -> bool:
        """Is there a door?"""
        return bool(self.listen or self.broker)

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """Return what tools print of this value: no password."""
        return [(field, shown(f"mqtt.{field}", getattr(self, field))) for field in self.__struct_fields__]

    def __repr__(self) -> str:
        return f"MqttConfig({', '.join(f'{field}={value!r}' for field, value in self.__rich_repr__())})"


HIDDEN = "***"


def shown(key: str, value: object) -> object:
    """Return the value of a key of node.toml as it may be printed: without passwords."""
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
    return hide_password(url) != url
