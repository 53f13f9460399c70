"""How long a client waits whose edge is killed with -9 while a message waits there: until it is
acknowledged over the next connection.

The edge is stopped before (SIGSTOP), so that the message has reached its machine and nobody else.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from appliance.drivers.chat.client import Client
from appliance.drivers.chat.transports import transport_named
from tests.system.local_site import LocalSite, wait_until

BACK_S_MAX = {"websocket": 1.0, "webtransport": 3.0}
KILLS = 10
ARRIVED_S = 0.05  # for a message to reach the socket of the edge
PATIENCE_S = 60.0
VICTIM = 0  # the node

Say = Callable[[str], None]


def measure(site: LocalSite, quick: bool, say: Say) -> list[dict[str, Any]]:
    """A row by transport. The site is not supervised."""
    return [_row(site, name, most, quick, say) for name, most in BACK_S_MAX.items()]


def _row(site: LocalSite, name: str, most: float, quick: bool, say: Say) -> dict[str, Any]:
    found = [asyncio.run(_back_after(site, name)) for _ in range(1 if quick else KILLS)]
    row = {
        "kind": "edge killed",
        "what": f"from kill -9 of an edge until a message that waited is acknowledged, {name}",
        "value": round(max(found), 3),
        "unit": "s, the worst",
        "held": max(found) <= most,
        "bar": f"at most {most:g}",
        "median_s": round(median(found), 3),
        "kills": len(found),
    }
    say(
        f"{row['what']}: {row['median_s']} s, at most {row['value']} ({row['bar']}) of {len(found)}"
    )
    return row


async def _back_after(site: LocalSite, name: str) -> float:
    """Seconds, of one kill; the edge is started again."""
    access, way = site.access(), transport_named(name)
    async with Client(
        access.endpoints,
        access.token,
        subprotocol=way.subprotocol,
        dial=way.dial,
        first_endpoint=VICTIM,
    ) as client:
        room = (await client.create_room("edge-killed")).room_id
        await client.send(room, "before")
        if client.node != VICTIM:
            raise SystemExit(f"bench: the client is on node {client.node}")
        edge = site.roles[VICTIM, "edge"]
        os.kill(edge.pid, signal.SIGSTOP)
        waiting = await client.post(room, "waits")
        await asyncio.sleep(ARRIVED_S)
        moment = time.perf_counter()
        os.kill(edge.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            await waiting
        took_s = time.perf_counter() - moment
        if client.connects != 2:
            raise SystemExit(f"bench: {client.connects} connections, 2 were expected")
    site.end_role(VICTIM, "edge")
    site.start_role(VICTIM, "edge")
    await asyncio.to_thread(
        wait_until, lambda: site.edge_serves(VICTIM), PATIENCE_S, "the edge is back"
    )
    return took_s
