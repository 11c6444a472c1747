"""Mutual TLS: read roles from certificates, load certificates, and replace them while the node runs.

Both ends show a certificate that the cluster's authority has signed. A certificate names the role of its holder in a
subject alternative name of type URI, which `trellis certs` writes:

    trellis:node:NAME      may join the mesh as the node NAME, and may do what a client may do
    trellis:client:NAME    may use the client port and the admin port

Common names and DNS names do not name nodes. They are for programs that compare host names (browsers, MQTT clients). A
certificate of the authority that names no role is accepted from a client, and never from a node.

`Loaded` holds the contexts made from one reading of the files. `Credentials` watches the files: when they have changed,
it loads them, and new handshakes use the new certificates. If they cannot be loaded, the old ones stay in use.
"""

from __future__ import annotations

import logging
import shlex
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from trellis.errors import InputError
from trellis.live.clock import wall_s
from trellis.live.config import TlsConfig
from trellis.live.reasons import why_no_tls

log = logging.getLogger("trellis.live")

NODE_URI, CLIENT_URI = "trellis:node:", "trellis:client:"
SOON_S = 14 * 86_400.0  # A certificate that expires within this time causes a warning.
_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, for which Python has no name
_NAMES_SHOWN = 5  # most names of a certificate that a refusal names
SPEAKS_TLS = "this port speaks TLS"  # the answer to a client that does not speak TLS begins with it


# Roles


def node_uri(name: str) -> str:
    """Return the alternative name that allows the holder of a certificate to be the node `name`."""
    return NODE_URI + quote(name, safe="")


def names_of(certificate: Mapping[str, Any]) -> list[str]:
    """Return the nodes that the holder of a certificate may be. It has the form of `SSLSocket.getpeercert`."""
    return _by_role(certificate, NODE_URI)


def user_of(certificate: Mapping[str, Any]) -> str | None:
    """Return the user that a client's certificate names: the client of its role, or its common name without a role.

    None if the certificate has only the role of a node, or if it names several clients.
    """
    names = _by_role(certificate, CLIENT_URI)
    if not names and not names_of(certificate):
        names = _common_names(certificate)
    return names[0] if len(names) == 1 and names[0] else None


def describe(certificate: Mapping[str, Any]) -> str:
    """Return in a few words what a certificate names, for refusals. Names are shortened, since a peer chose them."""
    for role, prefix in (("node", NODE_URI), ("client", CLIENT_URI)):
        names = _by_role(certificate, prefix)
        if names:
            return f"a certificate for {role} {_listed(names)}"
    common = _common_names(certificate)
    of = f" ({_listed(common)})" if common else ""
    return f"a certificate without a role{of}, as earlier versions made them"


def why_not_node(certificate: Mapping[str, Any], name: str) -> str:
    """Return why the holder of a certificate may not be the node `name`, or an empty string if it may."""
    return "" if name in names_of(certificate) else f"{_shows_another(certificate, name)}; {_renew(name)}"


def _shows_another(certificate: Mapping[str, Any], name: str) -> str:
    return f"{name} shows {describe(certificate)}, and may not join as {name}"


def _renew(name: str) -> str:
    return f"make one with: trellis certs node {shlex.quote(name)}"


def _by_role(certificate: Mapping[str, Any], prefix: str) -> list[str]:
    """Return the names that a certificate has in the role of this prefix."""
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    return [unquote(uri[len(prefix) :]) for uri in uris if uri.startswith(prefix)]


def _common_names(certificate: Mapping[str, Any]) -> list[str]:
    return [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:64])[1:-1] for name in sorted(names)[:_NAMES_SHOWN])


# Contexts


def make_context(config: TlsConfig, *, server: bool, prefix: str = "tls.") -> ssl.SSLContext:
    """Return a context that shows our certificate and requires one that our authority has signed.

    Host names are not compared, since certificates name nodes and not hosts. `prefix`: see `load_files`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    load_files(context, prefix, config.cert, config.key, config.ca)
    return context


def load_files(context: ssl.SSLContext, prefix: str, cert: str, key: str, ca: str = "") -> None:
    """Load a certificate with its key, and the authority if one is given. Raise InputError, which names the bad file.

    In errors `prefix` stands before "cert", "key" and "ca": "tls." for a table of node.toml, "--" for options.
    """
    for name, path in (("cert", cert), ("key", key), ("ca", ca)):
        try:
            if path:
                with open(path, "rb"):  # noqa: PTH123  errors of ssl name no file
                    pass
        except OSError as error:
            remedy = "name a PEM file that this user can read"
            raise InputError(f"{prefix}{name}", f"{path}: {(error.strerror or str(error)).lower()}", remedy) from None
    if ca and not _holds_certificate(ca):
        raise InputError(f"{prefix}ca", f"{ca} holds no certificate in PEM", "name the file ca.pem of the authority")

    def ask_password() -> str:
        remedy = f"write it without one: openssl pkey -in {key} -out NEW.key"
        raise InputError(f"{prefix}key", f"{key} is encrypted with a password", remedy)

    try:
        context.load_cert_chain(cert, key, ask_password)
    except ssl.SSLError as error:
        raise _why_no_pair(error, prefix, cert, key) from None
    if ca:
        context.load_verify_locations(ca)


def _why_no_pair(error: ssl.SSLError, prefix: str, cert: str, key: str) -> InputError:
    """Return what is wrong with a certificate and its key. ssl itself gives the name of a constant at most."""
    if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
        return InputError(f"{prefix}key", f"{key} is not the key of {cert}", "give a certificate and its own key")
    if not _holds_certificate(cert):
        return InputError(f"{prefix}cert", f"{cert} holds no certificate in PEM", "name a certificate's PEM file")
    if b"PRIVATE KEY-----" not in Path(key).read_bytes():
        return InputError(f"{prefix}key", f"{key} holds no private key in PEM", "name the key of the certificate")
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return InputError(f"{prefix}cert", f"{cert} cannot be used with {key}: {reason}", "make both again")


def _holds_certificate(path: str) -> bool:
    """Return whether a file holds at least one certificate in PEM."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True


