"""An edge hears of nodes that join: at once, and of those of long ago when one is missed."""

import os

from appliance.base import limits
from appliance.cores.edge.joining_nodes import JoiningNodes
from appliance.cores.edge.revocations import Revocations
from appliance.formats import record as rec
from appliance.formats.joining_node import encode_joining
from appliance.formats.site import Node
from tests.cores.edge.world import START_US, World
from tests.formats.test_joining_node import PEM

LIFE_S = 3600  # of the longest token


def node(index: int, key: int = 1) -> Node:
    return Node(index, f"n{key}", "10.0.0.4", 7400, 7443, 7480, bytes([key]) * 32, PEM, "", 7490)


def world(joining: JoiningNodes, *, attached: bool = True) -> World:
    made = World(revocations=Revocations(LIFE_S), joining=joining, attached=attached)
    made.tick()
    return made


def say(world: World, body: bytes, seq: int) -> None:
    """An audit record is committed; the edge has not heard of it yet."""
    empty = {"count": 0, "head": bytes(32), "created": 0, "sealed": 0}
    world.shard.rooms.setdefault(rec.SHARD_ROOM_ID, empty)
    raw = rec.encode(
        room_id=rec.SHARD_ROOM_ID,
        msg_id=os.urandom(16),
        author_id=0,
        body=body,
        client_id=bytes(15) + b"o",
        client_seq=seq,
        kind=rec.KIND_AUDIT,
    )
    world.shard.apply(raw)


def describe(world: World, joining: Node, seq: int = 1) -> None:
    say(world, encode_joining(joining, node="node-0", at_us=1), seq)


def test_who_joins_is_heard_at_once_and_comes_in_order() -> None:
    joining = JoiningNodes(3)
    one = world(joining)
    describe(one, node(4, key=2), 1)
    describe(one, node(2, key=3), 2)  # is in the site file
    one.publish()
    assert joining.next_after(3) is None, "the one before it is not known yet"
    describe(one, node(3), 3)
    describe(one, node(3, key=9), 4)  # the log had let go of the first
    one.publish()
    assert joining.next_after(3) == node(3)
    assert joining.next_after(4) == node(4, key=2)
    assert joining.next_after(5) is None
    assert joining.next_after(4) is None, "what the site file has is forgotten"


def reader_after(years: int, joining: JoiningNodes) -> World:
    """An edge that begins so long after somebody joined."""
    past = world(JoiningNodes(3))
    describe(past, node(3))
    for seq in range(2, 3 * limits.REVOCATIONS_PAGE):
        past.shard.step_us = 1_000_000
        say(past, b"{}", seq)
    fresh = World(revocations=Revocations(LIFE_S), joining=joining, attached=False)
    fresh.shard = past.shard
    fresh.now_us = START_US + years * 365 * 86_400 * 1_000_000
    fresh.attach()
    fresh.tick(8)
    return fresh


def test_of_long_ago_only_who_is_missed_is_read() -> None:
    joining = JoiningNodes(3)
    fresh = reader_after(2, joining)
    room = fresh.edge.lookup.shard_room
    assert room is not None and room.is_read and joining.next_after(3) is None
    joining.is_missed = True
    room.read_again()
    fresh.tick(8)
    assert room.is_read and joining.next_after(3) == node(3)


def test_an_edge_that_begins_soon_after_reads_it_without_being_asked() -> None:
    joining = JoiningNodes(3)
    reader_after(0, joining)
    assert joining.next_after(3) == node(3)
