"""A client whose old connection was reset comes back, before its node has noticed."""

from __future__ import annotations

import asyncio
import socket
import struct

from trellis.live.config import LimitsConfig
from trellis.live.stream import Stream


class Owner:
    """Whoever owns a stream is told what happens to it. Here nobody does anything about it."""

    def opened(self, stream: Stream) -> None: ...

    def received(self, stream: Stream, body: bytes) -> None: ...

    def ended(self, stream: Stream) -> None: ...


def test_closing_a_stream_that_was_reset_raises_nothing_in_the_face_of_another_client():
    """The error would reach whoever caused the close: the new connection that takes the session over."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
        stream = Stream(Owner(), LimitsConfig(), 100)
        await loop.connect_accepted_socket(lambda: stream, accepted)
        stream.lingers = True
        stream.pause_reading()  # so the loop does not look
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # with a reset
        stream.close()
        assert stream.is_ended

    asyncio.run(work())
