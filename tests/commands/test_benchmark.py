"""The load generator measures, judges what it was told, and refuses what would not be durable."""

import json
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.limits import MIB
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import status_of
from appliance.formats.status.edge import EdgeStatus
from tests import forked
from tests.commands.conftest import Sentence, Tigerchat, environment
from tests.loop_device import loop_device
from tests.patience import HUNG_S
from tests.system.local_site import LocalSite, wait_until

MEMORY = Path("/dev/shm")


def test_benchmark_measures_every_round_and_finds_nothing_wrong(
    tigerchat: Tigerchat, serving: LocalSite
) -> None:
    done = tigerchat(
        "benchmark",
        "--local",
        serving.folder,
        "--json",
        "--seconds",
        "0.3",
        "--in-flight",
        "1",
        "--in-flight",
        "40",
        "--rooms",
        "3",
        "--listeners",
        "3",
        "--deliveries",
        "300",
        timeout=HUNG_S,
    )
    assert done.returncode == 0, done.stderr
    site, *rounds, audience = map(json.loads, done.stdout.splitlines())
    assert site["nodes"] == 3 and site["client_tls"] and len(site["durable_write_p50_us"]) == 3
    assert [(row["encoding"], row["in_flight"]) for row in rounds] == [
        ("binary", 1),
        ("binary", 40),
        ("json", 1),
        ("json", 40),
    ]
    for row in rounds:
        assert row["messages"] > 0 and 0 < row["p50_ms"] <= row["p99_ms"]
        assert row["cpu_us_nodes"] > 0 and row["cpu_us_generator"] > 0
    assert audience["listeners"] == 3 and audience["per_s"] > 0


def test_benchmark_prints_a_table_for_people(tigerchat: Tigerchat, serving: LocalSite) -> None:
    done = tigerchat(
        "benchmark",
        "--local",
        serving.folder,
        "--seconds",
        "0.2",
        "--in-flight",
        "4",
        "--encoding",
        "binary",
        "--listeners",
        "0",
    )
    assert done.returncode == 0, done.stderr
    assert "a durable write of 4 KiB takes" in done.stdout
    assert "acked/s" in done.stdout and "binary    yes          4" in done.stdout


def test_benchmark_sends_and_listens_by_webtransport(
    tigerchat: Tigerchat, serving: LocalSite
) -> None:
    before = came_by_quic(serving)
    words = ["--seconds", "0.2", "--in-flight", "1", "--encoding", "binary"]
    words += ["--listeners", "3", "--deliveries", "300", "--transport", "webtransport", "--json"]
    done = tigerchat("benchmark", "--local", serving.folder, *words, timeout=HUNG_S)
    assert done.returncode == 0, done.stderr
    _, sent, heard = map(json.loads, done.stdout.splitlines())
    assert (sent["kind"], heard["kind"]) == ("acknowledged", "fan_out")
    assert sent["transport"] == heard["transport"] == "webtransport"
    assert sent["messages"] > 0 and heard["per_s"] > 0
    assert came_by_quic(serving) >= before + 1 + 3


def came_by_quic(site: LocalSite) -> int:
    """Connections that the site's edges have let in so."""
    places = [site.place(node) / SOCKETS_FOLDER for node in site.nodes]
    told = [status_of(EdgeStatus, p, cluster=site.site.cluster, number=0) for p in places]
    return sum(one.connection_events.get("quic_accepted", 0) for one in told if one is not None)


def test_a_round_in_which_an_edge_is_killed_is_run_again(serving: LocalSite) -> None:
    words = ["--seconds", "2", "--in-flight", "40", "--encoding", "binary", "--listeners", "0"]
    words = ["benchmark", "--local", serving.folder, "--json", *words]
    running = forked.talk(words, environment=environment())
    assert running.stdout is not None
    site = json.loads(running.stdout.readline())
    assert site["kind"] == "site"
    before = log_seq(serving)
    wait_until(lambda: log_seq(serving) > before + 100, HUNG_S, "the round runs")
    (edge,) = serving.processes(0, "edge")
    edge.kill()
    out, errors = running.communicate(timeout=HUNG_S)
    wait_until(lambda: serving.edge_serves(0), HUNG_S, "the edge serves again")
    assert running.returncode == 0, errors
    assert "the round is run again" in errors
    assert [json.loads(line)["kind"] for line in out.splitlines()] == ["acknowledged"]


def log_seq(site: LocalSite) -> int:
    status = site.status(0)
    return status["log_seq"] if status else 0


def test_benchmark_of_a_site_in_memory_is_refused(
    tigerchat: Tigerchat,
    sentence: Sentence,
    serving: LocalSite,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = MEMORY / f"tigerchat-{tmp_path_factory.getbasetemp().parent.name}"
    names = ["site.toml", "token.key", *(f"node-{n}/node.toml" for n in range(3))]
    try:
        for name in names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(serving.folder / name, place / name)
        done = tigerchat("benchmark", "--local", place)
        assert "lives in memory" in sentence(done, 1)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_benchmark_without_a_running_site_says_how_to_start_it(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, tmp_path: Path
) -> None:
    names = ["site.toml", "token.key", *(f"node-{n}/node.toml" for n in range(3))]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(serving.folder / name, tmp_path / name)
    done = tigerchat("benchmark", "--local", tmp_path)
    assert "no site runs in" in sentence(done, 2)


# --- the volume -----------------------------------------------------------------------------------


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    with loop_device(tmp_path / "disk", 64 * MIB, sector_size=4096) as made:
        yield made


@pytest.mark.root
def test_benchmark_of_the_volume_tells_each_round_of_a_file_and_of_a_device(
    tigerchat: Tigerchat, tmp_path: Path, device: Path
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    words = ["benchmark", "volume", folder, "--rounds", 3, "--writes", 10, "--device", device]
    done = tigerchat(*words, "--json")
    assert done.returncode == 0, done.stderr
    rows = [*map(json.loads, done.stdout.splitlines())]
    assert [row["on"] for row in rows] == ["file", "device"]
    for row in rows:
        assert len(row["rounds"]) == 3 and row["method"]
        for figures in (row, *row["rounds"]):
            assert 0 < figures["bare_p50_us"] <= figures["bare_p99_us"]
            ratio = figures["volume_p99_us"] / figures["bare_p99_us"]
            assert figures["ratio"] == pytest.approx(ratio, abs=0.001)
        for name in ("volume_p50_us", "volume_p99_us", "bare_p50_us", "bare_p99_us"):
            assert row[name] == statistics.median(each[name] for each in row["rounds"])
    assert not any(device.read_bytes()) and not [*folder.iterdir()], "nothing is left"
    shown = tigerchat(*words)
    assert shown.returncode == 0, shown.stderr
    labels = [line.split()[0] for line in shown.stdout.splitlines()]
    assert labels == ["file", "1", "2", "3", "all", "file:", "device", "1", "2", "3", "all"] + [
        "device:"
    ]


@pytest.mark.root
def test_benchmark_of_a_device_that_carries_something_is_refused_and_changes_nothing(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path, device: Path
) -> None:
    with device.open("r+b") as file:
        file.write(b"mine")
    few = ["--rounds", 1, "--writes", 10]
    done = tigerchat("benchmark", "volume", tmp_path, *few, "--device", device)
    assert "carries bytes that are not zero, from 0 on" in sentence(done, 1)
    assert device.read_bytes()[:4] == b"mine"
