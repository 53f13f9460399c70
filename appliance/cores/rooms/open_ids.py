"""Which record of the open segment bears which msg_id.

An id belongs to the user who used it first, in the room where he did. What can be told of that is
bounded by what every member has: of sealed segments one that took over a state may have none yet,
the open one is part of the state. So an id is bound as long as the segment of its record is open;
when it is sealed all of its ids go together, on all members behind the same record.
"""

from collections.abc import Callable

import numpy as np

from appliance.formats.record import (
    FLAGS_KIND_MASK,
    KIND_FEDERATED,
    RECORD,
    author_id_in,
    flags_in,
    room_id_in,
)

OF_OTHER_SITES = -1  # in place of an author: no user here, though an author there may be called so

# room_id, author_id of who holds an id
Holder = tuple[bytes, int]


class OpenIds:
    """The ids of the open segment, of several records with one the first.

    Invariant: `log_seq_of` has the ids of exactly the records of the open segment. `record` gives
    the one with a log_seq.
    """

    __slots__ = ("log_seq_of", "_record")

    def __init__(self, record: Callable[[int], memoryview]) -> None:
        self.log_seq_of: dict[bytes, int] = {}
        self._record = record

    def clear(self) -> None:
        """A new segment begins."""
        self.log_seq_of.clear()

    def load(self, records: bytes, first_log_seq: int) -> None:
        """The ids of `records`, the open segment's so far."""
        assert not self.log_seq_of
        ids = np.frombuffer(records, RECORD)["msg_id"]
        for log_seq, msg_id in enumerate(ids.tolist(), first_log_seq):
            self.log_seq_of.setdefault(msg_id, log_seq)

    def holder(self, msg_id: bytes) -> Holder | None:
        """Whose id this is; None: nobody's that is known."""
        log_seq = self.log_seq_of.get(msg_id)
        if log_seq is None:
            return None
        record = self._record(log_seq)
        kind = flags_in(record) & FLAGS_KIND_MASK
        author_id = author_id_in(record)
        room_id = bytes(room_id_in(record))
        return room_id, OF_OTHER_SITES if kind == KIND_FEDERATED else author_id
