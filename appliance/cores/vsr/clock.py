"""A clock that a quorum agrees on, from samples of the peers' wall clocks.

    ping(m0) -> peer -> pong(m0, its wall clock t1) -> at m2:   rtt = m2 - m0
                                                               offset = t1 + rtt / 2 - t2
    t2 = our wall clock at the window's start + monotonic time since

Each window keeps, per peer, the sample with the smallest round trip. When it closes, every source
votes for an interval of offsets, and Marzullo's algorithm finds where most of them meet. The
result is an *epoch*: for a minute our own wall clock is clamped into it, so one wrong clock, ours
included, moves no timestamp while a majority of right ones answers. Where only a quorum answers and
one of it is wrong, by up to twice the tolerance it moves timestamps by up to half of its error.

By more there is no epoch, and still there is a time: a group that can commit goes on. Once the
sources have disagreed for a while, it is the clock that most others are near, of equals the
earliest one that is not before the log. A clock that fell back is before the log, and one that ran
ahead is not the earliest, so of two the right one is taken, as long as the log is fresh; a time
from the future, once taken, would never be got rid of. All in integers.

A log whose newest time is ahead of all that does not stand still until the clocks have caught up:
it goes on by what passes here, a tenth slower (`log_us`), so that an hour of log time is hardly
more than an hour, and a log that was minutes ahead comes back.

Source: Marzullo, Maintaining the Time in a Distributed System (1984); `docs/protocol.md`, clock.
"""

from typing import NamedTuple

from appliance.base.limits import LOG_AHEAD_US_MAX

SAMPLES_FIRST_WINDOW = 3  # of each of a quorum of sources: the first window may close
WINDOW_NS_MIN = 2_000_000_000
WINDOW_NS_MAX = 20_000_000_000  # then a window without a quorum of sources is begun anew
EPOCH_NS_MAX = 60_000_000_000  # an epoch is worth nothing after this
TOLERANCE_US_MAX = 10_000_000  # halved as long as a quorum still agrees
DISAGREED_NS_MIN = 2_000_000_000  # then whoever else may answer has done so
PACE_AHEAD = (9, 10_000)  # µs of log time in a nanosecond, while it is ahead


class Sample(NamedTuple):
    """One exchange with a peer."""

    rtt_us: int
    offset_us: int


class Disagreement(NamedTuple):
    """What a quorum of sources said that do not agree: offsets from our wall clock, by member."""

    start_ns: int  # of the window
    start_us: int
    offsets_us: dict[int, int]


class Interval(NamedTuple):
    """Offsets on which `sources` of all agree."""

    lower_us: int
    upper_us: int
    sources: int


def marzullo(intervals: list[tuple[int, int]]) -> Interval:
    """The smallest interval that lies in as many of `intervals` as possible."""
    assert intervals
    edges = sorted(
        edge
        for source, (low, high) in enumerate(intervals)
        for edge in ((low, 0, source), (high, 1, source))
    )
    best = Interval(0, 0, 0)
    inside = 0
    for i, (offset, closes, _) in enumerate(edges):
        if closes:
            inside -= 1
            continue
        inside += 1
        until = edges[i + 1][0]  # an opening edge is never the last
        if inside > best.sources or (
            inside == best.sources and until - offset < best.upper_us - best.lower_us
        ):
            best = Interval(offset, until, inside)
    assert 1 <= best.sources <= len(intervals)
    return best