@dataclass(frozen=True)
class Loaded:
    """The result of reading the files of a certificate once."""

    accepting: ssl.SSLContext  # for connections that others open
    dialling: ssl.SSLContext | None  # for connections that we open; None for the MQTT listener, which opens none
    expires_s: Mapping[str, float]  # "cert", and perhaps "ca" -> when it expires, in seconds since 1970
    begins_s: float = 0.0  # when our certificate begins to be valid, in seconds since 1970


def load_node(config: TlsConfig, name: str, *, at_any_time: bool = False) -> Loaded:
    """Load the certificate of the node `name`. Raise InputError if the other nodes would not accept it.

    `at_any_time`: also load certificates that have expired or are not valid yet. The caller then checks the dates.
    """
    accepting, dialling = make_context(config, server=True), make_context(config, server=False)
    server, client = make_context(config, server=True), make_context(config, server=False)
    renew = f"make one with that authority: trellis certs node {shlex.quote(name)}"
    try:
        mine = _shown(server, client, checks_time=False)
    except ssl.SSLError as error:
        reason = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else why_no_tls(error)
        raise InputError("tls.cert", f"{config.cert} is not accepted with {config.ca}: {reason}", renew) from None
    if name not in names_of(mine):
        raise InputError("tls.cert", f"{config.cert}: {_shows_another(mine, name)}", _renew(name))
    if not at_any_time:
        _check_time(server, client, "tls.", mine, config.cert, renew)
    ends = [_seconds(authority["notAfter"]) for authority in accepting.get_ca_certs()]
    expires = {"cert": _seconds(mine["notAfter"]), **({"ca": min(ends)} if ends else {})}
    return Loaded(accepting, dialling, expires, _seconds(mine["notBefore"]))


def load_listener(accepting: ssl.SSLContext, cert: str, key: str, *, at_any_time: bool = False) -> Loaded:
    """Return the context of the MQTT listener with the dates of its certificate. Any authority may have signed it.

    `at_any_time`: see `load_node`.
    """
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    load_files(server, "mqtt.", cert, key)
    client.check_hostname = False
    client.load_verify_locations(cert)  # Trust the certificate itself: we only want to read its dates.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        mine = _shown(server, client, checks_time=False)
    except ssl.SSLError as error:
        raise InputError("mqtt.cert", f"{cert}: {why_no_tls(error)}", "give a certificate for servers") from None
    if not at_any_time:
        _check_time(server, client, "mqtt.", mine, cert, "renew it")
    return Loaded(accepting, None, {"cert": _seconds(mine["notAfter"])}, _seconds(mine["notBefore"]))


def _check_time(
    server: ssl.SSLContext, client: ssl.SSLContext, prefix: str, mine: Mapping[str, Any], cert: str, renew: str
) -> None:
    """Raise InputError if a peer would refuse the certificate `mine` now because of a date in its chain.

    `mine` is the certificate of `server`, and `client` verifies it. `renew` says how to renew it.
    """
    try:
        _shown(server, client, checks_time=True)
    except ssl.SSLCertVerificationError as error:
        now_s, begins_s, ends_s = wall_s(), _seconds(mine["notBefore"]), _seconds(mine["notAfter"])
        if begins_s > now_s:
            # The text must not contain the present time, since every new text is logged.
            why = f"{cert} is not valid before {show_date(begins_s)}"
            raise InputError(f"{prefix}cert", why, f"set this machine's clock, or {renew}") from None
        if ends_s <= now_s:
            raise InputError(f"{prefix}cert", f"{cert} has expired on {show_date(ends_s)}", renew) from None
        why = f"an authority behind {cert} is not accepted: {error.verify_message}"
        raise InputError(f"{prefix}ca", why, "docs/runbook.md says how to change an authority") from None


