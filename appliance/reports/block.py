"""A block of records, verified as columns: checksums, padding, numbers, times and chains.

Per record Python does three things: hash, CRC and the slice of the body. All the rest is numpy over
the block, so that a core verifies more than a hundred thousand records a second.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

import numpy as np

from appliance.base.checksum import crc32c
from appliance.base.limits import BODY_SIZE_MAX
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.record import (
    BODY,
    CHECKSUM,
    FLAGS_KIND_MASK,
    MSG_ID,
    RECORD,
)
from appliance.reports.span import SPAN, Array, by_room, words_of

_WORD = 4  # body begins at a multiple of it, and not of 8
assert BODY % _WORD == BODY_SIZE_MAX % _WORD == RECORD_SIZE % _WORD == 0


class Problem(NamedTuple):
    """What is wrong, in a word and in a sentence, and with which record of the run, from 0."""

    record: int
    reason: str
    sentence: str


class Verified(NamedTuple):
    """A block of records and what was found."""

    records: Array  # of RECORD, over the caller's buffer
    hashes: Array  # of each record, (count, 32) bytes
    spans: Array  # of SPAN, one a room; sound only if there is no problem
    problem: Problem | None


def verify(buffer: memoryview, count: int, first_log_seq: int, timestamp_before: int) -> Verified:
    """Verify `count` records at the start of `buffer`; the first must be `first_log_seq`."""
    records = columns_of(buffer, count)
    hashes = hashes_of(buffer, count)
    spans, chain = _spans(records, hashes)
    checks = [
        ("checksum", "has a wrong CRC", crc_wrong(buffer, records)),
        ("padding", "has bytes where there must be zeros", _padding_wrong(records)),
        ("gap", "has another log_seq than its place", _numbers_wrong(records, first_log_seq)),
        ("clock", "is not later than the record before", _times_wrong(records, timestamp_before)),
    ]
    problem = min(
        (
            Problem(int(np.argmax(wrong)), reason, sentence)
            for reason, sentence, wrong in checks
            if wrong.any()
        ),
        key=lambda found: found.record,
        default=None,
    )
    if chain is not None and (problem is None or chain.record < problem.record):
        problem = chain
    return Verified(records, hashes, spans, problem)


def columns_of(buffer: memoryview, count: int) -> Array:
    """The records at the start of `buffer`, without a copy."""
    return np.frombuffer(buffer, RECORD, count)


def hashes_of(buffer: memoryview, count: int) -> Array:
    """SHA-256 of each record."""
    end = count * RECORD_SIZE
    whole = b"".join(
        [sha256(buffer[at : at + RECORD_SIZE]).digest() for at in range(0, end, RECORD_SIZE)]
    )
    return np.frombuffer(whole, np.uint8).reshape(count, 32)


def crc_wrong(buffer: memoryview, records: Array) -> Array:
    """True where a record's CRC is not the one it names."""
    end = len(records) * RECORD_SIZE
    length = CHECKSUM - MSG_ID
    found = [crc32c(buffer[at : at + length]) for at in range(MSG_ID, end, RECORD_SIZE)]
    wrong: Array = np.array(found, "<u4") != records["checksum"]
    return wrong


def _padding_wrong(records: Array) -> Array:
    """Also lengths and flags that no writer makes."""
    words = np.ascontiguousarray(records).view("<u4").reshape(len(records), -1)
    first = BODY // _WORD
    filled = words[:, first : first + BODY_SIZE_MAX // _WORD] != 0
    last = filled.shape[1] - 1 - np.argmax(filled[:, ::-1], axis=1)
    last_word = words[np.arange(len(records)), first + last]
    used = last * _WORD + _bytes_used(last_word)
    wrong: Array = (used > records["body_len"]) | (records["body_len"] > BODY_SIZE_MAX)
    wrong |= (records["flags"] & ~np.uint32(FLAGS_KIND_MASK)) != 0
    for name in ("padding_a", "padding_b"):
        raw = np.ascontiguousarray(records[name]).view(np.uint8).reshape(len(records), -1)
        wrong |= raw.any(axis=1)
    return wrong


def _bytes_used(words: Array) -> Array:
    """Bytes of each little-endian word up to its last one that is not zero."""
    used: Array = np.sum([words >= np.uint32(1 << shift) for shift in (0, 8, 16, 24)], axis=0)
    return used


def _numbers_wrong(records: Array, first_log_seq: int) -> Array:
    wanted = np.arange(first_log_seq, first_log_seq + len(records), dtype=np.uint64)
    wrong: Array = records["log_seq"] != wanted
    return wrong


def _times_wrong(records: Array, timestamp_before: int) -> Array:
    times = records["timestamp"]
    before = np.empty_like(times)
    before[0], before[1:] = timestamp_before, times[:-1]
    return times <= before


def _spans(records: Array, hashes: Array) -> tuple[Array, Problem | None]:
    """One span for each room, and the first record that does not follow its room's chain."""
    order, begins = by_room(records["room_id"])
    seq = records["seq"][order]
    named = words_of(records["prev_hash"])[order]
    words = words_of(hashes)[order]
    follows = begins.copy()
    follows[1:] |= (seq[1:] == seq[:-1] + 1) & (named[1:] == words[:-1]).all(axis=1)
    ends = np.append(begins[1:], True)
    first, last = order[begins], order[ends]
    spans = np.zeros(len(first), SPAN)
    spans["room_id"], spans["prev_hash"] = (records[n][first] for n in ("room_id", "prev_hash"))
    spans["first_seq"], spans["last_seq"] = records["seq"][first], records["seq"][last]
    spans["first_log_seq"] = records["log_seq"][first]
    spans["last_log_seq"] = records["log_seq"][last]
    spans["last_hash"] = np.ascontiguousarray(hashes[last]).view("V32").reshape(-1)
    if follows.all():
        return spans, None
    index = int(order[~follows].min())
    return spans, Problem(index, "chain", "does not follow the record before it in its room")
