"""Imported messages as clients show them: who said it and when beside the text, not before it."""

from typing import TypeVar

import msgspec

from appliance.formats.client.history import StoredMessage
from appliance.formats.client.subscribing import MessageEvent
from appliance.formats.imported import decode_imported
from appliance.formats.record_kind import KIND_IMPORTED

_Message = TypeVar("_Message", MessageEvent, StoredMessage)


def unfolded(message: _Message) -> _Message:
    """A message that came in binary as one in JSON: of an imported one the line before its text
    becomes `said_at` and `said_by`."""
    if message.kind != KIND_IMPORTED or message.said_by is not None:
        return message
    body = message.body.encode()
    found = decode_imported(body)
    if found is None:
        return message
    return msgspec.structs.replace(
        message,
        said_at=found.said_us,
        said_by=found.author,
        body=body[found.head_size :].decode(),
    )
