"""`make bench`: measures a site of its own on this machine's disk, and holds the bars.

    python tests/bench/run.py [--quick] [--folder DIR] [--only NAME]...

Each part prints what it finds as it goes. A run appends one line to `history.jsonl`, which names
the parts it had; it ends with 1 when a bar is missed. `--quick` goes through the same motions in
seconds: no bars, no history.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

import numpy as np  # noqa: E402
import psutil  # noqa: E402

from appliance.commands.benchmark import Table  # noqa: E402
from appliance.drivers.host.process import child_environment  # noqa: E402
from appliance.drivers.nvme.direct import file_system_of_memory  # noqa: E402
from tests.bench import (  # noqa: E402
    alone_on_devices,
    bench_history,
    bench_objects,
    broken_reading,
    checked_reading,
    crowds,
    edge_killed,
    executable,
    federated,
    idle,
    importing,
    left,
    measured,
    objects_edges,
    reading,
    restart,
    restoring,
    steady,
    transports,
)
from tests.bench import quorum as quorums  # noqa: E402
from tests.bench import shipping as ships  # noqa: E402
from tests.bench import volume as volumes  # noqa: E402
from tests.bench.failover import in_checkpoint, outages  # noqa: E402
from tests.loop_device import have_loop_devices  # noqa: E402
from tests.system.federated_site import FederatedSite  # noqa: E402
from tests.system.local_site import COMMAND, LocalSite, first_free_port  # noqa: E402

HISTORY = Path(__file__).with_name("history.jsonl")
SEED = 20260701
RATE_MIN = 12_000  # acknowledged messages a second, binary, no client TLS, 256 in flight
OUTAGE_P50_MS_MAX, OUTAGE_P99_MS_MAX = 300, 500
KILLS, KILLS_IN_CHECKPOINTS, SLOW_FLUSH_MS = 100, 10, 10
BACK_S_MAX = 5  # until p99 is within twice of what it was before a node died or stood still
REPORTS_RATE_MIN = 150_000  # records a second, verified and in Parquet, on 2 cores
REPORTS_SCALE_MIN, REPORTS_RSS_SPREAD_MAX = 1.6, 0.2

Row = dict[str, Any]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure a site on this machine's disk.")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes, no bars")
    parser.add_argument("--folder", type=Path, help="where to make the site; on a disk")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="these parts only")
    chosen = parser.parse_args(arguments)
    rows: list[Row] = []
    with folder_on_disk(chosen.folder) as folder:
        parts = chosen.only or list(PARTS)
        for name in parts:
            print(f"\n--- {name}", flush=True)
            rows += PARTS[name](folder, chosen.quick)
    missed = [] if chosen.quick else missed_bars(rows) + missed_after_faults(rows)
    for line in missed:
        print(f"missed: {line}")
    if not chosen.quick:
        remember(parts, rows, missed)
    return 1 if missed else 0


@contextmanager
def folder_on_disk(wanted: Path | None) -> Iterator[Path]:
    """A temporary folder that is not in memory; removed in the end."""
    places = [wanted] if wanted else [Path(tempfile.gettempdir()), Path("/var/tmp"), TOP]
    place = next((p for p in places if p.is_dir() and file_system_of_memory(p) is None), None)
    if place is None:
        raise SystemExit(f"bench: {places} are all in memory: name a folder on a disk, --folder")
    folder = Path(tempfile.mkdtemp(prefix="tc-bench-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- parts ----------------------------------------------------------------------------------------


def without_tls(folder: Path, quick: bool) -> list[Row]:
    """Both encodings at all depths, and fan-out."""
    if quick:
        options = [
            "--seconds",
            "0.3",
            "--in-flight",
            "1",
            "--in-flight",
            "64",
            "--listeners",
            "5",
            "--deliveries",
            "500",
        ]
    else:
        options = ["--seconds", "5"]
    return load(folder / "plain", False, options)


def with_tls(folder: Path, quick: bool) -> list[Row]:
    """The same through TLS 1.3, shorter."""
    if quick:
        return []
    options = ["--seconds", "4", "--listeners", "100", "--deliveries", "200000"]
    return load(folder / "tls", True, options)


def load(folder: Path, tls: bool, options: list[str]) -> list[Row]:
    """The rows of `tigerchat benchmark` against a fresh site."""
    rows = []
    table = Table()
    with made(folder, client_tls=tls):
        words = [*COMMAND, "benchmark", "--json", "--local", str(folder), *options]
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=child_environment()) as process:
            assert process.stdout is not None
            for line in process.stdout:
                rows.append(json.loads(line))
                table.show(rows[-1])
                sys.stdout.flush()
        if process.returncode != 0:
            raise SystemExit(f"bench: the load generator ended with {process.returncode}")
    return rows


def failover(folder: Path, quick: bool) -> list[Row]:
    """kill -9 of the primary, with the disk as it is and with each flush slowed down."""
    if quick:
        return [kills_of_primary(folder, 2, SLOW_FLUSH_MS)]
    return [kills_of_primary(folder, KILLS, slow_ms) for slow_ms in (0, SLOW_FLUSH_MS)]


def failover_in_checkpoints(folder: Path, quick: bool) -> list[Row]:
    """The same while a checkpoint is being written to such a slow disk."""
    if quick:
        return []
    return [kills_of_primary(folder, KILLS_IN_CHECKPOINTS, SLOW_FLUSH_MS, during=True)]


def kills_of_primary(folder: Path, kills: int, slow_ms: int, *, during: bool = False) -> Row:
    """A row of outages; `during` checkpoints only."""
    options: dict[str, Any] = {"client_tls": False, "flush_slow_ms": slow_ms}
    with made(folder / f"slow-{slow_ms}-{during}", supervised=False, **options) as site:
        when = in_checkpoint if during else lambda site: True
        found = asyncio.run(outages(site, kills, SEED, say, when=when))
    p50, p99 = np.percentile(np.array(found) * 1000, [50, 99])
    row = {
        "kind": "failover",
        "flush_slow_ms": slow_ms,
        "during_checkpoint": during,
        "kills": len(found),
        "p50_ms": round(float(p50)),
        "p99_ms": round(float(p99)),
        "max_ms": round(max(found) * 1000),
    }
    say(
        f"kill -9 of the primary{' in a checkpoint' if during else ''}, flushes slowed by "
        f"{slow_ms} ms: back after {row['p50_ms']} ms p50, {row['p99_ms']} ms p99, "
        f"{row['max_ms']} ms at most of {row['kills']}"
    )
    return row


def shipping(folder: Path, quick: bool) -> list[Row]:
    """The same load while the log is shipped into a folder, and while it is not."""
    target = str(folder / "target")
    with made(folder / "ships", client_tls=False, ship_target=target, **ships.SETTINGS) as site:
        return [ships.compare(site, quick, say)]


def imports(folder: Path, quick: bool) -> list[Row]:
    """An archive as an operator brings it."""
    with made(folder / "imports", client_tls=False, **importing.SETTINGS) as site:
        return [importing.measure(site, quick, say)]


def restores(folder: Path, quick: bool) -> list[Row]:
    """A cluster made anew of one volume."""
    return [restoring.measure(folder / "restore", quick, say)]


def archives(folder: Path, quick: bool) -> list[Row]:
    """Every form of archive, read and not stored."""
    place = folder / "archives"
    place.mkdir()
    return reading.measure(place, quick, say)


def one_node_hurt(folder: Path, quick: bool) -> list[Row]:
    """kill -9 and SIGSTOP of each node under steady load."""
    short = steady.Plan(measured_s=0.5, before_s=2, after_s=2, ways=("stop",))
    plan = short if quick else steady.Plan()
    options: dict[str, Any] = {"supervised": False, "client_tls": False}
    with made(folder / "steady", **options) as site:
        nodes = [0] if quick else list(site.nodes)
        return asyncio.run(steady.hurt_each_node(site, plan, nodes, say))


def big_volumes(folder: Path, quick: bool) -> list[Row]:
    """Memory, catching up, recovery and restart with a million records."""
    sizes = restart.Sizes(few=500, many=2_000, full_ring=2_000, in_flight_full=500, restarts=1)
    options: dict[str, Any] = {"supervised": False, "client_tls": False}
    with made(folder / "big", **options) as site:
        return restart.measure(site, sizes if quick else restart.Sizes(), say)


@contextmanager
def made(folder: Path, *, kind: type[LocalSite] = LocalSite, **options: Any) -> Iterator[LocalSite]:
    """A site that serves; its folder is removed afterwards, its log shown if something broke."""
    folder.parent.mkdir(exist_ok=True)
    site = kind(folder, first_free_port(), brief=False, log_level="warning", **options)
    whole = False
    try:
        with site:
            yield site
        whole = True
    finally:
        if not whole:
            log = Path(site.log.name).read_text(errors="replace")
            print("\n".join(log.splitlines()[-30:]), file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)


def say(line: str) -> None:
    print(line, flush=True)


def reports(folder: Path, quick: bool) -> list[Row]:
    """Verify what was shipped and write Parquet, in Spark: of files of several sizes, of HDFS."""
    if quick:
        return []  # the tests of the reports start Spark, once
    place = folder / "reports"
    place.mkdir()
    words = [sys.executable, str(TOP / "tests" / "reports" / "measure.py"), str(place)]
    rows = []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=child_environment()
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = json.loads(line)
            rows.append(row)
            say(
                f"verify and write Parquet, {row['over']} of {row['file_records']} records, "
                f"{row['cores']} cores: {row['per_s']} records/s, workers of "
                f"{row['peak_rss_mib']} MiB at most"
            )
    shutil.rmtree(place, ignore_errors=True)
    if process.returncode != 0:
        raise SystemExit(f"bench: the reports ended with {process.returncode}")
    return rows


def objects(folder: Path, quick: bool) -> list[Row]:
    """Merges and edits a second, restart and the size of a diff, of a store of a million fields."""
    sizes = (2000, 500, 500) if quick else ()
    row = {"kind": "objects", **bench_objects.run(*sizes)}
    say(
        f"objects: {row['merges_per_s']} merges/s, {row['edits_per_s']} edits/s to the store "
        f"({row['edits_per_s_of_clock']} by the clock), "
        f"restart of {row['fields']} fields in {row['restart_ms']} ms, 100 changed fields cross in "
        f"{row['diff_bytes_of_100_fields']} bytes"
    )
    return [row]


def checked_history(folder: Path, quick: bool) -> list[Row]:
    """What the check of each record costs, of those that leave: in an edge's core, and to readers
    of whole sites; and how long they wait for one that fails it."""
    rows = bench_history.measure(quick, say)
    with made(
        folder / "checked",
        kind=checked_reading.SwitchedSite,
        supervised=False,
        client_tls=False,
    ) as site:
        assert isinstance(site, checked_reading.SwitchedSite)
        rounds = checked_reading.QUICK if quick else checked_reading.Rounds()
        rooms = checked_reading.filled(site)
        rows += checked_reading.measure(site, rooms, rounds, say)
        return [*rows, broken_reading.measure(site, rooms["alone"], quick, say)]


def frozen(folder: Path, quick: bool) -> list[Row]:
    """The executable: its size, its start, its memory."""
    place = folder / "executable"
    place.mkdir()
    return executable.measure(place, quick, say)


def volume(folder: Path, quick: bool) -> list[Row]:
    """A durable write through the volume beside the bare system calls, on a file and a device."""
    return volumes.measure(folder, quick, say)


def one_message_on_devices(folder: Path, quick: bool) -> list[Row]:
    """One message after the other, of a site on raw devices and of one on files by turns."""
    if not have_loop_devices():
        say("no loop devices here: one message alone on devices is not measured")
        return []
    settings = alone_on_devices.SETTINGS
    with (
        alone_on_devices.disk_of_files(folder) as place,
        alone_on_devices.disk_of_volumes(folder) as devices,
        made(place / "files", **settings) as files,
        made(folder / "raw", devices=devices, **settings) as raw,
    ):
        return [alone_on_devices.measure(files, raw, quick, say)]


def objects_between_edges(folder: Path, quick: bool) -> list[Row]:
    """From the edge of one node to those of the others."""
    with made(folder / "edges", objects=True, client_tls=False) as site:
        return [objects_edges.measure(site, quick, say)]


def question_of_quorum(folder: Path, quick: bool) -> list[Row]:
    """Whether one more node may stop, asked while the others stand still."""
    with made(folder / "quorum", supervised=False, client_tls=False) as site:
        return [quorums.measure(site, quick, say)]


def idle_site(folder: Path, quick: bool) -> list[Row]:
    """All processes of a site, while nobody wants anything."""
    with made(folder / "idle", objects=True, farm=True) as site:
        return idle.measure(site, 1 if quick else 30, say)


def clients_that_left(folder: Path, quick: bool) -> list[Row]:
    """An edge that many clients have left."""
    with made(folder / "left", nodes=1) as site:
        return left.measure(site, quick, say)


def ways_in(folder: Path, quick: bool) -> list[Row]:
    """What other transports cost beside WebSocket; and when the edge below them is killed."""
    with made(folder / "ways", supervised=False, **transports.SETTINGS) as site:
        rows = transports.measure_acks(site, quick, say)
        rows += transports.measure_fan_out(site, quick, say)
        return rows + edge_killed.measure(site, quick, say)


def idle_clients(folder: Path, quick: bool) -> list[Row]:
    """An edge with many who say nothing."""
    crowds.allow_files()
    rows = []
    for transport in crowds.IDLE:
        with made(folder / f"idle-{transport}", nodes=1, **crowds.SETTINGS) as site:
            rows.append(crowds.measure_idle(site, transport, quick, say))
    return rows


def crowd_resumes(folder: Path, quick: bool) -> list[Row]:
    """A node with many clients that is killed."""
    crowds.allow_files()
    with made(folder / "crowd", supervised=False, **crowds.SETTINGS) as site:
        return crowds.measure_resumed(site, quick, say)


def federation(folder: Path, quick: bool) -> list[Row]:
    """A site that missed much of a shared room, what that takes, what other rooms lose by it."""
    options: dict[str, Any] = {"kind": FederatedSite, "nodes": 1, "supervised": False}
    options |= {"client_tls": False}
    with (
        made(folder / "here", name="here", **options) as here,
        made(folder / "there", name="there", **options) as there,
    ):
        assert isinstance(here, FederatedSite) and isinstance(there, FederatedSite)
        return federated.measure(here, there, quick, say)


PARTS: dict[str, Callable[[Path, bool], list[Row]]] = {
    "without client TLS": without_tls,
    "with client TLS": with_tls,
    "failover": failover,
    "failover in checkpoints": failover_in_checkpoints,
    "shipping": shipping,
    "reading archives": archives,
    "importing": imports,
    "restore": restores,
    "one node hurt": one_node_hurt,
    "big volumes": big_volumes,
    "reports": reports,
    "objects": objects,
    "checked history": checked_history,
    "executable": frozen,
    "volume": volume,
    "one message on devices": one_message_on_devices,
    "objects between edges": objects_between_edges,
    "question of quorum": question_of_quorum,
    "idle site": idle_site,
    "clients that left": clients_that_left,
    "ways in": ways_in,
    "idle clients": idle_clients,
    "a crowd resumes": crowd_resumes,
    "federation": federation,
}


# --- judging --------------------------------------------------------------------------------------


def missed_bars(rows: list[Row]) -> list[str]:
    """What falls short, in words."""
    missed = []
    for row in rows:
        if row["kind"] == "acknowledged" and row["in_flight"] == 256:
            bar = row["encoding"] == "binary" and not row["client_tls"]
            if bar and row["per_s"] < RATE_MIN:
                missed.append(
                    f"{row['per_s']} acknowledged messages/s at 256 in flight, binary, no "
                    f"client TLS; at least {RATE_MIN}"
                )
        elif row["kind"] == "shipping":
            missed += ships.missed(row)
        elif row["kind"] == "objects":
            missed += bench_objects.missed(row)
        elif row["kind"] == "objects between edges":
            missed += objects_edges.missed(row)
        elif row["kind"] == "failover":
            for name, most in (("p50_ms", OUTAGE_P50_MS_MAX), ("p99_ms", OUTAGE_P99_MS_MAX)):
                if row[name] >= most:
                    missed.append(
                        f"back after {row[name]} ms {name[:3]}, flushes slowed by "
                        f"{row['flush_slow_ms']} ms; below {most}"
                    )
    return missed + missed_reports(rows)


def missed_reports(rows: list[Row]) -> list[str]:
    """What the reports' rows fall short of."""
    found = {
        (row["over"], row["file_records"], row["cores"]): row
        for row in rows
        if row["kind"] == "reports"
    }
    if not found:
        return []
    missed = []
    one, two = found["files", 100_000, 1], found["files", 100_000, 2]
    large = found["files", 1_000_000, 2]
    if two["per_s"] < REPORTS_RATE_MIN:
        missed.append(
            f"{two['per_s']} records/s verified and written on 2 cores; at least {REPORTS_RATE_MIN}"
        )
    if two["per_s"] < REPORTS_SCALE_MIN * one["per_s"]:
        missed.append(
            f"{two['per_s'] / one['per_s']:.2f} times the records/s of one core on two; "
            f"at least {REPORTS_SCALE_MIN}"
        )
    if abs(large["peak_rss_mib"] / two["peak_rss_mib"] - 1) > REPORTS_RSS_SPREAD_MAX:
        missed.append(
            f"workers of {large['peak_rss_mib']} MiB at a million records a file, "
            f"{two['peak_rss_mib']} at a hundred thousand; within "
            f"{REPORTS_RSS_SPREAD_MAX:.0%}"
        )
    return missed


def missed_after_faults(rows: list[Row]) -> list[str]:
    """What falls short when a node is hurt, comes back or has much to hold, in words."""
    missed = []
    for row in rows:
        if row["kind"] == "steady" and (row["back_s"] is None or row["back_s"] > BACK_S_MAX):
            missed.append(
                f"{row['how']} {row['role']}: p99 back within twice of "
                f"{row['before_ms']} ms after {row['back_s']} s; at most {BACK_S_MAX}"
            )
        elif "bar" in row and not row["held"]:
            missed.append(f"{row['what']}: {row['value']} {row['unit']}; {row['bar']}")
    return missed


def remember(parts: list[str], rows: list[Row], missed: list[str]) -> None:
    """One line more in the history of measurements."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=TOP,
        text=True,
        capture_output=True,
        check=False,
    ).stdout.strip()
    line: dict[str, Any] = {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit,
        "machine": {
            "cores": psutil.cpu_count(),
            "model": cpu_model(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "parts": parts,
        "missed": missed,
        "rows": rows,
    }
    with HISTORY.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    if measured.PARTS <= set(parts):
        measured.PAGE.write_text(measured.page(rows, line["machine"], commit, line["time"]))


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
