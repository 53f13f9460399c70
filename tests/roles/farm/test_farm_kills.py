"""kill -9 of real members while values are posted: no yes is lost, and all logs are equal."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.cores.directory.directory import Directory
from appliance.cores.raft.effects import HardState
from appliance.formats.raft_legacy.configuration import (
    Server,
    decode_server_id,
    encode_server,
    encode_server_id,
)
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    CLUSTER_SERVER,
    REMOVE_SERVER,
    Entry,
    Request,
)
from appliance.roles.farm.storage import FarmStorage, directory_of
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.roles.farm.cluster import FARM, Cluster

POSTERS = 3
YES_BETWEEN = 6  # of all posters together, between a kill and the next
FAST = ["--election-ms", "400-800", "--heartbeat-ms", "80"]


class Posters:
    """Post documents, each poster one after the other, until they are stopped."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.newest = {100 + i: 0 for i in range(POSTERS)}  # poster -> newest date with a yes
        self.yes: list[bytes] = []
        self.more = asyncio.Event()
        self.tasks = [asyncio.create_task(self._post(poster)) for poster in self.newest]

    async def _post(self, poster: int) -> None:
        client = self.cluster.client("gateway")
        try:
            date = 0
            while True:
                date += 1
                row = {"cluster": FARM, "date": date, "id": poster}
                value = json.dumps(row).encode()
                await client.post([value], HUNG_S)
                self.newest[poster] = date
                self.yes.append(value)
                self.more.set()
        finally:
            await client.close()

    async def wait_for_yes(self, count: int) -> None:
        """So many more values are answered yes."""
        wanted = len(self.yes) + count
        await self._until(lambda: len(self.yes) >= wanted)

    async def wait_for_all(self) -> None:
        """Each poster has a yes: one alone may be quick enough for all kills."""
        await self._until(lambda: all(self.newest.values()))

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(HUNG_S):
            while not condition():
                for task in self.tasks:
                    if task.done():
                        task.result()
                self.more.clear()
                await self.more.wait()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def until(cluster: Cluster, request: Request, done) -> None:
    """Ask until `done` of the newest Configuration at the leader; each yes only begins it."""
    client = cluster.client("admin")
    try:
        async with asyncio.timeout(HUNG_S):
            while True:
                fresh = cluster.client("admin")
                try:
                    await fresh.ask(Request(5), HUNG_S)  # logs in to somebody who knows
                    if fresh.hint is not None and done({s.id for s in fresh.hint.members}):
                        return
                finally:
                    await fresh.close()
                if request.type == REMOVE_SERVER and fresh.guess == decode_server_id(
                    request.entries[0].value
                ):
                    await asyncio.to_thread(cluster.kill, fresh.guess)  # no leader is removed
                    cluster.start(fresh.guess)
                client.guess = fresh.guess
                await client.ask_once(request)
                await asyncio.sleep(0.1)
    finally:
        await client.close()


def adding(cluster: Cluster, member: int) -> Request:
    value = encode_server(Server(member, cluster.endpoint(member)))
    return Request(ADD_SERVER, entries=(Entry(0, CLUSTER_SERVER, value),))


def removing(member: int) -> Request:
    return Request(REMOVE_SERVER, entries=(Entry(0, CLUSTER_SERVER, encode_server_id(member)),))


async def leader_of(cluster: Cluster) -> int:
    client = cluster.client()
    try:
        return await client.ask(Request(5), HUNG_S)
    finally:
        await client.close()


async def kill_some(cluster: Cluster, posters: Posters, chance: random.Random, kills: int) -> int:
    """Kill leaders and followers in turn; the number of leaders among them."""
    leaders = 0
    await posters.wait_for_all()
    for turn in range(kills):
        await posters.wait_for_yes(YES_BETWEEN)
        leader = await leader_of(cluster)
        others = [member for member in cluster.processes if member != leader]
        victim = leader if turn % 2 and leader in cluster.processes else chance.choice(others)
        leaders += victim == leader
        await asyncio.to_thread(cluster.kill, victim)
        if turn % 3 == 0:
            await posters.wait_for_yes(YES_BETWEEN)  # without it
        cluster.start(victim)
    return leaders


