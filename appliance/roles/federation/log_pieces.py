"""What a carrying node reads of its site's log, piece by piece: what it is to know of, no more.

Most records are of rooms that nobody shares. Only their room and kind are looked at, where they lie
in the ring: a node would pay for each of them otherwise what it pays for a record that crosses.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from appliance.base.limits import FEDERATED_READ_MAX
from appliance.cores.shipping.source import NotHere, Source
from appliance.formats import record as rec
from appliance.formats.segment import first_log_seq_of, number_of
from appliance.formats.sharing import FEDERATED_PREFIX_SIZE, decode_federated

# of a record: the low half of its room's id, and its kind
_GLANCE = np.dtype(
    {
        "names": ["room", "kind"],
        "formats": ["<u8", "u1"],
        "offsets": [rec.ROOM_ID, rec.FLAGS],
        "itemsize": rec.RECORD.itemsize,
    }
)
_KINDS = np.arange(rec.FLAGS_KIND_MASK + 1)
_SAID = np.isin(_KINDS, (rec.KIND_MESSAGE, rec.KIND_FEDERATED))  # by kind: a channel's own
_TOLD = np.isin(_KINDS, (rec.KIND_ROOM_CREATE, rec.KIND_ROOM_POLICY))  # of whatever room


def read_piece(
    source: Source, first: int, to: int, room_ids: Iterable[bytes]
) -> tuple[int, np.ndarray]:
    """(position, what is to be known of the records from `first` up to it), in order: messages of
    these rooms, first records and policies of all. A piece lies in one segment, unless the replica
    tells that there is nothing to be known. Raises NotHere."""
    if 0 < source.crossing < first:
        return to, np.zeros(0, rec.RECORD)
    number = number_of(source.geometry, first)
    end = first_log_seq_of(source.geometry, number + 1) - 1
    last = min(to, end, first + FEDERATED_READ_MAX - 1)
    lows = np.array([rec.room_low(room_id) for room_id in room_ids], np.uint64)

    def pick(records: np.ndarray) -> np.ndarray:
        seen = records.view(_GLANCE)
        kinds = seen["kind"]
        found: np.ndarray = _SAID[kinds] & np.isin(seen["room"], lows) | _TOLD[kinds]
        return found

    return last, source.picked(first, last, pick)


class HasSource(Protocol):
    """Whose `source` reads the log, while the replica serves us."""

    source: Source | None


class LogTexts:
    """Texts of foreign messages, as they stand in the log that `session` reads."""

    def __init__(self, session: HasSource) -> None:
        self._session = session

    def text(self, log_seq: int, message_id: str) -> bytes | None:
        """None: the record cannot be read now, or is another one's, as in a log made anew."""
        source = self._session.source
        if source is None or log_seq > source.log_seq or not self.keeps(log_seq):
            return None
        try:
            (row,) = np.frombuffer(source.records(log_seq, log_seq), rec.RECORD)
        except NotHere:
            return None
        body = bytes(row["body"])[: int(row["body_len"])]
        is_foreign = int(row["flags"]) & rec.FLAGS_KIND_MASK == rec.KIND_FEDERATED
        prefix = decode_federated(body) if is_foreign else None
        if prefix is None or prefix.message_id.hex() != message_id:
            return None
        return body[FEDERATED_PREFIX_SIZE:]

    def keeps(self, log_seq: int) -> bool:
        """Whether the log has not dropped it; while nobody can tell, it has not."""
        source = self._session.source
        return source is None or source.keeps(log_seq)


def of_room(records: np.ndarray, room_id: bytes, position: int) -> np.ndarray:
    """Those of a piece behind `position` that a room's channel is to know of."""
    if not len(records):
        return records
    found = _behind(records, position)
    kinds = found["flags"] & rec.FLAGS_KIND_MASK
    wanted: np.ndarray = found[(found["room_id"] == np.void(room_id)) & _SAID[kinds]]
    return wanted


def policies_of(records: np.ndarray, position: int) -> np.ndarray:
    """Those of a piece behind `position` that say how rooms are shared."""
    found = _behind(records, position)
    kinds = found["flags"] & rec.FLAGS_KIND_MASK
    policies: np.ndarray = found[kinds == rec.KIND_ROOM_POLICY]
    return policies


def _behind(records: np.ndarray, position: int) -> np.ndarray:
    """Those that come after this one, not copied: they stand in the log's order."""
    return records[int(np.searchsorted(records["log_seq"], position, "right")) :]
