"""From results to answers: a shard's reply becomes the acks and errors of those who sent records.

Result i answers record i. The acks of a reply are made at once, of many records by columns, of few
without, since columns cost more to begin than a few records take. A duplicate is answered with the
first ack, read from the record that was stored then, once the replica of this node has it.
"""

import struct
from typing import Any

import numpy as np

from appliance.base.errors import InputError
from appliance.base.layout import offset_of, struct_of
from appliance.base.limits import WINDOW_AHEAD_US
from appliance.cores.edge.message_id import off_by
from appliance.cores.edge.publish import Batch
from appliance.cores.edge.session import Session
from appliance.formats import session as replies
from appliance.formats.client.acks import ACK_ITEM
from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import binary_head
from appliance.formats.client.sending import MessageAck
from appliance.formats.client_errors import (
    DuplicateExpired,
    Forbidden,
    LimitReached,
    MsgIdTaken,
    RoomClosed,
    RoomUnknown,
    SequenceGap,
    StorageFull,
)
from appliance.formats.geometry import RECORD_SIZE, RESULT_SIZE
from appliance.formats.record import (
    CLIENT_SEQ,
    MSG_ID,
    RECORD,
    RECORD_STRUCT,
    ROOM_ID,
    made_us_of,
    record_hash,
)

Bytes = bytes | bytearray | memoryview

COLUMNS_FROM = 8  # records
_ACK = struct_of(ACK_ITEM)
_SENT = struct.Struct(f"<16s16s{CLIENT_SEQ - MSG_ID - 16}xQ")  # of a record: room, id, client_seq
assert (ROOM_ID, MSG_ID) == (0, 16)
_NUMBER = struct.Struct("<Q")
_SEQ, _LOG_SEQ = offset_of(replies.RESULT, "seq"), offset_of(replies.RESULT, "log_seq")
_ERRORS = {
    replies.DUPLICATE_EXPIRED: DuplicateExpired(
        "perhaps stored before: so long ago that nobody remembers its number"
    ),
    replies.ROOM_UNKNOWN: RoomUnknown("no such room"),
    replies.FORBIDDEN: Forbidden("the room's policy does not allow it"),
    replies.LIMIT: LimitReached("as many rooms or devices as this user, or this shard, may hold"),
    replies.STORAGE_FULL: StorageFull("no storage is left for new records"),
    replies.MSG_ID_TAKEN: MsgIdTaken(
        "a message of another user, or of another room, has this msg_id: make a new one"
    ),
}


_CLOSED = RoomClosed("the room is closed: it takes no messages until a moderator opens it again")


def error_of(code: int, seq: int) -> InputError:
    """The error that answers a refused record."""
    return SequenceGap(seq) if code == replies.SEQUENCE_GAP else _ERRORS[code]


def expired(made_us: int, now_us: int) -> InputError:
    """The answer to a message that was perhaps stored long ago. Whether it was, goes by the time in
    its id; so a client whose clock is off is told so."""
    error = _ERRORS[replies.DUPLICATE_EXPIRED]
    off_us = made_us - now_us
    if made_us == 0 or abs(off_us) <= WINDOW_AHEAD_US:
        return error
    return DuplicateExpired(
        f"{error}; its msg_id is of a time {off_by(off_us)} this node's clock: if the message was "
        "written just now, the device's clock is off by that, set it"
    )


def by_columns(records: Bytes, results: Bytes) -> tuple[list[int], int, bytes]:
    """The codes of results, the newest log_seq in them, and the acks of all, for the wire."""
    given = np.frombuffer(results, replies.RESULT)
    sent = np.frombuffer(records, RECORD, len(given))
    acks = np.empty(len(given), ACK_ITEM)
    for name in ("room_id", "client_seq", "msg_id"):
        acks[name] = sent[name]
    acks["op"] = given["seq"]
    acks["timestamp"], acks["hash"] = given["timestamp"], given["hash"]
    return given["code"].tolist(), int(given["log_seq"].max()), acks.tobytes()


