"""Curves of the past, beside plain dictionaries: rows in two rings, rates of counts, sums."""

import math

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.cores.console.curve_drawing import POINTS, SHOWN, drawing
from appliance.cores.console.curve_figures import Figures, figures_of
from appliance.cores.console.curves import DAY_S, SPREAD_S_MAX, Curves
from appliance.cores.console.model import Source
from appliance.formats.curves import (
    CURVES_MAX,
    DAY_STEPS,
    HOUR_S,
    SIZE,
    STEP_S,
    Curve,
    Figure,
    Kept,
    decode,
)
from tests.cores.console.worlds import edge, healthy, read, replica
from tests.statuses import VOLUME

CLUSTER = bytes(range(16))
NOON_S = 1_700_000_040  # at the start of a step, not of an hour
FREE = Curve(Figure.FREE_BYTES, 0, 0)
FLUSH = Curve(Figure.FLUSH_MS, 0, 0)
SENT = Curve(Figure.SENT, 0, 0)

# Seconds from one poll to the next: as they come, as nobody watches, and without a console.
FORWARD = st.sampled_from([0, 1, 1, 1, 1, 2, 5, SPREAD_S_MAX, SPREAD_S_MAX + 1, 700, HOUR_S])
PAST = st.lists(st.tuples(FORWARD, st.integers(0, 1000) | st.none()), max_size=60)


def fed(
    past: list[tuple[int, float | None]], curves: Curves | None = None
) -> tuple[Curves, dict[int, float | None]]:
    """Curves after polls so many seconds apart, and the same by second in a plain dictionary."""
    curves = Curves(CLUSTER) if curves is None else curves
    plain: dict[int, float | None] = {}
    second, newest, follows = NOON_S, 0, False
    for passed_s, value in past:
        second += passed_s
        told = Figures(values={FREE: math.nan if value is None else value})
        curves.on_poll(told, now_ms=0, wall_ms=second * 1000 + 7)
        if second < newest:
            plain = {each: own for each, own in plain.items() if each <= second}
            newest, follows = max(plain, default=0), False
        if second > newest:
            near = follows and second - newest <= SPREAD_S_MAX
            for each in range(newest + 1 if near else second, second + 1):
                plain[each] = value
            newest, follows = second, True
    return curves, plain


def known(curves: Curves, curve: Curve = FREE) -> dict[int, float | None]:
    """By second, what the ring holds of the hour up to the newest poll."""
    column = curves.columns.get(curve)
    found: dict[int, float | None] = {}
    for row in curves.seconds:
        second = int(row["second"])
        if second > curves.newest - HOUR_S and column is not None:
            value = float(row["value"][column])
            found[second] = None if math.isnan(value) else value
    return found


@given(PAST)
def test_an_hour_holds_each_second_of_it_in_order_and_no_more(
    past: list[tuple[int, float | None]],
) -> None:
    curves, plain = fed(past)
    last_s = max(plain, default=0)
    assert known(curves) == {
        second: value for second, value in plain.items() if second > last_s - HOUR_S
    }
    assert (len(curves.seconds), len(curves.steps)) == (HOUR_S, DAY_STEPS)
    written = np.flatnonzero(curves.seconds["second"])
    assert (curves.seconds["second"][written] % HOUR_S == written).all()


def test_polls_of_whom_nobody_watches_leave_no_gap_and_those_of_a_stall_do() -> None:
    curves, _ = fed([(0, 1.0), (6, 2.0), (11, 3.0)])
    assert known(curves) == {
        NOON_S: 1.0, **{NOON_S + second: 2.0 for second in range(1, 7)}, NOON_S + 17: 3.0,
    }  # fmt: skip


@given(PAST, st.integers(1, 2 * HOUR_S), PAST)
def test_a_clock_that_is_set_back_leaves_nothing_of_later(
    before: list[tuple[int, float | None]], back_s: int, after: list[tuple[int, float | None]]
) -> None:
    past = [*before, (-back_s, 7.0), *after]
    curves, plain = fed(past)
    last_s = max(plain)
    for rows in (curves.seconds, curves.steps):
        assert int(rows["second"].max()) <= last_s
    # what was overwritten by the times that were twice is not told: it is a gap
    assert known(curves).items() <= plain.items()
    assert last_s in known(curves)


def reference(plain: dict[int, float | None], span_s: int) -> dict[int, tuple[float, float]]:
    """Mean and most of what is known in each span of so many seconds."""
    groups: dict[int, list[float]] = {}
    for second, value in plain.items():
        if value is not None:
            groups.setdefault(second - second % span_s, []).append(value)
    return {start: (sum(own) / len(own), max(own)) for start, own in groups.items()}


