"""What it costs that each record of history is checked at the reading at which it leaves: CPU of an
edge for pages out of a sealed segment, with the check and without, microseconds a message. And what
it costs to look for a msg_id in such a segment.

python -m tests.bench.bench_history
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
SEARCH_MS_MAX = 1.0  # a segment; an edge looks into one of each search in a turn


class OneSegment:
    """The sealed segment 0, mapped; of the next one there may be the footer, which names it."""

    oldest = 0

    def __init__(self, *, named: bool = False) -> None:
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
        leaf_ids = [segment.leaf_id(raw[at : at + step]) for at in range(0, len(raw), step)]
        self._views: list[segment.SegmentView] = []
        previous_id = bytes(32)
        for number in range(1 + named):
            footer = segment.encode_footer(
                raw,
                cluster=bytes(16),
                shard=0,
                number=number,
                previous_id=previous_id,
                leaf_ids=leaf_ids,
                previous_of=lambda room_id: 0,
            )
            extent = (raw.ljust(PRODUCTION.segment_data_size, b"\0") + footer).ljust(
                PRODUCTION.extent_size, b"\0"
            )
            self._views.append(segment.SegmentView(extent, PRODUCTION))
            previous_id = segment.segment_id(bytes(self._views[-1].footer_bytes))

    def view(self, number: int) -> segment.SegmentView | None:
        return self._views[number] if number < len(self._views) else None


def unchecked(it: VerifiedSegment, slots: Iterable[int]) -> list[bytes]:
    """`VerifiedSegment.at` as it would be for somebody who trusts the disk."""
    return [it._records.record(slot) for slot in slots]


def log_of(segments: OneSegment) -> ShardLog:
    """As far as segment 0 goes, none of it in the ring."""
    ring = memoryview(bytearray(segment.ring_size(PRODUCTION)))
    log = ShardLog(PRODUCTION, ring, segments=segments)
    assert log.open(PRODUCTION.segment_records)
    return log


def history(pages: int) -> tuple[float, float]:
    """Microseconds a message of binary pages, with the check and without."""
    log, count = log_of(OneSegment()), PRODUCTION.segment_records
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


def search(looks: int) -> float:
    """Milliseconds to see that a msg_id is none of a segment's; the fastest of some looks."""
    log, best = log_of(OneSegment(named=True)), float("inf")
    for number in range(1, 1 + looks):
        start = time.process_time_ns()
        assert log.with_message_id(0, number.to_bytes(16, "big")) is None
        best = min(best, (time.process_time_ns() - start) / 1e6)
    return best


def measure(quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Rows of `make bench`."""
    return [_checked(quick, say), _searched(quick, say)]


def _searched(quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    took_ms = search(2 if quick else 100)
    say(f"a msg_id looked for in a sealed segment: {took_ms:.2f} ms")
    return {
        "kind": "checked history",
        "what": "a msg_id looked for in a sealed segment",
        "value": round(took_ms, 3),
        "unit": "ms",
        "bar": f"below {SEARCH_MS_MAX}",
        "held": took_ms < SEARCH_MS_MAX,
    }


def _checked(quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
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
