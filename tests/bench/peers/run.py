"""`make bench-peers`: rounds by turns, the ledger of what was acknowledged, the history.

    python -m tests.bench.peers.run [--quick] [--tree DIR]... [--rounds N] [--seconds S]
        [--only NAME]... [--in-flight N]... [--listeners N]... [--folder DIR]

Each round goes through all products before the next one begins, so that whatever the machine does
meanwhile meets them alike; a measurement during which something else took more than a quarter of a
core is marked, made again, and left out of the medians. In the end all servers are killed, and each
acknowledged message must be found by its name: in the volumes of this program, and in a peer that
was started anew. Ends with 1 past a bar; only a whole run has bars, and is written down.
"""

import argparse
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psutil
import uvloop

from appliance.drivers.nvme.direct import file_system_of_memory
from tests.bench.peers import foreign, page, proofs, table
from tests.bench.peers.etcd import Etcd
from tests.bench.peers.flushes import Counted
from tests.bench.peers.foreign import Moment
from tests.bench.peers.ledger import Ledger, told
from tests.bench.peers.loop import PeerFailed, Round
from tests.bench.peers.nats import Nats
from tests.bench.peers.redis import Redis
from tests.bench.peers.servers import NODES, Servers
from tests.bench.peers.tigerchat import TigerChat
from tests.bench.peers.trees import TOP, Tree, commit_of
from tests.bench.run import cpu_model
from tests.ports import ports_of_a_run
from tests.system.local_site import first_free_port
from tools import base_tree

HISTORY = Path(__file__).with_name("history.jsonl")
PAGE = TOP / "docs" / "performance.md"
IN_FLIGHT = (1, 16, 256, 2048)
LISTENERS = (100, 1000)
DELIVERIES = 200_000  # of a round of fan-out, about
DELIVERIES_QUICK = 500
ROUNDS, SECONDS = 5, 3.0
IDLE_S, IDLE_QUICK_S = 5.0, 0.5
FLUSHES_FOR_S, FLUSHES_FOR_QUICK_S = 1.0, 0.3
WRONG = {"moved": "have another number than they were told", "doubled": "are there twice"}
Row = dict[str, Any]


class Peer(Protocol):
    """Three nodes of something that others made and that acknowledges messages."""

    name: str
    servers: Servers
    ledger: Ledger

    def start(self) -> None: ...

    async def acknowledge(self, in_flight: int, seconds: float) -> Round: ...

    async def fan_out(self, listeners: int, messages: int) -> float: ...

    def names(self) -> AsyncIterator[bytes]: ...