def one_by_one(records: Bytes, results: Bytes) -> tuple[list[int], int, bytes]:
    """The same as `by_columns`."""
    codes, log_seqs, acks = [], [], []
    start = 0
    for seq, log_seq, timestamp, code, _, digest in replies.RESULT_STRUCT.iter_unpack(results):
        room_id, msg_id, client_seq = _SENT.unpack_from(records, start)
        codes.append(code)
        log_seqs.append(log_seq)
        acks.append(_ACK.pack(room_id, client_seq, seq, msg_id, timestamp, digest))
        start += RECORD_SIZE
    return codes, max(log_seqs), b"".join(acks)


class Answers:
    """The batch's records and its results, side by side."""

    def __init__(self, batch: Batch, results: Bytes) -> None:
        assert len(results) == batch.count * RESULT_SIZE
        self._records, self._results = batch.view, results
        made = one_by_one if batch.count < COLUMNS_FROM else by_columns
        self.codes, self.newest, self._acks = made(batch.view, results)
        self.accepted = not any(self.codes)

    def refused(self, first: int, count: int) -> list[int]:
        """Indexes of a run's records that were not accepted just now."""
        if self.accepted:
            return []
        return [i for i in range(first, first + count) if self.codes[i] != replies.OK]

    def ack(self, session: Session, first: int, count: int) -> None:
        """Ack `count` accepted records from `first` on."""
        if count == 0:
            return
        acks = self._acks[first * _ACK.size : (first + count) * _ACK.size]
        if session.binary:
            session.send_payload(binary_head(MessageAck, count) + acks)
            return
        for room, client_seq, op, msg, timestamp, digest in _ACK.iter_unpack(acks):
            session.send(
                MessageAck(
                    room_id=id_of(room),
                    client_seq=client_seq,
                    op=op,
                    msg_id=id_of(msg),
                    timestamp=timestamp,
                    hash=digest.hex(),
                )
            )

    def error(self, i: int, now_us: int) -> InputError:
        """The error that answers record `i`, a message that was refused. Policies forbid nothing
        but messages to rooms that are closed; what else is forbidden reaches no log."""
        if self.codes[i] == replies.FORBIDDEN:
            return _CLOSED
        if self.codes[i] == replies.DUPLICATE_EXPIRED:
            return expired(made_us_of(self._sent(i, MSG_ID, 16)), now_us)
        return error_of(self.codes[i], self.seq(i))

    def named(self, i: int) -> dict[str, Any]:
        """What an error about record `i` names."""
        return {
            "room_id": id_of(self._sent(i, ROOM_ID, 16)),
            "client_seq": int.from_bytes(self._sent(i, CLIENT_SEQ, 8), "little"),
        }

    def log_seq(self, i: int) -> int:
        """Where the record lies of which record `i` is a duplicate."""
        return self._given(i, _LOG_SEQ)

    def seq(self, i: int) -> int:
        return self._given(i, _SEQ)

    def _sent(self, i: int, at: int, size: int) -> bytes:
        """A field of record `i`."""
        start = i * RECORD_SIZE + at
        return bytes(self._records[start : start + size])

    def _given(self, i: int, at: int) -> int:
        """A number of result `i`."""
        number: int = _NUMBER.unpack_from(self._results, i * RESULT_SIZE + at)[0]
        return number


def ack_of(record: bytes) -> MessageAck:
    """The ack of a stored record, as it was given when the record was accepted."""
    (room, msg, _, _, _, timestamp, _, _, _, _, _, client_seq, _, _, _, op, _) = (
        RECORD_STRUCT.unpack(record)
    )
    return MessageAck(
        room_id=id_of(room),
        client_seq=client_seq,
        op=op,
        msg_id=id_of(msg),
        timestamp=timestamp,
        hash=record_hash(record).hex(),
    )
