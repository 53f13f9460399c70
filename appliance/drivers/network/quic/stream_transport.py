"""A stream of HTTP/3 as a WebSocket sees its transport (RFC 9220): bytes both ways, and an end.

What the client sends while the WebSocket does not read waits in the window of its stream.
"""

import asyncio
from typing import Any

from appliance.base.limits import CLIENT_WRITE_HIGH, CLIENT_WRITE_LOW
from appliance.drivers.network.quic.streams import Carrier
from appliance.drivers.quic.library import Http3Code


class StreamTransport(asyncio.Transport):
    """Of one stream. `protocol` is there from its making to its end."""

    def __init__(self, client: Carrier, stream_id: int) -> None:
        super().__init__()
        self.protocol: asyncio.Protocol | None = None
        self._client, self._stream_id = client, stream_id
        self._waiting = bytearray()  # while the protocol does not read, or has not yet again
        self._is_paused = self._is_blocked = self._is_closing = False
        self._is_welcome = False
        self._is_ended = False  # the client sends no more

    # --- the stream

    def on_data(self, data: bytes, ended: bool) -> None:
        self._is_ended = self._is_ended or ended
        if self._is_paused or self._waiting:  # nothing overtakes what waits
            self._client.quic.hold(self._stream_id, len(data))
            self._waiting += data
        else:
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self.protocol is None:
            return
        if data:
            self.protocol.data_received(data)
        if self._is_ended and not self._is_closing:
            self.protocol.eof_received()
            self.close()

    def on_progress(self) -> None:
        if self.protocol is None:
            return
        if self._is_blocked and self.get_write_buffer_size() <= CLIENT_WRITE_LOW:
            self._is_blocked = False
            self.protocol.resume_writing()

    def on_gone(self) -> None:
        self._lose()

    def welcome(self) -> None:
        """The client has said who it is."""
        self._is_welcome = True
        self._client.welcome()

    def _lose(self) -> None:
        self._is_closing = True
        if self._is_welcome:
            self._is_welcome = False
            self._client.leave()
        protocol, self.protocol = self.protocol, None  # no cycle: both go at once
        if protocol is not None:
            protocol.connection_lost(None)

    # --- the transport

    def write(self, data: Any) -> None:
        if self._is_closing:
            return
        self._client.send_data(self._stream_id, bytes(data))
        if not self._is_blocked and self.get_write_buffer_size() > CLIENT_WRITE_HIGH:
            self._is_blocked = True
            assert self.protocol is not None
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._client.quic.backlog(self._stream_id)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._waiting or self._is_ended:
            asyncio.get_running_loop().call_soon(self._pass_on_waiting)

    def _pass_on_waiting(self) -> None:
        """What came while the protocol did not read, if it still reads."""
        if self._is_paused or self._is_closing:
            return
        data = bytes(self._waiting)
        self._waiting.clear()
        self._client.quic.release(self._stream_id, len(data))
        self._client.wake()
        self._pass_on(data)

    def close(self) -> None:
        """Everything that was written goes out, then the end of the stream."""
        if not self._is_closing:
            self._is_closing = True
            self._client.send_data(self._stream_id, b"", ended=True)
            self._client.finish(self._stream_id)
            asyncio.get_running_loop().call_soon(self._lose)

    def abort(self) -> None:
        if self.protocol is not None:
            self._is_closing = True
            self._client.reset(self._stream_id, Http3Code.H3_REQUEST_CANCELLED)
            asyncio.get_running_loop().call_soon(self._lose)
