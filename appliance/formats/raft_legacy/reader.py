"""Frames out of a stream of bytes that arrives in pieces."""

from appliance.formats.raft_legacy.frame import (
    REQUEST_SIZE,
    RESPONSE_SIZE,
    Request,
    Response,
    decode_request,
    decode_response,
    entries_size_of,
)


class RequestReader:
    """Whole requests of one connection, in order.

    Holds at most one request beyond what was taken; a size is judged before its bytes are awaited.
    After an error nothing more is to be read.
    """

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> Request | None:
        """The next request, or None until more has come. FarmFrameError: close the connection."""
        if len(self._buffer) < REQUEST_SIZE:
            return None
        size = REQUEST_SIZE + entries_size_of(self._buffer)
        if len(self._buffer) < size:
            return None
        request = decode_request(bytes(self._buffer[:size]))
        del self._buffer[:size]
        return request


class ResponseReader:
    """Responses of one connection, in order."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> Response | None:
        """The next response, or None until more has come. FarmFrameError: close the connection."""
        if len(self._buffer) < RESPONSE_SIZE:
            return None
        response = decode_response(bytes(self._buffer[:RESPONSE_SIZE]))
        del self._buffer[:RESPONSE_SIZE]
        return response
