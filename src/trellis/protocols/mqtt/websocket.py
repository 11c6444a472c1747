"""MQTT over WebSocket: the server's side of RFC 6455, without IO.  [MQTT 5, 6]

A connection begins with an HTTP request (the handshake). Then both sides send frames. For MQTT, the contents of all
binary frames are one stream of bytes: a packet may begin and end anywhere in a frame.  [MQTT-6.0.0-1, -2]

W1  Between two calls, at most `HEAD_BYTES_MAX` bytes of a request, or a frame's header and the content of a control
    frame (125 bytes), are kept. Contents of other frames are passed on as they arrive, whatever their length is.
W2  After `is_over`, nothing more is read and nothing more is sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

HEAD_BYTES_MAX = 8 << 10  # most bytes of the HTTP request
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # [RFC 6455, 1.3]
_REQUEST = re.compile(rb"GET [!-~]{1,2048} HTTP/1\.1")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}):[ \t]*([\t -~\x80-\xff]*)")
_PROTOCOLS = ("mqtt", "mqttv3.1")  # the second one is the older name  [MQTT-6.0.0-3]
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_CONTROL_BYTES_MAX = 125
GOING_AWAY, PROTOCOL_ERROR, UNSUPPORTED = 1001, 1002, 1003  # codes of a CLOSE frame
NORMAL = 1000


class WebSocket:
    """One connection. `feed` returns what the client sent; `take` returns what must be sent to it."""

    def __init__(self, origins: tuple[str, ...] = ()) -> None:
        """`origins`: web pages that may connect, as in https://example.org. Empty: all of them."""
        self.origins = origins
        self.is_open = False  # The handshake is over.
        self.is_over = False  # The connection must be closed when what `take` returns was sent.
        self.why = ""  # why we ended it; empty: we did not
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._left = 0  # bytes of the present frame's content that are still to come
        self._mask, self._at = b"", 0  # mask of the present frame, and how many bytes of it were unmasked
        self._opcode = _BINARY  # of the present frame
        self._is_within = False  # A message is not finished: only continuations and control frames may follow.

    def feed(self, data: bytes) -> bytes:
        """Take in received bytes. Return the contents of binary frames, as one piece."""
        if self.is_over:
            return b""
        self._buffer += data
        if not self.is_open and not self._shake_hands():
            return b""
        out: list[bytes] = []
        while not self.is_over and self._step(out):
            pass
        return out[0] if len(out) == 1 else b"".join(out)

    def take(self) -> bytes:
        """Return what must be sent to the client now."""
        out, self._out = self._out, []
        return b"".join(out)

    def wrap(self, data: bytes) -> bytes:
        """Return bytes for the client as a binary frame."""
        return _frame(_BINARY, data)

    def close(self, code: int = NORMAL) -> None:
        """End the connection with a CLOSE frame."""
        if self.is_open and not self.is_over:
            self._out.append(_frame(_CLOSE, code.to_bytes(2, "big")))
        self.is_over = True

    # Handshake

    def _shake_hands(self) -> bool:
        """Answer the request if it is complete. Return whether frames follow."""
        end = self._buffer.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                self._refuse("431 Request Header Fields Too Large", "the request is too long")
            return False
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        first, *lines = head.split(b"\r\n")
        fields = [_FIELD.fullmatch(line) for line in lines]
        if _REQUEST.fullmatch(first) is None or None in fields:
            return self._refuse("400 Bad Request", "this port speaks MQTT over WebSocket")
        headers: dict[str, list[str]] = {}
        for field in fields:
            assert field is not None
            values = field[2].decode("latin-1").split(",")
            headers.setdefault(field[1].decode().lower(), []).extend(value.strip() for value in values)
        return self._accept(headers)

    def _accept(self, headers: dict[str, list[str]]) -> bool:
        """Check the headers of a request, and answer it. Return whether it is accepted.  [RFC 6455, 4.2]"""
        keys = headers.get("sec-websocket-key", [])
        wishes = [value.lower() for name in ("upgrade", "connection") for value in headers.get(name, [])]
        if "websocket" not in wishes or "upgrade" not in wishes or len(keys) != 1 or not _is_key(keys[0]):
            return self._refuse("400 Bad Request", "this port speaks MQTT over WebSocket")
        if headers.get("sec-websocket-version") != ["13"]:
            return self._refuse("426 Upgrade Required", "version 13 is spoken", "Sec-WebSocket-Version: 13\r\n")
        offered = headers.get("sec-websocket-protocol", [])
        chosen = next((one for one in _PROTOCOLS if one in offered), None)
        if offered and chosen is None:
            return self._refuse("400 Bad Request", "the subprotocol is mqtt")
        origins = headers.get("origin", [])
        if self.origins and origins and not set(origins) <= set(self.origins):
            return self._refuse("403 Forbidden", "this origin may not connect")
        proof = base64.b64encode(hashlib.sha1(keys[0].encode("latin-1") + _GUID, usedforsecurity=False).digest())
        answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        answer += f"Sec-WebSocket-Accept: {proof.decode()}\r\n"
        if chosen is not None:
            answer += f"Sec-WebSocket-Protocol: {chosen}\r\n"
        self._out.append(f"{answer}\r\n".encode())
        self.is_open = True
        return True

    def _refuse(self, status: str, why: str, more: str = "") -> bool:
        """Refuse a request."""
        body = f"{why}\n"
        head = f"HTTP/1.1 {status}\r\n{more}Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        self._out.append(f"{head}Connection: close\r\n\r\n{body}".encode())
        self._buffer.clear()
        self.is_over, self.why = True, "no WebSocket"
        return False

    # Frames  [RFC 6455, 5.2]

    def _step(self, out: list[bytes]) -> bool:
        """Process the next header, control frame or part of a content. Return whether there may be more to process."""
        if self._left:
            return self._content(out)
        buffer = self._buffer
        if len(buffer) < 2:
            return False
        opcode, length = buffer[0] & 0x0F, buffer[1] & 0x7F
        is_final, is_control = bool(buffer[0] & 0x80), opcode >= _CLOSE
        fault = self._fault(opcode, is_final, length)
        if fault:
            self._fail(UNSUPPORTED if opcode == _TEXT else PROTOCOL_ERROR, fault)
            return False
        more = {126: 2, 127: 8}.get(length, 0)
        end = 2 + more + 4
        if len(buffer) < end + (length if is_control else 0):
            return False
        if more:
            length = int.from_bytes(buffer[2 : 2 + more], "big")
        self._mask, self._at = bytes(buffer[end - 4 : end]), 0
        del buffer[:end]
        if is_control:
            content = _unmask(bytes(buffer[:length]), self._mask, 0)
            del buffer[:length]
            self._control(opcode, content)
        else:
            self._left, self._is_within = length, not is_final
        return True

    def _fault(self, opcode: int, is_final: bool, length: int) -> str:
        """Return what is wrong with the header that stands in the buffer, or an empty text."""
        if self._buffer[0] & 0x70:
            return "reserved bits"
        if not self._buffer[1] & 0x80:
            return "a frame without a mask"
        if opcode == _TEXT:
            return "a text frame"  # [MQTT-6.0.0-1]
        if opcode not in (_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG):
            return "an unknown opcode"
        if opcode >= _CLOSE and (not is_final or length > _CONTROL_BYTES_MAX):
            return "a control frame that is too long or in parts"
        if opcode < _CLOSE and (opcode == _CONTINUATION) != self._is_within:
            return "a frame that does not continue its message"
        return ""

    def _content(self, out: list[bytes]) -> bool:
        """Pass on the part of a frame's content that has arrived."""
        part = bytes(self._buffer[: self._left])
        if not part:
            return False
        del self._buffer[: len(part)]
        out.append(_unmask(part, self._mask, self._at))
        self._at += len(part)
        self._left -= len(part)
        return True

    def _control(self, opcode: int, content: bytes) -> None:
        if opcode == _PING:
            self._out.append(_frame(_PONG, content))
        elif opcode == _CLOSE:
            self._out.append(_frame(_CLOSE, content[:2]))
            self.is_over = True

    def _fail(self, code: int, why: str) -> None:
        self.close(code)
        self.why = why


def _is_key(key: str) -> bool:
    """Return whether a text is 16 bytes in base64."""
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _frame(opcode: int, content: bytes) -> bytes:
    """Return an unmasked frame."""
    length = len(content)
    if length < 126:
        return bytes((0x80 | opcode, length)) + content
    if length < 1 << 16:
        return bytes((0x80 | opcode, 126)) + length.to_bytes(2, "big") + content
    return bytes((0x80 | opcode, 127)) + length.to_bytes(8, "big") + content


def _unmask(data: bytes, mask: bytes, at: int) -> bytes:
    """Return the content of a frame, of which `at` bytes came before."""
    turned = mask[at % 4 :] + mask[: at % 4]
    repeated = (turned * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")
