"""Which segments are kept, and whether there is an extent for another record.

    segment   0 ... before | ... oldest | ... open          before <= oldest <= open
              extents are    dropped, but   kept
              used again     not reused yet

A retain record raises `oldest` at once. Extents are used again only below what the checkpoint
before the newest one kept: by then that is durable on every member that got so far.
"""

from appliance.formats.geometry import Geometry

EXTENTS_RESERVED = 2  # for audit, retain and shipped records, when the rest is full


class Retention:
    """Oldest segment now and at the last two checkpoints, and the cursor of what was shipped.

    Invariants: before <= at_checkpoint <= oldest; the records below `oldest` have been shipped,
    or given up.
    """

    def __init__(self, geometry: Geometry, segments_max: int) -> None:
        assert segments_max > EXTENTS_RESERVED + 1
        self._segment_records = geometry.segment_records
        self._segments_max = segments_max
        self.oldest = 0
        self.at_checkpoint = 0
        self.before = 0
        self.shipper_cursor = 0  # log_seq of the last record that is known to be shipped
        self.freed_log_seq = 0  # records up to here have been dropped
        self.full_log_seq = 0  # from this log_seq on, ordinary records are refused
        self.last_log_seq = 0  # from this log_seq on, all are
        self.set(oldest=0, before=0, shipper_cursor=0)

    def set(self, *, oldest: int, before: int, shipper_cursor: int) -> None:
        """The state right after a checkpoint."""
        assert before <= oldest
        self.oldest = self.at_checkpoint = oldest
        self.before = before
        self.shipper_cursor = shipper_cursor
        self._derive()

    def _derive(self) -> None:
        self.freed_log_seq = self.oldest * self._segment_records
        end = self.before + self._segments_max
        self.full_log_seq = (end - EXTENTS_RESERVED - 1) * self._segment_records
        self.last_log_seq = end * self._segment_records

    def on_checkpoint(self) -> None:
        """What the checkpoint before kept is durable now; what is kept now is named next."""
        self.before = self.at_checkpoint
        self.at_checkpoint = self.oldest
        self._derive()

    def may_retain(self, oldest: int) -> bool:
        """Whether segments below `oldest` may go: forward only, nothing that was not shipped."""
        return self.oldest <= oldest <= self.shipper_cursor // self._segment_records

    def may_give_up(self, oldest: int, log_seq: int) -> bool:
        """As `may_retain`, also what was not shipped; never the open segment. `log_seq`: newest."""
        return self.oldest <= oldest <= log_seq // self._segment_records

    def give_up(self, oldest: int) -> None:
        """What lies below `oldest` will never be shipped: shipping, if it begins, begins there."""
        self.shipper_cursor = max(self.shipper_cursor, oldest * self._segment_records)

    def retain(self, oldest: int) -> None:
        """Keep `oldest` and what is newer."""
        assert self.may_retain(oldest)
        self.oldest = oldest
        self._derive()

    def ship(self, last_log_seq: int) -> None:
        """All records up to `last_log_seq` are shipped."""
        assert last_log_seq >= self.shipper_cursor
        self.shipper_cursor = last_log_seq
