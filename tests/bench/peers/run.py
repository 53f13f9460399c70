"""`make bench-peers`: rounds by turns, the ledger of what was acknowledged, the history.

    python -m tests.bench.peers.run [--quick] [--rounds N] [--seconds S] [--only NAME]...

Each round goes through all products before the next one begins, so that whatever the machine does
meanwhile meets them alike; a measurement during which something else took more than a quarter of a
core is made again. In the end all servers are killed and started anew, and each must hold at least
as many messages as it acknowledged. Ends with 1 past a bar.
"""

import argparse
import json
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import psutil
import uvloop

from appliance.drivers.nvme.direct import file_system_of_memory
from tests.bench.peers import table
from tests.bench.peers.etcd import Etcd
from tests.bench.peers.loop import PeerFailed, Round
from tests.bench.peers.nats import Nats
from tests.bench.peers.redis import Redis
from tests.bench.peers.servers import NODES, Servers
from tests.bench.peers.tigerchat import TigerChat
from tests.bench.run import TOP, cpu_model
from tests.ports import ports_of_a_run
from tests.system.local_site import first_free_port
from tools import base_tree

HISTORY = Path(__file__).with_name("history.jsonl")
IN_FLIGHT = (1, 16, 256, 2048)
LISTENERS = (100, 1000)
DELIVERIES = 200_000  # of a round of fan-out, about
ROUNDS, SECONDS = 5, 3.0
FOREIGN_CORES_MAX = 0.25
TRIES = 4  # of a measurement that is disturbed
FLUSHES_FOR_S = 1.0
FLUSH = re.compile(r"\b(?:fsync|fdatasync)\(.*= 0|\bpwritev2\(.*RWF_D?SYNC.*= \d")
Row = dict[str, Any]


class Product(Protocol):
    """Three nodes of something that acknowledges messages."""

    name: str
    note: str

    def start(self) -> None: ...

    async def acknowledge(self, in_flight: int, seconds: float) -> Round: ...

    async def fan_out(self, listeners: int, messages: int) -> float: ...

    async def stored(self) -> int: ...


class Contestant:
    """A product with its processes, and what it has acknowledged so far."""

    def __init__(self, product: Product, servers: Servers | TigerChat) -> None:
        self.product, self.servers = product, servers
        self.acknowledged = 0

    def measure(self, in_flight: int, seconds: float) -> Row:
        """One undisturbed round."""
        for _ in range(TRIES):
            before = self.servers.cpu_s()
            with Foreign(self.servers) as foreign:
                found = uvloop.run(self.product.acknowledge(in_flight, seconds))
            spent = self.servers.cpu_s() - before
            self.acknowledged += found.messages
            if foreign.cores <= FOREIGN_CORES_MAX:
                break
        # the processes' time is of the whole round, its warm-up included
        whole = found.per_s * foreign.seconds
        return {
            "kind": "acknowledged",
            "product": self.product.name,
            "in_flight": in_flight,
            "per_s": round(found.per_s),
            "p50_ms": round(found.p50_ms, 3),
            "p99_ms": round(found.p99_ms, 3),
            "cpu_us": round(spent * 1e6 / whole, 1),
            "foreign_cores": round(foreign.cores, 2),
        }

    def fan_out(self, listeners: int, deliveries: int) -> Row:
        messages = max(64, deliveries // listeners)
        for _ in range(TRIES):
            with Foreign(self.servers) as foreign:
                per_s = uvloop.run(self.product.fan_out(listeners, messages))
            self.acknowledged += messages
            if foreign.cores <= FOREIGN_CORES_MAX:
                break
        return {
            "kind": "fan_out",
            "product": self.product.name,
            "listeners": listeners,
            "per_s": round(per_s),
            "foreign_cores": round(foreign.cores, 2),
        }

    def flushes(self, in_flight: int, folder: Path) -> Row:
        """Flushes for a message, by strace of all processes in a short round."""
        trace = folder / "strace.txt"
        words = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,pwritev2", "-o", str(trace)]
        for pid in self.servers.pids():
            words += ["-p", str(pid)]
        tracer = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        time.sleep(0.5)  # until it is attached to every thread
        start = len(FLUSH.findall(trace.read_text())) if trace.exists() else 0
        begin = time.monotonic()
        found = uvloop.run(self.product.acknowledge(in_flight, FLUSHES_FOR_S))
        whole = found.per_s * (time.monotonic() - begin)
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)
        self.acknowledged += found.messages
        count = len(FLUSH.findall(resumed(trace.read_text()))) - start
        return {
            "kind": "flushes",
            "product": self.product.name,
            "in_flight": in_flight,
            "for_a_message": round(count / whole, 3),
        }


def resumed(text: str) -> str:
    """Calls that strace printed in two pieces, because another thread came between, in one."""
    begun: dict[tuple[str, str], str] = {}
    lines = []
    for line in text.splitlines():
        pid = line.split(" ", 1)[0]
        if line.endswith("<unfinished ...>"):
            call = line.split(" ", 1)[1].lstrip().split("(", 1)[0]
            begun[pid, call] = line.removesuffix("<unfinished ...>")
        elif (match := re.search(r"<\.\.\. (\w+) resumed>(.*)", line)) and (pid, match[1]) in begun:
            lines.append(begun.pop((pid, match[1])) + match[2])
        else:
            lines.append(line)
    return "\n".join(lines)


