"""The bench of the rooms with tiny inputs, so that it cannot rot."""

from tests.bench import bench_rooms


def test_bench_rooms_gives_a_figure_for_each_step() -> None:
    figures = bench_rooms.run(records=640)
    for name in ("check_us", "stamp_us", "apply_us", "checkpoint_ms", "restore_ms"):
        assert figures[name] > 0
    assert figures["restore_records"] == 640 + bench_rooms.ROOMS
