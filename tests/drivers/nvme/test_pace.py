"""Growth over the last day, at least over a minute."""

from appliance.drivers.nvme.pace import DAY_S, Pace


def test_a_pace_is_that_of_the_last_day() -> None:
    pace = Pace()
    assert pace.per_second(0, 1000) == 0
    assert pace.per_second(59, 2000) == 0, "too short to say"
    assert pace.per_second(100, 2000) == 10
    for minute in range(1, 2 * 24 * 60):
        found = pace.per_second(100 + 60 * minute, 2000 if minute > 60 else 2000 + minute)
    assert found == 0, "the first hour is forgotten"
    assert pace.per_second(3 * DAY_S, 0) == 0
