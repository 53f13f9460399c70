"""Frames between two sites, around and beside SDS messages.

On a stream a frame is u32 big-endian size, kind octet, body; the size counts kind and body. In a
datagram it is kind octet and body, one frame a datagram. Bodies but those of `message` are the
messages of causal.proto; docs/federation.md tables them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from appliance.base.errors import CausalRefused
from appliance.base.limits import (
    CAUSAL_ID_SIZE_MAX,
    CAUSAL_MESSAGE_SIZE_MAX,
    LINK_CHANNELS_MAX,
    LINK_FRAME_SIZE_MAX,
    LINK_WANT_MAX,
)
from appliance.formats.causal import causal_pb2
from appliance.formats.causal.message import HistoryEntry, entry_of
from appliance.formats.causal.wire import fields_of

VERSION = 1
HELLO, MESSAGE, WANT, NOT_HELD, SUMMARY, BYE, CHALLENGE, PROOF = range(1, 9)
PROFILE_STREAM, PROFILE_DATAGRAM = 0, 1
SIZE_SIZE = 4  # bytes of the size before a frame on a stream
MARKS_MAX = 16  # of a range that is summed up
_FIELDS_MAX = 2 * LINK_CHANNELS_MAX  # of any body


@dataclass(slots=True, frozen=True)
class Hello:
    """First frame in both directions: who speaks, and which channels it carries."""

    site: str
    channels: tuple[str, ...]
    profile: int = PROFILE_STREAM
    version: int = VERSION


@dataclass(slots=True, frozen=True)
class Packet:
    """One SDS message, not looked into."""

    data: bytes


@dataclass(slots=True, frozen=True)
class Want:
    """Messages that are asked for by id, with hints if known; without any, a summary of the places
    from `first` to before `last`, of all where both are 0."""

    channel: str
    entries: tuple[HistoryEntry, ...] = ()
    first: int = 0
    last: int = 0


@dataclass(slots=True, frozen=True)
class NotHeld:
    """Those of a want that the asked store does not have any more."""

    channel: str
    message_ids: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Summary:
    """A log, or the places of it that were asked for, in short: the newest entry, how many there
    are, a hash over ids in order, and what that hash was at each of `mark_positions`, as far as
    there are entries."""

    channel: str
    lamport: int
    message_id: str
    count: int
    order_hash: bytes
    first: int = 0
    last: int = 0
    marks: tuple[bytes, ...] = ()


@dataclass(slots=True, frozen=True)
class Bye:
    """The last frame, and why."""

    reason: str


@dataclass(slots=True, frozen=True)
class Challenge:
    """The listener's nonce, where the carrier cannot ask for a certificate."""

    nonce: bytes


@dataclass(slots=True, frozen=True)
class Proof:
    """The dialling site's answer: its key, and a signature over nonce and listener's key."""

    site: str
    public_key: bytes
    signature: bytes


