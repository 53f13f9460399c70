"""The bench of the objects with tiny inputs, so that it cannot rot."""

from tests.bench import bench_objects


def test_bench_objects_gives_a_figure_for_each_step() -> None:
    figures = bench_objects.run(fields=2000, edit_count=500, merge_count=500)
    for name in ("merges_per_s", "edits_per_s", "restart_ms", "diff_bytes_of_100_fields"):
        assert figures[name] > 0
    assert figures["diff_bytes_of_nothing"] < 500 < figures["diff_bytes_of_100_fields"]
