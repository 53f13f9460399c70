"""The numbers under which a role writes records of its own, one after the other."""

import os

from appliance.formats.session import DUPLICATE, DUPLICATE_EXPIRED, OK, SEQUENCE_GAP

TAKEN = (OK, DUPLICATE, DUPLICATE_EXPIRED)


class Numbering:
    """A device of the shard itself: its id, and the number of its next record.

    A record whose answer was lost may be in the log: whoever tries again does so under the same
    number, and is told DUPLICATE if it is. So no lost answer leaves a number that the log will
    never take.
    """

    def __init__(self) -> None:
        self.client_id, self.client_seq = os.urandom(16), 1

    def on_answer(self, code: int, seq: int) -> bool:
        """What the log said to the record of this number, by two fields of its result; whether it
        has a record of this number, also if it has let go of it since."""
        if code == SEQUENCE_GAP:  # it remembers nothing of this device, or less than was told
            self.client_seq = seq
        if code not in TAKEN:
            return False
        self.client_seq += 1
        return True
