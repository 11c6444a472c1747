"""Why a connection did not come about, in words for logs, /healthz and `trellis doctor`."""

from __future__ import annotations

import socket
import ssl

from trellis.live.tls import explain


def why_not(error: BaseException, *, has_tls: bool) -> str:
    """Return why a connection failed. `has_tls`: this side spoke TLS."""
    match error:
        case ssl.SSLError():
            return explain(error)
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


def why_no_hello(cut: str, error: Exception | None, *, has_tls: bool) -> str:
    """Return why a stream that we dialed ended before a hello.

    `cut` says why we cut it, and is empty if the peer closed it. `error` is what the loop said about its end.
    """
    if cut in ("oversized", "garbage"):
        hint = "it is no Trellis node" if has_tls else "perhaps it speaks TLS, and this node does not"
        return f"what it answers is no hello: {hint}"
    if cut == "handshake":
        return "it took the connection and said nothing in time"
    if isinstance(error, ssl.SSLError):
        return explain(error)
    if has_tls:
        return "it closed the connection before a hello; perhaps it does not accept our certificate"
    return "it closed the connection before a hello; perhaps it speaks TLS, and this node does not"
