"""Which segments have a snapshot file on a node."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.cores.shipping.kept_snapshots import choose


def test_the_newest_are_kept_and_the_oldest_go_first() -> None:
    choice = choose({3, 4, 5}, newest=7, oldest=0, count_max=4)
    assert choice == ([3], [6, 7])


def test_before_a_segment_is_sealed_there_is_nothing_to_do() -> None:
    assert choose(set(), newest=-1, oldest=0, count_max=4) == ([], [])


def test_what_retention_has_dropped_from_the_log_is_gone_here_too() -> None:
    assert choose({2, 4}, newest=5, oldest=4, count_max=10) == ([2], [5])


@given(st.sets(st.integers(0, 40)), st.integers(-1, 40), st.integers(0, 40), st.integers(0, 10))
def test_never_more_than_fit_and_a_second_look_finds_nothing_to_do(
    existing: set[int], newest: int, oldest: int, room: int
) -> None:
    existing = {number for number in existing if number <= newest}
    choice = choose(existing, newest=newest, oldest=oldest, count_max=room)
    kept = (existing - set(choice.drop)) | set(choice.make)
    assert len(kept) <= room
    assert all(number > newest - room for number in kept)
    assert choose(kept, newest=newest, oldest=oldest, count_max=room) == ([], [])
