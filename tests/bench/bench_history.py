"""What it costs that each record of history is checked at the reading at which it leaves: CPU of an
edge for pages out of a sealed segment, with the check and without, microseconds a message.

python tests/bench/bench_history.py
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from appliance.cores.edge.history import encode_page, page
from appliance.cores.edge.log import ShardLog
from appliance.formats import segment
from appliance.formats.client.fields import id_of
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE
from appliance.formats.record import RECORD, encode
from appliance.formats.room_name import room_id_of
from appliance.formats.verified_segment import VerifiedSegment

ROOM = room_id_of("general")
PAGE = 100  # messages
ROUNDS = 9  # of each, by turns; the fastest of each counts
COST_US_MAX = 1.0  # of the check, a message


class OneSegment:
    """The sealed segment 0, mapped."""

    oldest = 0

    def __init__(self) -> None:
        record = np.frombuffer(
            encode(
                room_id=ROOM,
                msg_id=bytes(16),
                author_id=1,
                body=b"x" * 256,
                client_id=b"c" * 16,
                client_seq=1,
            ),
            RECORD,
        )
        records = np.repeat(record, PRODUCTION.segment_records)
        records["seq"] = records["log_seq"] = np.arange(1, len(records) + 1)
        raw = records.tobytes()
        step = PRODUCTION.records_max * RECORD_SIZE
        footer = segment.encode_footer(
            raw,
            cluster=bytes(16),
            shard=0,
            number=0,
            previous_id=bytes(32),
            leaf_ids=[segment.leaf_id(raw[at : at + step]) for at in range(0, len(raw), step)],
            previous_of=lambda room_id: 0,
        )
        extent = (raw.ljust(PRODUCTION.segment_data_size, b"\0") + footer).ljust(
            PRODUCTION.extent_size, b"\0"
        )
        self._view = segment.SegmentView(extent, PRODUCTION)

    def view(self, number: int) -> segment.SegmentView | None:
        return self._view if number == 0 else None


def unchecked(it: VerifiedSegment, slots: Iterable[int]) -> list[bytes]:
    """`VerifiedSegment.at` as it would be for somebody who trusts the disk."""
    return [it._records.record(slot) for slot in slots]


def history(pages: int) -> tuple[float, float]:
    """Microseconds a message of binary pages, with the check and without."""
    log = ShardLog(
        PRODUCTION, memoryview(bytearray(segment.ring_size(PRODUCTION))), segments=OneSegment()
    )
    count = PRODUCTION.segment_records
    assert log.open(count)
    assert log.track(ROOM, sealed_segment=1, message_count=count, log_seq=count) == count
    checked, best = VerifiedSegment.at, {True: float("inf"), False: float("inf")}
    try:
        for turn in range(2 * ROUNDS):
            with_check = turn % 2 == 0
            VerifiedSegment.at = checked if with_check else unchecked  # type: ignore[method-assign]
            start = time.process_time_ns()
            for number in range(pages):
                first = 1 + number * PAGE % (count - PAGE)
                frame = SnapshotRequest(room_id=id_of(ROOM), from_op=first, limit=PAGE)
                records, more, cursor = page(log, ROOM, count, frame)
                assert len(records) == PAGE
                encode_page(True, frame, records, more, cursor, None)
            spent = (time.process_time_ns() - start) / 1000 / pages / PAGE
            best[with_check] = min(best[with_check], spent)
    finally:
        VerifiedSegment.at = checked  # type: ignore[method-assign]
    return best[True], best[False]


def measure(quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """A row of `make bench`."""
    with_check, without = history(2 if quick else 100)
    cost = with_check - without
    say(
        f"history out of sealed segments: {with_check:.2f} us a message, {without:.2f} without the "
        "check of each record"
    )
    return {
        "kind": "checked history",
        "what": "the check of a record at its reading",
        "value": round(cost, 3),
        "unit": "us a message",
        "checked_us": round(with_check, 3),
        "unchecked_us": round(without, 3),
        "bar": f"below {COST_US_MAX}",
        "held": cost < COST_US_MAX,
    }


if __name__ == "__main__":
    measure(False, print)
