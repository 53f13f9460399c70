"""The benches of the drivers with tiny inputs, so that they cannot rot."""

import json
from pathlib import Path

import pytest

from appliance.__main__ import main
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


def test_benchmark_volume_compares_both_ways_and_leaves_nothing(
    disk_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rounds", "2", "--writes", "10", "--json"]
    assert main(["benchmark", "volume", str(disk_folder), *words]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["kind"] == "volume" and 0 < row["bare_p50_us"] <= row["bare_p99_us"]
    assert row["ratio"] == pytest.approx(row["volume_p99_us"] / row["bare_p99_us"], abs=0.001)
    assert not list(disk_folder.iterdir())
