"""What each way in costs beside the usual one, WebSocket on TLS: the acknowledgement of a message
alone, and how many deliveries a second reach a room full of listeners.

Rounds by turns, each by clients in a process of their own; the median of the ratios of neighbours
counts. By WebTransport and WebSocket that is `tigerchat benchmark`; what HTTP/3 offers beside, a
stream of events with POST and a WebSocket inside, is spoken by the library's client.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from appliance.drivers.host.process import child_environment
from tests.bench.crowds import SETTINGS as USUAL
from tests.system.local_site import COMMAND, LocalSite

SETTINGS = USUAL
ACK_TIMES_MAX = 2.0  # of the p50 over WebSocket
FAN_OUT_TIMES_MIN = 0.5
ROUNDS, SECONDS = 5, 4.0
LISTENERS, DELIVERIES, FAN_OUT_ROUNDS = 1_000, 1_000_000, 3
WAYS_HTTP3 = ("events_http3", "websocket_http3")
ACKS_HTTP3 = Path(__file__).with_name("acks_http3.py")

Say = Callable[[str], None]


def measure_acks(site: LocalSite, quick: bool, say: Say) -> list[dict[str, Any]]:
    """A row for each way but the usual one."""
    seconds = 0.2 if quick else SECONDS
    found: dict[str, list[float]] = {}
    for _ in range(1 if quick else ROUNDS):
        for name in ("websocket", "webtransport", *WAYS_HTTP3):
            if name in WAYS_HTTP3:
                words = [sys.executable, str(ACKS_HTTP3), str(site.folder), name, str(seconds)]
                (row,) = _told(words)
            else:
                options = ["--in-flight", "1", "--seconds", str(seconds), "--encoding", "binary"]
                row = _benchmark(site, name, "acknowledged", "--listeners", "0", *options)
            found.setdefault(name, []).append(row["p50_ms"])
    usual = found.pop("websocket")
    rows = []
    for name, values in found.items():
        times = median(value / beside for value, beside in zip(values, usual, strict=True))
        row = {
            "kind": "transports",
            "what": f"p50 of an acknowledgement at 1 in flight by {name}, beside WebSocket on TLS",
            "value": round(times, 2),
            "unit": "times",
            "held": quick or times <= ACK_TIMES_MAX,
            "bar": f"at most {ACK_TIMES_MAX:g}",
            "p50_ms": round(median(values), 3),
            "p50_ms_websocket": round(median(usual), 3),
        }
        say(
            f"{row['what']}: {row['value']} times ({row['bar']}), {row['p50_ms']} ms to "
            f"{row['p50_ms_websocket']}"
        )
        rows.append(row)
    return rows


def measure_fan_out(site: LocalSite, quick: bool, say: Say) -> list[dict[str, Any]]:
    """Of so many listeners, dealt over the nodes."""
    listeners, deliveries = (5, 500) if quick else (LISTENERS, DELIVERIES)
    found: dict[str, list[dict[str, Any]]] = {"websocket": [], "webtransport": []}
    for _ in range(1 if quick else FAN_OUT_ROUNDS):
        for name, rows in found.items():
            options = ["--listeners", str(listeners), "--deliveries", str(deliveries)]
            brief = ["--in-flight", "1", "--seconds", "0.2", "--encoding", "binary"]
            rows.append(_benchmark(site, name, "fan_out", *brief, *options))
    usual, other = found["websocket"], found["webtransport"]
    times = median(b["per_s"] / a["per_s"] for a, b in zip(usual, other, strict=True))
    row: dict[str, Any] = {
        "kind": "transports",
        "what": f"deliveries a second to {listeners} by webtransport, beside WebSocket on TLS",
        "value": round(times, 3),
        "unit": "times",
        "held": quick or times >= FAN_OUT_TIMES_MIN,
        "bar": f"at least {FAN_OUT_TIMES_MIN:g}",
    }
    for name, rows in found.items():
        for figure in ("per_s", "cpu_us_nodes", "cpu_us_generator"):
            row[f"{figure}_{name}"] = median(told[figure] for told in rows)
    say(f"{row['what']}: {row['value']} times ({row['bar']})")
    for name in found:
        say(
            f"  {name}: {row[f'per_s_{name}']:.0f} deliveries/s; CPU of a delivery, nodes "
            f"{row[f'cpu_us_nodes_{name}']} µs, clients {row[f'cpu_us_generator_{name}']} µs"
        )
    return [row]


def _benchmark(site: LocalSite, transport: str, kind: str, *options: str) -> dict[str, Any]:
    words = [*COMMAND, "benchmark", "--json", "--local", str(site.folder), *options]
    rows = [row for row in _told([*words, "--transport", transport]) if row["kind"] == kind]
    return rows[-1]


def _told(words: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        words, stdout=subprocess.PIPE, env=child_environment(), text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"bench: {words} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]
