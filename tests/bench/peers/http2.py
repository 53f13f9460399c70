"""As much of HTTP/2 (RFC 9113) as unary gRPC calls and a watch need, for a generator.

Headers are literals that are never indexed (RFC 7541, 6.2.2), so that nothing has to be remembered;
of the answers only what matters is read: a message that came, and the end of a stream.
"""

from collections import deque
from collections.abc import Callable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
WINDOW_MAX = 2**31 - 1
WINDOW_FIRST = 65_535  # that a peer has before it says more
STREAM_WINDOW_AGAIN = 2**30  # bytes that came after which the connection's window is opened anew


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def literal(text: str) -> bytes:
    raw = text.encode()
    assert len(raw) < 127  # one byte of length
    return bytes((len(raw),)) + raw


def headers_of(path: str, authority: str) -> bytes:
    """The header block of a gRPC call."""
    return (
        b"\x83\x86"  # :method POST, :scheme http
        b"\x04"
        + literal(path)
        + b"\x01"
        + literal(authority)
        + b"\x0f\x10"  # content-type
        + literal("application/grpc")
        + b"\x00"
        + literal("te")
        + literal("trailers")
    )


def message(body: bytes) -> bytes:
    """A gRPC message, not compressed."""
    return b"\x00" + len(body).to_bytes(4, "big") + body


OPENING = (
    PREFACE
    + frame(SETTINGS, 0, 0, b"\x00\x04" + WINDOW_MAX.to_bytes(4, "big"))
    + frame(WINDOW_UPDATE, 0, 0, (WINDOW_MAX - WINDOW_FIRST).to_bytes(4, "big"))
)


class Http2Client:
    """Calls over one connection: bytes in, bytes out by `write`.

    `on_answer(stream, body)` gets the message of each call that was answered by one;
    `on_failure(reason)` whatever ends the connection, or a call without a message.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        on_answer: Callable[[int, bytes], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._write, self._on_answer, self._on_failure = write, on_answer, on_failure
        self._buffer = b""
        self._next = 1
        self._window = WINDOW_FIRST  # bytes that the server takes of all streams together
        self._waiting: deque[bytes] = deque()  # frames of calls for which it is too small
        self._answers: dict[int, bytes] = {}
        self._came = 0

    def call(self, headers: bytes, bodies: list[bytes]) -> list[int]:
        """A call for each body; their streams. All go out in one write."""
        streams, out = [], []
        for body in bodies:
            data = frame(DATA, END_STREAM, self._next, message(body))
            streams.append(self._next)
            out.append(frame(HEADERS, END_HEADERS, self._next, headers))
            self._next += 2
            if self._waiting or len(data) - 9 > self._window:
                self._waiting.append(data)
            else:
                self._window -= len(data) - 9
                out.append(data)
        self._write(b"".join(out))
        return streams

    def on_bytes(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        at, end = 0, len(buffer)
        while end - at >= 9:
            size = int.from_bytes(buffer[at : at + 3], "big")
            if end - at < 9 + size:
                break
            kind, flags = buffer[at + 3], buffer[at + 4]
            stream = int.from_bytes(buffer[at + 5 : at + 9], "big")
            self._on_frame(kind, flags, stream, buffer[at + 9 : at + 9 + size])
            at += 9 + size
        self._buffer = buffer[at:]

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA:
            self._answers[stream] = self._answers.get(stream, b"") + payload
            self._came += len(payload)
            if self._came > STREAM_WINDOW_AGAIN:
                self._write(frame(WINDOW_UPDATE, 0, 0, self._came.to_bytes(4, "big")))
                self._came = 0
        elif kind == SETTINGS and not flags & ACK:
            self._write(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self._write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE and stream == 0:
            self._window += int.from_bytes(payload, "big")
            self._send_waiting()
        elif kind == GOAWAY:
            self._on_failure(f"the server goes away: {payload[8:]!r}")
        elif kind == RST_STREAM:
            self._on_failure(f"the server reset a call: {payload.hex()}")
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            body = self._answers.pop(stream, b"")
            if len(body) < 5:
                self._on_failure(f"a call was answered without a message: {payload!r}")
            else:
                self._on_answer(stream, body[5:])

    def _send_waiting(self) -> None:
        out = []
        while self._waiting and len(self._waiting[0]) - 9 <= self._window:
            out.append(self._waiting.popleft())
            self._window -= len(out[-1]) - 9
        if out:
            self._write(b"".join(out))
