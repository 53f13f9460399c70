"""The benches of the drivers with tiny inputs, so that they cannot rot."""

from pathlib import Path

from tests.bench import bench_link, bench_volume
from tests.drivers.conftest import disk_folder

__all__ = ["disk_folder"]


def test_bench_volume_gives_a_figure_for_each_kind_of_write(disk_folder: Path) -> None:
    figures = bench_volume.run(disk_folder, rounds=3)
    kinds = ("sector", "prepare_64_records", "pipeline_of_8_prepares", "sector_beside_checkpoint")
    assert all(figures[f"{kind}_p50_us"] > 0 for kind in kinds)
    assert not list(disk_folder.iterdir())


def test_bench_link_gives_figures_for_large_and_small_frames() -> None:
    figures = bench_link.run(count=40)
    assert figures["batch_mb_per_s"] > 1 and figures["small_frames_per_s"] > 1
