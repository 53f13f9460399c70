"""Who publishes moves replicas, a step at a time; nobody does while the farm could be two."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.base.errors import StorageError
from appliance.cores.directory.directory import Directory, canonical
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.group import Configuration
from appliance.formats.membership import KIND_ADD, MemberChange
from appliance.formats.site import Shard
from appliance.roles.farm import mover as module
from appliance.roles.farm.figures import synced_percent
from appliance.roles.farm.mover import EXPIRED, NO_LEADER, UNSIGNED, Mover
from tests.cores.directory.words import NOW, farm, post, status

IDS = [bytes([9 + node]) * 16 for node in range(4)]
SHARD = Shard(0, [0, 1, 2, 3], IDS, 3, 1, 8)
NODES = [SimpleNamespace(farm_id=i + 1, name=f"node-{i}", index=i, host="h", peer_port=1,
                         public_key=bytes(32)) for i in range(4)]  # fmt: skip


class World:
    """A shard's group whose log takes what is asked for, and the roles of nodes of the farm."""

    def __init__(self) -> None:
        self.group = Configuration(0, 5, 3, tuple(IDS[:3]))
        self.directory = farm()
        self.asked = self.group  # what a member that answers says
        self.lags = False
        self.why = ""
        self.noted: list[dict[str, Any]] = []
        self.report()
        self.want(2, 3, 4)

    def want(self, *nodes: int) -> None:
        self.date = getattr(self, "date", NOW) + 1
        config = {"placement": {"0": list(nodes)}, "placing": 0}
        row = {"cluster": "farm", "date": self.date, "id": 9, "config": config}
        post(self.directory, canonical(row))

    def report(self) -> None:
        """Each node posts how the group is, and that it serves."""
        self.stamp = getattr(self, "stamp", NOW) + 1
        nodes = [IDS.index(member) + 1 for member in self.group.members]
        count = self.group.replica_count
        row = {
            "shard": 0,
            "op": self.group.op,
            "voters": nodes[:count],
            "standbys": nodes[count:],
        }
        for node in (1, 2, 3, 4):
            serves = {"groups": [row]} if node in nodes else {"shards": ()}
            post(self.directory, status(node, self.stamp, **serves))

    def node(self, number: int, **changes: Any) -> Any:
        """The role of a node of the farm that leads, is chosen, and has a valid directory."""
        chosen = changes.get("chosen", True)
        told = SimpleNamespace(expired_ms=changes.get("expired_ms", 0))
        signed = {"placement": {"0": list(self.directory.placement.nodes[0])}}
        return SimpleNamespace(
            node=SimpleNamespace(site=SimpleNamespace(nodes=NODES, shards=[SHARD])),
            member=SimpleNamespace(
                directory=self.directory,
                node=SimpleNamespace(member=SimpleNamespace(leader=changes.get("leader", 1))),
            ),
            publisher=SimpleNamespace(
                told=lambda: told,
                is_chosen=lambda directory: chosen,
                content=changes.get("content", signed),
            ),
            audit=SimpleNamespace(note=lambda row, outcome: self.noted.append(row)),
        )

    def mover(self, **changes: Any) -> Mover:
        return Mover(cast(Any, self.node(1, **changes)), logging.getLogger("mover"))

    # --- what the shard does

    async def group_of(self, node: NodeFolder, shard: Shard) -> Configuration:
        return self.asked if self.lags else self.group

    async def change(self, node: Any, shard: Shard, change: MemberChange, **named: Any) -> None:
        members = list(self._judged(named["of"]))
        if change.kind == KIND_ADD:
            members.append(change.replica_id)
        else:
            assert members.index(change.replica_id) >= 3
            members.remove(change.replica_id)
        self._become(self.group.epoch, members)

    async def exchange(self, node: Any, shard: Shard, up: int, down: int, **named: Any) -> None:
        members = list(self._judged(named["of"]))
        a, b = members.index(IDS[up]), members.index(IDS[down])
        assert a >= 3 > b
        members[a], members[b] = members[b], members[a]
        self._become(self.group.epoch + 1, members)

    def _judged(self, of: Configuration) -> tuple[bytes, ...]:
        if self.why or of != self.group:
            raise StorageError(self.why or "the group has changed meanwhile")
        return self.group.members

    def _become(self, epoch: int, members: list[bytes]) -> None:
        self.group = Configuration(epoch, self.group.op + 3, 3, tuple(members))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(module, "group_of", made.group_of)
    monkeypatch.setattr(module, "change_members", made.change)
    monkeypatch.setattr(module, "reconfigure", made.exchange)
    return made


