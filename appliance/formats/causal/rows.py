"""Rows of a channel's store: what a channel still knows after a restart.

Keys begin with one octet that names the table, so that one ordered database holds all of them;
integers are big-endian, so that keys sort by them. Ids stand last in keys, as they are text of any
length.

    L lamport u64, id      the log in its order        flags u8, sender, hint, the message deflated
                                                       or nothing deflated, Cut, the rest deflated
    I id                   where an id stands          lamport u64, number of insertion u64
    N number u64           ids in order of insertion   id
    O lamport u64, id      own, not acknowledged       state u8, attempts u32, next ms u64, senders
    W id                   received, not yet logged    arrived ms u64, bytes of the message
    M id                   missing                     times and rounds, hint, sender
    R id                   repair promised             at ms u64, sender
    X id                   lost                        at ms u64
    H id                   named by no entry yet
    C                      clock u64, entries u64, insertions u64
    Q op u64               where a record of the room stands: PlaceRow, by MessagePack
    S site u32, seq u64, part u16   what of another site's room the site's log has: its id, 32 bytes
    P                      where the site's log is read on from, u64
"""

import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

LOG, INDEX, NUMBER, OUTGOING = b"L", b"I", b"N", b"O"
WAITING, MISSING, RESPONSE, LOST, HEAD, CLOCK = b"W", b"M", b"R", b"X", b"H", b"C"

_LOG = struct.Struct(">BHH")  # flags, size of the sender, size of the hint
_CUT = struct.Struct(">QIH")  # fields of Cut
_OUTGOING = struct.Struct(">BIQ")
_MISSING = struct.Struct(">QqBBBQqHH")
_CLOCK = struct.Struct(">QQQ")
_PACKING = 1  # the quickest; ids, which are most of a message, become half as long by any
_U64 = struct.Struct(">Q")
_PAIR = struct.Struct(">QQ")
CURSOR, POSITION, SAID = b"P", b"Q", b"S"
_SAID = struct.Struct(">IQH")
OWN, LATE = 1, 2  # flags of a row of the log
_PACKED = 4  # its message is deflated; as rows of earlier versions are not
_NOTHING = bytes.fromhex("7801030000000001")  # no bytes, deflated; earlier versions read no more
NEVER = -1  # a time that does not come
_NO_HINT = 0xFFFF


class Cut(NamedTuple):
    """What a row leaves to the site's log: the text of its message, which stands in the record
    `log_seq` too, and in the message at `at`. Of no `size` where nothing is left out.
    """

    log_seq: int
    at: int = 0
    size: int = 0


@dataclass(slots=True)
class LogRow:
    """One entry of the log; `wire` is empty where the bytes of the message are not known."""

    flags: int
    sender: str
    hint: bytes | None
    wire: bytes
    cut: Cut | None = None

    def leave_out(self, log_seq: int, text: bytes) -> None:
        """Leave this text of the message to record `log_seq` of the site's log."""
        at = self.wire.find(text)  # wherever it stands first: it is put back there
        self.cut = Cut(log_seq)
        if at >= 0:
            self.cut = Cut(log_seq, at, len(text))
            self.wire = self.wire[:at] + self.wire[at + len(text) :]

    def put_back(self, text: bytes | None) -> None:
        """Make the message whole again; None: its record cannot be read."""
        assert self.cut is not None
        if text is None or len(text) != self.cut.size:
            self.wire = b""
        else:
            self.wire = self.wire[: self.cut.at] + text + self.wire[self.cut.at :]

    @property
    def leaves_text(self) -> bool:
        """Whether the site's log has a part of the message."""
        return self.cut is not None and self.cut.size > 0


@dataclass(slots=True)
class MissingRow:
    """One id that something depends on; times in ms since the epoch."""

    first_seen: int
    request_at: int  # NEVER: no more requests
    rounds: int  # repair requests of our own
    put_off: int  # 1: another's request has put ours off, which it does once
    attempts: int  # questions to a store
    ask_at: int
    expires_at: int
    hint: bytes | None
    sender: str | None


class PositionRow(msgspec.Struct, array_like=True):
    """A record of the room: its place in the order of all sites. Of one that was said here there
    is an id for each of its parts, and the sites in whose log all of them are."""

    site: str
    lamport: int
    ids: list[bytes]  # 32 bytes each
    time_us: int  # when it was said, by its site
    part: int = 0
    parts: int = 1
    gap: bool = False
    late: bool = False
    held: list[str] = []


def said_key(site: int, seq: int, part: int) -> bytes:
    """Of a part of a message of another site, by where it stands there."""
    return SAID + _SAID.pack(site, seq, part)


