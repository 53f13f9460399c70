"""How long a client on a surviving node waits when the primary is killed with -9.

A client on each node sends one message after the other. The primary's replica process is killed;
the outage is the time from there until a message that was sent afterwards is acknowledged to a
client on one of the other nodes. Then the killed replica is started again and catches up before the
next kill.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from uuid import UUID

from appliance.drivers.chat.client import Client
from appliance.formats.geometry import PRODUCTION
from tests.system.local_site import NODES, LocalSite, wait_until

OUTAGE_S_MAX = 30.0
CATCH_UP_S = 60.0
CHECKPOINT_S = 120.0  # until the next one, at the pace of three clients


class Steady:
    """A client of one node with one message in flight, always."""

    def __init__(self, site: LocalSite, node: int) -> None:
        access = site.access()
        self.client = Client([access.endpoints[node]], access.token)
        self.acked: asyncio.Condition = asyncio.Condition()
        self.newest = (0.0, 0.0)  # when the newest acknowledged message was sent, acked

    async def run(self, room: UUID) -> None:
        """Until cancelled."""
        async with self.client:
            while True:
                sent = time.perf_counter()
                await self.client.send(room, "x" * 256)
                async with self.acked:
                    self.newest = (sent, time.perf_counter())
                    self.acked.notify_all()
                await asyncio.sleep(0.002)

    async def back_after(self, moment: float) -> float:
        """Seconds from `moment` until a message sent after it is acknowledged."""
        async with asyncio.timeout(OUTAGE_S_MAX), self.acked:
            await self.acked.wait_for(lambda: self.newest[0] > moment)
            return self.newest[1] - moment


def in_checkpoint(site: LocalSite) -> bool:
    """Whether a replica writes a checkpoint now: it has executed the op that calls for it."""
    found = [status for status in site.statuses() if status]
    return any(s["commit_min"] >= s["checkpoint"] + PRODUCTION.checkpoint_ops for s in found)


async def outages(
    site: LocalSite,
    kills: int,
    seed: int,
    show: Callable[[str], None],
    *,
    when: Callable[[LocalSite], bool] = lambda site: True,
) -> list[float]:
    """Seconds of each outage; the primary is killed as soon as `when` holds. The site must not be
    supervised."""
    chance = random.Random(seed)
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        room = (await client.create_room("failover")).room_id
    steady = [Steady(site, node) for node in range(NODES)]
    running = [asyncio.create_task(one.run(room)) for one in steady]
    found = []
    try:
        for number in range(1, kills + 1):
            await asyncio.to_thread(_settled, site)
            await asyncio.sleep(0.2 + chance.random() * 0.3)
            await asyncio.to_thread(
                wait_until, lambda: when(site), CHECKPOINT_S, "it is time for a kill"
            )
            victim = await asyncio.to_thread(site.primary)
            assert victim is not None
            witness = steady[(victim + chance.choice([1, 2])) % NODES]
            process = site.roles[victim, "replica"]
            moment = time.perf_counter()
            os.kill(process.pid, signal.SIGKILL)
            found.append(await witness.back_after(moment))
            process.wait()
            site.start_role(victim, "replica")
            if number % 10 == 0:
                show(f"{number} of {kills} kills, the longest outage {1000 * max(found):.0f} ms")
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return found


def _settled(site: LocalSite) -> None:
    """Wait until any one replica may be lost."""
    wait_until(site.settled, CATCH_UP_S, lambda: f"all replicas are back: {site.statuses()}")
