"""Say in words why a connection failed, for logs, /healthz, errors and `trellis doctor`.

In these texts "it" is the other end, and "we" are this node or client.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl

from trellis.live.machine import LACKING

# Name of an OpenSSL error -> what it means. In all of these cases both ends speak TLS, and one refuses the other.
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a certificate, and we show none",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority that signed our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that our certificate has expired",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not accept our certificate for this use",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks another version of TLS",
    "UNSUPPORTED_PROTOCOL": "it speaks an older version of TLS",
}
_OF_DATES = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
# OpenSSL errors that mean that the other end does not speak TLS.
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL")


def why_not(error: BaseException, *, has_tls: bool = False) -> str:
    """Return why a connection failed. `has_tls`: this end used TLS."""
    match error:
        case ssl.SSLError():
            return why_no_tls(error)
        case socket.gaierror():
            return f"its host name cannot be resolved: {error.strerror or error}"
        case ConnectionRefusedError():
            return "connection refused: nothing listens there"
        case ConnectionResetError() | BrokenPipeError():
            hint = "; perhaps it does not speak TLS, or does not accept our certificate" if has_tls else ""
            return f"it closed the connection{hint}"
        case TimeoutError():
            return "no answer in time"
        case UnicodeError():
            return "its host name is not a valid one"
        case OSError():
            return (error.strerror or str(error) or type(error).__name__).lower()
    return str(error) or type(error).__name__


def is_refused(error: OSError) -> bool:
    """Return whether a connection failed because nothing listens at any address of the host."""
    if isinstance(error, ConnectionRefusedError):
        return True
    # If a host has several addresses, asyncio puts all errors into one text. An address of a kind that this machine
    # lacks is left out.
    numbers = (
        set(re.findall(r"\[Errno (\d+)\]", str(error))) if str(error).startswith("Multiple exceptions: ") else set()
    )
    refused = str(errno.ECONNREFUSED)
    return refused in numbers and numbers <= {refused, *map(str, LACKING)}


def why_no_tls(error: ssl.SSLError) -> str:
    """Return why TLS failed. OpenSSL itself gives the name of a constant at most."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason = error.reason or ""
    if reason in _PLAIN:
        return "it does not speak TLS, and we do"
    return _REASONS.get(reason) or f"TLS failed: {reason.lower().replace('_', ' ') or error}"


def is_refused_by_tls(error: BaseException) -> bool:
    """Return whether both ends speak TLS, and one refuses the certificate or the TLS version of the other."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    return isinstance(error, ssl.SSLError) and (error.reason or "") in _REASONS


def tls_remedy(error: BaseException) -> str:
    """Return what to do about an error for which `is_refused_by_tls`, or about an end that closed without a reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OF_DATES:
            return "renew its certificate, or set the clock of the machine that is wrong"
        return "name the authority that has signed its certificate, or let it show one of ours"
    if isinstance(error, ssl.SSLError) and "PROTOCOL" in (error.reason or ""):
        return "let both ends speak TLS 1.3"
    return "show a certificate that its authority has signed and that is valid now; its log says more"


def why_no_hello(cut: str, error: Exception | None, *, has_tls: bool) -> str:
    """Return why a stream that we dialed ended before the other end sent a hello.

    `cut` is our reason for cutting it (`Stream.why`), and empty if the other end closed it. `error` is the error with
    which the event loop reported the end of the connection, if any.
    """
    if cut in ("oversized", "garbage"):
        hint = "it is no mesh port of a Trellis node" if has_tls else "perhaps it speaks TLS, and this node does not"
        return f"what it answers is no hello: {hint}"
    if cut == "handshake":
        return "it took the connection and said nothing in time"
    if isinstance(error, ssl.SSLError):
        return why_no_tls(error)
    hint = "it does not accept our certificate" if has_tls else "it speaks TLS, and this node does not"
    return f"it closed the connection before a hello; perhaps it is no mesh port (listen) of a node, or {hint}"
