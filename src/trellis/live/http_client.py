"""A small HTTP/1.1 client for the server in `http.py`. It reads no other forms of answers."""

from __future__ import annotations

import asyncio
import re
import ssl

from trellis.live.addresses import parse_address
from trellis.live.http_messages import HEAD_BYTES_MAX


class NoAnswer(ValueError):
    """The server closed the connection before its answer was complete."""


class HttpClient:
    """Send requests to one server, over a connection that stays open."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None, bytes_max: int = 16 << 20) -> None:
        self.address, self._tls, self._bytes_max = address, tls, bytes_max
        self._host_and_port = parse_address(address)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str, timeout_s: float = 2.0) -> tuple[int, bytes]:
        """Return status and body of a GET request. Raise OSError (TimeoutError is one) or ValueError."""
        return await self.ask("GET", path, timeout_s)

    async def ask(self, method: str, path: str, timeout_s: float = 2.0, token: str = "") -> tuple[int, bytes]:
        """Return status and body for any method that may be repeated. `token`: the secret of `admin_token`."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.address}\r\n"
        head += f"Authorization: Bearer {token}\r\n" if token else ""
        async with asyncio.timeout(timeout_s):
            try:
                if self._streams is not None and self._streams[1].is_closing():
                    self.close()
                if self._streams is not None:
                    try:
                        return await self._ask(*self._streams, head, path)
                    except (OSError, ValueError):
                        self.close()  # the server may have closed it as idle: try once more on a new one
                self._streams = await asyncio.open_connection(*self._host_and_port, ssl=self._tls, limit=HEAD_BYTES_MAX)
                return await self._ask(*self._streams, head, path)
            except BaseException:
                self.close()  # a late answer must not be taken for the next one
                raise

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str, path: str
    ) -> tuple[int, bytes]:
        writer.write(f"{head}\r\n".encode())
        try:
            answer_head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"\r\nContent-Length: (\d{1,9})\r\n", answer_head)
            status = re.match(rb"HTTP/1\.1 (\d{3}) ", answer_head)
            if length is None or status is None or int(length[1]) > self._bytes_max:
                raise ValueError(f"{self.address}{path}: not an answer that we read")
            body = await reader.readexactly(int(length[1]))
        except asyncio.IncompleteReadError:
            raise NoAnswer("it closed the connection without an answer") from None
        except asyncio.LimitOverrunError as error:
            raise ValueError(f"{self.address}{path}: {error}") from None
        if b"\r\nConnection: close\r\n" in answer_head:
            self.close()
        return int(status[1]), body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def get(address: str, path: str, timeout_s: float = 2.0) -> tuple[int, bytes]:
    """Return status and body of a single GET request."""
    client = HttpClient(address)
    try:
        return await client.get(path, timeout_s)
    finally:
        client.close()
