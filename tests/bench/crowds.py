"""What a crowd costs: memory of an edge for each of its idle clients, and how long it takes until
all of them follow their room again when the node that they are on is killed.
"""

import asyncio
import resource
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psutil

from appliance.base.limits import DESCRIPTORS_RESERVED
from appliance.drivers.chat.client import Client
from tests.bench.crowd import Plan, Running, crowd
from tests.system.local_site import LocalSite

# The rates at which people may connect are the usual ones; nobody but the speaker says anything.
SETTINGS = {"address_connect_rate": 250}
WEBSOCKETS = 10_000
IDLE = {"websocket": (WEBSOCKETS, 40), "webtransport": (1_000, 200)}  # how many; KiB for each
SETTLED_S = 5.0  # after the start
PROBED_S = 25.0  # in which the edge has asked each client once whether it is there
RESUMED_S_MAX = 45.0
PATIENCE_S = 300.0  # for a crowd that comes
SAID_EACH_S = 4.0
SAID_BEFORE = SAID_AFTER = 3  # messages; meanwhile more
VICTIM = 0  # the node

Say = Callable[[str], None]


def allow_files() -> None:
    """As many open files as whoever started this grants, for it and what it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    needed = WEBSOCKETS + DESCRIPTORS_RESERVED
    if most != resource.RLIM_INFINITY and most < needed:
        raise SystemExit(f"bench: {most} open files are allowed, {needed} needed: `ulimit -Hn`")


def measure_idle(site: LocalSite, transport: str, quick: bool, say: Say) -> dict[str, Any]:
    """Of a site of one node to which nobody came before: what had left would be room for others."""
    count, most = IDLE[transport]
    count = 20 if quick else count
    room = _room(site)
    time.sleep(0 if quick else SETTLED_S)
    (edge,) = site.processes(0, "edge")
    before, began = edge.memory_info().rss, time.monotonic()
    plan = Plan(str(site.folder), str(room), count, [0], transport)
    with crowd(plan) as running:
        came_s = time.monotonic() - began
        at_once = edge.memory_info().rss
        time.sleep(0 if quick else PROBED_S)
        state, kept = running.ask(), edge.memory_info().rss
        cpu_s = _cpu_s(edge)
        time.sleep(0 if quick else PROBED_S)
        cpu_percent = 100 * (_cpu_s(edge) - cpu_s) / PROBED_S
    if state.open != count or state.opens != count or state.wrong:
        raise SystemExit(f"bench: of {count} idle clients {state}")
    each = (kept - before) / count / 1024
    row = {
        "kind": "idle clients",
        "what": f"memory of an edge for each of {count} idle clients, {transport}",
        "value": round(each, 1),
        "unit": "KiB",
        "held": quick or each <= most,
        "bar": f"at most {most}",
        "at_once_kib": round((at_once - before) / count / 1024, 1),
        "came_s": round(came_s, 1),
        "failed": state.failed,
        "cpu_percent": round(cpu_percent, 1),
    }
    say(
        f"{row['what']}: {row['value']} KiB ({row['bar']}), {row['at_once_kib']} when the last had "
        f"come, after {row['came_s']} s; {row['cpu_percent']} % of a core while nobody speaks"
    )
    return row


def measure_resumed(site: LocalSite, quick: bool, say: Say) -> list[dict[str, Any]]:
    """Of a site of three nodes, not supervised: all of the crowd are on one that is killed."""
    count = 60 if quick else WEBSOCKETS
    room = _room(site)
    access = site.access()
    others = [access.endpoints[node] for node in site.nodes if node != VICTIM]
    nodes = [VICTIM, *(node for node in site.nodes if node != VICTIM)]
    with crowd(Plan(str(site.folder), str(room), count, nodes)) as running:
        told = asyncio.run(_kill(site, running, room, Client(others, access.token), quick))
    return [_resumed_row(count, *told, say)]


def _resumed_row(count: int, took_s: float, state: Any, said: int, say: Say) -> dict[str, Any]:
    row = {
        "kind": "resumed",
        "what": f"from kill -9 of a node with {count} clients until all follow their room again",
        "value": round(took_s, 1),
        "unit": "s",
        "held": took_s <= RESUMED_S_MAX,
        "bar": f"at most {RESUMED_S_MAX:.0f}",
        "failed": state.failed,
        "messages": said,
    }
    say(
        f"{row['what']}: {row['value']} s ({row['bar']}); {sum(state.failed.values())} tries "
        f"failed, each of {said} messages came once"
    )
    return row


async def _kill(
    site: LocalSite, running: Running, room: UUID, speaker: Client, quick: bool
) -> tuple[float, Any, int]:
    """(seconds, what the crowd said last, how many messages were said)."""
    each_s = 0.1 if quick else SAID_EACH_S
    async with speaker:
        first = await asyncio.to_thread(running.ask)
        count, said = first.open, 0
        if first.failed:
            raise SystemExit(f"bench: some of the clients may be on other nodes: {first}")
        for _ in range(SAID_BEFORE):
            await speaker.send(room, "x" * 16)
            said += 1
            await asyncio.sleep(each_s)
        moment = time.monotonic()
        await asyncio.to_thread(site.kill_node, VICTIM)
        after = 0
        while after < SAID_AFTER:
            await speaker.send(room, "x" * 16)
            said += 1
            await asyncio.sleep(each_s)
            state = await asyncio.to_thread(running.ask)
            after += state.open == count and state.opens >= 2 * count
            if time.monotonic() - moment > PATIENCE_S:
                raise SystemExit(f"bench: {PATIENCE_S:.0f} s after a node was killed: {state}")
        until = time.monotonic() + PATIENCE_S
        while state.next_op_min != first.next_op_max + said:
            if time.monotonic() > until:
                raise SystemExit(f"bench: of {said} messages since {first}: {state}")
            await asyncio.sleep(0.1)
            state = await asyncio.to_thread(running.ask)
        if state.wrong or state.next_op_max != state.next_op_min:
            raise SystemExit(f"bench: of {said} messages since {first}: {state}")
        return state.opened_at - moment, state, said


def _room(site: LocalSite) -> UUID:
    access = site.access()

    async def made() -> UUID:
        async with Client(access.endpoints, access.token) as client:
            answer = await client.create_room("crowd")
            await client.send(answer.room_id, "x" * 16)
            return answer.room_id

    return asyncio.run(made())


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