def position_key(op: int) -> bytes:
    return POSITION + _U64.pack(op)


_POSITIONS = msgspec.msgpack.Decoder(PositionRow)
encode_position = msgspec.msgpack.Encoder().encode  # a PlaceRow
decode_position = _POSITIONS.decode


def key(table: bytes, message_id: str) -> bytes:
    """Of a table that is looked up by id."""
    return table + message_id.encode()


def ordered_key(table: bytes, lamport: int, message_id: str) -> bytes:
    """Of a table that is walked in the order of the log."""
    return table + _U64.pack(lamport) + message_id.encode()


def split_ordered(raw: bytes) -> tuple[int, str]:
    """(lamport, id) of an ordered key."""
    return _U64.unpack_from(raw, 1)[0], raw[9:].decode()


def number_key(number: int) -> bytes:
    return NUMBER + _U64.pack(number)


def end_of(table: bytes) -> bytes:
    """The key after all of a table."""
    return bytes([table[0] + 1])


def encode_log(row: LogRow) -> bytes:
    sender = row.sender.encode()
    hint = row.hint or b""
    size = _NO_HINT if row.hint is None else len(hint)
    head = _LOG.pack(row.flags | _PACKED, len(sender), size)
    cut = b"" if row.cut is None else _NOTHING + _CUT.pack(*row.cut)
    return head + sender + hint + cut + zlib.compress(row.wire, _PACKING)


def decode_log(raw: bytes) -> LogRow:
    flags, sender_size, hint_size = _LOG.unpack_from(raw)
    at, cut = _LOG.size, None
    sender = raw[at : at + sender_size].decode()
    at += sender_size
    hint = None
    if hint_size != _NO_HINT:
        hint, at = raw[at : at + hint_size], at + hint_size
    wire = raw[at:]
    if flags & _PACKED and wire.startswith(_NOTHING) and len(wire) > len(_NOTHING):
        at = len(_NOTHING) + _CUT.size
        cut, wire = Cut(*_CUT.unpack_from(wire, len(_NOTHING))), wire[at:]
    if flags & _PACKED:
        wire = zlib.decompress(wire)
    return LogRow(flags & ~_PACKED, sender, hint, wire, cut)


def encode_pair(first: int, second: int) -> bytes:
    return _PAIR.pack(first, second)


def decode_pair(raw: bytes) -> tuple[int, int]:
    first, second = _PAIR.unpack(raw)
    return first, second


def encode_outgoing(state: int, attempts: int, next_at: int, senders: tuple[str, ...]) -> bytes:
    return _OUTGOING.pack(state, attempts, next_at) + "\0".join(senders).encode()


def decode_outgoing(raw: bytes) -> tuple[int, int, int, tuple[str, ...]]:
    state, attempts, next_at = _OUTGOING.unpack_from(raw)
    senders = raw[_OUTGOING.size :].decode()
    return state, attempts, next_at, tuple(senders.split("\0")) if senders else ()


def encode_timed(at: int, rest: bytes = b"") -> bytes:
    """A time and what follows: rows of W, R and X."""
    return _U64.pack(at) + rest


def decode_timed(raw: bytes) -> tuple[int, bytes]:
    return _U64.unpack_from(raw)[0], raw[8:]


def encode_missing(row: MissingRow) -> bytes:
    sender = b"" if row.sender is None else row.sender.encode()
    hint = row.hint or b""
    head = _MISSING.pack(
        row.first_seen,
        row.request_at,
        row.rounds,
        row.put_off,
        row.attempts,
        row.ask_at,
        row.expires_at,
        _NO_HINT if row.hint is None else len(hint),
        _NO_HINT if row.sender is None else len(sender),
    )
    return head + hint + sender


def decode_missing(raw: bytes) -> MissingRow:
    *numbers, hint_size, sender_size = _MISSING.unpack_from(raw)
    first_seen, request_at, rounds, put_off, attempts, ask_at, expires_at = numbers
    at = _MISSING.size
    hint = None
    if hint_size != _NO_HINT:
        hint, at = raw[at : at + hint_size], at + hint_size
    sender = None if sender_size == _NO_HINT else raw[at:].decode()
    return MissingRow(
        first_seen, request_at, rounds, put_off, attempts, ask_at, expires_at, hint, sender
    )


def encode_clock(clock: int, entries: int, insertions: int) -> bytes:
    return _CLOCK.pack(clock, entries, insertions)


def decode_clock(raw: bytes) -> tuple[int, int, int]:
    clock, entries, insertions = _CLOCK.unpack(raw)
    return clock, entries, insertions
