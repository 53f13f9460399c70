"""What a replica needs when it has much to hold: memory, time to start, time to catch up.

fill to 100,000 records     memory of the replicas
fill to 1,000,000           one replica is away all the while; memory of the others
the one that was away       comes back under load: records a second until it has all
its volume is wiped         `recover` under load: records a second, from the first word to the last
kill -9, start              until it serves: state read, in normal operation
fill the ring               with prepares of as many records as one may hold, then the same
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from appliance.base.limits import WINDOW_LENGTH
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.pump import Load, Sender
from appliance.formats.geometry import PRODUCTION
from appliance.formats.room_name import room_id_of
from tests.system.local_site import LocalSite, run, wait_until

AWAY = 2
ROOMS, BODY = 8, b"x" * 256
IN_FLIGHT = 96  # two prepares under way, of about 50 records each
IN_FLIGHT_FULL = 2 * PRODUCTION.pipeline_max * PRODUCTION.records_max
RESTART_S_MAX, RESTART_FULL_S_MAX = 2.0, 5.0
GROWTH_MAX = 1.10
CATCH_UP_PER_S_MIN = RECOVER_PER_S_MIN = 50_000

Say = Callable[[str], None]


class Sizes(NamedTuple):
    """Records, and how often a replica starts again."""

    few: int = 100_000
    many: int = 1_000_000
    full_ring: int = PRODUCTION.slot_count * PRODUCTION.records_max
    in_flight_full: int = IN_FLIGHT_FULL  # close to what an edge takes: a slow one may refuse some
    restarts: int = 3


def measure(site: LocalSite, sizes: Sizes, say: Say) -> list[dict[str, Any]]:
    """All figures of one site, which must not be supervised."""
    rows = []

    def note(what: str, value: float, unit: str, held: bool, bar: str) -> None:
        say(f"{what}: {value:g} {unit} ({bar})")
        row = {"kind": "big", "what": what, "value": value, "unit": unit}
        rows.append(row | {"held": held, "bar": bar})

    stay = [node for node in site.nodes if node != AWAY]
    asyncio.run(fill(site, sizes.few, IN_FLIGHT, stay, say))
    before = memory(site, stay)
    _end(site, AWAY)
    asyncio.run(fill(site, sizes.many, IN_FLIGHT, stay, say))
    growth = max(after / before[node] for node, after in memory(site, stay).items())
    note("memory of a replica after all records", round(growth, 2), "times of after a tenth",
         growth <= GROWTH_MAX, f"at most {GROWTH_MAX}")  # fmt: skip
    rate = asyncio.run(catch_up(site, stay, say))
    note("catching up of a replica that was away", rate, "records/s",
         rate >= CATCH_UP_PER_S_MIN, f"at least {CATCH_UP_PER_S_MIN}")  # fmt: skip
    rate = asyncio.run(recover(site, stay, say))
    note("recovering a wiped volume", rate, "records/s",
         rate >= RECOVER_PER_S_MIN, f"at least {RECOVER_PER_S_MIN}")  # fmt: skip
    seconds = restarts(site, sizes.restarts)
    note(f"restart with {sizes.many} records", seconds, "s", seconds < RESTART_S_MAX,
         f"below {RESTART_S_MAX}")  # fmt: skip
    asyncio.run(fill(site, sizes.many + sizes.full_ring, sizes.in_flight_full, stay, say))
    seconds = restarts(site, sizes.restarts)
    note("restart with a ring of full prepares", seconds, "s", seconds < RESTART_FULL_S_MAX,
         f"below {RESTART_FULL_S_MAX}")  # fmt: skip
    return rows


def log_seq(site: LocalSite, node: int) -> int:
    status = site.status(node)
    return status["log_seq"] if status else 0


async def fill(site: LocalSite, records: int, in_flight: int, nodes: list[int], say: Say) -> None:
    """Write until the log has so many records."""
    access = site.access()
    names = [f"fill-{time.monotonic_ns()}-{i}" for i in range(ROOMS)]
    rooms = [room_id_of(name) for name in names]
    for node in nodes:  # each node's edge has heard of the rooms before it is sent to
        async with Client([access.endpoints[node]], access.token) as client:
            for name in names:
                await client.send((await client.create_room(name)).room_id, "begin")
    senders: list[Sender] = []
    flows = len(nodes) * ROOMS
    devices = -(-in_flight // (flows * WINDOW_LENGTH))  # of each node: a flow is so deep at most
    depth = in_flight // (flows * devices)
    began, first = time.monotonic(), log_seq(site, nodes[0])
    status = site.status(nodes[0])
    first_op = status["op"] if status else 0
    for node in nodes * devices:
        sender = Sender([Load(room, BODY, depth) for room in rooms], True, lambda: None)
        await sender.connect(access.endpoints[node], access.token())
        sender.start()
        senders.append(sender)
    while log_seq(site, nodes[0]) < records:
        await asyncio.sleep(0.1)
        assert not any(sender.failure for sender in senders), [s.failure for s in senders]
    for sender in senders:
        sender.stop()
    await asyncio.to_thread(
        wait_until, lambda: not any(s.waiting for s in senders), 60, "all is acknowledged"
    )
    for sender in senders:
        await sender.close()
    status = site.status(nodes[0])
    assert status is not None
    count, ops = status["log_seq"] - first, status["op"] - first_op
    say(
        f"filled to {status['log_seq']} records at {count / (time.monotonic() - began):.0f}/s, "
        f"{count / max(ops, 1):.0f} in a prepare"
    )


def memory(site: LocalSite, nodes: list[int]) -> dict[int, int]:
    """Resident bytes of each node's replica."""
    found = {}
    for node in nodes:
        (process,) = site.processes(node, "replica")
        found[node] = process.memory_info().rss
    return found


