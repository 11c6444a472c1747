"""Mutual TLS: both ends show a certificate that the cluster's authority has signed. Host names are not compared: a node
is known by its name in the hello, which its certificate must carry (as a common name, or among its alternative names).
Clients have no names: whoever has a certificate of the cluster may be one."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from trellis.errors import InputError
from trellis.live.config import TlsConfig


def contexts(config: TlsConfig) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """For accepting and for dialling; None where there is no TLS."""
    if not config:
        return None
    return make_context(config, server=True), make_context(config, server=False)


def names_of(certificate: Mapping[str, Any]) -> list[str]:
    """The names that a certificate carries, given as `SSLSocket.getpeercert` tells it."""
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return [*common, *(value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")]


def make_context(config: TlsConfig, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    for key, path in (("cert", config.cert), ("key", config.key), ("ca", config.ca)):
        try:
            with open(path, "rb"):  # noqa: PTH123  ssl names no file in its own error
                pass
        except OSError as error:
            raise InputError(f"tls.{key}", f"{path}: {error.strerror}", "name a PEM file that is there") from None
    try:
        context.load_cert_chain(config.cert, config.key)
        context.load_verify_locations(config.ca)
    except ssl.SSLError as error:
        raise InputError("tls", f"{config.cert}, {config.key}, {config.ca}: {error.reason}", "give PEM files") from None
    return context
