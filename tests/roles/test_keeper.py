"""By which time the keeper counts how old a record is."""

from appliance.drivers.host import clock
from appliance.roles.keeper import time_of

DAY_US = 86_400_000_000


def test_age_counts_by_the_time_of_a_log_that_is_ahead() -> None:
    ahead_us = clock.realtime_us() + 400 * DAY_US
    assert time_of({"clock": {"log_us": ahead_us, "corrected_us": 0}}) == ahead_us
    corrected = {"log_us": ahead_us + 7, "corrected_us": 400 * DAY_US}
    assert abs(time_of({"clock": corrected}) - clock.realtime_us()) < DAY_US
    assert time_of({"clock": {"log_us": 0, "corrected_us": 0}}) >= ahead_us - 400 * DAY_US