async def catch_up(site: LocalSite, stay: list[int], say: Say) -> float:
    """Start the replica that was away while a client writes; records a second until it has all."""
    newest = log_seq(site, stay[0])
    async with writing(site, stay[0]):
        site.start_role(AWAY, "replica")
        await asyncio.to_thread(_answers, site, AWAY)
        have = log_seq(site, AWAY)
        began = time.monotonic()
        await asyncio.to_thread(
            wait_until, site.settled, 600, lambda: f"the replica has all: {site.statuses()}"
        )
        seconds = time.monotonic() - began
    say(f"{newest - have} records behind, caught up in {seconds:.1f} s")
    return round((newest - have) / seconds)


async def recover(site: LocalSite, stay: list[int], say: Say) -> float:
    """Wipe a node's volume and let the command bring it back while a client writes."""
    roles = [role for node, role in site.roles if node == AWAY]
    for role in roles:
        _end(site, AWAY, role)
    shutil.rmtree(site.place(AWAY) / "shard-0")
    newest = log_seq(site, stay[0])
    async with writing(site, stay[0]):
        began = time.monotonic()
        words = ["recover", "--node-folder", str(site.place(AWAY)), "--once"]
        done = await asyncio.to_thread(run, *words, timeout_s=600)
        seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    say(f"{done.stdout.splitlines()[-1]}; {seconds:.1f} s in all")
    for role in roles:
        site.start_role(AWAY, role)
    return round(newest / seconds)


@asynccontextmanager
async def writing(site: LocalSite, node: int) -> AsyncIterator[None]:
    """A client writes by a node's edge, a message after the other."""
    stop = asyncio.Event()
    access = site.access()

    async def write() -> None:
        async with Client([access.endpoints[node]], access.token) as client:
            room = (await client.create_room(f"meanwhile {time.monotonic_ns()}")).room_id
            while not stop.is_set():
                await client.send(room, "still here")
                await asyncio.sleep(0.005)

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        stop.set()
        await task


def _answers(site: LocalSite, node: int) -> None:
    wait_until(lambda: site.status(node) is not None, 60, f"node {node} answers")


def _end(site: LocalSite, node: int, role: str = "replica") -> None:
    process = site.roles[node, role]
    process.kill()
    process.wait()


def restarts(site: LocalSite, times: int) -> float:
    """The median time from the start of a killed replica until it serves."""
    found = []
    for turn in range(times):
        wait_until(site.settled, 120, lambda: f"all replicas are back: {site.statuses()}")
        node = site.nodes[turn % len(site.nodes)]
        _end(site, node)
        began = time.monotonic()
        site.start_role(node, "replica")
        wait_until(lambda node=node: _serves(site, node), 120, f"node {node} serves")
        found.append(time.monotonic() - began)
    return round(sorted(found)[times // 2], 2)


def _serves(site: LocalSite, node: int) -> bool:
    status = site.status(node)
    return status is not None and status["status"] == "normal"
