"""A room as a signed file: `GET /v1/rooms/<room_id>/snapshot?until_op=`, with a bearer's token.

The file's length is known before its first byte. What comes behind byte N may be asked for alone
(`Range: bytes=N-`): all is read again, for the signature is over all. The same room and op give the
same bytes on every node that keeps the same records, but for the signature, which is the node's.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from appliance.base.errors import InputError
from appliance.base.limits import HTTP_MS_MAX, TICK_MS
from appliance.base.signature import CONTEXT_SNAPSHOT, SigningKey
from appliance.drivers.network.bearer_request import id_in, refused, token_of
from appliance.drivers.network.entrance import Bearer
from appliance.drivers.network.http_requests import Streamed
from appliance.drivers.network.proxies import client_of
from appliance.formats import snapshot
from appliance.formats.client.address import PATH
from appliance.formats.client_errors import FieldInvalid

_log = logging.getLogger(__name__)
MEDIA_TYPE = "application/octet-stream"
_NUMBER_DIGITS_MAX = 18
_FROM = re.compile(rf"bytes=([0-9]{{1,{_NUMBER_DIGITS_MAX}}})-")


class RoomRecords(Protocol):
    """The records of a room for one user, part by part; `locate` and `part` raise InputError."""

    room_id: bytes
    first_op: int
    last_op: int

    @property
    def record_count(self) -> int:
        """How many there are."""

    def locate(self) -> bool:
        """Whether the numbers are known; if not, ask again with the next tick."""

    def part(self) -> bytes:
        """The next records; empty: ask again with the next tick."""

    def close(self) -> None:
        """Nobody reads on."""


# of a client's address, its token, a room, the last op or None
Open = Callable[[str, str, bytes, int | None], RoomRecords]


class _File(Streamed):
    """Says when it is over, however it ends; a reader who takes nothing for a while is left."""

    on_over: Callable[[], None]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_in_time(message: Any) -> None:
            async with asyncio.timeout(HTTP_MS_MAX / 1000):
                await send(message)

        try:
            await super().__call__(scope, receive, send_in_time)
        except TimeoutError:
            _log.info("a reader of a room's file took nothing for %d ms", HTTP_MS_MAX)
        finally:
            self.on_over()


class RoomFiles:
    """Serves what `open_room` gives, signed with `key`; `all` is for the application."""

    def __init__(self, open_room: Open, key: SigningKey) -> None:
        self._open, self._key = open_room, key
        self.all = [Route(f"{PATH}/rooms/{{room_id}}/snapshot", self._get, methods=["GET"])]

    async def _get(self, request: Request) -> Response:
        try:
            records = self._asked(request)
        except InputError as error:
            return refused(error)
        is_streaming = False
        try:
            await _placed(records)
            response = self._response(request, records)
            is_streaming = isinstance(response, _File)
            return response
        except InputError as error:
            return refused(error)
        finally:
            if not is_streaming:
                records.close()

    def _asked(self, request: Request) -> RoomRecords:
        token, room_id = token_of(request), id_in(request, "room_id")
        return self._open(client_of(request), token, room_id, _until_op(request))

    def _response(self, request: Request, records: RoomRecords) -> Response:
        size = snapshot.file_size(records.record_count)
        tag = (
            f'"{records.room_id.hex()}-{records.first_op}-{records.last_op}-'
            f'{self._key.public[:8].hex()}"'
        )
        headers = {
            "accept-ranges": "bytes",
            "etag": tag,
            "content-disposition": f'attachment; filename="room-{records.last_op}.tig"',
        }
        start = _start(request, tag)
        if start >= size:
            headers["content-range"] = f"bytes */{size}"
            return Response(status_code=416, headers=headers)
        if start:
            headers["content-range"] = f"bytes {start}-{size - 1}/{size}"
        headers["content-length"] = str(size - start)
        status = 206 if start else 200
        if request.method == "HEAD":
            return Response(status_code=status, headers=headers, media_type=MEDIA_TYPE)
        file = _File(
            self._bytes(records, start), status_code=status, headers=headers, media_type=MEDIA_TYPE
        )
        bearer: Bearer | None = request.scope["state"].get("bearer")
        if bearer is not None:
            bearer.welcome()

        def on_over() -> None:
            if bearer is not None:
                bearer.leave()
            records.close()

        file.on_over = on_over
        return file

    async def _bytes(self, records: RoomRecords, start: int) -> AsyncIterator[bytes]:
        """The file from byte `start` on."""
        digest, offset = sha256(), 0
        async for piece in _signed_pieces(records):
            digest.update(piece)
            if offset + len(piece) > start:
                yield piece[max(0, start - offset) :]
            offset += len(piece)
        yield self._key.sign(CONTEXT_SNAPSHOT, digest.digest())[max(0, start - offset) :]


async def _placed(records: RoomRecords) -> None:
    """Until the numbers are known; what is waited for is bounded where it is asked."""
    for _ in iter(records.locate, True):
        await asyncio.sleep(TICK_MS / 1000)


async def _signed_pieces(records: RoomRecords) -> AsyncIterator[bytes]:
    """All that the signature is over."""
    count = records.record_count
    yield snapshot.head_of(room_id=records.room_id, op=records.last_op, record_count=count)
    left = snapshot.file_size(count) - snapshot.file_size(0)
    while left:
        piece = records.part()
        if piece:
            left -= len(piece)
            yield piece
        await asyncio.sleep(0 if piece else TICK_MS / 1000)


def _until_op(request: Request) -> int | None:
    text = request.query_params.get("until_op")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX):
        raise FieldInvalid("until_op is no number")
    return int(text)


def _start(request: Request, tag: str) -> int:
    """The first byte that is wanted; ranges of another kind, or of another file, are not served
    (RFC 9110, sections 13.1.5 and 14.2): then it is all."""
    match = _FROM.fullmatch(request.headers.get("range", ""))
    if match is None or request.headers.get("if-range", tag) != tag:
        return 0
    return int(match[1])
