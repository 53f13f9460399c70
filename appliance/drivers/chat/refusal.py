"""The error with which a node refuses a request, as it stands in the body of its answer."""

import msgspec

from appliance.formats.client.connection import ErrorFrame


class _Told(msgspec.Struct):
    code: int
    name: str
    detail: str = ""
    temporary: bool = False
    retry_after: int | None = None


class _Body(msgspec.Struct):
    error: _Told


def refusal_in(body: bytes) -> ErrorFrame | None:
    """As the frame that would tell the same; None where the answer is none of a node."""
    try:
        told = msgspec.json.decode(body, type=_Body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return ErrorFrame(
        error=told.code,
        temporary=told.temporary,
        retry_after=told.retry_after,
        name=told.name,
        detail=told.detail,
    )
