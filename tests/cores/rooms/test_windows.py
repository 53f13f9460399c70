"""Which window must go, and which record a number stood for, also at the sizes of production."""

import dataclasses

import numpy as np
import pytest

from appliance.base.errors import FormatError
from appliance.base.limits import WINDOW_AHEAD_US, WINDOW_EVICT_AGE_US
from appliance.base.prng import Prng
from appliance.cores.rooms.windows import CANDIDATES_MAX, Windows, key_of
from appliance.formats.checkpoint import WINDOW_ROW
from appliance.formats.geometry import PRODUCTION, SMALL, Geometry
from appliance.formats.room_name import room_creator_id

LATE = 10**12


def key(i: int, author: int | None = None) -> bytes:
    """Of a device of its own in a room of its own; by default of an author of its own, too."""
    return b"%032d" % i + (1000 + i if author is None else author).to_bytes(8, "little")


def take(windows: Windows, wanted: bytes, log_seq: int, time_us: int) -> int:
    """A new window whose first record is `log_seq`."""
    author = int.from_bytes(wanted[32:], "little")
    row, _ = windows.take(wanted, time_us)
    windows.advance(row, author, 1, log_seq, time_us)
    return row


def test_the_window_that_goes_is_the_one_with_the_lowest_log_seq_whatever_happened_before(
    seed: int,
) -> None:
    prng, windows = Prng(seed), Windows(SMALL)
    alive: dict[bytes, int] = {}  # key -> log_seq of its newest record
    for log_seq in range(1, 2000):
        wanted = key(prng.below(12))
        if wanted not in alive and len(alive) == SMALL.windows_max:
            del alive[min(alive, key=alive.__getitem__)]
        row = windows.row_of.get(wanted)
        if row is None:
            assert windows.can_take(1, LATE)
            row = windows.take(wanted, LATE)[0]
        windows.advance(row, int.from_bytes(wanted[32:], "little"), 1, log_seq, log_seq)
        alive[wanted] = log_seq
        assert sorted(windows.row_of) == sorted(alive)


@pytest.mark.parametrize("geometry", [SMALL, PRODUCTION], ids=["small", "production"])
def test_a_full_table_gives_rows_in_the_order_of_their_newest_records(geometry: Geometry) -> None:
    windows, count = Windows(geometry), geometry.windows_max
    for i in range(count):
        take(windows, key(i), i + 1, 1000)
    windows.advance(windows.row_of[key(1)], 1001, 2, count + 1, 1000)
    assert windows.table.full
    assert not windows.can_take(1, 1000 + WINDOW_EVICT_AGE_US)
    assert windows.can_take(1, 1001 + WINDOW_EVICT_AGE_US)
    gone = min(2 * CANDIDATES_MAX, count - 2)
    for i in range(gone):
        row = take(windows, key(count + i), count + 2 + i, 2 * WINDOW_EVICT_AGE_US)
        assert row == (i if i == 0 else i + 1)  # window 1 has become the newest
    assert key(1) in windows.row_of
    assert len(windows.row_of) == count


def test_a_taken_row_remembers_nothing_of_the_window_before() -> None:
    windows = Windows(SMALL)
    for i in range(SMALL.windows_max):
        row, _ = windows.take(key(i), 1000)
        for n in range(1, 65):
            windows.advance(row, 1000 + i, n, i * 64 + n, 1000)
    row = take(windows, key(99), 9999, LATE)
    assert bytes(windows.table.row(row)[:40]) == key(99)
    assert not any(windows.table.row(row)[64:68])
    assert not any(windows.table.row(row)[72:])


def test_one_author_fills_his_share_and_takes_from_nobody_else() -> None:
    windows = Windows(PRODUCTION)
    others = [key(i) for i in range(10)]
    for i, wanted in enumerate(others):
        take(windows, wanted, i + 1, 1000)
    for i in range(3 * windows.share):
        assert windows.can_take(7, 2000)
        take(windows, key(100 + i, author=7), 100 + i, 2000)
    assert windows.share == 2048
    assert len(windows.row_of) == windows.share + len(others)
    assert all(wanted in windows.row_of for wanted in others)
    kept = [key(100 + i, author=7) in windows.row_of for i in range(3 * windows.share)]
    assert kept == [False] * 2 * windows.share + [True] * windows.share  # his own oldest went