class Foreign:
    """Cores that were busy, within, with neither these servers nor this process."""

    def __init__(self, servers: Servers | TigerChat) -> None:
        self._servers = servers
        self.cores = self.seconds = 0.0

    def _now(self) -> tuple[float, float, float]:
        times = psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.steal
        own = psutil.Process().cpu_times()
        return time.monotonic(), busy, self._servers.cpu_s() + own.user + own.system

    def __enter__(self) -> "Foreign":
        self._begin = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        seconds, busy, ours = (
            now - then for now, then in zip(self._now(), self._begin, strict=True)
        )
        self.seconds = seconds
        self.cores = max(0.0, busy - ours) / seconds


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure TigerChat beside its peers.")
    parser.add_argument("--quick", action="store_true", help="one short round, no bars")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--folder", type=Path, help="where servers keep their files; on a disk")
    parser.add_argument("--only", action="append", help="products that begin so, e.g. etcd")
    chosen = parser.parse_args(arguments)
    base_tree.fetch_peers()
    parent = chosen.folder or Path("/var/tmp")
    if kind := file_system_of_memory(parent):
        print(f"bench: {parent} is in memory ({kind}): name a folder on a disk, --folder")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="tc-peers-", dir=parent))
    contestants: list[Contestant] = []
    try:
        contestants = started(folder, chosen.only)
        rows = measured(contestants, folder, chosen)
        rows += [ledger(contestant) for contestant in contestants]
    finally:
        for contestant in contestants:
            contestant.servers.stop()
        shutil.rmtree(folder, ignore_errors=True)
    summary = table.summary(rows)
    print("\n" + table.text(summary))
    missed = [] if chosen.quick or chosen.only else table.missed(summary)
    missed += [
        f"{row['product']} holds {row['stored']} of {row['acknowledged']} acknowledged messages"
        for row in rows
        if row["kind"] == "ledger" and row["stored"] < row["acknowledged"]
    ]
    for line in missed:
        print(f"missed: {line}")
    if not chosen.quick:
        remember(rows, summary, missed)
    return 1 if missed else 0


def started(folder: Path, only: list[str] | None) -> list[Contestant]:
    """All products, each with three nodes that serve."""
    tree = folder / "tree"
    tree.mkdir()
    subprocess.run(["tar", "--extract", "--file", base_tree.PEERS, "--directory", tree], check=True)
    (tree / "bench").mkdir()
    take = next(ports_of_a_run())
    found: list[Contestant] = []
    ours = TigerChat(folder / "tigerchat", first_free_port())
    for product in (ours, Etcd(tree, take(6)), Redis(tree, take(3)), Nats(tree, take(6))):
        if only and not any(product.name.lower().startswith(name.lower()) for name in only):
            continue
        servers = product if isinstance(product, TigerChat) else product.servers
        found.append(Contestant(product, servers))
        product.start()
        print(f"{product.name}: {NODES} nodes serve", flush=True)
    return found


def measured(contestants: list[Contestant], folder: Path, chosen: argparse.Namespace) -> list[Row]:
    """Rows of all rounds."""
    rounds, seconds = (1, 0.5) if chosen.quick else (chosen.rounds, chosen.seconds)
    depths = (1, 64) if chosen.quick else IN_FLIGHT
    audiences = (5,) if chosen.quick else LISTENERS
    rows: list[Row] = []

    def keep(row: Row) -> None:
        rows.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)

    for number in range(rounds):
        print(f"\n--- round {number + 1} of {rounds}", flush=True)
        turn = contestants[number % len(contestants) :] + contestants[: number % len(contestants)]
        for depth in depths:
            for contestant in turn:
                keep(contestant.measure(depth, seconds))
        for listeners in audiences:
            for contestant in turn:
                keep(contestant.fan_out(listeners, 500 if chosen.quick else DELIVERIES))
    for depth in depths:
        for contestant in contestants:
            keep(contestant.flushes(depth, folder))
    return rows


def ledger(contestant: Contestant) -> Row:
    """Kill all its processes, start them again, count."""
    contestant.servers.stop()
    contestant.product.start()
    until, stored = time.monotonic() + 60, 0
    while stored < contestant.acknowledged and time.monotonic() < until:
        stored = uvloop.run(contestant.product.stored())
    return {
        "kind": "ledger",
        "product": contestant.product.name,
        "acknowledged": contestant.acknowledged,
        "stored": stored,
    }


def remember(rows: list[Row], summary: list[Row], missed: list[str]) -> None:
    """One line more in the history of this folder, and the picture of the newest figures."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=TOP,
        text=True,
        capture_output=True,
        check=False,
    )
    rates: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "acknowledged":
            rates[f"{row['product']}, {row['in_flight']}"].append(row["per_s"])
    line = {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit.stdout.strip(),
        "machine": {"cores": psutil.cpu_count(), "model": cpu_model()},
        "missed": missed,
        "spread": {
            name: [min(found), round(statistics.median(found)), max(found)]
            for name, found in rates.items()
        },
        "rows": summary,
    }
    with HISTORY.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    (TOP / "docs/pictures/peers.svg").write_text(table.picture(summary))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PeerFailed as failure:
        sys.exit(f"bench-peers: {failure}")
