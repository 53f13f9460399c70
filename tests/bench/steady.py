"""What one dead or frozen node does to a steady load: the p99 of each second, before and after.

Clients of the nodes that stay send at 70 % of the rate that they reached just before, each message
at its moment whether or not earlier ones are answered, and a message's time counts from that moment
on. Then one node, replica and edge, is killed or stands still.
"""

import asyncio
import math
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from appliance.drivers.chat.client import Client
from tests.system.local_site import NODES, LocalSite, wait_until

CLIENTS, ROOMS, BODY = 4, 8, "x" * 256
IN_FLIGHT = 64  # of each client, while the rate is measured
MEASURED_S = 4.0
SHARE = 0.7
BEAT_S = 0.004
BEFORE_S, AFTER_S = 5, 10
WITHIN = 2.0  # times the p99 of before
ROLES = ("replica", "edge")

Say = Callable[[str], None]


class Plan(NamedTuple):
    """How long and how much; smaller in the quick form."""

    measured_s: float = MEASURED_S
    before_s: int = BEFORE_S
    after_s: int = AFTER_S
    ways: tuple[str, ...] = ("kill", "stop")


class Load:
    """Clients of some nodes in one loop; what each message took, by its moment."""

    def __init__(self, site: LocalSite, nodes: list[int]) -> None:
        access = site.access()
        self.clients = [
            Client([access.endpoints[nodes[i % len(nodes)]]], access.token) for i in range(CLIENTS)
        ]
        self.rooms: list[UUID] = []
        self.start_noting()

    async def __aenter__(self) -> "Load":
        for client in self.clients:
            await client.__aenter__()
        made = [await self.clients[0].create_room(f"steady-{i}") for i in range(ROOMS)]
        self.rooms = [room.room_id for room in made]
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            await client.close()

    async def rate(self, seconds: float) -> float:
        """Acknowledged messages a second with so many in flight that it is the site that waits."""
        stop = time.perf_counter() + seconds

        async def flow(client: Client, room: UUID) -> int:
            count = 0
            while time.perf_counter() < stop:
                await client.send(room, BODY)
                count += 1
            return count

        each = IN_FLIGHT // ROOMS
        began = time.perf_counter()
        counts = await asyncio.gather(
            *(flow(c, room) for c in self.clients for room in self.rooms for _ in range(each))
        )
        return sum(counts) / (time.perf_counter() - began)

    async def run(self, rate: float, seconds: float) -> None:
        """Send at that rate for so long."""
        begin = time.perf_counter()
        share = rate / CLIENTS
        await asyncio.gather(*(self._send(c, share, begin, seconds) for c in self.clients))

    async def _send(self, client: Client, rate: float, begin: float, seconds: float) -> None:
        sent = 0
        while (now := time.perf_counter()) < begin + seconds:
            while sent < (now - begin) * rate:
                due = begin + sent / rate
                done = await client.post(self.rooms[sent % ROOMS], BODY)
                done.add_done_callback(lambda future, due=due: self._on_ack(future, due))
                self.due.append(due)
                sent += 1
            await asyncio.sleep(BEAT_S)

    def _on_ack(self, future: asyncio.Future[Any], due: float) -> None:
        if not future.cancelled() and future.exception() is None:
            self.took.append(time.perf_counter() - due)
            self.answered.append(due)

    def start_noting(self) -> None:
        """Forget what was noted."""
        self.due: list[float] = []  # the moments of all messages
        self.answered: list[float] = []  # of those that were acknowledged, and what each took
        self.took: list[float] = []

    def curve(self, begin: float, seconds: int) -> list[float]:
        """p99 in milliseconds of the messages of each second; infinite if one is unanswered."""
        due, took, answered = map(np.array, (self.due, self.took, self.answered))
        windows = []
        for second in range(seconds):
            low, high = begin + second, begin + second + 1
            all_due = np.count_nonzero((due >= low) & (due < high))
            found = took[(answered >= low) & (answered < high)]
            lost = all_due - len(found)
            p99 = math.inf if lost or not len(found) else float(np.percentile(found, 99)) * 1000
            windows.append(round(p99, 1))
        return windows


def back_after(curve: list[float], before_s: int) -> tuple[float, int | None]:
    """(p99 of before, seconds until it is back within twice of it for three seconds in a row)."""
    before = float(np.median(curve[1:before_s]))
    after = curve[before_s:]
    good = [value <= WITHIN * before for value in after]
    for second in range(len(good) - 2):
        if all(good[second : second + 3]):
            return before, second
    return before, None


async def hurt_each_node(
    site: LocalSite, plan: Plan, nodes: list[int], say: Say
) -> list[dict[str, Any]]:
    """A row for each node and each way to hurt it. The site must not be supervised."""
    rows: list[dict[str, Any]] = []
    for how in plan.ways:
        for victim in nodes:
            await asyncio.to_thread(_settled, site)
            primary = await asyncio.to_thread(site.primary)
            others = [node for node in range(NODES) if node != victim]
            async with Load(site, others) as load:
                rate = SHARE * await load.rate(plan.measured_s)
                load.start_noting()
                begin = time.perf_counter()
                running = asyncio.create_task(load.run(rate, plan.before_s + plan.after_s))
                await asyncio.sleep(plan.before_s)
                number = signal.SIGKILL if how == "kill" else signal.SIGSTOP
                _signal(site, victim, number)
                await running
                await asyncio.sleep(1)
                curve = load.curve(begin, plan.before_s + plan.after_s)
            _revive(site, victim, how)
            before, back = back_after(curve, plan.before_s)
            role = "primary" if victim == primary else "backup"
            shown = " ".join(f"{value:g}" for value in curve)
            say(
                f"{how} {role} (node {victim}) at {rate:.0f}/s: p99 each second {shown} ms; "
                f"before {before:.1f} ms, back after {back} s"
            )
            rows.append(
                {"kind": "steady", "how": how, "role": role, "rate": round(rate),
                 "before_ms": round(before, 1), "back_s": back, "curve_ms": curve}
            )  # fmt: skip
    return rows


def _signal(site: LocalSite, node: int, number: signal.Signals) -> None:
    for role in ROLES:
        os.kill(site.roles[node, role].pid, number)


def _revive(site: LocalSite, node: int, how: str) -> None:
    if how == "stop":
        _signal(site, node, signal.SIGCONT)
        return
    for role in ROLES:
        site.roles[node, role].wait()
        site.start_role(node, role)
    wait_until(lambda: site.edge_serves(node), 30, f"the edge of node {node} is back")


def _settled(site: LocalSite) -> None:
    """Wait until any one node may be hurt."""
    wait_until(site.settled, 60, lambda: f"all replicas are back: {site.statuses()}")
