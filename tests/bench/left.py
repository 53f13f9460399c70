"""What an edge keeps of clients that have left: its memory before many came and after they went."""

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import psutil

from appliance.drivers.host.process import child_environment
from tests.system.local_site import COMMAND, LocalSite

CLIENTS = 1_900
TIMES_MAX = 1.15  # of its idle size
BACK_S = 60.0  # for what was freed to be given back
SETTLED_S = 5.0  # after the start

Say = Callable[[str], None]


def measure(site: LocalSite, quick: bool, say: Say) -> list[dict[str, Any]]:
    """Of a site of one node: clients follow a room and are told messages, then all go."""
    clients = 20 if quick else CLIENTS
    time.sleep(0.5 if quick else SETTLED_S)
    edge = _edge(site)
    idle = edge.memory_info().rss
    words = [*COMMAND, "benchmark", "--json", "--local", str(site.folder), "--seconds", "0.2"]
    words += ["--in-flight", "1", "--encoding", "binary", "--listeners", str(clients)]
    words += ["--deliveries", str(clients * 50)]
    peak = idle
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=child_environment()) as process:
        while process.poll() is None:
            peak = max(peak, edge.memory_info().rss)
            time.sleep(0.05)
        assert process.stdout is not None
        rows = [json.loads(line) for line in process.stdout]
    if process.returncode != 0:
        raise SystemExit(f"bench: the clients ended with {process.returncode}")
    assert any(row.get("listeners") == clients for row in rows)
    left_at = time.monotonic()
    while (times := edge.memory_info().rss / idle) > TIMES_MAX:
        if time.monotonic() - left_at > (1 if quick else BACK_S):
            break
        time.sleep(0.1)
    row = {
        "kind": "left",
        "what": f"memory of an edge after {clients} clients have left, beside its idle size",
        "value": round(times, 3),
        "unit": "times",
        "held": times <= TIMES_MAX,
        "bar": f"at most {TIMES_MAX} within {BACK_S:.0f} s",
        "idle_mib": round(idle / 2**20, 1),
        "peak_mib": round(peak / 2**20, 1),
        "after_s": round(time.monotonic() - left_at, 1),
    }
    say(
        f"{row['what']}: {row['value']} times ({row['bar']}); idle {row['idle_mib']} MiB, at most "
        f"{row['peak_mib']} MiB, {row['after_s']} s after they left"
    )
    return [row]


def _edge(site: LocalSite) -> psutil.Process:
    (edge,) = site.processes(0, "edge")
    return edge
