"""Figures of latencies are of now: old ones age away, also when nothing comes after them."""

from appliance.base.limits import IO_SAMPLES, LATENCY_AGE_S_MAX
from appliance.drivers.nvme.latency import Latency
from appliance.formats.status.process import Latencies

SLOW_NS, QUICK_NS = 1_414_000_000, 100_000


def test_what_is_older_than_a_minute_is_told_no_more() -> None:
    latency = Latency()
    for _ in range(300):
        latency.add(SLOW_NS)
    for second in range(LATENCY_AGE_S_MAX):
        assert latency.figures(100.0 + second).p99_us == SLOW_NS // 1000
    figures = latency.figures(100.0 + LATENCY_AGE_S_MAX)
    assert figures == Latencies(count=300, recent=0, p50_us=0, p99_us=0, max_us=0)
    latency.add(QUICK_NS)
    figures = latency.figures(101.0 + LATENCY_AGE_S_MAX)
    assert (figures.recent, figures.max_us) == (1, QUICK_NS // 1000)


def test_the_newest_are_told_wherever_they_lie_in_the_ring() -> None:
    latency = Latency()
    for _ in range(IO_SAMPLES - 5):
        latency.add(SLOW_NS)
    latency.figures(0.0)
    for microseconds in range(1, 11):
        latency.add(microseconds * 1000)
    figures = latency.figures(float(LATENCY_AGE_S_MAX))
    assert (figures.recent, figures.p50_us, figures.max_us) == (10, 6, 10)
