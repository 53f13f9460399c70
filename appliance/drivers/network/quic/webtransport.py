"""A conversation over WebTransport: one session, one stream in it, frames behind their sizes.

    CONNECT /v1/SUBPROTOCOL ──▶ session ──▶ the first stream that the client opens in it
                                   └──▶ datagrams: one frame each, those that may be lost

The draft is that of `sec-webtransport-http3-draft02`, which the library and Chromium share. When
the conversation ends, its stream is ended first; then the session, with the code and the name of
the error.
"""

import asyncio
from typing import Any

from appliance.base.errors import InputError
from appliance.base.limits import (
    CLIENT_FRAME_SIZE_MAX,
    CLIENT_WRITE_HIGH,
    CLIENT_WRITE_LOW,
    HELD_MIN,
    STRANGER_FRAME_SIZE_MAX,
    TURN_COST_SIZE,
)
from appliance.drivers.network.closings import CLOSE_CODES
from appliance.drivers.network.owner import STREAM
from appliance.drivers.network.quic.streams import Carrier
from appliance.drivers.network.refusals import WEBTRANSPORT
from appliance.drivers.network.websocket import WebSocketServer
from appliance.drivers.quic.library import Http3Code
from appliance.formats.client.frame import SUBPROTOCOL_JSON
from appliance.formats.client.stream import SIZE_SIZE, size_at

DRAFT = (b"sec-webtransport-http3-draft", b"draft02")
CLOSE_SECONDS = 2.0  # for what was written last to arrive
_CLOSE_SESSION = 0x2843  # type of a capsule
_REASON_SIZE_MAX = 1024


