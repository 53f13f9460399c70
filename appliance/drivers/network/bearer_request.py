"""A request of one who bears a token and has no conversation: who asks for what, and how it is
refused."""

from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from appliance.base.errors import InputError
from appliance.drivers.network.bearer_token import token_in
from appliance.drivers.network.closings import HTTP_STATUSES
from appliance.drivers.network.refusal import refusal_of
from appliance.formats.client.fields import id_bytes
from appliance.formats.client_errors import (
    Busy,
    FieldInvalid,
    Forbidden,
    MessageUnknown,
    RoomUnknown,
    TokenInvalid,
    Unavailable,
)

_STATUSES: dict[type[InputError], int] = {
    **HTTP_STATUSES,
    Busy: 503,
    FieldInvalid: 400,
    Forbidden: 403,
    MessageUnknown: 404,
    RoomUnknown: 404,
    Unavailable: 503,
}


def token_of(request: Request) -> str:
    """Raises TokenInvalid where there is none."""
    token = token_in(request.headers.getlist("authorization"))
    if not token:
        raise TokenInvalid("send a token: Authorization: Bearer TOKEN")
    return token


def id_in(request: Request, name: str) -> bytes:
    """The id in the part of the path that is called `name`. Raises FieldInvalid."""
    try:
        return id_bytes(UUID(request.path_params[name]))
    except ValueError:
        raise FieldInvalid(f"{name} is no id; allowed: a UUID") from None


def refused(error: InputError) -> Response:
    """The answer."""
    told = refusal_of(error, _STATUSES)
    return Response(told.text, told.status, dict(told.fields))