def test_many_authors_together_leave_room_for_whoever_has_little() -> None:
    """All is young: whoever holds most gives up his oldest, and nobody is refused."""
    windows, log_seq = Windows(PRODUCTION), 0
    for author in range(1, 65):
        for i in range(windows.share):
            log_seq += 1
            take(windows, key(author * 10_000 + i, author=author), log_seq, 1000)
    assert windows.table.full
    for i in range(100):
        log_seq += 1
        take(windows, key(i, author=5000 + i), log_seq, 1001)
        assert not windows.can_take(1, 1001) or len(windows._rows_of[1]) <= windows.share
    assert all(key(i, author=5000 + i) in windows.row_of for i in range(100))
    sizes = sorted(len(rows) for rows in windows._rows_of.values())
    assert sizes[:100] == [1] * 100
    assert sizes[-64] >= windows.share - 2  # they gave in turn


def test_young_windows_of_authors_who_hold_little_are_given_up_for_nobody() -> None:
    windows = Windows(SMALL)
    for i in range(SMALL.windows_max):
        take(windows, key(i), i + 1, 1000)
    assert not windows.can_take(1, 1001)


def test_an_author_creates_so_many_rooms_and_no_more() -> None:
    windows = Windows(PRODUCTION)
    for i in range(windows.share):
        assert windows.may_create(7)
        room_id = b"%016d" % i
        take(windows, key_of(room_creator_id(room_id, 7), room_id, 7), i + 1, 1000)
    assert not windows.may_create(7)
    assert windows.may_create(8)
    assert windows.can_take(7, 1000)  # he may still write


def test_nobody_has_a_horizon_before_a_window_was_given_up() -> None:
    windows = Windows(PRODUCTION)
    for i in range(windows.share - 1):
        take(windows, key(i, author=7), i + 1, 5000 + i)
    assert windows.horizon_us(7) == windows.horizon_us(8) == 0
    take(windows, key(9999, author=7), 9999, 90_000)
    take(windows, key(10_000, author=7), 10_000, 90_001)  # the first one goes
    assert windows.horizon_us(7) == 5001
    assert windows.horizon_us(8) == 0


