"""Reason codes of MQTT 5, and their counterparts in 3.1.1.  [MQTT 5, 2.4]"""

from __future__ import annotations

SUCCESS = 0x00
WITH_WILL = 0x04
NO_MATCHING = 0x10  # of a publication: nobody subscribes to its topic
NO_SUBSCRIPTION = 0x11
UNSPECIFIED = 0x80
MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
IMPLEMENTATION = 0x83
VERSION = 0x84
CLIENT_ID = 0x85
PASSWORD = 0x86  # We say NOT_AUTHORIZED instead, as Mosquitto does. Brokers beside a sidecar say this one.
NOT_AUTHORIZED = 0x87
UNAVAILABLE = 0x88
BUSY = 0x89
SHUTTING_DOWN = 0x8B
METHOD = 0x8C
KEEP_ALIVE = 0x8D
TAKEN_OVER = 0x8E
FILTER_INVALID = 0x8F
TOPIC_INVALID = 0x90
ID_IN_USE = 0x91
ID_NOT_FOUND = 0x92
RECEIVE_MAX = 0x93
ALIAS_INVALID = 0x94
TOO_LARGE = 0x95
QUOTA = 0x97
RETAIN_UNSUPPORTED = 0x9A
QOS_UNSUPPORTED = 0x9B
SHARED_UNSUPPORTED = 0x9E

# Names are labels of metrics, so there are no others, whatever a client sends.
NAMES = {value: name.lower().replace("_", " ") for name, value in list(globals().items()) if name.isupper()}

# CONNACK of 3.1.1 has five refusal codes of its own.  [MQTT 3.1.1, 3.2.2.3]
_V311 = {VERSION: 1, CLIENT_ID: 2, UNAVAILABLE: 3, BUSY: 3, SHUTTING_DOWN: 3, PASSWORD: 4, NOT_AUTHORIZED: 5}


def connack_311(reason: int) -> int | None:
    """Return the CONNACK code of 3.1.1. None: there is none, and the connection is closed without CONNACK."""
    return 0 if reason == SUCCESS else _V311.get(reason)


def name(reason: int) -> str:
    """Return the name of a reason code."""
    return NAMES.get(reason, NAMES[UNSPECIFIED])