class Session:
    """See above; `session_id` is the stream of its CONNECT."""

    framing = STREAM
    transport_name = WEBTRANSPORT

    def __init__(
        self,
        client: Carrier,
        session_id: int,
        server: WebSocketServer,
        *,
        subprotocol: str,
        admitted: Any,
    ) -> None:
        self.address, self.subprotocol = client.address, subprotocol
        self.admitted = admitted
        self.user: Any = None
        self.turn, self.is_waiting = 0, False
        self.is_welcome = False
        self._client, self._session_id, self._server = client, session_id, server
        self._stream_id = -1
        self._inbox = bytearray()
        self._wanted = True
        self._is_blocked = self._is_closing = self._is_gone = False
        self._early: list[bytes] = []  # written before there is a stream
        self._closing: tuple[int, str] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    # --- streams

    def on_data(self, data: bytes, ended: bool) -> None:
        """Of the CONNECT: capsules, of which only the end matters."""
        if ended:
            self._client.finish(self._session_id)
            self.on_gone()

    def on_stream(self, stream_id: int, data: bytes, ended: bool) -> None:
        """Of a stream in the session: the first one is the conversation."""
        if self._stream_id < 0:
            self._stream_id = stream_id
            self._client.users[stream_id] = _Conversation(self)
            early, self._early = self._early, []
            self.write(early)
        if stream_id != self._stream_id:
            self._client.reset(stream_id, Http3Code.H3_STREAM_CREATION_ERROR)
            return
        if self._is_closing or self._is_gone:
            return
        self._inbox += data
        self._server.turns.on_input(self)
        self._update_held()
        self._note_held()
        if ended:
            self._close(1000, "")

    def on_datagram(self, data: bytes) -> None:
        """A frame that may be lost."""
        if not self._is_closing and self.is_welcome and self._wanted and len(data) > 0:
            self._server.owner.on_client_message(self, data, self._is_text)

    def on_progress(self) -> None:
        if self._is_blocked and self._backlog <= CLIENT_WRITE_LOW:
            self._is_blocked = False
            self._server.owner.on_writable(self)
        if self._closing is not None and not self._backlog:
            self._end_session()

    def on_gone(self) -> None:
        if self._is_gone:
            return
        self._is_gone = self._is_closing = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._inbox.clear()
        if self._stream_id >= 0:
            self._client.quic.release_all(self._stream_id)
            self._client.users.pop(self._stream_id, None)
        if self.is_welcome:
            self._client.leave()
        self._server.forget(self)
        self._server.owner.on_closed(self)

    @property
    def _backlog(self) -> int:
        return self._client.quic.backlog(self._stream_id)

    @property
    def _is_text(self) -> bool:
        return self.subprotocol == SUBPROTOCOL_JSON

    # --- input, by turns

    def advance(self, cost_max: int) -> tuple[int, bool]:
        """Handle frames up to that cost: what they cost, and whether there are more."""
        cost = start = 0
        while cost < cost_max and self._wanted and not self._is_closing:
            size = self._frame_size(start)
            if size < 0:
                break
            begin = start + SIZE_SIZE
            frame = bytes(memoryview(self._inbox)[begin : begin + size])
            start = begin + size
            cost += 1 + size // TURN_COST_SIZE
            self._server.owner.on_client_message(self, frame, self._is_text)
        if start and not self._is_gone:
            del self._inbox[:start]
            self._update_held()
        return cost, self._wanted and not self._is_closing and self._frame_size(0) >= 0

    def _frame_size(self, start: int) -> int:
        """Bytes of the frame at `start`, -1 while it is not whole."""
        size = size_at(self._inbox, start)
        largest = CLIENT_FRAME_SIZE_MAX if self.is_welcome else STRANGER_FRAME_SIZE_MAX
        if size > largest and not self._is_closing:
            self._server.owner.on_oversize(self)
            return -1
        if size > 0 and len(self._inbox) - start - SIZE_SIZE < size:
            return -1
        return size

    def on_turn(self) -> None:
        """It waits for its turn, or does no more."""
        self._update_held()

    def _update_held(self) -> None:
        """While nothing is read, what came fills the window. Otherwise it does not: a frame may be
        larger than that."""
        is_paused = self.is_waiting or not self._wanted
        if self._stream_id >= 0 and not self._is_gone:
            self._client.quic.hold_exactly(self._stream_id, len(self._inbox) if is_paused else 0)
            self._client.wake()

    # --- for the owner

    @property
    def held(self) -> int:
        """Bytes in memory for this connection, in both directions."""
        return len(self._inbox) + (self._backlog if self._stream_id >= 0 else 0)

    def _note_held(self) -> None:
        if self.held >= HELD_MIN:
            self._server.heavy[self] = None

    def welcome(self) -> None:
        if not self.is_welcome:
            self.is_welcome = True
            self._client.welcome()

    def write(self, frames: list[bytes]) -> None:
        if self._is_closing or not frames:
            return
        if self._stream_id < 0:
            self._early += frames
            return
        self._client.send_raw(self._stream_id, b"".join(frames))
        if not self._is_blocked and self._backlog > CLIENT_WRITE_HIGH:
            self._is_blocked = True
            self._server.owner.on_blocked(self)
            self._note_held()

    def read_on(self, wanted: bool) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self._update_held()
            if wanted and self._inbox:
                self._server.turns.on_input(self)

    def end(self, error: InputError) -> None:
        self._close(CLOSE_CODES[type(error)], error.name)

    def probe(self) -> None:
        """The connection below shows that it lives."""

    def on_stream_gone(self) -> None:
        """The client has broken the conversation off."""
        self._close(1000, "")

    def _close(self, code: int, reason: str) -> None:
        """End the stream; when it has arrived, the session."""
        if self._is_closing:
            return
        self._is_closing = True
        self._server.counters[f"closed_{code}"] += 1
        self._closing = code, reason
        if self._stream_id >= 0:
            self._client.send_raw(self._stream_id, b"", ended=True)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(CLOSE_SECONDS, self._end_session)
        loop.call_soon(self.on_progress)

    def _end_session(self) -> None:
        if self._closing is None or self._is_gone:
            return
        (code, reason), self._closing = self._closing, None
        value = code.to_bytes(4, "big") + reason.encode()[:_REASON_SIZE_MAX]
        self._client.send_capsule(self._session_id, _CLOSE_SESSION, value)
        self._client.finish(self._session_id)
        self.on_gone()


class _Conversation:
    """The stream of a session, as its connection sees it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def on_data(self, data: bytes, ended: bool) -> None:
        """It has frames of HTTP/3 no more."""

    def on_progress(self) -> None:
        self._session.on_progress()

    def on_gone(self) -> None:
        self._session.on_stream_gone()
