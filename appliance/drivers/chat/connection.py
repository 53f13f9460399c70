"""One WebSocket to one node, as an asyncio protocol: whole frames in, whole frames out.

The handshake and the framing are those of the `websockets` library's sans-I/O core; received frames
go to `on_data` at once, without a task or a queue in between.
"""

import asyncio
import ssl

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from appliance.base.limits import CLIENT_FRAME_SIZE_MAX
from appliance.drivers.chat.carrier import OnData
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.errors import ConnectionLost, ThrownOut, TurnedAway
from appliance.drivers.chat.refusal import refusal_in

# How it shows that the node has ended a connection on which it had said nothing.
THROWN_OUT = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, ssl.SSLEOFError)
# A message_event or snapshot_chunk of an edge may be larger than what it accepts.
FRAME_SIZE_MAX = 16 * CLIENT_FRAME_SIZE_MAX


class Connection(asyncio.Protocol):
    """An open WebSocket. `lost` is done when it has ended, with the reason as its result."""

    def __init__(self, endpoint: Endpoint, subprotocol: str, on_data: OnData) -> None:
        self.endpoint = endpoint
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_data = on_data
        self._parts: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._protocol = ClientProtocol(
            parse_uri(endpoint.url),
            subprotocols=[Subprotocol(subprotocol)],
            max_size=FRAME_SIZE_MAX,
        )
        self._binary = subprotocol.endswith(".binary")

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are no subclass
        self._protocol.send_request(self._protocol.connect())
        self._write()

    def data_received(self, data: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Frame):
                self._on_frame(event)
            elif isinstance(event, Response):
                self._on_response()
        self._write()
        if protocol.close_expected() and self._transport is not None:
            self._transport.close()

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._write()

    def connection_lost(self, error: Exception | None) -> None:
        close = self._protocol.close_rcvd
        reason = (
            f"closed by the node: {close.code} {close.reason}" if close else str(error or "closed")
        )
        if not self._ready.done():
            self._ready.set_exception(ThrownOut(f"{self.endpoint.url}: {reason}"))
        if not self.lost.done():
            self.lost.set_result(reason)

    # --- the client's side

    def send(self, data: bytes) -> None:
        """Queue one frame; after the end it is dropped, as `lost` tells."""
        if self._protocol.state is not State.OPEN or self._transport is None:
            return
        if self._transport.is_closing():
            return
        if self._binary:
            self._protocol.send_binary(data)
        else:
            self._protocol.send_text(data)
        self._write()

    def pause(self) -> None:
        """Read no more: what the node sends stays on its side."""
        if self._transport is not None and not self.paused and not self._transport.is_closing():
            self._transport.pause_reading()

    @property
    def paused(self) -> bool:
        """Whether `pause` is in force."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not transport.is_reading()

    def resume(self) -> None:
        """Read again."""
        if self.paused and self._transport is not None:
            self._transport.resume_reading()

    def abort(self) -> None:
        """End at once, without a word."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self, timeout_s: float = 1.0) -> None:
        """End in good order, or without it after `timeout_s`."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
            self._write()
        done, _ = await asyncio.wait([self.lost], timeout=timeout_s)
        if not done:
            self.abort()

    # --- inside

    def _on_response(self) -> None:
        if self._ready.done():
            return
        problem = self._protocol.handshake_exc
        answer = None
        if isinstance(problem, InvalidStatus):
            answer = refusal_in(bytes(problem.response.body or b""))
        if answer is not None and answer.temporary:
            self._ready.set_exception(TurnedAway(answer))
        elif problem is not None:
            self._ready.set_exception(ConnectionLost(f"{self.endpoint.url}: {problem}"))
        else:
            self._ready.set_result(None)

    def _on_frame(self, frame: Frame) -> None:
        if frame.opcode not in {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}:
            return
        data = bytes(frame.data)
        if self._parts or not frame.fin:
            self._parts.append(data)
            if not frame.fin:
                return
            data = b"".join(self._parts)
            self._parts.clear()
        self._on_data(data)

    def _write(self) -> None:
        assert self._transport is not None
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():
                self._transport.write_eof()
        problem = self._protocol.handshake_exc
        if isinstance(problem, InvalidHandshake) and not self._ready.done():
            self._on_response()

    async def ready(self) -> None:
        """Until the handshake is done; ConnectionLost when it failed."""
        await self._ready


async def dial(
    endpoint: Endpoint, subprotocol: str, on_data: OnData, timeout_s: float
) -> Connection:
    """A connection after its handshake. Raises ConnectionLost."""
    loop = asyncio.get_running_loop()
    connection = Connection(endpoint, subprotocol, on_data)
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(
                lambda: connection,
                endpoint.host,
                endpoint.port,
                ssl=endpoint.tls,
                server_hostname=endpoint.host if endpoint.tls else None,
            )
            await connection.ready()
    except TimeoutError:
        connection.abort()
        raise ConnectionLost(f"{endpoint.url}: no answer in {timeout_s:g} s") from None
    except OSError as error:  # ssl.SSLError among them
        connection.abort()
        kind = ThrownOut if isinstance(error, THROWN_OUT) else ConnectionLost
        raise kind(f"{endpoint.url}: {error}") from None
    except ConnectionLost:
        connection.abort()
        raise
    return connection
