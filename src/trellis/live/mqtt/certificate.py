"""The certificate of the MQTT listener."""

from __future__ import annotations

import ssl

from trellis.errors import InputError
from trellis.live.tls import Loaded, load_listener
from trellis.protocols.mqtt.config import MqttConfig


def load_certificate(config: MqttConfig) -> Loaded:
    context = make_tls(config)
    assert context is not None, "the configuration has a certificate"
    return load_listener(context, config.cert, config.key)


def make_tls(config: MqttConfig) -> ssl.SSLContext | None:
    """Not mutual unless `ca` is given: MQTT clients have passwords."""
    if not config.cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.cert, config.key)
        if config.ca:
            context.load_verify_locations(config.ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # ssl.SSLError as well
        files = ", ".join(one for one in (config.cert, config.key, config.ca) if one)
        raise InputError("mqtt.cert", f"{files}: {error.strerror or error}", "name PEM files that are there") from None
    return context
