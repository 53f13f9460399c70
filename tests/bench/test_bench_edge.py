"""The measurement of the edge runs, with inputs so small that its figures mean nothing."""

from tests.bench.bench_edge import measure


def test_every_path_is_measured() -> None:
    figures = measure(1)
    assert set(figures) == {"send_us", "send_limited_us", "ack_us", "fan_out_us"}
    assert all(value > 0 for value in figures.values())
