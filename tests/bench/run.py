"""`make bench`: measures a site of its own on this machine's disk, and holds the bars.

    python tests/bench/run.py [--quick] [--folder DIR] [--only NAME]...

Each part prints what it finds as it goes. A whole run appends one line to `history.jsonl`; it ends
with 1 when a bar is missed. `--quick` goes through the same motions in seconds: no bars, no
history.
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
from tests.bench.failover import outages  # noqa: E402
from tests.system.local_site import COMMAND, LocalSite, first_free_port  # noqa: E402

HISTORY = Path(__file__).with_name("history.jsonl")
SEED = 20260701
RATE_MIN = 12_000  # acknowledged messages a second, binary, no client TLS, 256 in flight
OUTAGE_P50_MS_MAX, OUTAGE_P99_MS_MAX = 300, 500
KILLS, SLOW_FLUSH_MS = 100, 10

Row = dict[str, Any]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure a site on this machine's disk.")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes, no bars")
    parser.add_argument("--folder", type=Path, help="where to make the site; on a disk")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="these parts only")
    chosen = parser.parse_args(arguments)
    rows: list[Row] = []
    with folder_on_disk(chosen.folder) as folder:
        for name in chosen.only or PARTS:
            print(f"\n--- {name}", flush=True)
            rows += PARTS[name](folder, chosen.quick)
    missed = [] if chosen.quick else missed_bars(rows)
    for line in missed:
        print(f"missed: {line}")
    if not chosen.quick and not chosen.only:
        remember(rows, missed)
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
    rows = []
    for slow_ms in (SLOW_FLUSH_MS,) if quick else (0, SLOW_FLUSH_MS):
        with made(
            folder / f"slow-{slow_ms}", supervised=False, client_tls=False, flush_slow_ms=slow_ms
        ) as site:
            found = asyncio.run(outages(site, 2 if quick else KILLS, SEED, say))
        p50, p99 = np.percentile(np.array(found) * 1000, [50, 99])
        row = {
            "kind": "failover",
            "flush_slow_ms": slow_ms,
            "kills": len(found),
            "p50_ms": round(float(p50)),
            "p99_ms": round(float(p99)),
            "max_ms": round(max(found) * 1000),
        }
        say(
            f"kill -9 of the primary, flushes slowed by {slow_ms} ms: back after "
            f"{row['p50_ms']} ms p50, {row['p99_ms']} ms p99, {row['max_ms']} ms at most of "
            f"{row['kills']}"
        )
        rows.append(row)
    return rows


@contextmanager
def made(folder: Path, **options: Any) -> Iterator[LocalSite]:
    """A site that serves; its folder is removed afterwards, its log shown if something broke."""
    folder.parent.mkdir(exist_ok=True)
    site = LocalSite(folder, first_free_port(), log_level="warning", **options)
    try:
        with site:
            yield site
    except BaseException:
        log = Path(site.log.name).read_text(errors="replace")
        print("\n".join(log.splitlines()[-30:]), file=sys.stderr)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def say(line: str) -> None:
    print(line, flush=True)


PARTS: dict[str, Callable[[Path, bool], list[Row]]] = {
    "without client TLS": without_tls,
    "with client TLS": with_tls,
    "failover": failover,
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
        elif row["kind"] == "failover":
            for name, most in (("p50_ms", OUTAGE_P50_MS_MAX), ("p99_ms", OUTAGE_P99_MS_MAX)):
                if row[name] >= most:
                    missed.append(
                        f"back after {row[name]} ms {name[:3]}, flushes slowed by "
                        f"{row['flush_slow_ms']} ms; below {most}"
                    )
    return missed


def remember(rows: list[Row], missed: list[str]) -> None:
    """One line more in the history of measurements."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=TOP,
        text=True,
        capture_output=True,
        check=False,
    ).stdout.strip()
    line = {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit,
        "machine": {
            "cores": psutil.cpu_count(),
            "model": cpu_model(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "missed": missed,
        "rows": rows,
    }
    with HISTORY.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
