"""Parse requests and encode answers of HTTP/1.1, for the server in `http.py`."""

from __future__ import annotations

import ipaddress
import re
import time
from dataclasses import dataclass

from trellis.live.machine import machine

HEAD_BYTES_MAX = 16 << 10
TARGET_LETTERS_MAX = 2_048
READING = ("GET", "HEAD")  # methods of a read-only server
CHANGING = (*READING, "PUT", "DELETE")

_REASONS = {
    200: "OK",
    202: "Accepted",
    304: "Not Modified",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
}
_REASONS |= {401: "Unauthorized", 409: "Conflict"}
_REASONS |= {408: "Request Timeout", 413: "Content Too Large", 414: "URI Too Long", 421: "Misdirected Request"}
_REASONS |= {431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable"}
_REASONS |= {505: "HTTP Version Not Supported"}
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]+) HTTP/(\d)\.(\d)")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Request:
    """The head of a request."""

    method: str
    path: str  # as it was sent, up to "?"
    headers: dict[str, str]  # by name in lower case
    keeps_alive: bool  # The client wants to use the connection again.
    query: str = ""  # what follows "?", as it was sent


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    body: bytes
    kind: str = _TEXT  # the content type
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class BadRequest(Exception):
    """A request that is answered with an error status and one line of text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def parse_request(head: bytes, *, is_local: bool = True, methods: tuple[str, ...] = READING) -> Request:
    """Parse a head, which is given without its empty last line. Raise BadRequest, and no other error.

    `is_local`: refuse hosts that are neither an address nor localhost.
    """
    first, *rest = head.split(b"\r\n")
    request_line = _REQUEST.fullmatch(first)
    if request_line is None:
        raise BadRequest(400, "this is no HTTP request")
    method, target, major, minor = request_line.groups()
    if (major, minor) not in ((b"1", b"1"), (b"1", b"0")):
        raise BadRequest(505, "HTTP/1.1 is spoken here")
    if method.decode() not in methods:
        raise BadRequest(405, f"only {', '.join(methods[:-1])} and {methods[-1]} are answered")
    if len(target) > TARGET_LETTERS_MAX:
        raise BadRequest(414, "the address is too long")
    if not target.startswith(b"/"):
        raise BadRequest(400, "the address does not begin with /")
    headers: dict[str, str] = {}
    for line in rest:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise BadRequest(400, "a header is malformed")
        name = field[1].decode().lower()
        if name == "host" and name in headers:
            raise BadRequest(400, "two hosts are named")
        headers[name] = field[2].rstrip(b" \t").decode("latin-1")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(413, "a request has no body here")
    if minor == b"1" and "host" not in headers:
        raise BadRequest(400, "no host is named")
    if is_local and "host" in headers and not is_local_host(headers["host"]):
        raise BadRequest(421, "this is not that host: use an address or localhost")
    wishes = {wish.strip().lower() for wish in headers.get("connection", "").split(",")}
    keeps_alive = "close" not in wishes if minor == b"1" else "keep-alive" in wishes
    path, _, query = target.decode().partition("?")
    return Request(method.decode(), path, headers, keeps_alive, query)


def is_local_host(host: str) -> bool:
    """Return whether a host is an address or localhost. Other names may be under the control of an attacker."""
    name = host if re.search(r":\d+$", host) is None or host.endswith("]") else host.rpartition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True


def pack_answer(answer: Answer, has_body: bool, keeps_alive: bool) -> bytes:
    """Return an answer as bytes. `has_body`: False for the answer to HEAD, which has the head alone."""
    head = pack_head(
        answer.status,
        [
            ("Content-Type", answer.kind),
            ("Content-Length", str(len(answer.body))),
            ("Connection", "keep-alive" if keeps_alive else "close"),
            *answer.headers,
        ],
    )
    return head + answer.body if has_body else head


def pack_head(status: int, headers: list[tuple[str, str]]) -> bytes:
    """Return the head of an answer as bytes, with its empty last line."""
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime(machine().wall_s()))}",
    ]
    lines += [f"{name}: {value}" for name, value in headers]
    lines += ["Cache-Control: no-store", "X-Content-Type-Options: nosniff", "", ""]
    return "\r\n".join(lines).encode("latin-1")