class Clock:
    """One member's view of the group's time. `quorum` sources, itself included, have to agree."""

    __slots__ = (
        "index",
        "quorum",
        "replica_count",
        "start_ns",
        "start_us",
        "samples",
        "round_trips_us",
        "counts",
        "epoch",
        "epoch_start_ns",
        "epoch_start_us",
        "windows",
        "errors_us",
        "disagreement",
        "disagreed_ns",
        "ahead_us",
        "paced_us",
        "paced_ns",
    )

    def __init__(self, *, index: int, replica_count: int, quorum: int) -> None:
        assert 1 <= quorum <= replica_count
        self.index = index
        self.quorum = quorum
        self.replica_count = replica_count
        self.start_ns = -1
        self.start_us = 0
        self.samples: list[Sample | None] = [None] * replica_count
        self.counts = [0] * replica_count
        self.round_trips_us: dict[int, int] = {}  # the newest of each, for whoever looks
        self.epoch: Interval | None = None
        self.epoch_start_ns = 0
        self.epoch_start_us = 0
        self.windows = 0
        # how far each source was outside of the last agreement; negative: behind
        self.errors_us: dict[int, int] = {}
        self.disagreement: Disagreement | None = None  # of the newest window, if it had one
        self.disagreed_ns = 0  # when that began
        self.ahead_us = 0  # the log's time less the clocks', since the log was corrected
        self.paced_us = self.paced_ns = 0  # a log time, and when it was the time here

    def on_tick(
        self, monotonic_ns: int, realtime_us: int, newest_us: int = 0, ahead_us: int = 0
    ) -> None:
        """Close the window when it may be closed. To `newest_us`, the newest time in the log, what
        passes from here on is added; by `ahead_us` the log may be ahead of the clocks."""
        self.ahead_us = ahead_us
        if newest_us > self._paced(monotonic_ns):
            self.paced_us, self.paced_ns = newest_us, monotonic_ns
        if self.start_ns < 0:
            self._begin(monotonic_ns, realtime_us)
        if self.epoch is not None and monotonic_ns - self.epoch_start_ns > EPOCH_NS_MAX:
            self.epoch = None
        elapsed = monotonic_ns - self.start_ns
        assert elapsed >= 0
        if self.epoch is not None and elapsed < WINDOW_NS_MIN:
            return
        wanted = SAMPLES_FIRST_WINDOW if self.epoch is None else 1
        sources = 1 + sum(count >= wanted for i, count in enumerate(self.counts) if i != self.index)
        assert 1 <= sources <= 1 + self.replica_count  # a standby is none of them
        if sources >= self.quorum:
            self._close(monotonic_ns, realtime_us)
        elif elapsed >= WINDOW_NS_MAX:
            self._begin(monotonic_ns, realtime_us)

    def _paced(self, monotonic_ns: int) -> int:
        assert monotonic_ns >= self.paced_ns
        gain, per = PACE_AHEAD
        return self.paced_us + (monotonic_ns - self.paced_ns) * gain // per

    def log_us(self, monotonic_ns: int, now_us: int | None, newest_us: int) -> int:
        """The log's time now, if its newest one is `newest_us` and the group's time is `now_us`."""
        if now_us is None:
            return newest_us
        now_us += self.ahead_us
        if newest_us - now_us <= LOG_AHEAD_US_MAX:
            return max(newest_us, now_us)
        return max(newest_us, self._paced(monotonic_ns))

    def on_pong(self, replica: int, *, sent_ns: int, peer_us: int, now_ns: int) -> None:
        """A peer answered the ping we sent at `sent_ns`; answers to older windows are of no use."""
        if replica == self.index or replica >= self.replica_count:
            return
        if self.start_ns < 0 or not self.start_ns <= sent_ns <= now_ns:
            return
        rtt_us = self.round_trips_us[replica] = (now_ns - sent_ns) // 1000
        assert rtt_us >= 0
        own_us = self.start_us + (now_ns - self.start_ns) // 1000
        sample = Sample(rtt_us, peer_us + rtt_us // 2 - own_us)
        self.counts[replica] += 1
        best = self.samples[replica]
        if best is None or rtt_us < best.rtt_us:
            self.samples[replica] = sample

    def now_us(self, monotonic_ns: int, realtime_us: int, log_us: int) -> int | None:
        """Our wall clock, clamped into what the quorum agreed on; without an agreement the clock
        that the log, whose newest time is `log_us`, speaks for. None while too few have answered.
        """
        if self.replica_count == 1:
            return realtime_us
        epoch = self.epoch
        if epoch is not None and monotonic_ns - self.epoch_start_ns <= EPOCH_NS_MAX:
            assert epoch.lower_us <= epoch.upper_us
            passed_us = self._epoch_us(monotonic_ns)
            return max(passed_us + epoch.lower_us, min(realtime_us, passed_us + epoch.upper_us))
        found = self.disagreement
        if found is None or monotonic_ns - self.disagreed_ns < DISAGREED_NS_MIN:
            return None
        if monotonic_ns - found.start_ns > EPOCH_NS_MAX:
            return None
        passed_us = found.start_us + (monotonic_ns - found.start_ns) // 1000
        return passed_us + found.offsets_us[self._trusted(passed_us, log_us)]

    def errors(self, monotonic_ns: int, log_us: int) -> dict[int, int]:
        """By how many microseconds the clock of each source was off, by the newest window."""
        found = self.disagreement
        if found is None:
            return self.errors_us
        passed_us = found.start_us + (monotonic_ns - found.start_ns) // 1000
        trusted = found.offsets_us[self._trusted(passed_us, log_us)]
        return {source: offset - trusted for source, offset in found.offsets_us.items()}

    def _epoch_us(self, monotonic_ns: int) -> int:
        return self.epoch_start_us + (monotonic_ns - self.epoch_start_ns) // 1000

    def _trusted(self, passed_us: int, log_us: int) -> int:
        """Whose clock counts where no quorum agrees; `passed_us` is our own, if it did not jump."""
        assert self.disagreement is not None
        offsets = self.disagreement.offsets_us
        assert self.index in offsets
        floor_us = log_us - self.ahead_us - TOLERANCE_US_MAX

        def rank(source: int) -> tuple[bool, int, int, int]:
            offset = offsets[source]
            near = sum(abs(other - offset) <= 2 * TOLERANCE_US_MAX for other in offsets.values())
            behind = passed_us + offset < floor_us
            return behind, -near, -offset if behind else offset, source

        return min(offsets, key=rank)

    def _begin(self, monotonic_ns: int, realtime_us: int) -> None:
        assert monotonic_ns >= self.start_ns
        self.start_ns, self.start_us = monotonic_ns, realtime_us
        self.samples = [None] * self.replica_count
        self.counts = [0] * self.replica_count

    def _close(self, monotonic_ns: int, realtime_us: int) -> None:
        """Halve the tolerance while a quorum agrees; the last agreement becomes the epoch."""
        assert self.start_ns >= 0
        agreed: Interval | None = None
        tolerance = TOLERANCE_US_MAX
        while True:
            found = marzullo(self._intervals(tolerance))
            if found.sources < self.quorum:
                break
            agreed = found
            if tolerance == 0:
                break
            tolerance //= 2
        if agreed is not None:
            assert agreed.sources >= self.quorum
            self.epoch = agreed
            self.epoch_start_ns, self.epoch_start_us = self.start_ns, self.start_us
            self.windows += 1
            self.disagreement = None
            self.errors_us = {
                source: min(0, offset - agreed.lower_us) or max(0, offset - agreed.upper_us)
                for source, offset in self._offsets().items()
            }
        else:
            if self.disagreement is None:
                self.disagreed_ns = monotonic_ns
            self.disagreement = Disagreement(self.start_ns, self.start_us, self._offsets())
        self._begin(monotonic_ns, realtime_us)

    def _offsets(self) -> dict[int, int]:
        """Of each source of this window, ourselves included."""
        found = {i: sample.offset_us for i, sample in enumerate(self.samples) if sample is not None}
        assert self.index not in found
        return {self.index: 0, **found}

    def _intervals(self, tolerance: int) -> list[tuple[int, int]]:
        assert tolerance >= 0
        out = [(-tolerance, tolerance)]
        for sample in self.samples:
            if sample is not None:
                reach = sample.rtt_us // 2 + tolerance
                out.append((sample.offset_us - reach, sample.offset_us + reach))
        assert 1 <= len(out) <= 1 + self.replica_count
        return out