async def three_members_and_a_joiner(
    cluster: Cluster, chance: random.Random, kills: int
) -> Posters:
    posters = Posters(cluster)
    leaders = await kill_some(cluster, posters, chance, kills)
    assert leaders >= kills // 3
    cluster.start(4)
    task = asyncio.create_task(until(cluster, adding(cluster, 4), lambda ids: 4 in ids))
    for _ in range(3):  # the joiner, while it is being brought up to date
        await posters.wait_for_yes(2)
        await asyncio.to_thread(cluster.kill, 4)
        cluster.start(4)
    await task
    await posters.wait_for_yes(YES_BETWEEN)
    await posters.stop()
    return posters


def settle(cluster: Cluster, members: list[int], posters: Posters) -> None:
    """Nobody posts any more: all come to the same end, and hold every yes."""
    deadline = time.monotonic() + HUNG_S
    while len({state_of(cluster, member).snapshot() for member in members}) > 1:
        assert time.monotonic() < deadline, [state_of(cluster, m).index for m in members]
        time.sleep(0.2)
    cluster.stop()
    states = {member: cluster.dump(member, "--state") for member in members}
    assert all(state == states[members[0]] for state in states.values())
    held = {row["id"]: row["date"] for row in states[members[0]][2:]}
    for poster, date in posters.newest.items():
        assert held.get(poster, 0) >= date, (poster, date, held)
    by_index: dict[int, dict[str, Any]] = {}
    for member in members:
        for row in cluster.dump(member):
            assert row["committed"]
            assert by_index.setdefault(row["index"], row) == row


def state_of(cluster: Cluster, member: int) -> Directory:
    """What a member has on its disk."""
    storage = FarmStorage(cluster.member_folder(member) / "store", read_only=True)
    try:
        return directory_of(FARM, storage.load(HardState()))
    finally:
        storage.close()


@pytest.fixture
def cluster_of(tmp_path: Path, free_ports: FreePorts) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(static: int, total: int, *options: str) -> Cluster:
        cluster = Cluster(tmp_path / "farm", free_ports(total), static=static)
        cluster.options = [*FAST, *options]
        made.append(cluster)
        cluster.start(*range(1, static + 1))
        return cluster

    yield make
    for cluster in made:
        cluster.end()


@pytest.mark.parametrize("kills", [4, pytest.param(13, marks=pytest.mark.soak)])
def test_three_members_and_a_joiner_keep_every_yes_through_kills(
    cluster_of: Callable[..., Cluster], seed: int, kills: int
) -> None:
    cluster = cluster_of(3, 4)
    posters = asyncio.run(three_members_and_a_joiner(cluster, random.Random(seed), kills))
    settle(cluster, [1, 2, 3, 4], posters)
    for member in (1, 2, 3, 4):
        committed = {row.get("value") for row in cluster.dump(member) if row["committed"]}
        assert not {value.decode() for value in posters.yes} - committed


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_five_members_with_snapshots_and_changes_keep_every_yes_through_kills(
    cluster_of: Callable[..., Cluster], seed: int, kills: int
) -> None:
    cluster = cluster_of(5, 6, "--snapshot-distance", "40")

    async def story() -> Posters:
        chance = random.Random(seed)
        posters = Posters(cluster)
        await kill_some(cluster, posters, chance, kills)
        leader = await leader_of(cluster)
        leaver = next(member for member in (5, 4) if member != leader)
        cluster.start(6)
        for request, done in (
            (removing(leaver), lambda ids: leaver not in ids),
            (adding(cluster, 6), lambda ids: 6 in ids),
        ):
            task = asyncio.create_task(until(cluster, request, done))
            for _ in range(3):
                await posters.wait_for_yes(2)
                staying = [m for m in cluster.processes if m not in (leaver, 6)]
                victim = chance.choice(staying)
                await asyncio.to_thread(cluster.kill, victim)
                cluster.start(victim)
            await task
        await asyncio.to_thread(cluster.kill, 6)
        cluster.start(6)
        await posters.wait_for_yes(YES_BETWEEN)
        await posters.stop()
        process = cluster.processes.pop(leaver)
        if process.poll() is None:  # it may not know: nobody tells it in the end
            process.kill()
        process.wait(HUNG_S)
        story.stay = [m for m in range(1, 7) if m != leaver]
        return posters

    posters = asyncio.run(story())
    settle(cluster, story.stay, posters)