def mark_positions(first: int, last: int) -> list[int]:
    """The places before which a range is marked: sixteen even steps, or one for each place."""
    size = last - first
    count = min(MARKS_MAX, size)
    return [first + -(-size * (k + 1) // count) for k in range(count)]


Frame = Hello | Packet | Want | NotHeld | Summary | Bye | Challenge | Proof


def encode(frame: Frame) -> bytes:
    """Kind octet and body, as in a datagram."""
    if isinstance(frame, Packet):
        return bytes([MESSAGE]) + frame.data
    kind, body = _body(frame)
    serialized: bytes = body.SerializeToString(deterministic=True)
    return bytes([kind]) + serialized


def on_stream(frame: Frame) -> bytes:
    """The same behind its size, as on a stream."""
    encoded = encode(frame)
    return len(encoded).to_bytes(SIZE_SIZE, "big") + encoded


def decode(data: bytes) -> Frame:
    """One frame: kind octet and body. Raises `CausalRefused`."""
    if not 0 < len(data) <= LINK_FRAME_SIZE_MAX:
        raise CausalRefused("frame_size", f"frame of {len(data)} bytes")
    kind, body = data[0], data[1:]
    if kind == MESSAGE:
        return Packet(body)
    if kind not in _DECODE:
        raise CausalRefused("frame_kind", f"frame of kind {kind}")
    for count, _ in enumerate(fields_of(body)):
        if count >= _FIELDS_MAX:
            raise CausalRefused("frame_fields", f"more than {_FIELDS_MAX} fields")
    try:
        return _DECODE[kind](body)
    except DecodeError as error:
        raise CausalRefused("frame_malformed", str(error)) from error


def _body(frame: Frame) -> tuple[int, causal_pb2.Hello]:
    """(kind, protobuf message)."""
    if isinstance(frame, Hello):
        return HELLO, causal_pb2.Hello(
            version=frame.version,
            site=frame.site,
            channels=frame.channels,
            profile=frame.profile,
        )
    if isinstance(frame, Want):
        want = causal_pb2.Want(channel=frame.channel, first=frame.first, last=frame.last)
        for entry in frame.entries:
            want.entries.add(
                message_id=entry.message_id,
                retrieval_hint=entry.retrieval_hint,
                sender_id=entry.sender_id,
            )
        return WANT, want
    if isinstance(frame, NotHeld):
        return NOT_HELD, causal_pb2.NotHeld(channel=frame.channel, message_ids=frame.message_ids)
    if isinstance(frame, Summary):
        return SUMMARY, causal_pb2.Summary(
            channel=frame.channel,
            lamport_timestamp=frame.lamport,
            message_id=frame.message_id,
            count=frame.count,
            order_hash=frame.order_hash,
            first=frame.first,
            last=frame.last,
            marks=frame.marks,
        )
    if isinstance(frame, Bye):
        return BYE, causal_pb2.Bye(reason=frame.reason)
    if isinstance(frame, Challenge):
        return CHALLENGE, causal_pb2.Challenge(nonce=frame.nonce)
    assert isinstance(frame, Proof)
    return PROOF, causal_pb2.Proof(
        site=frame.site, public_key=frame.public_key, signature=frame.signature
    )


def _hello(body: bytes) -> Hello:
    read = causal_pb2.Hello.FromString(body)
    if read.version != VERSION:
        raise CausalRefused("version", f"version {read.version}, this is {VERSION}")
    if len(read.channels) > LINK_CHANNELS_MAX:
        raise CausalRefused("channels", f"{len(read.channels)} channels")
    if read.profile not in (PROFILE_STREAM, PROFILE_DATAGRAM):
        raise CausalRefused("profile", f"profile {read.profile}")
    channels = tuple(_short("channels", channel) for channel in read.channels)
    return Hello(_short("site", read.site), channels, read.profile, read.version)


def _want(body: bytes) -> Want:
    read = causal_pb2.Want.FromString(body)
    if len(read.entries) > LINK_WANT_MAX:
        raise CausalRefused("want", f"{len(read.entries)} ids wanted at once")
    if read.first > read.last:
        raise CausalRefused("want", f"places from {read.first} to before {read.last}")
    entries = tuple(entry_of(entry) for entry in read.entries)
    return Want(_short("channel", read.channel), entries, read.first, read.last)


def _not_held(body: bytes) -> NotHeld:
    read = causal_pb2.NotHeld.FromString(body)
    if len(read.message_ids) > LINK_WANT_MAX:
        raise CausalRefused("not_held", f"{len(read.message_ids)} ids at once")
    ids = tuple(_short("message_id", message_id) for message_id in read.message_ids)
    return NotHeld(_short("channel", read.channel), ids)


def _summary(body: bytes) -> Summary:
    read = causal_pb2.Summary.FromString(body)
    if len(read.order_hash) != 32:
        raise CausalRefused("order_hash", f"order hash of {len(read.order_hash)} bytes")
    if len(read.marks) > MARKS_MAX or any(len(mark) != 32 for mark in read.marks):
        raise CausalRefused("order_hash", f"{len(read.marks)} marks, or one that is no hash")
    return Summary(
        _short("channel", read.channel),
        read.lamport_timestamp,
        _short("message_id", read.message_id),
        read.count,
        read.order_hash,
        read.first,
        read.last,
        tuple(read.marks),
    )


def _bye(body: bytes) -> Bye:
    return Bye(_short("reason", causal_pb2.Bye.FromString(body).reason))


def _challenge(body: bytes) -> Challenge:
    read = causal_pb2.Challenge.FromString(body)
    if len(read.nonce) != 32:
        raise CausalRefused("nonce", f"nonce of {len(read.nonce)} bytes")
    return Challenge(read.nonce)


def _proof(body: bytes) -> Proof:
    read = causal_pb2.Proof.FromString(body)
    if len(read.public_key) != 32 or len(read.signature) != 64:
        raise CausalRefused("proof", "key or signature of another size")
    return Proof(_short("site", read.site), read.public_key, read.signature)


_DECODE: dict[int, Callable[[bytes], Frame]] = {
    HELLO: _hello,
    WANT: _want,
    NOT_HELD: _not_held,
    SUMMARY: _summary,
    BYE: _bye,
    CHALLENGE: _challenge,
    PROOF: _proof,
}


def _short(field: str, text: str) -> str:
    if len(text.encode()) > CAUSAL_ID_SIZE_MAX:
        raise CausalRefused(field, f"more than {CAUSAL_ID_SIZE_MAX} bytes")
    return text


class FrameReader:
    """Frames out of the bytes of a stream, in any pieces; holds at most one frame and a read."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Whole frames (kind octet and body). Raises `CausalRefused`: the stream is lost then."""
        self._buffer += data
        found = []
        at = 0
        while len(self._buffer) - at >= SIZE_SIZE:
            size = int.from_bytes(self._buffer[at : at + SIZE_SIZE], "big")
            if not 0 < size <= LINK_FRAME_SIZE_MAX:
                raise CausalRefused("frame_size", f"frame of {size} bytes")
            if len(self._buffer) - at - SIZE_SIZE < size:
                break
            found.append(bytes(self._buffer[at + SIZE_SIZE : at + SIZE_SIZE + size]))
            at += SIZE_SIZE + size
        del self._buffer[:at]
        return found


assert LINK_FRAME_SIZE_MAX > CAUSAL_MESSAGE_SIZE_MAX
