"""A request that is answered with an error of the client protocol: status, fields and body.

{"error": {"code": 2012, "name": "token_expired", "detail": "...", "temporary": false}}
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from appliance.base.errors import InputError

MEDIA_TYPE = "application/json"
_STATUS_ELSE = 400
_UNAUTHORIZED = 401


class Refusal(NamedTuple):
    """`fields` are names in small letters and values; `text` is the body."""

    status: int
    text: str
    fields: tuple[tuple[str, str], ...] = ()


def refusal_of(error: InputError, statuses: Mapping[type[InputError], int]) -> Refusal:
    """The answer to what was refused with `error`; `statuses` by class, for those below it too."""
    told = {
        "code": error.code,
        "name": error.name,
        "detail": str(error),
        "temporary": error.temporary,
    }
    fields = [("content-type", MEDIA_TYPE)]
    kinds = (kind for kind in type(error).__mro__ if kind in statuses)
    status = next((statuses[kind] for kind in kinds), _STATUS_ELSE)
    if error.retry_after_ms:
        told["retry_after"] = error.retry_after_ms
        fields.append(("retry-after", str(-(-error.retry_after_ms // 1000))))
    if status == _UNAUTHORIZED:
        fields.append(("www-authenticate", "Bearer"))
    return Refusal(status, msgspec.json.encode({"error": told}).decode(), tuple(fields))
