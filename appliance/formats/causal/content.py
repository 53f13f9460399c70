"""What a content message of a room holds: what somebody wrote, signed by the site it came from.

A message crosses sites that may not all be trusted to pass it on unchanged. The signature covers
the channel, the site, the lamport timestamp and every byte of the room message, so a relay can
neither forge one, nor move it to another room, nor give it another place in the order.
"""

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from appliance.base.errors import CausalRefused
from appliance.base.limits import (
    FEDERATED_AUTHOR_SIZE_MAX,
    FEDERATED_CONTENT_SIZE_MAX,
    FEDERATED_PARTS_MAX,
)
from appliance.base.signature import CONTEXT_FEDERATED, SIGNATURE_SIZE, SigningKey, verify
from appliance.formats.causal import causal_pb2
from appliance.formats.sharing import FEDERATED_TEXT_SIZE_MAX

_ID_SIZE = 16  # bytes
_NAMED_SIZE = 32


@dataclass(slots=True, frozen=True)
class RoomMessage:
    """One message of a room, or one part of it. `seq` counts in the room of its origin.

    `message_id`: the bytes whose hexadecimal digits are its id between sites, where that does not
    follow from the rest, as an attached implementation gave it.
    """

    kind: int
    msg_id: bytes
    author_id: int
    author: str
    time_us: int
    seq: int
    body: bytes
    parent_id: bytes = b""
    part: int = 0
    parts: int = 1
    message_id: bytes = b""


def seal(message: RoomMessage, key: SigningKey, *, channel: str, site: str, lamport: int) -> bytes:
    """Content of an SDS message: the room message and the site's signature."""
    inner = causal_pb2.RoomMessage(
        kind=message.kind,
        msg_id=message.msg_id,
        author_id=message.author_id,
        author=message.author,
        parent_id=message.parent_id,
        time_us=message.time_us,
        seq=message.seq,
        part=message.part,
        parts=message.parts,
        body=message.body,
        message_id=message.message_id,
    ).SerializeToString(deterministic=True)
    signature = key.sign(CONTEXT_FEDERATED, signed_bytes(channel, site, lamport, inner))
    out = causal_pb2.SignedContent(message=inner, signature=signature)
    sealed: bytes = out.SerializeToString(deterministic=True)
    return sealed


def open_content(
    data: bytes, public: bytes, *, channel: str, site: str, lamport: int
) -> RoomMessage:
    """The room message, if `site`, whose key is `public`, signed it for this channel and place.

    Raises `CausalRefused` with the reasons content_size, content, content_signature or
    content_field.
    """
    outer = _outer(data)
    signed = signed_bytes(channel, site, lamport, outer.message)
    if len(outer.signature) != SIGNATURE_SIZE or not verify(
        public, CONTEXT_FEDERATED, signed, outer.signature
    ):
        raise CausalRefused("content_signature", f"not signed by {site}")
    return _inner(outer.message)


def read_content(data: bytes) -> RoomMessage:
    """The room message of a content whose signature was found right before; refusals as there."""
    return _inner(_outer(data).message)


def _outer(data: bytes) -> causal_pb2.SignedContent:
    if len(data) > FEDERATED_CONTENT_SIZE_MAX:
        raise CausalRefused("content_size", f"content of {len(data)} bytes")
    try:
        outer: causal_pb2.SignedContent = causal_pb2.SignedContent.FromString(data)
    except DecodeError as error:
        raise CausalRefused("content", str(error)) from error
    return outer


def _inner(data: bytes) -> RoomMessage:
    try:
        read = causal_pb2.RoomMessage.FromString(data)
    except DecodeError as error:
        raise CausalRefused("content", str(error)) from error
    _check(read)
    return RoomMessage(
        kind=read.kind,
        msg_id=read.msg_id,
        author_id=read.author_id,
        author=read.author,
        parent_id=read.parent_id,
        time_us=read.time_us,
        seq=read.seq,
        part=read.part,
        parts=read.parts,
        body=read.body,
        message_id=read.message_id,
    )


def signed_bytes(channel: str, site: str, lamport: int, message: bytes) -> bytes:
    """What the signature is over, after its context."""
    parts = []
    for text in (channel, site):
        raw = text.encode()
        parts += [len(raw).to_bytes(4, "big"), raw]
    return b"".join([*parts, lamport.to_bytes(8, "big"), message])


def _check(read: causal_pb2.RoomMessage) -> None:
    wrong = ""
    if len(read.msg_id) != _ID_SIZE:
        wrong = "msg_id"
    elif read.parent_id and len(read.parent_id) != _ID_SIZE:
        wrong = "parent_id"
    elif len(read.author.encode()) > FEDERATED_AUTHOR_SIZE_MAX:
        wrong = "author"
    elif not 0 < read.parts <= FEDERATED_PARTS_MAX or read.part >= read.parts:
        wrong = "part"
    elif not read.seq:
        wrong = "seq"
    elif read.message_id and len(read.message_id) != _NAMED_SIZE:
        wrong = "message_id"
    elif len(read.body) > FEDERATED_TEXT_SIZE_MAX or not _is_text(read.body):
        wrong = "body"
    if wrong:
        raise CausalRefused("content_field", f"{wrong} is out of range")


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