def poll(world: World, *movers: Mover, times: int = 1) -> None:
    for _ in range(times):
        for each in movers:
            asyncio.run(each.poll())
        world.report()


def voters(world: World) -> list[int]:
    return sorted(IDS.index(member) + 1 for member in world.group.members)


def test_a_move_is_done_step_by_step_and_each_is_noted(world: World) -> None:
    mover = world.mover()
    poll(world, mover)
    assert voters(world) == [1, 2, 3, 4]
    poll(world, mover, times=3)
    assert voters(world) == [2, 3, 4] and world.group.epoch == 1
    assert [row["step"] for row in world.noted] == ["add", "exchange", "remove"]
    poll(world, mover)
    assert (mover.told().steps, mover.told().stood_ms) == ([], 0) and len(world.noted) == 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"leader": 0}, NO_LEADER),
        ({"expired_ms": 1}, EXPIRED),
        ({"content": {}}, UNSIGNED),
        ({"content": {"placement": {"0": [1, 2, 3]}}}, UNSIGNED),
        ({"chosen": False}, ""),
    ],
)
def test_nothing_moves_where_the_farm_could_be_two(
    world: World, changes: dict[str, Any], why: str
) -> None:
    mover = world.mover(**changes)
    poll(world, mover, times=3)
    assert world.group.op == 5 and mover.told().trouble == why
    assert mover.told().steps == ["shard 0: node-3 is taken in"]


def test_who_was_chosen_no_more_when_the_group_answered_does_nothing(world: World) -> None:
    role = world.node(1)
    answers = iter([True, False])
    role.publisher.is_chosen = lambda directory: next(answers)
    poll(world, Mover(role, logging.getLogger("mover")))
    assert world.group.op == 5


def test_why_a_step_was_not_done_is_told_until_it_is(world: World) -> None:
    mover = world.mover()
    world.why = "it lags"
    poll(world, mover, times=2)
    assert mover.told().trouble == "it lags" and not world.noted
    world.why = ""
    poll(world, mover)
    assert mover.told().trouble == "" and len(world.noted) == 1


def test_what_somebody_had_done_before_is_noted_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def changed(*_: Any, say: Any, **__: Any) -> None:
        say("member: shard 0: add node-3: already_applied")

    monkeypatch.setattr(module, "change_members", changed)
    mover = world.mover()
    poll(world, mover)
    assert not world.noted and mover.told().trouble == ""


def test_a_member_that_lags_is_not_believed(world: World) -> None:
    mover = world.mover()
    world.lags = True
    poll(world, mover)  # what it says is as old as what was reported: so far it is right
    assert voters(world) == [1, 2, 3, 4]
    before = world.group
    poll(world, mover, times=3)
    assert world.group == before and mover.told().trouble == ""


@pytest.mark.parametrize("seed", range(5))
def test_two_that_believe_to_publish_and_a_change_of_mind_do_no_harm(
    world: World, seed: int
) -> None:
    """One acts by an older log than the other; the group takes what was judged by it as it is."""
    old = Directory("farm")
    assert old.restore(world.directory.index, 1, world.directory.snapshot())
    stale = world.node(2)
    stale.member.directory = old
    movers = [world.mover(), Mover(stale, logging.getLogger("stale"))]
    for step in range(8):
        if step == seed:
            world.want(1, 2, 3)
        movers[0] = world.mover()
        poll(world, *(movers if step < 6 else movers[:1]))
        assert len(world.group.members) <= 5 and world.group.replica_count == 3
    poll(world, world.mover(), times=4)
    assert voters(world) == [1, 2, 3]
    assert world.group.members[:3] != () and not world.mover().told().steps


@pytest.mark.parametrize(
    ("role", "synced", "ready", "percent"),
    [
        ("standby", (0, 0), False, 0),  # nothing is known yet
        ("standby", (59, 100), False, 50),  # in steps: each one is posted
        ("standby", (100, 100), False, 99),  # its tables are missing
        ("standby", (100, 100), True, 100),
        ("standby", (0, 0), True, 100),
        ("backup", (5, 100), True, 100),  # who votes is no matter of a move
    ],
)
def test_a_node_posts_how_much_of_the_state_one_that_follows_has(
    role: str, synced: tuple[int, int], ready: bool, percent: int
) -> None:
    told = SimpleNamespace(role=role, synced=synced, state_ready=ready, commit_min=9)
    assert synced_percent(cast(Any, told)) == percent
