"""Which ids clients may give to their messages, and how far a clock is off that made one.

    kind 0      UUIDv7, of a time near this node's clock
    kind 10     the same, or a UUIDv8, of whatever time the archive tells

A token without the right to import sends nothing of kind 10. So what has a UUIDv8 was imported by
somebody who may, and the time in any other id is about the time at which it was sent.
"""

from appliance.base.limits import MESSAGE_ID_AGE_US_MAX, MESSAGE_ID_AHEAD_US_MAX
from appliance.formats.client_errors import MsgIdInvalid
from appliance.formats.record import (
    KIND_IMPORTED,
    UUID_OF_ARCHIVE,
    UUID_OF_NOW,
    made_us_of,
    uuid_version_of,
)

_SECOND_US = 1_000_000


def check_message_id(msg_id: bytes, kind: int, now_us: int) -> None:
    """Raises MsgIdInvalid when a client may not give this id to a message of this kind now."""
    version = uuid_version_of(msg_id)
    if version == UUID_OF_NOW:
        off_us = made_us_of(msg_id) - now_us
        if -MESSAGE_ID_AGE_US_MAX <= off_us <= MESSAGE_ID_AHEAD_US_MAX:
            return
        raise MsgIdInvalid(
            f"the msg_id is of a time {off_by(off_us)} this node's clock, at most "
            f"{span(MESSAGE_ID_AGE_US_MAX)} behind and {span(MESSAGE_ID_AHEAD_US_MAX)} ahead are "
            "taken: if the message was written just now, the device's clock is off by that, set "
            "it; then send the message under a new msg_id"
        )
    if version == UUID_OF_ARCHIVE:
        if kind == KIND_IMPORTED:
            return
        raise MsgIdInvalid(
            f"a msg_id that is a UUIDv8 is for what was imported: messages of kind {KIND_IMPORTED}"
            ", by a token with the right import; make a UUIDv7, or leave msg_id out"
        )
    raise MsgIdInvalid(
        "the msg_id is no UUIDv7 (RFC 9562), which tells when its message was made: make one, or "
        "leave msg_id out and the node makes it"
    )


def off_by(off_us: int) -> str:
    """How far from a clock a time is, and on which side."""
    return f"{span(abs(off_us))} {'ahead of' if off_us > 0 else 'behind'}"


def span(span_us: int) -> str:
    """In its two largest units."""
    minutes, seconds = divmod(span_us // _SECOND_US, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    while parts[0][0] == 0 and len(parts) > 2:
        parts.pop(0)
    return " ".join(f"{count} {unit}" for count, unit in parts[:2])
