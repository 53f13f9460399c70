"""Worlds whose clocks are set back, run slow or are a day ahead: what waits for time to pass waits
for hardly more than that, and never for less.

Periods of shipping, ages of messages and the end of windows all go by the log's time (`Times`). The
judge of each world holds that the times of prepares rise, and in the end that nothing which was
acknowledged is lost.
"""

from dataclasses import replace

import pytest

from appliance.base.limits import LOG_AHEAD_US_MAX
from appliance.cores.shipping.plan import period_start
from appliance.formats.status.replica import GroupClock
from appliance.simulation import liveness
from appliance.simulation.clock import EPOCH_US
from appliance.simulation.options import LITE, Options
from appliance.simulation.schedule import TICK_US
from appliance.simulation.world import World

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
DAY_US = 24 * HOUR_US
PERIOD_US = 10 * SECOND_US  # of shipping
PACE_MIN = 0.9  # of log time that is ahead
SLACK_US = 5 * SECOND_US  # from one message to the next, and until clocks have agreed

# Ticks as of a wide site: minutes go by in a fraction of a second.
OPTIONS = Options(
    seed=0,
    mode=LITE,
    room_count=1,
    edge_count=1,
    records_per_device=100_000,
    think_us=1_000_000,
    session_patience_ticks=6_000,
    tick_us=100_000,
)