@given(PAST)
def test_ten_seconds_are_summed_up_as_plainly_as_can_be(
    past: list[tuple[int, float | None]],
) -> None:
    curves, plain = fed(past)
    curves.sum_up()
    column, found = curves.columns.get(FREE, 0), {}
    for row in curves.steps[curves.steps["second"] > 0]:
        if not math.isnan(row["mean"][column]):
            found[int(row["second"])] = float(row["mean"][column]), float(row["most"][column])
    expected = reference(plain, STEP_S)
    within = {start: own for start, own in expected.items() if start > max(plain) - DAY_S}
    assert {start: own for start, own in found.items() if start in within} == {
        start: (pytest.approx(mean, rel=1e-6), most) for start, (mean, most) in within.items()
    }
    assert len(found) <= DAY_STEPS


@settings(max_examples=50)
@given(PAST)
def test_points_of_an_hour_are_the_plain_means_of_their_seconds(
    past: list[tuple[int, float | None]],
) -> None:
    curves, plain = fed([*past, (1, 3.0)])
    drawn = drawing(curves, "hour", {0: "anna"})
    ((told,),) = [subject["curves"] for subject in drawn["subjects"]]
    assert (drawn["step_s"], len(told["mean"])) == (HOUR_S // POINTS, POINTS)
    begin, step_s = drawn["begin"], drawn["step_s"]
    assert begin % step_s == 0 and begin + HOUR_S > max(plain) >= begin + HOUR_S - step_s
    points = reference({s: value for s, value in plain.items() if s >= begin}, step_s)
    for at, (mean, most) in enumerate(zip(told["mean"], told["most"], strict=True)):
        expected = points.get(begin + at * step_s)
        if expected is None:
            assert (mean, most) == (None, None)
        else:
            assert (mean, most) == pytest.approx(expected, rel=6e-4)


def test_a_day_is_drawn_from_its_steps_and_one_subject_row_by_row() -> None:
    curves, _ = fed([(SPREAD_S_MAX, float(n % 7)) for n in range(DAY_STEPS + 20)])
    whole = drawing(curves, "day", {0: "anna"})
    (told,) = whole["subjects"][0]["curves"]
    assert whole["subjects"][0]["subject"] == "anna shard 0 disk"
    assert (whole["step_s"], len(told["mean"]), told["unit"]) == (360, POINTS, "bytes")
    assert told["most"][1:-1] == [6] * (POINTS - 2)
    one = drawing(curves, "day", {0: "anna"}, "anna shard 0 disk")
    (each,) = one["subjects"][0]["curves"]
    assert (one["step_s"], len(each["mean"])) == (STEP_S, DAY_STEPS)
    assert None not in each["mean"][1:]
    assert drawing(curves, "day", {0: "anna"}, "otto shard 0 disk")["subjects"] == []
    assert drawing(Curves(CLUSTER), "hour", {})["subjects"] == []


def test_every_figure_has_its_words() -> None:
    titles = [(shown.subject, shown.title) for shown in SHOWN.values()]
    assert len(set(titles)) == len(Figure)


# --- rates ----------------------------------------------------------------------------------------


def counted(*polls: tuple[int, int, int]) -> list[float | None]:
    """Rates by second, of polls at a second, in a life, with a count."""
    curves = Curves(CLUSTER)
    for second, life, count in polls:
        told = Figures(counts={SENT: (life, count)})
        curves.on_poll(told, now_ms=second * 1000, wall_ms=(NOON_S + second) * 1000)
    found = known(curves, SENT)
    return [found.get(NOON_S + second, -1.0) for second in range(polls[-1][0] + 1)]


def test_a_rate_is_of_the_seconds_since_the_poll_before() -> None:
    assert counted((0, 1, 5), (1, 1, 25), (3, 1, 45)) == [None, 20, 10, 10]


def test_a_count_that_went_back_or_is_of_another_life_is_a_gap() -> None:
    assert counted((0, 1, 50), (1, 1, 20), (2, 1, 27)) == [None, None, 7]
    assert counted((0, 1, 50), (1, 2, 70), (2, 2, 75)) == [None, None, 5]


def test_who_was_not_counted_the_last_time_has_no_rate() -> None:
    curves = Curves(CLUSTER)
    for second, counts in enumerate([{SENT: (1, 5)}, {}, {SENT: (1, 9)}, {SENT: (1, 12)}]):
        curves.on_poll(
            Figures(counts=counts), now_ms=second * 1000, wall_ms=(NOON_S + second) * 1000
        )
    assert list(known(curves, SENT).values()) == [None, None, None, 3]


@given(st.lists(st.tuples(st.integers(1, 2500), st.integers(-50, 500)), min_size=2, max_size=80))
def test_no_rate_is_negative_and_each_is_of_all_that_was_counted_since(
    polls: list[tuple[int, int]],
) -> None:
    """Polls in the same second, too."""
    curves, now_ms, count, counts = Curves(CLUSTER), 0, 1000, []
    for passed_ms, more in polls:
        now_ms, count = now_ms + passed_ms, max(0, count + more)
        counts.append((now_ms, count))
        told = Figures(counts={SENT: (1, count)})
        curves.on_poll(told, now_ms=now_ms, wall_ms=NOON_S * 1000 + now_ms)
    rates = known(curves, SENT)
    assert all(rate is None or rate >= 0 for rate in rates.values())
    assert len(rates) == now_ms // 1000 - counts[0][0] // 1000 + 1, "each second has its row"
    taken = [counts[0]]
    for at, number in counts[1:]:
        if at // 1000 != taken[-1][0] // 1000:
            taken.append((at, number))
    before = taken[0]
    for at, number in taken[1:]:
        rate = rates[NOON_S + at // 1000]
        expected = (number - before[1]) * 1000 / (at - before[0])
        assert rate == (None if expected < 0 else pytest.approx(expected, rel=1e-6))
        before = at, number


# --- columns --------------------------------------------------------------------------------------


def shards(first: int, count: int) -> Figures:
    return Figures(
        values={Curve(Figure.FLUSH_MS, 0, number): 1.0 for number in range(first, first + count)}
    )


def test_curves_beyond_the_columns_are_left_out_and_told() -> None:
    curves = Curves(CLUSTER)
    curves.on_poll(shards(0, CURVES_MAX), now_ms=0, wall_ms=NOON_S * 1000)
    assert curves.left_out == 0
    curves.on_poll(shards(0, CURVES_MAX + 3), now_ms=0, wall_ms=(NOON_S + 1) * 1000)
    assert (curves.left_out, len(curves.columns)) == (3, CURVES_MAX)
    assert drawing(curves, "hour", {})["left_out"] == 3


def test_a_column_is_another_curve_s_when_nothing_of_a_day_is_left_of_it() -> None:
    curves = Curves(CLUSTER)
    curves.on_poll(shards(0, CURVES_MAX), now_ms=0, wall_ms=NOON_S * 1000)
    for second, left_out in ((DAY_S - 1, 1), (DAY_S, 0)):
        curves.on_poll(shards(1000, 1), now_ms=0, wall_ms=(NOON_S + second) * 1000)
        assert curves.left_out == left_out, second
    assert Curve(Figure.FLUSH_MS, 0, 1000) in curves.columns
    assert len(curves.columns) == CURVES_MAX
    whole = drawing(curves, "day", {}, "node 0 shard 1000 disk")
    (told,) = whole["subjects"][0]["curves"]
    assert [mean for mean in told["mean"] if mean is not None] == [1.0]


# --- the file -------------------------------------------------------------------------------------


def written(raw: bytearray, curves: Curves) -> None:
    for offset, piece in curves.pieces(curves.take()):
        raw[offset : offset + len(piece)] = piece


def same(one: Kept, other: Curves) -> bool:
    return (
        one.columns == other.columns
        and one.seconds.tobytes() == other.seconds.tobytes()
        and one.steps.tobytes() == other.steps.tobytes()
    )


@settings(max_examples=25, deadline=None)
@given(PAST, PAST, st.booleans())
def test_what_is_written_is_all_that_changed_also_over_a_restart(
    before: list[tuple[int, float | None]], after: list[tuple[int, float | None]], fails: bool
) -> None:
    raw = bytearray(SIZE)
    curves, _ = fed(before)
    if fails:
        curves.put_back(curves.take())
    written(raw, curves)
    again = Curves(CLUSTER)
    again.restore(unsealed(decode(bytes(raw), CLUSTER)))
    assert again.newest == curves.newest
    later_s = sum(passed_s for passed_s, _ in before)
    fed([(later_s, 5.0), (-20, 6.0), *after], again)
    written(raw, again)
    assert same(unsealed(decode(bytes(raw), CLUSTER)), again)
    assert len(again.columns) == 1


def test_what_was_never_written_takes_no_memory_after_a_restart() -> None:
    raw = bytearray(SIZE)
    curves, _ = fed([(0, 2.0), (1, 4.0)])
    written(raw, curves)
    file, process = bytes(raw), psutil.Process()
    before = process.memory_info().rss
    kept = [decode(file, CLUSTER) for _ in range(4)]
    assert process.memory_info().rss - before < SIZE
    assert all(each.seconds["value"][NOON_S % HOUR_S].any() for each in kept)


def unsealed(kept: Kept) -> Kept:
    """Without checksums, which rows in memory have none of."""
    kept.seconds["checksum"] = kept.steps["checksum"] = 0
    return kept


def test_a_step_that_a_restart_falls_into_is_summed_up_of_both_lives() -> None:
    raw = bytearray(SIZE)
    curves, _ = fed([(0, 2.0), (1, 4.0)])
    written(raw, curves)
    again = Curves(CLUSTER)
    again.restore(decode(bytes(raw), CLUSTER))
    fed([(5, 9.0), (5, 1.0)], again)
    row = again.steps[NOON_S // STEP_S % DAY_STEPS]
    column = again.columns[FREE]
    assert row["mean"][column] == pytest.approx((2 + 4 + 9 + 4 * 1) / 7)
    assert row["most"][column] == 9


def test_a_step_whose_seconds_are_lost_stays_as_it_is() -> None:
    raw = bytearray(SIZE)
    curves, _ = fed([(0, 2.0), (1, 4.0)])
    written(raw, curves)
    kept = decode(bytes(raw), CLUSTER)
    kept.seconds[:] = np.zeros((), kept.seconds.dtype)
    again = Curves(CLUSTER)
    again.restore(kept)
    assert again.take() == set()
    fed([(30, 9.0)], again)
    row = again.steps[NOON_S // STEP_S % DAY_STEPS]
    assert (row["second"], row["mean"][again.columns[FREE]]) == (NOON_S, 3)


# --- where figures come from ----------------------------------------------------------------------


def test_figures_are_those_of_the_statuses() -> None:
    journal = {"count": 900, "recent": 30, "p50_us": 110, "p99_us": 420}
    volume = VOLUME | {"journal": journal, "disk_size": 100, "disk_free": 40}
    shard = {
        "shard": 0, "attached": True, "cursor": 70, "log_seq": 100, "late_s": 1.5, "hole": "",
    }  # fmt: skip
    shipper = {
        "node": 0,
        "late_s_max": 60,
        "shards": [shard, shard | {"shard": 1, "attached": False}],
    }
    ack = {"count": 10, "recent": 3, "p50_us": 100, "p99_us": 900}
    told = figures_of(
        read({
            Source("replica", 0, 0): replica(0, records=5678, volume=volume),
            Source("replica", 1, 0): replica(1, records=5600),
            Source("edge", 0, 0): edge(ack=ack, live_events=7, stored_events=2, process={"pid": 9}),
            Source("edge", 1, 0): None,
            Source("shipper", 0, 0): shipper,
        })
    )  # fmt: skip
    edge_at = (0, 0)
    assert told.counts == {
        Curve(Figure.RECORDS, 0, 0): (0, 5678),
        Curve(Figure.RECEIVED, *edge_at): (9, 1000),
        Curve(Figure.SENT, *edge_at): (9, 9),
    }
    assert told.values == {
        Curve(Figure.COMMIT_MS, 0, 0): 0.9,
        Curve(Figure.CONNECTIONS, *edge_at): 21,
        Curve(Figure.FLUSH_MS, 0, 0): 0.42,
        Curve(Figure.FREE_BYTES, 0, 0): 40,
        Curve(Figure.FLUSH_MS, 1, 0): 0.42,
        Curve(Figure.WAITING, 0, 0): 30,
        Curve(Figure.DELAY_S, 0, 0): 1.5,
    }


def test_what_a_replica_commits_that_catches_up_is_no_rate_of_the_shard() -> None:
    """It was away for a night: what it makes up for in a minute was said by day."""
    records, curves = Curve(Figure.RECORDS, 0, 0), Curves(CLUSTER)
    for second, (commit, count) in enumerate(
        [(5000, 7000), (9000, 11_000), (10_000, 12_000), (10_002, 12_004), (10_003, 12_005)]
    ):
        behind = replica(0, commit=commit, records=count, commit_max=max(commit, 10_000))
        told = figures_of(read({Source("replica", 0, 0): behind}))
        assert Curve(Figure.COMMIT_MS, 0, 0) in told.values
        curves.on_poll(told, now_ms=second * 1000, wall_ms=(NOON_S + second) * 1000)
    assert [*known(curves, records).values()] == [None, None, None, 4, 1]


def test_a_latency_of_nothing_is_no_latency() -> None:
    quiet = VOLUME | {"journal": {"count": 900, "recent": 0, "p50_us": 0, "p99_us": 0}}
    raw = healthy() | {Source("replica", 0, 0): replica(0, volume=quiet)}
    told = figures_of(read(raw))
    assert math.isnan(told.values[FLUSH])
    assert math.isnan(told.values[Curve(Figure.COMMIT_MS, 0, 0)])
    assert FREE not in told.values, "a disk that tells no size tells nothing"
