"""A node ends the replica that was moved away and makes the one that was taken in, wherever it was
cut off; it makes no volume in place of one that was lost."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.cores.directory.directory import Directory
from appliance.cores.directory.status import Group
from appliance.drivers.host.node_folder import NodeFolder, lock_replica, read_node
from appliance.drivers.nvme.volume import read_facts
from appliance.formats.group import Configuration
from appliance.node.catalogue import ROLES, children
from appliance.node.format_site import format_local
from appliance.node.start import read_superblock
from appliance.roles.farm import holding
from appliance.roles.farm.holding import Holdings
from appliance.roles.operator import volumes
from tests import removal
from tests.ports import FreePorts

OWN, OTHERS = 0, (1, 2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Path:
    folder = tmp_path_factory.mktemp("holding") / "s"
    format_local(
        folder,
        nodes=3,
        shards=1,
        ports=free_ports(1)[0],
        segments_max=None,
        geometry="small",
        brief=True,
    )
    return folder


class Cut(Exception):
    """The process ended here."""


@dataclass
class World:
    """A node, the group as it says itself and as was reported, and a supervisor that knows which
    replicas are wanted. `cut_at`: the step of what is done that is the last one."""

    node: NodeFolder
    group: Configuration
    placed: tuple[int, ...]
    wanted: bool = True
    steps: int = 0
    cut_at: int = -1
    questions: int = 0  # to the group
    ran_on: list[str] = field(default_factory=list)  # ids of volumes on which a replica was started

    @property
    def member(self) -> Any:
        shard = self.node.site.shards[0]
        ids = [shard.members[shard.replica_ids.index(i)] + 1 for i in self.group.members]
        count = self.group.replica_count
        group = Group(0, self.group.op, tuple(ids[:count]), tuple(ids[count:]))
        directory = Directory("farm")
        return SimpleNamespace(
            directory=SimpleNamespace(
                placement=SimpleNamespace(nodes={0: self.placed} if self.placed else {}),
                groups=lambda: {0: group},
                index=directory.index,
            )
        )

    async def asked(self, node: NodeFolder, shard: Any) -> Configuration:
        self.questions += 1
        return self.group

    def step(self) -> None:
        if self.steps == self.cut_at:
            raise Cut
        self.steps += 1

    def stepping(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*words: Any, **named: Any) -> Any:
            self.step()
            done = do(*words, **named)
            self.step()
            return done

        return stepped

    def requested(
        self, kind: Any, folder: Path, request: dict[str, str], **_: Any
    ) -> dict[str, Any]:
        self.step()
        self.wanted = "start" in request
        if self.wanted:
            self.ran_on.append(read_facts(self.node.volume(0))["id"])
        return {"done": True}


@pytest.fixture
def world(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A node of its own: what is put aside and made is that of one test."""
    monkeypatch.setattr(holding, "BRIEF", True)
    copy_tree(made / "node-0", tmp_path / "node-0")
    node = read_node(tmp_path / "node-0")
    shard = node.site.shards[0]
    group = Configuration(1, 50, 3, tuple(shard.replica_ids))
    found = World(node, group, (1, 2, 3))
    monkeypatch.setattr(holding, "group_of", found.asked)
    monkeypatch.setattr(holding, "ask_for", found.requested)
    for name in ("write_durable", "_rename", "_make"):
        monkeypatch.setattr(holding, name, found.stepping(getattr(holding, name)))
    return found


def copy_tree(source: Path, target: Path) -> None:
    """With its holes."""
    assert os.spawnlp(os.P_WAIT, "cp", "cp", "-a", "--sparse=always", str(source), str(target)) == 0


def without(world: World, op: int) -> None:
    shard = world.node.site.shards[0]
    members = tuple(shard.replica_id_of(index) for index in OTHERS)
    world.group, world.placed = Configuration(2, op, 2, members), (2, 3)


def with_it(world: World, op: int) -> None:
    shard = world.node.site.shards[0]
    members = tuple(shard.replica_id_of(index) for index in (*OTHERS, OWN))
    world.group, world.placed = Configuration(2, op, 2, members), (1, 2)


def polled(world: World, times: int = 1) -> Holdings:
    holdings = Holdings(cast(Any, world), logging.getLogger("holding"))
    for _ in range(times):
        asyncio.run(holdings.poll())
    return holdings


def starts(world: World) -> bool:
    """Whether a start of the node starts the replica."""
    return next(c.wanted for c in children(world.node, ROLES) if c.name == "replica-0")


def test_a_replica_that_belongs_to_its_group_is_left_alone(world: World) -> None:
    before = read_facts(world.node.volume(0))
    polled(world, 3)
    assert read_facts(world.node.volume(0)) == before and world.steps == 0 and starts(world)
    assert world.questions == 0  # they cost connections to all members


def test_one_whom_nobody_placed_elsewhere_is_left_alone_too(world: World) -> None:
    """Who was taken out by hand is stopped by hand."""
    without(world, 60)
    world.placed = ()
    polled(world, 3)
    assert world.steps == 0 and starts(world)


