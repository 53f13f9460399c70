"""Who ships the shard and how far: the rules of shipped records, the same on every member.

    claim      generation + 1   from now on only this generation is heard; what was announced stays
    announce   the next period, whole: it begins where the last one ended, and is over
    manifest   what was announced lies at the target, under this hash: the cursor moves

Records carry strictly increasing times, so once a record of a time at or past the end of a period
is in the log, no later one can belong to it. An announcement is such a record itself. What may have
entered between the shipper's look and its announcement is the state machine's to judge: a shipper
that saw no record after the period must have seen the newest one.

Periods go by the time of prepares, which never goes back. Since the clock was corrected records
bear an earlier one, by `ahead_us`.
"""

from appliance.cores.rooms.retention import Retention
from appliance.formats.checkpoint import ShippingState
from appliance.formats.event import SHIP_ANNOUNCE, SHIP_CLAIM, Shipped

_SECOND_US = 1_000_000
_PERIOD_US_MAX = 366 * 24 * 3600 * _SECOND_US
_GENERATION_MAX = (1 << 32) - 1
_NO_HASH = bytes(32)


class Shipping:
    """Judges and applies shipped records; the cursor itself is the retention's.

    Invariants: generations and manifest numbers grow by one; periods follow each other without a
    gap; at most one is announced, and it begins right after the cursor.
    """

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self.state = ShippingState()
        self.ahead_us = 0

    def may_take(self, shipped: Shipped, timestamp: int, log_seq: int) -> bool:
        """Whether this record of time `timestamp` may follow record `log_seq`, the newest."""
        state = self.state
        if shipped.action == SHIP_CLAIM:
            following = Shipped(SHIP_CLAIM, shipped.node, state.generation + 1)
            return shipped == following and state.generation < _GENERATION_MAX
        if (shipped.generation, shipped.node) != (state.generation, state.node):
            return False
        if shipped.number != state.manifest_count:
            return False
        if shipped.action == SHIP_ANNOUNCE:
            return self._may_announce(shipped, timestamp + self.ahead_us, log_seq)
        announced = (
            state.period_start_us,
            state.period_us,
            self._retention.shipper_cursor + 1,
            state.announced_end - 1,
            0,
        )
        told = (
            shipped.period_start_us,
            shipped.period_us,
            shipped.first_log_seq,
            shipped.last_log_seq,
            shipped.seen_log_seq,
        )
        return state.announced_end > 0 and told == announced and shipped.manifest_hash != _NO_HASH

    def _may_announce(self, shipped: Shipped, timestamp: int, log_seq: int) -> bool:
        """The next period, over by now, with every record that it has."""
        state, start_us, last = self.state, shipped.period_start_us, shipped.last_log_seq
        if state.generation == 0 or state.announced_end or shipped.manifest_hash != _NO_HASH:
            return False
        if start_us % _SECOND_US or shipped.period_us % _SECOND_US:
            return False
        if not 0 < start_us or not 0 < shipped.period_us <= _PERIOD_US_MAX:
            return False
        if state.period_start_us not in (0, start_us) or timestamp < start_us + shipped.period_us:
            return False
        cursor = self._retention.shipper_cursor
        if shipped.first_log_seq != cursor + 1 or not cursor <= last <= log_seq:
            return False
        seen = shipped.seen_log_seq
        return last == seen == log_seq or last < seen <= log_seq

    def take(self, shipped: Shipped) -> None:
        """Apply a record that `may_take` let pass."""
        state = self.state
        if shipped.action == SHIP_CLAIM:
            self.state = state._replace(generation=shipped.generation, node=shipped.node)
        elif shipped.action == SHIP_ANNOUNCE:
            self.state = state._replace(
                period_start_us=shipped.period_start_us,
                period_us=shipped.period_us,
                announced_end=shipped.last_log_seq + 1,
            )
        else:
            self._retention.ship(state.announced_end - 1)
            self.state = state._replace(
                manifest_count=state.manifest_count + 1,
                manifest_hash=shipped.manifest_hash,
                period_start_us=state.period_start_us + state.period_us,
                announced_end=0,
            )
