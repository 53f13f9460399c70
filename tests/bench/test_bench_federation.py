"""The bench of federation with tiny inputs, so that it cannot rot."""

from tests.bench import bench_federation


def test_bench_federation_gives_a_figure_for_each_step() -> None:
    figures = bench_federation.run(messages=50, waiting=(100,), in_chain=100)
    for name in ("received_per_s", "received_with_filter_per_s", "sent_per_s", "idle_tick_us"):
        assert figures[name] > 0
    assert figures["deliver_one_of_100_us"] > 0
