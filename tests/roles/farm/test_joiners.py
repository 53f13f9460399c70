"""Who becomes a member of a site's farm, who asks for it, and how often."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.base.errors import FarmPostFailed
from appliance.formats.raft_legacy.configuration import decode_server
from appliance.formats.raft_legacy.frame import ADD_SERVER, Request, Response
from appliance.roles.farm import joiners
from appliance.roles.farm.client import FarmClient
from appliance.roles.farm.joiners import Joiners
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.posts import Posts
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.roles.farm.cluster import Cluster
from tests.roles.farm.test_site_users import with_farm

Answer = Callable[[Request], bool | None]


class World:
    """A member in a role and with members that are said, whose farm answers as `answer` says."""

    def __init__(self, role: str = "leader", standing: str = "member", own: int = 1) -> None:
        self.status: Any = SimpleNamespace(
            id=own, role=role, standing=standing, change="", servers=[]
        )
        self.members(1, 2)
        directory = SimpleNamespace(departed=(0, ()))
        self.member: Any = SimpleNamespace(
            node=SimpleNamespace(status=lambda: self.status),
            directory=directory,
            inbox=[],
            settings=SimpleNamespace(endpoint="tcp://127.0.0.1:7599"),
            yield_leadership=lambda: self.yields.append(self.status.id),
        )
        self.yields: list[int] = []
        self.accepts: bool | None = True
        self.asked: list[tuple[str, int]] = []
        client = SimpleNamespace(guess=0, ask=self.ask, ask_once=self.ask_once)
        self.client = client
        self.joiners = Joiners(cast(Posts, SimpleNamespace(client=client)))

    def members(self, *ids: int) -> None:
        self.status.servers = [SimpleNamespace(id=server_id) for server_id in ids]

    def _note(self, how: str, request: Request) -> None:
        assert request.type == ADD_SERVER
        self.asked.append((how, decode_server(request.entries[0].value).id))

    async def ask(self, request: Request, deadline_s: float) -> int:
        self._note("anybody", request)
        if not self.accepts:
            raise FarmPostFailed("nobody leads")
        return 1

    async def ask_once(self, request: Request) -> Response | None:
        self._note("itself" if self.client.guess == self.status.id else "another", request)
        if self.accepts is None:
            return None
        return Response(7, 1, 1, 1, 0, self.accepts)

    def poll(self, count: int = 4) -> list[tuple[str, int]]:
        """What is asked for when the second of `count` of four nodes passes."""
        self.asked.clear()
        asyncio.run(self.joiners.poll(cast(FarmMember, self.member), with_farm(count).nodes))
        return self.asked


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(joiners, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_who_leads_takes_in_the_nodes_that_are_no_members_but_no_other_member_does(
    clock: list[float],
) -> None:
    world = World()
    assert world.poll() == [("itself", 3)]
    assert world.poll() == [("itself", 4)]
    world.status.change = "join"
    assert world.poll() == []
    for role in ("follower", "candidate"):
        assert World(role).poll() == []
    world = World()
    world.member.directory.departed = (5, (3,))
    assert world.poll() == [("itself", 4)], "whom an operator took out stays out"
    world.members(1, 2, 4)
    assert world.poll() == []


def test_who_leads_and_was_taken_out_hands_over_wherever_that_was_asked_for() -> None:
    world = World()
    assert world.poll() and world.yields == []
    world.member.directory.departed = (5, (1,))
    assert world.poll() == [] and world.yields == [1]
    world.status.role = "follower"
    assert world.poll() == [] and world.yields == [1]


def test_between_two_tries_with_one_that_does_not_come_other_changes_can_begin(
    clock: list[float],
) -> None:
    world, tried = World(), []
    world.members(1, 2, 3)
    for _ in range(400):
        if world.poll():
            tried.append(clock[0])
        clock[0] += 1
    pauses = [b - a for a, b in zip(tried, tried[1:], strict=False)]
    assert pauses == [15, 30, 60, 120], "each longer than a join may take, which is 10 s"
    world.members(1, 2, 3, 4)
    assert world.poll() == []
    world.members(1, 2, 3)
    assert world.poll() == [("itself", 4)], "it came, and went: all begins anew"


@pytest.mark.parametrize("answer", [False, None])
def test_a_try_that_did_not_begin_is_made_again_at_once(
    answer: bool | None, clock: list[float]
) -> None:
    world = World()
    world.accepts = answer
    assert world.poll() == world.poll() == [("itself", 3)]


def test_who_waits_to_be_taken_in_asks_whoever_leads_until_it_is_listed(
    clock: list[float],
) -> None:
    world = World("follower", "joining", own=4)
    assert world.poll() == [("anybody", 4)]
    assert world.poll() == [], "it is not asked each second"
    clock[0] += 5
    world.accepts = False
    assert world.poll() == [("anybody", 4)]
    clock[0] += 5
    assert world.poll() == [("anybody", 4)]
    clock[0] += 5
    world.members(1, 2, 4)
    assert world.poll() == []
    assert World("follower", "out", own=4).poll() == []
    assert World("follower", "member", own=4).poll() == []


async def answered(client: FarmClient) -> None:
    """Wait until the member that it guesses listens."""
    async with asyncio.timeout(HUNG_S):
        while True:
            if await client.ask_once(Request(5)) is not None:
                return
            await asyncio.sleep(0.02)


def test_a_client_that_is_sent_to_a_leader_it_does_not_know_finds_it(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    """It knows one member alone, which was empty when it logged in there: asked over the same
    connection for good, that would name a leader whose address nobody told."""
    cluster = Cluster(tmp_path / "farm", free_ports(3), static=2)
    try:
        cluster.start(1, 2, 3)

        async def story() -> None:
            client = cluster.client()
            client.table = {3: cluster.endpoint(3)}
            client.guess = 3
            try:
                await answered(client)
                assert set(client.table) == {3} and client.hint is None
                request = joiners.addition(3, cluster.endpoint(3))
                await asyncio.to_thread(cluster.ask, request)
                assert await client.post([b"{}"], HUNG_S) in (1, 2)
                assert set(client.table) == {1, 2, 3} and client.counts["leader_unknown"]
            finally:
                await client.close()

        asyncio.run(story())
    finally:
        cluster.end()
