"""Keys of node.toml that `trellis up --set` gives to all nodes alike."""

from __future__ import annotations

from collections.abc import Mapping

from trellis.errors import InputError
from trellis.live.config import read_setting

_INTERESTS = "give --interests, which names the nodes"
_BY_ITSELF = "leave it out: trellis up chooses one for each node"
_PER_NODE = {
    "name": _INTERESTS,
    "listen": _BY_ITSELF,
    "advertise": _BY_ITSELF,
    "client_listen": _BY_ITSELF,
    "admin_listen": _BY_ITSELF,
    "seeds": _BY_ITSELF,
    "planned.neighbours": "give --plan",
    "tls.cert": "leave it out: a mesh of trellis up has no TLS",
    "tls.key": "leave it out: a mesh of trellis up has no TLS",
    "telemetry.file": "leave it out, or write a node.toml for each node and run trellis node",
    "mqtt.listen": "give --mqtt",
    "mqtt.broker": "give --mqtt --broker mosquitto",
    "mqtt.learn_file": _BY_ITSELF,
    "mqtt.cert": "leave it out: a mesh of trellis up has no TLS",
    "mqtt.key": "leave it out: a mesh of trellis up has no TLS",
}
_OPTIONS = {"overlay": "--overlay", "delivery.copies": "--copies"}  # The score depends on them.


def shared_settings(given: Mapping[str, str]) -> dict[str, object]:
    """Return the settings with their lists read. Raise InputError for keys that nodes cannot share."""
    settings: dict[str, object] = {}
    for key, text in given.items():
        where = f"--set {key}"
        settings[key] = read_setting(key, text, where)
        if key in _PER_NODE:
            raise InputError(where, "it must differ from node to node, and --set is for all nodes", _PER_NODE[key])
        if key in _OPTIONS:
            raise InputError(where, "this run has an option for it", f"give {_OPTIONS[key]} {text}")
    return settings
