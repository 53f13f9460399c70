"""Real processes need every command of the protocol: none is there for the simulator only."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import uvloop

from appliance.drivers.host.process import child_environment
from appliance.formats.envelope import COMMAND_NAMES
from appliance.formats.geometry import SMALL
from tests import forked
from tests.drivers.nvme.rot import flip
from tests.patience import HUNG_S
from tests.roles.replica_group import EdgeLike, Group, peer_ports

VOTERS, STANDBY = 3, 3
TO_CLIENTS, FROM_CLIENTS = {"pong_client", "eviction"}, {"ping_client"}
AWAY_OPS = 2 * SMALL.slot_count


class Counts:
    """What the processes of a group sent and received, also those that are killed meanwhile."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    def take(self, index: int) -> None:
        """Add what one process has counted."""
        status = self.group.until(index, lambda status: True)
        self.sent.update(status["sent"])
        self.received.update(status["received"])

    def kill(self, index: int) -> None:
        self.take(index)
        self.group.kill(index)


async def holds(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HUNG_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def evicted(group: Group) -> bool:
    """Whether some primary has told a client that its session is gone."""
    statuses = [group.status(index) for index in range(group.count)]
    return any(status is not None and "eviction" in status["sent"] for status in statuses)


async def talk(counts: Counts) -> None:
    """Sessions that come and are evicted, a view change, a backup that was away for long."""
    group = counts.group
    async with EdgeLike(group, home=0, seed=1) as first:
        await first.create_room()
        others = [EdgeLike(group, home=0, seed=2 + n) for n in range(SMALL.clients_max)]
        for other in others:
            async with other:
                await holds(lambda other=other: other.ready)
        late = asyncio.create_task(first.append(1))
        await holds(lambda: evicted(group))
        late.cancel()
    async with EdgeLike(group, home=0, seed=20) as edge:
        await edge.create_room()
        leader = group.primary()
        counts.kill(leader)
        await edge.append(1)
        group.start(leader)
        await asyncio.to_thread(group.until, leader, lambda s: s["status"] == "normal")
        away = next(index for index in (1, 2) if index != group.primary())
        counts.kill(away)
        for _ in range(AWAY_OPS):
            await edge.append(1)
        newest = group.until(0, lambda s: True)["log_seq"]
        group.start(away)
        await asyncio.to_thread(group.until, away, lambda s: s["log_seq"] >= newest)
        counts.kill(away)
        spoil(group.node(away) / "shard-0" / "data")
        group.start(away)
        await asyncio.to_thread(
            group.until, away, lambda s: s["log_seq"] >= newest and s["status"] == "normal"
        )
        await asyncio.to_thread(group.until, away, lambda s: "reply" in s["received"])


def spoil(data: Path) -> None:
    """Break a few prepares of the ring, and all replies."""
    for slot in range(0, SMALL.slot_count, 9):
        flip(data, SMALL.wal_prepares_offset + slot * SMALL.message_size_max + 200)
    for row in range(SMALL.clients_max):
        flip(data, SMALL.replies_offset + row * SMALL.reply_size_max + 140)


def swap(group: Group, standby: int, retired: int) -> None:
    """The standby takes a voter's place, who is the standby then; once it is ready to."""
    words = ["member", "promote", f"node-{standby}", "--retire", f"node-{retired}"]
    deadline = time.monotonic() + HUNG_S
    while True:
        done = forked.run([*words, "--local", group.folder], environment=child_environment())
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(0.1)


def change_members(counts: Counts) -> None:
    """Until somebody had to be told how an epoch ended. Nobody has if a quorum is in the new one
    before the next tick, which comes late on a busy machine."""
    group, standby = counts.group, STANDBY
    deadline = time.monotonic() + HUNG_S
    while not {"end_epoch"} <= counts.sent.keys() & counts.received.keys():
        assert time.monotonic() < deadline, f"{counts.sent} {counts.received}"
        leader = group.primary()
        retired = next(i for i in range(VOTERS + 1) if i not in (standby, leader))
        swap(group, standby, retired)
        standby = retired
        for index in range(VOTERS + 1):
            counts.take(index)


def test_every_command_is_sent_and_received_between_real_processes(disk_folder: Path) -> None:
    with (
        peer_ports(VOTERS + 1) as ports,
        Group(disk_folder, nodes=VOTERS, standbys=1, ports=ports) as group,
    ):
        group.start_all()
        counts = Counts(group)
        uvloop.run(talk(counts))
        change_members(counts)
    every = set(COMMAND_NAMES.values())
    assert len(every) == 21
    assert every - set(counts.sent) == FROM_CLIENTS
    assert every - set(counts.received) == TO_CLIENTS