class Contestant:
    """A product with its processes."""

    def __init__(self, product: Peer | TigerChat) -> None:
        self.product = product
        self.servers = product if isinstance(product, TigerChat) else product.servers

    @property
    def name(self) -> str:
        return self.product.name

    def cpu_s(self) -> float:
        """Of its processes and of a generator of its own."""
        own = self.product.generator_cpu_s() if isinstance(self.product, TigerChat) else 0.0
        return self.servers.cpu_s() + own

    def acknowledge(self, in_flight: int, seconds: float) -> Row:
        before = self.servers.cpu_s()
        found = uvloop.run(self.product.acknowledge(in_flight, seconds))
        spent = self.servers.cpu_s() - before
        return {
            "kind": "acknowledged",
            "product": self.name,
            "in_flight": in_flight,
            "per_s": round(found.per_s),
            "p50_ms": round(found.p50_ms, 3),
            "p99_ms": round(found.p99_ms, 3),
            "cpu_us": round(spent * 1e6 / found.whole, 1),
        }

    def fan_out(self, listeners: int, deliveries: int) -> Row:
        messages = max(64, deliveries // listeners)
        before = self.servers.cpu_s()
        per_s = uvloop.run(self.product.fan_out(listeners, messages))
        spent = self.servers.cpu_s() - before
        return {
            "kind": "fan_out",
            "product": self.name,
            "listeners": listeners,
            "per_s": round(per_s),
            "cpu_us": round(spent * 1e6 / (messages * listeners), 2),
        }

    def flushes(self, in_flight: int, seconds: float, folder: Path) -> Row:
        """Flushes for a message, in a short round that strace slows down; of ours for a prepare on
        each replica as well."""
        ours = self.product if isinstance(self.product, TigerChat) else None
        before = ours.statuses() if ours else []
        with Counted(self.servers.pids(), folder / "strace.txt") as counted:
            found = uvloop.run(self.product.acknowledge(in_flight, seconds))
        row = {
            "kind": "flushes",
            "product": self.name,
            "in_flight": in_flight,
            "for_a_message": round(counted.count / found.whole, 3),
        }
        if ours:
            each = proofs.flushes_of_prepares(counted.count, before, ours.statuses())
            row["for_a_prepare_and_replica"] = each
        return row


class Bench:
    """All contestants, and the rows that were measured."""

    def __init__(self, folder: Path, contestants: list[Contestant], *, tries: int) -> None:
        self.folder, self.contestants, self.tries = folder, contestants, tries
        self.rows: list[Row] = []

    def now(self) -> Moment:
        """Clocks; the bench's own are those of everything it has started."""
        times = psutil.cpu_times()
        own = psutil.Process().cpu_times()
        ours = sum(contestant.cpu_s() for contestant in self.contestants)
        busy = times.user + times.nice + times.system + times.steal
        return Moment(time.monotonic(), busy, ours + own.user + own.system)

    def keep(self, row: Row) -> None:
        self.rows.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)

    def undisturbed(self, measure: Callable[[], Row]) -> None:
        for row in foreign.until_undisturbed(measure, self.now, self.tries):
            self.keep(row)

    def idle(self, seconds: float) -> None:
        """CPU of each product while nobody is connected, all at once."""
        rows: list[Row] = []

        def measure() -> Row:
            before = [contestant.servers.cpu_s() for contestant in self.contestants]
            begin = time.monotonic()
            time.sleep(seconds)
            passed = time.monotonic() - begin
            rows[:] = [
                {
                    "kind": "idle",
                    "product": contestant.name,
                    "cpu_percent": round(100 * (contestant.servers.cpu_s() - then) / passed, 1),
                }
                for contestant, then in zip(self.contestants, before, strict=True)
            ]
            return {}

        for mark in foreign.until_undisturbed(measure, self.now, self.tries):
            for row in rows:
                self.keep(row | mark)

    def round(self, number: int, plan: "Plan") -> None:
        """Everything once; another product begins each time."""
        first = number % len(self.contestants)
        turn = self.contestants[first:] + self.contestants[:first]
        self.idle(plan.idle_s)
        for depth in plan.in_flight:
            for contestant in turn:
                self.undisturbed(partial(contestant.acknowledge, depth, plan.seconds))
        for listeners in plan.listeners:
            for contestant in turn:
                self.undisturbed(partial(contestant.fan_out, listeners, plan.deliveries))

    def prove(self) -> list[Row]:
        """Of each site: what its replicas tell before it is killed, and what a stranger meets."""
        found = []
        for contestant in self.contestants:
            product = contestant.product
            if isinstance(product, TigerChat):
                flushes = {
                    row["in_flight"]: row["for_a_prepare_and_replica"]
                    for row in self.rows
                    if row["kind"] == "flushes" and row["product"] == product.name
                }
                found.append(
                    {
                        "kind": "proof",
                        "product": product.name,
                        "nodes": NODES,
                        "flushes": flushes,
                        "frames": vars(proofs.frames_of(product.statuses())),
                        "peers": product.strangers(),
                    }
                )
        return found


class Plan:
    """How much is measured."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        quick = chosen.quick
        self.rounds = chosen.rounds or (1 if quick else ROUNDS)
        self.seconds = chosen.seconds or (0.5 if quick else SECONDS)
        self.in_flight = tuple(chosen.in_flight or ((1, 64) if quick else IN_FLIGHT))
        self.listeners = tuple(chosen.listeners or ((5,) if quick else LISTENERS))
        self.deliveries = DELIVERIES_QUICK if quick else DELIVERIES
        self.idle_s = IDLE_QUICK_S if quick else IDLE_S
        self.flushes_s = FLUSHES_FOR_QUICK_S if quick else FLUSHES_FOR_S
        self.tries = 1 if quick else foreign.TRIES
        self.brief = quick  # volumes need not be written whole for a minute
        # What is written down is all of it, for as long as ever, and nothing less.
        self.whole = not quick and not chosen.only and self.rounds >= ROUNDS
        self.whole = self.whole and self.seconds >= SECONDS and self.in_flight == IN_FLIGHT
        self.whole = self.whole and self.listeners == LISTENERS


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure TigerChat beside its peers.")
    parser.add_argument("--quick", action="store_true", help="one short round, no bars")
    parser.add_argument(
        "--tree",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="another checkout of this program, measured as one more product",
    )
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS} unless quick")
    parser.add_argument("--seconds", type=float, help=f"of a round; {SECONDS:g} unless quick")
    parser.add_argument("--in-flight", type=int, action="append", metavar="N")
    parser.add_argument("--listeners", type=int, action="append", metavar="N")
    parser.add_argument("--folder", type=Path, help="where servers keep their files; on a disk")
    parser.add_argument("--only", action="append", help="products that begin so, e.g. etcd")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    chosen = options(arguments)
    plan = Plan(chosen)
    trees = told_apart([Tree(), *map(Tree, chosen.tree)])
    parent = chosen.folder or Path("/var/tmp")
    if kind := file_system_of_memory(parent):
        print(f"bench: {parent} is in memory ({kind}): name a folder on a disk, --folder")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="tc-peers-", dir=parent))
    bench = Bench(folder, [], tries=plan.tries)
    try:
        start(bench, trees, chosen.only, brief=plan.brief)
        for number in range(plan.rounds):
            print(f"\n--- round {number + 1} of {plan.rounds}", flush=True)
            bench.round(number, plan)
        for depth in plan.in_flight:
            for contestant in bench.contestants:
                bench.keep(contestant.flushes(depth, plan.flushes_s, folder))
        proven = bench.prove()
        lost = [line for contestant in bench.contestants for line in search(contestant, proven)]
    finally:
        for contestant in bench.contestants:
            product = contestant.product
            product.close() if isinstance(product, TigerChat) else product.servers.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return conclude(bench.rows, proven, lost, whole=plan.whole)


def told_apart(trees: list[Tree]) -> list[Tree]:
    """The same, if each has a name of its own."""
    names = [tree.name for tree in trees]
    for tree, name in zip(trees, names, strict=True):
        if names.count(name) > 1:
            raise PeerFailed(f"{tree.top} is {name} once more: name a tree of another commit")
    return trees


def start(bench: Bench, trees: list[Tree], only: list[str] | None, *, brief: bool) -> None:
    """All products that are wanted, each with three nodes that serve."""

    def wanted(name: str) -> bool:
        return not only or any(name.lower().startswith(begin.lower()) for begin in only)

    def begin(product: Peer | TigerChat) -> None:
        bench.contestants.append(Contestant(product))
        product.start()
        print(f"{product.name}: {NODES} nodes serve", flush=True)

    for number, tree in enumerate(trees):
        if wanted(tree.name):
            place = bench.folder / f"tigerchat-{number}"
            begin(TigerChat(tree, place, first_free_port(), brief=brief))
    kinds = [kind for kind in (Etcd, Redis, Nats) if wanted(kind.name)]
    if kinds:
        debian = unpacked(bench.folder)
        take = next(ports_of_a_run())
        for kind in kinds:
            begin(kind(debian, take(2 * NODES)))


def unpacked(folder: Path) -> Path:
    """Debian's tree with the peers, without what none of them reads."""
    base_tree.fetch_peers()
    tree = folder / "tree"
    (tree / "bench").mkdir(parents=True)
    unread = [f"--exclude=./{name}" for name in ("usr/share", "var")]
    where = ["--file", str(base_tree.PEERS), "--directory", str(tree)]
    subprocess.run(["tar", "--extract", *unread, *where], check=True)
    return tree