def test_what_was_given_up_lies_before_the_horizon(seed: int) -> None:
    """Whatever goes, and why: all that a window which is gone was given, and all that its records
    said of themselves, is no later than its author's horizon from then on; also in a table that
    was restored meanwhile, which gives up the same."""
    geometry = dataclasses.replace(SMALL, windows_max=24)
    prng, windows, now_us = Prng(seed), Windows(geometry), 1
    gone: dict[bytes, int] = {}  # key -> the latest of its times when it went
    times: dict[bytes, int] = {}
    for log_seq in range(1, 5000):
        now_us += prng.choice([1, 1000, WINDOW_EVICT_AGE_US // 20])
        author = prng.choice([1, 1, 1, 2, 2, prng.between(3, 12)])
        wanted = key(prng.below(40), author=author)
        if not log_seq % 50:
            rows, _, writes = windows.table.freeze(False)
            windows = Windows(geometry)
            windows.load([data for _, data in writes], rows)
        if wanted not in windows.row_of:
            if not windows.can_take(author, now_us):
                continue
            before = set(windows.row_of)
            windows.take(wanted, now_us)
            gone.pop(wanted, None)
            for lost in before - set(windows.row_of):
                gone[lost] = times.pop(lost)
        made_us = now_us + prng.choice([-5000, 15_000, WINDOW_AHEAD_US])
        windows.advance(windows.row_of[wanted], author, 1, log_seq, now_us, made_us=made_us)
        times[wanted] = max(times.get(wanted, 0), now_us, made_us)
        for lost, time_us in gone.items():
            assert time_us <= windows.horizon_us(int.from_bytes(lost[32:], "little"))
    assert len(gone) > 10


def test_the_oldest_is_the_same_whatever_was_kept_of_former_searches(seed: int) -> None:
    """Who was restored a moment ago, and keeps nothing, gives up what all others give up."""
    prng, windows, now_us = Prng(seed), Windows(SMALL), 1
    for log_seq in range(1, 1500):
        now_us += prng.choice([1, 1000, 1_000_000])
        wanted = key(prng.below(30), author=prng.between(1, 3))
        author = int.from_bytes(wanted[32:], "little")
        rows, _, writes = windows.table.freeze(False)
        restored = Windows(SMALL)
        restored.load([data for _, data in writes], rows)
        assert restored.horizon_us(author) == windows.horizon_us(author)
        if wanted not in windows.row_of:
            assert restored.can_take(author, now_us) == windows.can_take(author, now_us)
            if not windows.can_take(author, now_us):
                continue
            assert restored.take(wanted, now_us) == windows.take(wanted, now_us)
            assert set(restored.row_of) == set(windows.row_of)
        made_us = now_us + prng.choice([0, 999, 2_000_000, WINDOW_AHEAD_US])
        windows.advance(windows.row_of[wanted], author, 1, log_seq, now_us, made_us=made_us)


def test_a_clock_that_is_ahead_moves_no_horizon_but_its_own() -> None:
    windows = Windows(SMALL)
    for i in range(SMALL.windows_max):
        take(windows, key(i, author=7 + i % 2), i + 1, 1000 + i)
    assert windows.horizon_us(7) == 1000
    for i in range(3 * SMALL.windows_max):
        row, _ = windows.take(key(100 + i, author=8), 2000 + i)
        windows.advance(row, 8, 1, 100 + i, 2000 + i, made_us=WINDOW_AHEAD_US + 5000)
    assert windows.horizon_us(8) > WINDOW_AHEAD_US
    assert windows.horizon_us(7) <= 2000


@pytest.mark.parametrize("gone", ["before", "after"])
@pytest.mark.parametrize("device_ahead_us", [-LATE // 2, 0, WINDOW_AHEAD_US, 9 * LATE, 10 * LATE])
def test_after_a_correction_only_ids_of_a_device_that_was_ahead_itself_lie_past_the_horizon(
    gone: str, device_ahead_us: int
) -> None:
    """What was stored at a log time that was ahead, under a window that is given up before or after
    the correction: of a device whose clock was right, or ahead by a minute, it is known that it may
    be stored. Of one that was as far ahead as the log it is not."""
    windows, ahead_us = Windows(SMALL), 10 * LATE
    size = min(windows.share, SMALL.windows_max)
    made_us = LATE + device_ahead_us
    row, _ = windows.take(key(0, author=7), LATE + ahead_us)
    windows.advance(row, 7, 1, 1, LATE + ahead_us, made_us=made_us)
    for i in range(1, size + 1):
        if i == size and gone == "after":
            assert key(0, author=7) in windows.row_of
            windows.correct(LATE)
        now_us = LATE + 1000 * i + (0 if i == size and gone == "after" else ahead_us)
        row, _ = windows.take(key(i, author=7), now_us)
        windows.advance(row, 7, 1, 1 + i, now_us)
    if gone == "before":
        windows.correct(LATE)
    assert key(0, author=7) not in windows.row_of
    known = made_us <= windows.horizon_us(7)
    assert known == (device_ahead_us <= WINDOW_AHEAD_US)


@pytest.mark.parametrize("newest", [64, 2**32, 2**32 + 1, 2**40 + 7])
def test_the_low_half_of_a_log_seq_is_enough(newest: int) -> None:
    windows = Windows(SMALL)
    row, _ = windows.take(key(0), 1000)
    for n in range(1, 65):
        windows.advance(row, 1000, n, newest - 64 + n, 1000)
    found = [windows.log_seq_of(row, n) for n in range(1, 65)]
    assert found == list(range(newest - 63, newest + 1))


def test_loaded_windows_are_found_and_evicted_as_before() -> None:
    first, second = Windows(SMALL), Windows(SMALL)
    for i in range(SMALL.windows_max):
        take(first, key(i, author=1 + i % 2), 100 - i, 1000)
    rows, _, writes = first.table.freeze(False)
    second.load([data for _, data in writes], rows)
    assert second.row_of == first.row_of
    late = 2 * WINDOW_EVICT_AGE_US
    for i in range(20, 20 + SMALL.windows_max):
        assert first.can_take(3, late) == second.can_take(3, late)
        assert first.horizon_us(1) == second.horizon_us(1)
        assert take(first, key(i, author=3), 100 + i, late) == take(
            second, key(i, author=3), 100 + i, late
        )


def test_a_table_of_before_is_found_by_its_authors() -> None:
    """Rows are laid out as ever: what is new is that the author is a part of what finds them."""
    rows = np.zeros(2, WINDOW_ROW)
    for i, row in enumerate(rows):
        row["client_id"], row["room_id"] = np.void(b"%016d" % i), np.void(b"r" * 16)
        row["author_id"], row["client_seq"], row["log_seq"] = 7 + i, 3, 10 + i
        row["timestamp"], row["log_seqs"][3] = 5000 + i, 10 + i
    windows = Windows(SMALL)
    windows.load([rows.tobytes().ljust(SMALL.table_chunk_size, b"\0")], 2)
    for i in range(2):
        row = windows.row_of[key_of(b"%016d" % i, b"r" * 16, 7 + i)]
        assert windows.newest(row) == (7 + i, 3)
        assert windows.log_seq_of(row, 3) == 10 + i


def test_a_table_with_two_rows_of_one_window_is_refused() -> None:
    rows = np.zeros(2, WINDOW_ROW)
    rows["client_id"], rows["room_id"], rows["author_id"] = (
        np.void(b"c" * 16),
        np.void(b"r" * 16),
        7,
    )
    with pytest.raises(FormatError, match="second window"):
        Windows(SMALL).load([rows.tobytes().ljust(SMALL.table_chunk_size, b"\0")], 2)
