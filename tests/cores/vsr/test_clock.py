"""The clock that a quorum agrees on: one liar moves nothing, no agreement, no time."""

import pytest

from appliance.base.prng import Prng
from appliance.cores.vsr.clock import (
    EPOCH_NS_MAX,
    SAMPLES_FIRST_WINDOW,
    WINDOW_NS_MAX,
    WINDOW_NS_MIN,
    Clock,
    marzullo,
)
from tests.cores.vsr.group import Group, Session

MS = 1_000_000  # nanoseconds
START_US = 1_750_000_000_000_000


def brute(intervals: list[tuple[int, int]]) -> tuple[int, int]:
    """(most sources that meet in one point, smallest width where so many do)."""
    points = sorted({p for interval in intervals for p in interval})
    most = max(sum(low <= p <= high for low, high in intervals) for p in points)
    widths = []
    for low in points:
        for high in points:
            if low <= high and sum(a <= low and high <= b for a, b in intervals) == most:
                whole = not any(low < p < high for p in points)
                if whole:
                    widths.append(high - low)
    return most, min(widths)


def test_marzullo_finds_where_most_intervals_meet() -> None:
    assert marzullo([(8, 12), (11, 13), (10, 12)]) == (11, 12, 3)
    assert marzullo([(8, 9), (9, 10)]) == (9, 9, 2), "touching is meeting"
    assert marzullo([(0, 10)]) == (0, 10, 1)
    assert marzullo([(0, 10), (20, 22), (40, 50)]) == (20, 22, 1), "the smallest of equals"
    prng = Prng(3)
    for _ in range(500):
        intervals = []
        for _ in range(1 + prng.below(6)):
            low = prng.below(40)
            intervals.append((low, low + prng.below(20)))
        found = marzullo(intervals)
        assert found.sources == brute(intervals)[0]
        assert all(found.lower_us <= found.upper_us for _ in intervals)
        meeting = sum(a <= found.lower_us and found.upper_us <= b for a, b in intervals)
        assert meeting == found.sources


