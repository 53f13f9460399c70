"""Which window must go, and which record a number stood for, also at the sizes of production."""

import pytest

from appliance.base.limits import WINDOW_EVICT_AGE_US
from appliance.base.prng import Prng
from appliance.cores.rooms.windows import CANDIDATES_MAX, Windows
from appliance.formats.geometry import PRODUCTION, SMALL


def key(i: int) -> bytes:
    return b"%032d" % i


def test_the_window_that_goes_is_the_one_with_the_lowest_log_seq_whatever_happened_before(seed):
    prng, windows = Prng(seed), Windows(SMALL)
    alive: dict[bytes, int] = {}  # key -> log_seq of its newest record
    for log_seq in range(1, 2000):
        wanted = key(prng.below(12))
        if wanted not in alive and len(alive) == SMALL.windows_max:
            del alive[min(alive, key=alive.__getitem__)]
        row = windows.row_of.get(wanted)
        if row is None:
            assert windows.can_take(10**12)
            row = windows.take(wanted)
        windows.advance(row, 1, 1, log_seq, log_seq)
        alive[wanted] = log_seq
        assert sorted(windows.row_of) == sorted(alive)


@pytest.mark.parametrize("geometry", [SMALL, PRODUCTION], ids=["small", "production"])
def test_a_full_table_gives_rows_in_the_order_of_their_newest_records(geometry):
    windows, count = Windows(geometry), geometry.windows_max
    for i in range(count):
        windows.advance(windows.take(key(i)), 1, 1, i + 1, 1000)
    windows.advance(windows.row_of[key(1)], 1, 2, count + 1, 1000)
    assert windows.table.full
    assert not windows.can_take(1000 + WINDOW_EVICT_AGE_US)
    assert windows.can_take(1001 + WINDOW_EVICT_AGE_US)
    gone = min(2 * CANDIDATES_MAX, count - 2)
    for i in range(gone):
        row = windows.take(key(count + i))
        windows.advance(row, 1, 1, count + 2 + i, 2 * WINDOW_EVICT_AGE_US)
        assert row == (i if i == 0 else i + 1)  # window 1 has become the newest
    assert key(1) in windows.row_of
    assert len(windows.row_of) == count


def test_a_taken_row_remembers_nothing_of_the_window_before():
    windows = Windows(SMALL)
    for i in range(SMALL.windows_max):
        row = windows.take(key(i))
        for n in range(1, 65):
            windows.advance(row, 1, n, i * 64 + n, 1000)
    row = windows.take(key(99))
    windows.advance(row, 2, 1, 9999, 2000)
    assert bytes(windows.table.row(row)[:32]) == key(99)
    assert not any(windows.table.row(row)[64:68])
    assert not any(windows.table.row(row)[72:])


@pytest.mark.parametrize("newest", [64, 2**32, 2**32 + 1, 2**40 + 7])
def test_the_low_half_of_a_log_seq_is_enough(newest):
    windows = Windows(SMALL)
    row = windows.take(key(0))
    for n in range(1, 65):
        windows.advance(row, 1, n, newest - 64 + n, 1000)
    found = [windows.log_seq_of(row, n) for n in range(1, 65)]
    assert found == list(range(newest - 63, newest + 1))


def test_loaded_windows_are_found_and_evicted_as_before():
    first, second = Windows(SMALL), Windows(SMALL)
    for i in range(SMALL.windows_max):
        first.advance(first.take(key(i)), 1, 1, 100 - i, 1000)
    rows, _, writes = first.table.freeze(False)
    second.load([data for _, data in writes], rows)
    assert second.row_of == first.row_of
    late = 2 * WINDOW_EVICT_AGE_US
    for i in range(20, 20 + SMALL.windows_max):
        assert first.can_take(late) == second.can_take(late)
        assert first.take(key(i)) == (row := second.take(key(i)))
        first.advance(row, 1, 1, 100 + i, late)
        second.advance(row, 1, 1, 100 + i, late)
