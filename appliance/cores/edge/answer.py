"""From results to answers: a shard's reply becomes the acks and errors of those who sent records.

Result i answers record i. Whole runs that were accepted are acked by columns; a duplicate is
answered with the first ack, read from the record that was stored then, once the replica of this
node has it.
"""

from typing import Any

import numpy as np

from appliance.base.errors import InputError
from appliance.base.limits import WINDOW_AHEAD_US
from appliance.cores.edge.publish import Batch
from appliance.cores.edge.session import Session
from appliance.formats import session as replies
from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import binary_head
from appliance.formats.client.sending import ACK_ITEM, MessageAck
from appliance.formats.client_errors import (
    DuplicateExpired,
    Forbidden,
    LimitReached,
    RoomUnknown,
    SequenceGap,
    StorageFull,
)
from appliance.formats.record import RECORD, RECORD_STRUCT, made_us_of, record_hash

_ERRORS = {
    replies.DUPLICATE_EXPIRED: DuplicateExpired(
        "perhaps stored before: so long ago that nobody remembers its number"
    ),
    replies.ROOM_UNKNOWN: RoomUnknown("no such room"),
    replies.FORBIDDEN: Forbidden("the room's policy does not allow it"),
    replies.LIMIT: LimitReached("as many rooms or devices as this user, or this shard, may hold"),
    replies.STORAGE_FULL: StorageFull("no storage is left for new records"),
}


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
    word = "ahead of" if off_us > 0 else "behind"
    return DuplicateExpired(
        f"{error}; its msg_id is of a time {_span(abs(off_us))} {word} this node's clock: if the "
        f"message was written just now, the device's clock is off by that, set it"
    )


def _span(span_us: int) -> str:
    """In its two largest units."""
    minutes, seconds = divmod(span_us // 1_000_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    while parts[0][0] == 0 and len(parts) > 2:
        parts.pop(0)
    return " ".join(f"{count} {unit}" for count, unit in parts[:2])


class Answers:
    """The batch's records and its results, side by side."""

    def __init__(self, batch: Batch, results: bytes | memoryview) -> None:
        self.results = np.frombuffer(results, replies.RESULT)
        assert len(self.results) == batch.count
        self.records = np.frombuffer(batch.buffer, RECORD, batch.count)
        self.codes: list[int] = self.results["code"].tolist()
        self.accepted = not any(self.codes)
        self.newest = int(self.results["log_seq"].max())
        acks = np.empty(batch.count, ACK_ITEM)
        for name in ("room_id", "client_seq", "msg_id"):
            acks[name] = self.records[name]
        acks["op"] = self.results["seq"]
        acks["timestamp"], acks["hash"] = self.results["timestamp"], self.results["hash"]
        self._acks = acks

    def refused(self, first: int, count: int) -> list[int]:
        """Indexes of a run's records that were not accepted just now."""
        if self.accepted:
            return []
        return [i for i in range(first, first + count) if self.codes[i] != replies.OK]

    def ack(self, session: Session, first: int, count: int) -> None:
        """Ack `count` accepted records from `first` on."""
        if count == 0:
            return
        acks = self._acks[first : first + count]
        if session.binary:
            session.send_payload(binary_head(MessageAck, count) + acks.tobytes())
            return
        for room, client_seq, op, msg, timestamp, digest in acks.tolist():
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
        """The error that answers record `i`, which was refused."""
        if self.codes[i] == replies.DUPLICATE_EXPIRED:
            return expired(made_us_of(self.records["msg_id"][i].tobytes()), now_us)
        return error_of(self.codes[i], self.seq(i))

    def named(self, i: int) -> dict[str, Any]:
        """What an error about record `i` names."""
        return {
            "room_id": id_of(self.records["room_id"][i].tobytes()),
            "client_seq": int(self.records["client_seq"][i]),
        }

    def log_seq(self, i: int) -> int:
        """Where the record lies of which record `i` is a duplicate."""
        return int(self.results["log_seq"][i])

    def seq(self, i: int) -> int:
        return int(self.results["seq"][i])


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