def test_one_that_is_to_come_and_is_no_member_yet_begins_with_a_new_volume(world: World) -> None:
    """The old one, of who was removed by hand, knows a past that may not be the group's."""
    without(world, 60)
    world.placed = (1, 2)
    polled(world)
    assert not starts(world) and not world.node.volume(0).exists()
    with_it(world, 70)
    polled(world)
    assert starts(world) and read_superblock(world.node.volume(0)).members_op == 70


def test_one_that_is_reported_to_be_out_and_is_in_is_left_alone(world: World) -> None:
    without(world, 60)
    reported, before = world.member, read_facts(world.node.volume(0))
    with_it(world, 70)

    class Behind(World):
        @property
        def member(self) -> Any:
            return reported

    world.__class__ = Behind
    polled(world, 3)
    assert world.questions == 3 and world.steps == 0
    assert read_facts(world.node.volume(0)) == before and starts(world)


def test_wherever_it_is_cut_off_it_goes_on(world: World) -> None:
    """Out, in, out again and in: with a cut at every step of all of them."""
    old, cut = read_facts(world.node.volume(0))["id"], 0
    op = 60
    while True:
        world.steps, world.cut_at, world.ran_on = 0, cut, []
        cuts = 0
        for change in (without, with_it):
            op += 10
            change(world, op)
            try:
                polled(world)
            except Cut:
                cuts += 1
                world.cut_at = -1
                polled(world, 2)
            aside = [path for path in world.node.path.glob("shard-0.left-*") if path.is_dir()]
            if change is without:
                assert not world.wanted and not starts(world)
                assert not world.node.volume(0).exists()
                assert aside and old in [read_facts(path)["id"] for path in aside]
            else:
                assert world.wanted and starts(world)
                new = read_facts(world.node.volume(0))["id"]
                assert {*world.ran_on} == {new} and new != old
                block = read_superblock(world.node.volume(0))
                assert (block.epoch, block.members_op) == (2, op)
                old = new
        if not cuts:
            break
        cut += 1
        for path in world.node.path.glob("shard-0.left-*"):
            removal.remove(path)
    assert cut >= 8  # steps that were cut


def test_a_volume_that_was_lost_is_not_made_anew(world: World) -> None:
    """An empty one would deny what the lost one acknowledged: that is the operator's to decide."""
    os.rename(world.node.volume(0), world.node.path / "lost")
    polled(world, 3)
    with_it(world, 60)  # as one that follows, and nobody has moved it away before
    polled(world, 3)
    assert not world.node.volume(0).exists() and world.steps == 0


def test_a_group_older_than_the_one_that_was_reported_says_nothing(world: World) -> None:
    without(world, 60)
    reported = world.member

    class Lagging(World):
        @property
        def member(self) -> Any:
            return reported

    world.__class__ = Lagging
    world.group = Configuration(1, 50, 2, world.group.members)
    polled(world)
    assert world.steps == 0 and starts(world)


def test_what_a_supervisor_refuses_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    without(world, 60)
    monkeypatch.setattr(holding, "ask_for", lambda *words, **named: {"done": False})
    assert "the supervisor does not stop" in polled(world).troubles[0]
    assert world.node.volume(0).exists()
    monkeypatch.setattr(holding, "ask_for", world.requested)
    holdings = polled(world)
    assert not holdings.troubles and not world.node.volume(0).exists()


def test_without_a_supervisor_it_waits_for_whoever_stops_and_starts_the_replica(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "ask_for", lambda *words, **named: None)
    monkeypatch.setattr(volumes, "RELEASE_S", 0.0)
    without(world, 60)
    lock = lock_replica(world.node.path, 0)
    assert "works as this replica: stop that one first" in polled(world).troubles[0]
    assert world.node.volume(0).exists()
    os.close(lock)
    assert not polled(world).troubles and not world.node.volume(0).exists()
    with_it(world, 70)
    assert "start the replica of shard 0" in polled(world).troubles[0]
    lock = lock_replica(world.node.path, 0)
    assert not polled(world).troubles and starts(world)
    os.close(lock)


def test_a_damaged_mark_is_told_and_nothing_is_made(world: World) -> None:
    without(world, 60)
    polled(world)
    (world.node.path / "shard-0.left").write_text("{")
    with_it(world, 70)
    assert "is damaged" in polled(world).troubles[0]
    assert not world.node.volume(0).exists()


def test_one_that_votes_gets_no_empty_volume(world: World) -> None:
    without(world, 60)
    polled(world)
    shard = world.node.site.shards[0]
    world.group = Configuration(3, 90, 3, tuple(shard.replica_ids))
    assert "votes and has no volume" in polled(world).troubles[0]
    assert not world.node.volume(0).exists()


def test_a_device_is_not_left_for_files_in_silence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(world, 60)
    polled(world)
    with_it(world, 70)
    former = world.node.path / "shard-0.left-60"
    on_device = {former: Path("/dev/nvme9n1")}
    monkeypatch.setattr(holding, "device_of", on_device.get)
    assert "lies on /dev/nvme9n1: link" in polled(world).troubles[0]
    assert not world.node.volume(0).exists()
    on_device[world.node.volume(0)] = Path("/dev/nvme8n1")
    polled(world)
    assert world.node.volume(0).exists() and world.wanted
