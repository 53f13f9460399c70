"""Messages on their way in, and their acknowledgements. Both are hot: no object for a message;
acknowledgements have columns, in `acks`."""

from typing import Annotated, ClassVar

import msgspec

from appliance.base.limits import SEND_ITEMS_MAX, SEND_MESSAGES_MAX
from appliance.formats.client.fields import U8, U64, Body, Hash, Id
from appliance.formats.client.frame import HEAD, Frame, layout_of
from appliance.formats.client_errors import FieldInvalid, FrameMalformed


class SendMessage(Frame, tag="send_message", kw_only=True):
    code: ClassVar[int] = 0x20
    many: ClassVar[bool] = True
    room_id: Id
    client_seq: U64
    parent_id: Id | None = None
    msg_id: Id | None = None
    kind: U8 = 0
    body: Body


class Message(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One of several in a frame: the fields of a `send_message`."""

    room_id: Id
    client_seq: U64
    parent_id: Id | None = None
    msg_id: Id | None = None
    kind: U8 = 0
    body: Body


assert Message.__struct_fields__ == SendMessage.__struct_fields__  # one kind of message


class SendMessages(Frame, tag="send_messages", kw_only=True):
    """In JSON alone: in binary a `send_message` bears a count."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=SEND_MESSAGES_MAX)]


class MessageAck(Frame, tag="message_ack", kw_only=True):
    code: ClassVar[int] = 0x21
    many: ClassVar[bool] = True
    room_id: Id
    client_seq: U64
    op: U64
    msg_id: Id
    timestamp: U64
    hash: Hash


_SEND = layout_of(SendMessage).struct()
SEND_ITEM_SIZE = _SEND.size  # bytes of an item before its body

SendItem = tuple[bytes, int, bytes, bytes, int, bytes]


def first_room(data: bytes) -> bytes | None:
    """The room of the first item of a send_message frame, None if there is no whole one."""
    end = HEAD.size + 16
    return data[HEAD.size : end] if len(data) >= HEAD.size + SEND_ITEM_SIZE else None


def parse_sends(data: bytes) -> list[SendItem]:
    """(room_id, client_seq, parent_id, msg_id, kind, body) of each item of a send_message frame.

    `data` is known to start with code and version. Absent ids are zero; bodies are not checked.
    """
    count = HEAD.unpack_from(data)[2]
    size = len(data)
    offset, unpack = HEAD.size, _SEND.unpack_from
    items: list[SendItem] = []
    append = items.append
    if count * SEND_ITEM_SIZE > size:
        raise FrameMalformed(f"{count} items do not fit a frame of {size} bytes")
    if count > SEND_ITEMS_MAX:
        raise FieldInvalid(f"{count} messages in a frame, at most {SEND_ITEMS_MAX} are allowed")
    for _ in range(count):
        if offset + SEND_ITEM_SIZE > size:
            raise FrameMalformed("the last item ends early")
        room_id, client_seq, parent_id, msg_id, kind, body_size = unpack(data, offset)
        offset += SEND_ITEM_SIZE
        end = offset + body_size
        append((room_id, client_seq, parent_id, msg_id, kind, data[offset:end]))
        offset = end
    if offset != size:
        raise FrameMalformed("the items' sizes do not add up to the frame's")
    return items
