"""How long a reader waits whose page was broken on the disk of the node it asks: the edge notices,
the replica gets the leaf from a peer, the page is right.

Each look is at a leaf of its own, of a segment that is sealed and that no ring holds, so that
nothing of it is in memory or was mended before.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

from appliance.drivers.chat.client import Client
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE
from tests.bench.checked_reading import NODE, PAGE, Room
from tests.drivers.nvme.rot import flip
from tests.system.local_site import LocalSite

LOOKS = 16
LONGEST_S = 1.0  # asked of each, as a reader feels it


def measure(site: LocalSite, room: Room, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """A row of `make bench`; `room` is the first of the log, alone in its segment."""
    waited = asyncio.run(_waits(site, room, 2 if quick else LOOKS))
    median, longest = statistics.median(waited), max(waited)
    say(
        f"reading a broken leaf: right after {1000 * median:.0f} ms by the median of "
        f"{len(waited)}, {1000 * longest:.0f} ms at most"
    )
    return {
        "kind": "broken reading",
        "what": "the longest that a reader waits for a page that was broken on the disk",
        "value": round(1000 * longest),
        "unit": "ms",
        "median_ms": round(1000 * median),
        "bar": f"at most {1000 * LONGEST_S:.0f}",
        "held": longest <= LONGEST_S,
    }


async def _waits(site: LocalSite, room: Room, looks: int) -> list[float]:
    """Seconds to the right page, of each look."""
    segment = site.place(NODE) / "shard-0/segments/000000"
    access = site.access()
    waited = []
    here, there = access.endpoints[NODE], access.endpoints[NODE + 1]
    async with Client([here], access.token) as client, Client([there], access.token) as other:
        for look in range(looks):
            first = 1 + look * PRODUCTION.records_max + PAGE
            assert first + PAGE < room.sealed
            flip(segment, (first + PAGE // 2) * RECORD_SIZE + RECORD_SIZE // 2)
            begin = time.perf_counter()
            page = await client.snapshot(room.room_id, from_op=first, limit=PAGE)
            waited.append(time.perf_counter() - begin)
            right = await other.snapshot(room.room_id, from_op=first, limit=PAGE)
            assert page.messages == right.messages
            assert page.messages[0].op == first and len(page.messages) == PAGE
    return waited