def show_date(seconds: float) -> str:
    """Return a time, in seconds since 1970, as text for people."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _seconds(date: object) -> float:
    """Return a date of a certificate in seconds since 1970."""
    return float(ssl.cert_time_to_seconds(str(date)))


def _shown(server: ssl.SSLContext, client: ssl.SSLContext, *, checks_time: bool) -> dict[str, Any]:
    """Return the contents of `server`'s certificate. Raise ssl.SSLError if `client` or `server` refuses the other.

    Python parses only certificates that a peer has shown. So the two contexts do a TLS handshake in memory. Without
    `checks_time` the dates are not checked, so that the caller can read the dates of an expired certificate.
    """
    for context in (server, client):
        flags = context.verify_flags
        context.verify_flags = flags & ~_NO_CHECK_TIME if checks_time else flags | _NO_CHECK_TIME
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_side=False), server.wrap_bio(up, down, server_side=True)]
    waiting = list(ends)
    for _ in range(10):  # Three turns are enough.
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    if waiting:
        raise ssl.SSLError("the handshake does not end")
    return dict(ends[0].getpeercert() or {})


def make_looking_context(ca: str) -> ssl.SSLContext:
    """Return a context that shows no certificate, and accepts certificates of an authority even if they have expired.

    Use it only to look at the certificate of a listener.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(ca)
    context.verify_flags |= _NO_CHECK_TIME
    return context


# Replacing certificates while the node runs


class Credentials:
    """The certificate files of one or more ports, and the newest contexts that could be loaded from them (`now`).

    New handshakes use `now`. Open streams are not affected when it changes.
    """

    def __init__(self, node: str, what: str, files: Sequence[str], load: Callable[[], Loaded]) -> None:
        """Load the files, and raise InputError if they cannot be used.

        `node` is the node's name, for logs. `what` is the section of node.toml that names the files: "tls" or "mqtt".
        """
        self.node, self.what, self.files = node, what, tuple(path for path in files if path)
        self.trouble = ""  # why the newest files are not in use. Empty: they are.
        self.reloads = 0  # number of times that new files were loaded
        self._load = load
        # `signature` of the files at the last look, and of the files that are in use
        self._seen = self._loaded = self._signature()
        self.now = load()
        self._tell_ends()

    def look(self, *, at_once: bool = False) -> None:
        """Load the files if they have changed, and have not changed again since the last look.

        If they have, they may still be being copied, and the next look loads them. `at_once`: load them in any case.
        """
        present = self._signature()
        is_settled, self._seen = present == self._seen, present
        if not at_once and present == self._loaded:
            self.trouble = ""  # New files that could not be used were replaced by the old ones.
        elif at_once or is_settled:
            self._reload(present)

    def complaints(self) -> list[str]:
        """Return a sentence for each file in use that has expired, or is not valid yet since the clock went back."""
        sentences = [
            f"{self.what}.{key} has ended on {day}: renew it" for key, day, left_s in self._ends() if left_s <= 0
        ]
        if self.now.begins_s > wall_s():
            begins = show_date(self.now.begins_s)
            sentences.append(f"{self.what}.cert is not valid before {begins}: set this machine's clock, or renew it")
        return sentences

    def warnings(self) -> list[str]:
        """Return sentences about files that expire soon, and about new files that cannot be used."""
        soon = [(key, day) for key, day, left_s in self._ends() if 0 < left_s < SOON_S]
        sentences = [f"{self.what}.{key} ends on {day}: renew it" for key, day in soon]
        return [*sentences, *([f"new files of {self.what} are not in use: {self.trouble}"] if self.trouble else [])]

    def _ends(self) -> list[tuple[str, str, float]]:
        """Return for each file its key, the day on which it expires, and the seconds until then."""
        return [
            (key, time.strftime("%Y-%m-%d", time.gmtime(until_s)), until_s - wall_s())
            for key, until_s in self.now.expires_s.items()
        ]

    def _reload(self, present: tuple[object, ...]) -> None:
        """Load the files, whose signature is `present`. If they cannot be used, log why and keep the old ones."""
        try:
            self.now = self._load()
        except (InputError, OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if self.trouble != str(error):
                self.trouble = str(error)
                log.warning("%s: new certificates cannot be used, the old ones stay: %s", self.node, error)
            return
        self.trouble, self._loaded = "", present
        self.reloads += 1
        until = time.strftime("%Y-%m-%d", time.gmtime(self.now.expires_s["cert"]))
        log.info("%s: loaded new certificates of %s, valid until %s", self.node, self.what, until)
        self._tell_ends()

    def _tell_ends(self) -> None:
        """Log certificates that have expired or expire soon."""
        for text in (*self.complaints(), *self.warnings()):
            log.warning("%s: a certificate needs to be renewed: %s", self.node, text)

    def _signature(self) -> tuple[object, ...]:
        return signature(self.files)


def signature(files: Sequence[str]) -> tuple[object, ...]:
    """Return a value that changes when a file is replaced, also behind a symbolic link, as Kubernetes does it."""
    states: list[object] = []
    for path in files:
        try:
            about = Path(path).stat()
            states.append((about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size))
        except OSError as error:
            states.append(error.errno)
    return tuple(states)


def node_credentials(config: TlsConfig, name: str) -> Credentials | None:
    """Return the credentials of the mesh port, client port and admin port; None if TLS is not configured."""
    if not config:
        return None
    return Credentials(name, "tls", (config.cert, config.key, config.ca), lambda: load_node(config, name))
