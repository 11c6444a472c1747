"""Connections of MQTT clients: packets instead of frames, over TCP or inside a WebSocket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trellis.live.stream import Stream, StreamLimits
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.websocket import GOING_AWAY, NORMAL, WebSocket

if TYPE_CHECKING:
    from trellis.live.mqtt.listener import MqttListener


class MqttStream(Stream):
    """A client's connection: packets instead of frames. Its queue is bounded, and slow readers are disconnected."""

    lingers = True  # so that clients read why they are disconnected

    def __init__(self, owner: MqttListener, limits: StreamLimits, number: int, packet_bytes_max: int) -> None:
        super().__init__(owner, limits, 0)
        self.number, self.version = number, 0  # `version` is 0 until CONNECT has come.
        self.framing = Framing(packet_bytes_max)
        self.is_waiting = self.is_closing = False  # waits for a password check; waits for its queue to be sent
        self.is_reading = True  # The host reads this client.
        self.is_queued = False  # Complete packets wait for the client's next turn. Nothing is read until then.
        self.timer: asyncio.TimerHandle | None = None
        self.fed = owner.fed
        self.traffic = owner.traffic

    def data_received(self, data: bytes) -> None:
        self.traffic.bytes_in += len(data)
        if not self.is_closing:
            self.framing.feed(data)
            self.fed(self)


class WebSocketStream(MqttStream):
    """A client's connection over WebSocket. Its packets are the contents of binary frames.  [MQTT 5, 6]"""

    def __init__(self, owner: MqttListener, limits: StreamLimits, number: int, packet_bytes_max: int) -> None:
        super().__init__(owner, limits, number, packet_bytes_max)
        self.socket = WebSocket(owner.config.websocket_origins)

    def data_received(self, data: bytes) -> None:
        content = self.socket.feed(data)
        self._answer()
        if content:
            super().data_received(content)
        if self.socket.is_over and not self.is_closing:
            self.why = self.why or ("websocket" if self.socket.why else "")
            self.close()

    def send(self, frame: bytes, may_drop: bool = False) -> None:
        if not self.socket.is_over:
            super().send(self.socket.wrap(frame), may_drop)

    def close(self) -> None:
        if not self.is_ended:
            self.socket.close(GOING_AWAY if self.why else NORMAL)
            self._answer()
        super().close()

    def _answer(self) -> None:
        """Send what the WebSocket itself has to say."""
        if answer := self.socket.take():
            super().send(answer)