def search(contestant: Contestant, proven: list[Row]) -> list[str]:
    """Kill all its processes, find what it acknowledged by name; what is wrong, in words."""
    product = contestant.product
    contestant.servers.stop()
    if isinstance(product, TigerChat):
        found = product.search()
        row = next(row for row in proven if row["product"] == product.name)
        row |= {"links": found["links"], "broken": found["broken"]}
        count, lost, first = found["acknowledged"], found["lost"], ", ".join(found["lost_first"])
        wrong = [
            f"{product.name}: {found[name]} messages {words}"
            for name, words in WRONG.items()
            if found[name]
        ]
    else:
        product.start()
        missing = uvloop.run(missing_of(product))
        count, lost, first, wrong = product.ledger.size, len(missing), told(missing), []
    print(f"{product.name}: {count - lost} of {count} acknowledged messages found by name")
    if lost:
        wrong.append(f"{product.name}: {lost} of {count} acknowledged messages are lost: {first}")
    return wrong


async def missing_of(product: Peer) -> list[bytes]:
    return product.ledger.lost([name async for name in product.names()])


def conclude(rows: list[Row], proven: list[Row], lost: list[str], *, whole: bool) -> int:
    """Show it, judge it, and write a whole run down."""
    found = table.summary(rows)
    told_proofs = [proofs.text(row) for row in proven]
    shown = table.text(found) if whole else table.figures_table(found)
    print(f"\n{shown}\n\n" + "\n".join(told_proofs))
    missed = lost + [line for row in proven for line in proofs.loosened(row)]
    missed += table.missed(found) if whole else []
    for line in missed:
        print(f"missed: {line}")
    if whole:
        page.write(line_of(rows, found, told_proofs, missed), history=HISTORY, page=PAGE)
    else:
        print("not a whole run: nothing is judged by the bars, nothing is written down")
    return 1 if missed else 0


def line_of(rows: list[Row], found: list[Row], told_proofs: list[str], missed: list[str]) -> Row:
    """One line of the history."""
    rates: dict[str, list[int]] = defaultdict(list)
    for row in foreign.that_count(rows):
        if row["kind"] == "acknowledged":
            rates[f"{row['product']}, {row['in_flight']}"].append(row["per_s"])
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit_of(TOP),
        "machine": {
            "cores": psutil.cpu_count(),
            "model": cpu_model(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "missed": missed,
        "spread": {
            name: [min(each), round(statistics.median(each)), max(each)]
            for name, each in rates.items()
        },
        "proofs": told_proofs,
        "rows": found,
    }


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):  # however it is ended, servers end as well
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except (PeerFailed, page.PageBroken) as failure:
        sys.exit(f"bench-peers: {failure}")
