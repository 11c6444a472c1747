"""The certificate of the MQTT listener."""

from __future__ import annotations

import ssl

from trellis.live.tls import Loaded, load_files, load_listener
from trellis.protocols.mqtt.config import MqttConfig


def load_certificate(config: MqttConfig) -> Loaded:
    """Load the configured certificate."""
    context = make_tls(config)
    assert context is not None, "the configuration has a certificate"
    return load_listener(context, config.cert, config.key)


def make_tls(config: MqttConfig) -> ssl.SSLContext | None:
    """Return the TLS context, or None without a certificate.

    Clients need a certificate only if `ca` is given, because they usually have passwords.
    """
    if not config.cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_files(context, "mqtt.", config.cert, config.key, config.ca)
    if config.ca:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
