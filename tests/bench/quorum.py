"""How long the question takes whether a quorum is left, while the other nodes stand still."""

import os
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

from tests.system.local_site import NODES, LocalSite, run

ASKED = 7
ANSWER_S_MAX = 1.0  # the whole command, from its first instruction to its last


def measure(site: LocalSite, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """A row with the median of some `tigerchat node stop`, all of which are refused.

    All processes of all nodes but one are stopped: they take connections and answer nothing.
    """
    stopped = [process.pid for node in range(1, NODES) for process in site.processes(node)]
    took = []
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(1 if quick else ASKED):
            began = time.perf_counter()
            done = run("node", "stop", "node-0", "--local", str(site.folder))
            took.append(time.perf_counter() - began)
            if done.returncode != 1 or "has 0 of 2 needed replicas" not in done.stderr:
                raise SystemExit(f"bench: `node stop` was to be refused: {done.stderr}")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    median = statistics.median(took)
    say(f"whether a quorum is left, with {NODES - 1} nodes that stand still: {median:.2f} s")
    return {
        "kind": "quorum",
        "what": "whether a quorum is left",
        "value": round(median, 3),
        "unit": "s",
        "bar": f"below {ANSWER_S_MAX}",
        "held": median < ANSWER_S_MAX,
    }
