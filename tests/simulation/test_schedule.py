"""Virtual time: events in the order of time, then of arrival, up to the end that was asked for."""

import pytest

from appliance.simulation.schedule import Schedule


def test_events_of_one_time_happen_in_the_order_of_their_arrival() -> None:
    schedule, seen = Schedule(), list[str]()
    for time_us, name in ((7, "late"), (5, "first"), (5, "second")):
        schedule.at(time_us, seen.append, name)
    schedule.at(5, lambda: schedule.after(0, seen.append, "made by it"))
    schedule.run_until(8)
    assert seen == ["first", "second", "made by it", "late"]


@pytest.mark.parametrize(("through", "expected"), [(False, [4]), (True, [4, 5, 5])])
def test_an_event_at_the_end_belongs_to_what_comes_after_unless_time_runs_through_it(
    through: bool, expected: list[int]
) -> None:
    schedule, seen = Schedule(), list[int]()
    for time_us in (4, 5, 5, 6):
        schedule.at(time_us, seen.append, time_us)
    (schedule.run_through if through else schedule.run_until)(5)
    assert seen == expected
    assert (schedule.now_us, schedule.happened, len(schedule)) == (5, len(seen), 4 - len(seen))


def test_time_passes_where_nothing_happens() -> None:
    schedule = Schedule()
    schedule.run_through(3)
    schedule.run_until(2)
    assert schedule.now_us == 3
