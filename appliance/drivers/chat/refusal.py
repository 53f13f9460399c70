"""The error with which a node refuses a handshake, as it stands in the body of its answer."""

import msgspec
from websockets.http11 import Response

from appliance.formats.client.connection import ErrorFrame


class _Told(msgspec.Struct):
    code: int
    name: str
    detail: str = ""
    temporary: bool = False
    retry_after: int | None = None


class _Body(msgspec.Struct):
    error: _Told


def refusal_in(response: Response) -> ErrorFrame | None:
    """As the frame that would tell the same; None where the answer is none of a node."""
    try:
        told = msgspec.json.decode(response.body or b"", type=_Body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return ErrorFrame(
        error=told.code,
        temporary=told.temporary,
        retry_after=told.retry_after,
        name=told.name,
        detail=told.detail,
    )