class Times:
    """What the log's time did in a world, looked at each second."""

    def __init__(self, seed: int) -> None:
        self.world = World(replace(OPTIONS, seed=seed, view_first=seed % 3))
        self.ahead_us_max = 0
        self.world.start()
        self.run(10)

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.run_ticks(SECOND_US // TICK_US)
            self.ahead_us_max = max(self.ahead_us_max, *self.ahead_us())

    def clocks(self) -> dict[int, GroupClock]:
        """What each replica that runs tells of its clock."""
        machines = self.world.cluster.machines
        return {m.index: m.replica.status_report().clock for m in machines if m.replica is not None}

    def ahead_us(self) -> list[int]:
        """By how much the log is ahead, as the alarm `log_ahead` has it."""
        return [clock.log_ahead_us for clock in self.clocks().values()]

    @property
    def primary(self) -> int:
        (found,) = [
            m.index
            for m in self.world.cluster.machines
            if m.replica is not None and m.replica.normal_primary
        ]
        return found

    @property
    def backups(self) -> list[int]:
        return [index for index in range(3) if index != self.primary]

    def step(self, index: int, delta_us: int) -> None:
        self.world.cluster.machines[index].clock.step(delta_us)

    def now(self) -> tuple[int, int, int]:
        """(when it is, the time of the newest message, messages acknowledged)."""
        checkers = self.world.checkers
        newest_us = checkers.log.entries[-1].timestamp
        return self.world.schedule.now_us, newest_us, len(checkers.answers.acknowledged)

    def goes_on(self, seconds: int, pace_min: float = PACE_MIN) -> None:
        """Time passes; the log's does too, not faster and hardly slower, and so do its periods."""
        began_us, first_us, before = self.now()
        self.run(seconds)
        ended_us, last_us, after = self.now()
        passed_us, gone_us = ended_us - began_us, last_us - first_us
        assert passed_us * pace_min - SLACK_US <= gone_us <= passed_us + SLACK_US
        begun = {period_start(e.timestamp, PERIOD_US) for e in self.world.checkers.log.entries}
        over = sum(first_us < start_us <= last_us for start_us in begun)
        assert (passed_us * pace_min - SLACK_US) // PERIOD_US <= over
        assert over <= (passed_us + SLACK_US) // PERIOD_US + 1
        assert after - before > seconds // 4, "clients go on meanwhile"

    def end(self) -> None:
        """Nobody asks for more: all stand at the same op, and hold all that was acknowledged."""
        world, everybody = self.world, list(range(3))
        for machine in world.cluster.machines:
            if machine.replica is None:
                world.cluster.start(machine.index)
        world.clients.close(everybody)
        for _ in range(60):
            self.run(1)
            left = liveness.shortcoming(world.cluster, everybody) or world.clients.waiting()
            if not left:
                break
        assert not left
        for machine in world.cluster.machines:
            world.checkers.final(machine)


@pytest.mark.parametrize(("seed", "hours", "apart_s"), [(0, 1, 0), (1, 30, 7), (2, 3, 7)])
def test_clocks_that_are_set_back_by_hours_leave_a_log_that_goes_on_and_says_that_it_is_ahead(
    seed: int, hours: int, apart_s: int
) -> None:
    """All at once, or one after the other; then its primary dies as well."""
    times = Times(seed)
    for index in range(3):
        times.step(index, -hours * HOUR_US)
        times.run(apart_s)
    times.run(30)
    times.goes_on(60)
    assert all(hours * HOUR_US * 0.99 < ahead < hours * HOUR_US for ahead in times.ahead_us())
    assert len(times.ahead_us()) == 3 and min(times.ahead_us()) > LOG_AHEAD_US_MAX
    times.world.cluster.crash(times.primary)
    times.run(20)
    times.goes_on(40)
    times.end()


@pytest.mark.parametrize(("seed", "together"), [(0, True), (1, False), (2, True)])
def test_clocks_that_lose_a_second_each_minute_cost_the_log_no_more_and_are_no_alarm(
    seed: int, together: bool
) -> None:
    times = Times(seed)
    began = times.now()
    for minute in range(5):
        for index in range(3):
            if together or index == minute % 3:
                times.step(index, -SECOND_US)
        times.goes_on(60)
    ended = times.now()
    passed_us, gone_us = ended[0] - began[0], ended[1] - began[1]
    assert passed_us * 59 // 60 - SLACK_US <= gone_us <= passed_us + SLACK_US
    assert times.ahead_us_max <= LOG_AHEAD_US_MAX
    times.end()


@pytest.mark.parametrize(
    ("seed", "leads", "days"), [(0, True, 1), (1, False, 1), (2, True, -1), (3, False, -1)]
)
def test_of_two_clocks_the_right_one_counts_while_the_third_is_down(
    seed: int, leads: bool, days: int
) -> None:
    times = Times(seed)
    down, other = times.backups
    wrong = times.primary if leads else other
    times.world.cluster.crash(down)
    times.world.cluster.machines[wrong].clock.lying = True  # what it shows is nobody's excuse
    times.step(wrong, days * DAY_US)
    times.run(90)  # until what was agreed on before is worth nothing
    times.goes_on(90)
    now_us, newest_us, _ = times.now()
    assert abs(newest_us - EPOCH_US - now_us) < 10 * SECOND_US
    told = times.clocks()[times.primary]
    assert not told.agreed and abs(told.errors_us[wrong] - days * DAY_US) < HOUR_US
    times.world.cluster.start(down)
    times.run(30)
    assert times.clocks()[times.primary].agreed
    times.goes_on(30)
    times.end()


@pytest.mark.parametrize(
    ("seed", "comes_back"), [(0, "before they are right"), (1, "afterwards"), (2, "afterwards")]
)
def test_two_clocks_that_were_ahead_by_a_day_while_the_third_was_down_leave_a_log_that_says_so(
    seed: int, comes_back: str
) -> None:
    times = Times(seed)
    down, other = times.backups
    both = (times.primary, other)
    times.world.cluster.crash(down)
    for index in both:
        times.step(index, DAY_US)
    times.run(90)
    times.goes_on(30)
    if comes_back == "before they are right":
        times.world.cluster.start(down)
        times.run(30)
    for index in both:
        times.step(index, -DAY_US)
    times.run(90)
    if comes_back == "afterwards":
        times.world.cluster.start(down)
        times.run(30)
    times.goes_on(90)
    assert len(times.ahead_us()) == 3
    assert all(DAY_US - HOUR_US < ahead < DAY_US for ahead in times.ahead_us())
    times.end()
