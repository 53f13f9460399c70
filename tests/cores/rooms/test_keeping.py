"""Which segments go: only whole, old, and shipped ones, unless nothing is shipped."""

import pytest

from appliance.cores.rooms.keeping import DAY_US, Kept, keep

NOW_US = 100 * DAY_US
NEWEST = {number: (90 + number) * DAY_US for number in range(10)}  # segment 0 ends on day 90


def kept(**changes: int | bool) -> Kept:
    return Kept(oldest=2, segment_records=100, log_seq=950, shipped=500, ships=True)._replace(
        **changes
    )


def oldest(days: float, of: Kept | None = None) -> int:
    return keep(of or kept(), NEWEST.get, NOW_US, days)


def test_segments_go_whose_newest_record_is_older_than_what_is_kept() -> None:
    assert oldest(8) == 2  # the newest record of segment 2 is eight days old
    assert oldest(7.999) == 3
    assert oldest(6.5) == 4


def test_everything_stays_unless_days_are_set() -> None:
    assert oldest(0) == 2


def test_what_is_not_shipped_stays_unless_shipping_is_off() -> None:
    assert oldest(0.5) == 5
    assert oldest(0.5, kept(ships=False)) == 9  # but never the open segment
    assert oldest(0.5, kept(shipped=0)) == 2


def test_what_cannot_be_read_now_stays_with_all_that_is_newer() -> None:
    assert keep(kept(), {2: 0, 4: 0}.get, NOW_US, 1) == 3


def test_what_was_written_before_a_correction_of_the_clock_is_as_old_as_what_follows() -> None:
    """Segments 2 and 3 bear times of the future, 4 and 5 those of the clock again."""
    times = {2: 500 * DAY_US, 3: 501 * DAY_US, 4: 95 * DAY_US, 5: 99 * DAY_US}
    of = kept(shipped=600, corrected=True)
    assert keep(of, times.get, NOW_US, 4) == 5
    assert keep(of, times.get, NOW_US, 6) == 2


@pytest.mark.parametrize("ahead_days", [1, 30, 400])
@pytest.mark.parametrize("days", [10, 90, 400, 1000])
def test_times_that_come_true_at_last_hold_nothing_up(ahead_days: int, days: int) -> None:
    """A segment a day; the first thirty bear times that are ahead, and those come in the end."""
    segments, wrong = 2000, 30
    times = {n: (n + (ahead_days if n < wrong else 0)) * DAY_US for n in range(segments)}
    oldest = 0
    for today in range(wrong, segments, 7):
        of = Kept(oldest, 100, 100 * (today + 1), 0, ships=False, corrected=True)
        oldest = keep(of, times.get, today * DAY_US, days)
        assert oldest <= max(0, today - days), "what is kept is as young as it must be"
        if today - days > wrong:
            assert oldest == today - days, "and nothing is kept for longer"


def test_in_a_log_that_was_never_corrected_no_more_is_read_than_goes() -> None:
    read: list[int] = []

    def newest_us(number: int) -> int:
        read.append(number)
        return NEWEST[number]

    assert keep(kept(shipped=900), newest_us, NOW_US, 6.5) == 4
    assert read == [2, 3, 4]
