"""What shipping costs those who chat: rounds of load, with the shipper at work and without."""

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

from appliance.drivers.host.process import child_environment
from appliance.drivers.network.ask import ask_status
from tests.system.local_site import COMMAND, LocalSite

ROUNDS = 5
RATE_MAX = 20_000_000  # bytes a second of writing and reading back
P99_RATIO_MAX, RATE_RATIO_MIN = 1.2, 0.9
SETTINGS = {"ship_rate_max": RATE_MAX, "ship_period_s": 3600}


def compare(site: LocalSite, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Alternating rounds; without means that every shipper is stopped where it stands.

    What the rounds without leave behind is shipped in those with: there the shipper has always more
    to do than its limit lets it.
    """
    found: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    load(site, 1 if quick else 4)  # a backlog to begin with
    before = shipped_bytes(site)
    for _ in range(1 if quick else ROUNDS):
        with site.standing_still(site.processes(role="shipper")):
            time.sleep(0.2)
            found[False].append(load(site, 1 if quick else 5))
        time.sleep(0.2)
        found[True].append(load(site, 1 if quick else 5))
    rows = {"with": found[True], "without": found[False]}
    p99 = {name: statistics.median(row["p99_ms"] for row in told) for name, told in rows.items()}
    rate = {name: statistics.median(row["per_s"] for row in told) for name, told in rows.items()}
    row = {
        "kind": "shipping",
        "rounds": len(found[True]),
        "rate_max": RATE_MAX,
        "shipped_bytes": shipped_bytes(site) - before,
        "p99_ms_with": p99["with"],
        "p99_ms_without": p99["without"],
        "per_s_with": rate["with"],
        "per_s_without": rate["without"],
        "p99_ratio": round(p99["with"] / p99["without"], 2),
        "rate_ratio": round(rate["with"] / rate["without"], 2),
    }
    say(
        f"shipping at up to {RATE_MAX // 1_000_000} MB/s, {row['shipped_bytes'] >> 20} MiB put: "
        f"{rate['with']:.0f} acked/s beside {rate['without']:.0f} without ({row['rate_ratio']}x), "
        f"p99 {p99['with']:.1f} ms beside {p99['without']:.1f} ({row['p99_ratio']}x), medians of "
        f"{row['rounds']} rounds each"
    )
    return row


def missed(row: dict[str, Any]) -> list[str]:
    """What falls short, in words."""
    lines = []
    if row["p99_ratio"] > P99_RATIO_MAX:
        lines.append(
            f"p99 of acknowledgements {row['p99_ratio']}x while shipping; at most {P99_RATIO_MAX}x"
        )
    if row["rate_ratio"] < RATE_RATIO_MIN:
        lines.append(
            f"{row['rate_ratio']}x the acknowledged messages/s while shipping; at least "
            f"{RATE_RATIO_MIN}x"
        )
    if row["shipped_bytes"] == 0:
        lines.append("nothing was shipped while it was measured")
    return lines


def load(site: LocalSite, seconds: int) -> dict[str, Any]:
    """One round: 256 in flight, binary."""
    words = [
        *COMMAND,
        "benchmark",
        "--json",
        "--local",
        str(site.folder),
        "--seconds",
        str(seconds),
        "--in-flight",
        "256",
        "--encoding",
        "binary",
        "--listeners",
        "0",
    ]
    done = subprocess.run(
        words, capture_output=True, env=child_environment(), text=True, check=False
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    acknowledged = [row for row in rows if row["kind"] == "acknowledged"]
    if done.returncode != 0 or not acknowledged:
        raise SystemExit(f"bench: the load generator ended with {done.returncode}: {done.stderr}")
    return acknowledged[-1]


def shipped_bytes(site: LocalSite) -> int:
    """Put by all nodes so far."""
    total = 0
    for node in range(len(site.site.nodes)):
        answer = ask_status(
            site.place(node) / "sockets",
            cluster=site.site.cluster,
            shard=0,
            kind="shipper",
            timeout_s=5.0,
        )
        total += sum(shard["put_bytes"] for shard in answer["shards"]) if answer else 0
    return total