class Peers:
    """A clock and peers whose wall clocks are off by so much, at so many milliseconds' distance."""

    def __init__(self, offsets_us: list[int], *, quorum: int = 2, rtt_ms: int = 2) -> None:
        self.clock = Clock(index=0, replica_count=1 + len(offsets_us), quorum=quorum)
        self.offsets, self.rtt_ms, self.now_ns = offsets_us, rtt_ms, 0
        self.silent: set[int] = set()
        self.log_us = 0  # the newest time in the log

    def wall(self, offset_us: int = 0) -> int:
        return START_US + self.now_ns // 1000 + offset_us

    def run(self, milliseconds: int) -> None:
        for step in range(milliseconds // 10):
            self.now_ns += 10 * MS
            if step % 5 == 0:
                for peer, offset in enumerate(self.offsets, 1):
                    if peer not in self.silent:
                        middle = START_US + (self.now_ns - self.rtt_ms * MS // 2) // 1000 + offset
                        self.clock.on_pong(
                            peer,
                            sent_ns=self.now_ns - self.rtt_ms * MS,
                            peer_us=middle,
                            now_ns=self.now_ns,
                        )
            self.clock.on_tick(self.now_ns, self.wall())

    def now(self, own_error_us: int = 0) -> int | None:
        found = self.clock.now_us(self.now_ns, self.wall(own_error_us), self.log_us)
        return None if found is None else found - self.wall()


def test_there_is_no_time_before_a_quorum_agrees() -> None:
    it = Peers([0, 0])
    assert it.now() is None
    it.silent = {1, 2}
    it.run(1000)
    assert it.now() is None
    it.silent = {2}
    it.run(50 * (SAMPLES_FIRST_WINDOW + 1))
    assert it.now() == 0, "the first window closes as soon as it may"


def test_clock_cold_start_serves_within_300ms() -> None:
    group = Group()
    group.run(30)
    assert group.core(group.primary).clock.epoch is not None
    session = group.client()
    assert session.core.session and group.tick <= 45


def test_a_lone_replica_believes_its_own_clock() -> None:
    assert Clock(index=0, replica_count=1, quorum=1).now_us(5, START_US, 0) == START_US


@pytest.mark.parametrize("liar", [-30_000_000, -20_000, 20_000, 3_600_000_000])
def test_one_lying_peer_moves_nothing(liar: int) -> None:
    it = Peers([100, liar])
    it.run(3000)
    assert -1100 <= it.now() <= 1100


@pytest.mark.parametrize("error", [-3_600_000_000, -50_000, 50_000, 3_600_000_000])
def test_an_own_clock_that_steps_is_clamped_into_what_the_others_agree_on(error: int) -> None:
    it = Peers([0, 100])
    it.run(3000)
    assert abs(it.now(error)) <= 2_200


DAY_US = 24 * 3600 * 1_000_000
HOUR_US = 3_600_000_000


@pytest.mark.parametrize("error", [-HOUR_US, HOUR_US])
@pytest.mark.parametrize("whose", ["own", "peer"])
def test_one_wrong_clock_of_two_stops_nothing_and_moves_nothing(error: int, whose: str) -> None:
    """The third replica is down. What ran ahead is not the earliest, what fell back is before the
    log."""
    it = Peers([error if whose == "peer" else -error])
    right = 0 if whose == "peer" else -error  # seen from our own clock
    it.log_us = START_US + right
    it.run(1900)
    assert it.now() is None, "the third may still be on its way"
    it.run(400)
    assert it.now() == right
    it.run(200_000)
    assert it.now() == right
    wrong, sound = (1, 0) if whose == "peer" else (0, 1)
    errors = it.clock.errors(it.now_ns, it.log_us)
    assert errors[sound] == 0 and abs(errors[wrong] - error) <= 1000


def test_the_third_clock_decides_as_soon_as_it_is_back() -> None:
    it = Peers([HOUR_US, 50])
    it.silent = {2}
    it.run(10_000)
    assert it.clock.epoch is None and it.now() == 0
    it.silent = set()
    it.run(3000)
    assert it.clock.epoch is not None and it.clock.disagreement is None and abs(it.now()) <= 1100
    assert it.clock.errors(it.now_ns, it.log_us)[1] > HOUR_US - 2000


def test_of_three_that_answer_of_five_those_two_count_that_agree() -> None:
    it = Peers([-HOUR_US, 1000], quorum=3)
    it.run(10_000)
    assert it.clock.epoch is None and 0 <= it.now() <= 1000


def test_a_time_goes_on_while_clocks_disagree_and_is_none_when_they_fall_silent() -> None:
    it = Peers([60_000_000, -60_000_000])
    it.run(3_000)
    assert it.now() == -60_000_000, "no two of three within the tolerance: the earliest"
    it.log_us = it.wall()
    assert it.now() == 0, "that one is before the log"
    it.log_us = it.wall(HOUR_US)
    assert it.now() == 60_000_000, "all are: the latest, and the log goes on above its own"
    it.silent = {1, 2}
    it.run(EPOCH_NS_MAX // MS + 100)
    assert it.now() is None


def test_an_epoch_ends_and_time_with_it() -> None:
    it = Peers([0, 0])
    it.run(3000)
    it.silent = {1, 2}
    it.run(EPOCH_NS_MAX // MS - 4000)
    assert it.now() == 0
    it.run(5000)
    assert it.now() is None


def test_windows_close_every_two_seconds_and_empty_ones_begin_anew() -> None:
    it = Peers([0, 0])
    it.run(10 * WINDOW_NS_MIN // MS)
    assert 8 <= it.clock.windows <= 12
    began = it.clock.start_ns
    it.silent = {1, 2}
    it.run(WINDOW_NS_MAX // MS + 100)
    assert it.clock.start_ns > began and it.clock.counts == [0, 0, 0]


def test_the_shortest_round_trip_counts_and_old_answers_do_not() -> None:
    it = Peers([0, 0])
    it.run(100)
    start = it.clock.start_ns
    it.clock.on_pong(1, sent_ns=start - 1, peer_us=0, now_ns=it.now_ns)
    it.clock.on_pong(7, sent_ns=start, peer_us=0, now_ns=it.now_ns)
    it.clock.on_pong(0, sent_ns=start, peer_us=0, now_ns=it.now_ns)
    best = it.clock.samples[1]
    it.clock.on_pong(1, sent_ns=it.now_ns - 9 * MS, peer_us=5, now_ns=it.now_ns)
    assert it.clock.samples[1] == best and best.rtt_us == 2000


def test_primary_clock_unsynchronised_abdicates() -> None:
    """It takes no request, falls silent, and somebody whose clock is agreed on leads."""
    group = Group()
    session = group.opened()
    group.run(20)
    primary = group.primary
    core = group.core(primary)
    group.drop(lambda s, t, header: t == primary and header.command == 0x0A)
    core.clock.epoch = None
    core.clock.counts = [0, 0, 0]
    session.ask()
    group.until(lambda: session.core.ready, ticks=600)
    assert group.primary != primary
    assert "primary_abdicates" in group.nodes[primary].marks


def test_timestamps_rise_through_crashes_and_wrong_clocks() -> None:
    group = Group()
    session = group.opened()
    for step in range(6):
        group.put(session, 3, 3)
        group.crash(group.primary)
        group.put(session, 2)
        for node in group.nodes:
            if node.replica is None:
                group.start(node.index)
        group.until(group.converged)
        if step % 2:
            group.tick += 50_000  # a suspended machine: the clocks jump
            group.run(20)
    core = group.core(0)
    stamps = [core.journal.at(op).timestamp for op in range(max(1, core.op - 40), core.op + 1)]
    assert all(a < b for a, b in zip(stamps, stamps[1:], strict=False))


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("error_us", [-HOUR_US, HOUR_US])
def test_a_group_goes_on_with_one_replica_down_and_one_clock_wrong(
    wrong: int, error_us: int
) -> None:
    """Whoever leads: the log's times stay those of the right clock, and rise."""
    group = Group()
    session = group.opened()
    group.put(session, 3)
    group.nodes[wrong].clock_error_us = error_us
    group.crash(2)
    group.tick += EPOCH_NS_MAX // 10_000_000 + 1  # what was agreed on before is too old to count
    group.run(5)
    group.put(session, 3, 3)
    core = group.core(group.primary)
    assert core.clock.epoch is None
    stamps = [core.journal.at(op).timestamp for op in range(core.op - 3, core.op + 1)]
    assert stamps == sorted(set(stamps))
    assert abs(stamps[-1] - group.now_us) < 1_000_000
    said = core.status_report().clock
    assert not said.agreed and said.errors_us[1 - wrong] == 0
    assert abs(said.errors_us[wrong] - error_us) < 1_000_000


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_log_that_is_ahead_of_its_clocks_says_by_how_much_from_the_first_tick(
    replicas: int,
) -> None:
    group = Group(replicas)
    for node in group.nodes:
        node.clock_error_us = 400 * DAY_US
    group.run(50)
    session = group.opened()
    group.put(session, 3)
    assert group.core(0).status_report().clock.log_ahead_us < 1_000_000
    group.until(group.converged)
    for node in group.nodes:
        group.crash(node.index)
        node.clock_error_us = 0
    for node in group.nodes:
        group.start(node.index)
    group.run(1)
    for node in group.nodes:
        ahead_us = group.core(node.index).status_report().clock.log_ahead_us
        assert 399 * DAY_US < ahead_us < 400 * DAY_US


def test_a_clock_that_is_behind_the_others_does_not_make_the_log_ahead() -> None:
    group = Group()
    session = group.opened()
    group.nodes[2].clock_error_us = -HOUR_US
    group.run(6000)
    group.put(session, 3)
    group.until(group.converged)
    assert group.core(2).clock.errors_us[2] < -HOUR_US // 2
    assert group.core(2).status_report().clock.log_ahead_us < 1_000_000


def ahead_once(group: Group, ahead_us: int) -> Session:
    """Clocks that were ahead by so much are right again, and all processes new."""
    for node in group.nodes:
        node.clock_error_us = ahead_us
    group.run(50)
    group.put(group.opened(), 3)
    group.until(group.converged)
    for node in group.nodes:
        group.crash(node.index)
        node.clock_error_us = 0
    for node in group.nodes:
        group.start(node.index)
    group.until(lambda: group.primary is not None)
    return group.opened()


def stamped(group: Group, session: Session) -> int:
    """The time of a message that is sent now."""
    group.put(session)
    core = group.core(group.primary)
    return core.journal.at(core.op).timestamp


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("written", [True, False])
def test_a_log_that_is_ahead_goes_on_by_what_passes(replicas: int, written: bool) -> None:
    """However often it is written meanwhile: nine tenths of what passes, and never less."""
    group = Group(replicas)
    session = ahead_once(group, 400 * DAY_US)
    first, tick = stamped(group, session), group.tick
    for at in range(500):
        group.run(1)
        if written and at % 100 < 20:  # each tick, too
            group.put(session)
    told_us = group.core(group.primary).status_report().clock.log_us
    gone_us = stamped(group, session) - first
    passed_us = (group.tick - tick) * 10_000
    assert abs(gone_us - passed_us * 9 // 10) < 40_000
    assert abs(told_us - first - gone_us) < 40_000


def test_a_log_that_is_ahead_by_little_comes_back() -> None:
    group = Group(1)
    session = ahead_once(group, 20_000_000)
    stamped(group, session)
    for _ in range(32):
        group.tick += 1000
        group.run(1)
        newest = stamped(group, session)
    assert newest == group.now_us


def test_a_primary_that_takes_over_knows_what_has_passed() -> None:
    group = Group()
    session = ahead_once(group, 400 * DAY_US)
    first, tick = stamped(group, session), group.tick
    group.tick += 30_000
    group.run(1)
    group.crash(group.primary)
    passed_us = (group.tick - tick) * 10_000
    assert stamped(group, session) - first > passed_us * 9 // 10
