"""A lost volume made anew from the console: when it is offered, why refused, what proves it."""

from dataclasses import replace
from typing import Any

from appliance.cores.console.about import About
from appliance.cores.console.acts import BY_NAME, offers
from appliance.cores.console.model import SiteSnapshot, Source
from tests.cores.console.test_acts import has_come_true, seen, sentence, why, without, world
from tests.cores.console.worlds import Raw, replica, site

HALT = {"pid": None, "ready": False, "halt": "VOLUME_MOVED: its folder leads elsewhere"}


def lost(**nodes: dict[str, dict[str, Any]]) -> Raw:
    """The replica of node 1 has halted."""
    return world(n1={"replica_0": HALT}, **nodes) | {Source("replica", 1, 0): None}


def shown(snapshot: SiteSnapshot) -> list[int]:
    """Of which nodes it is offered beside their replicas."""
    rows = [offers(snapshot, "Replicas", About(node, "replica-0")) for node in range(3)]
    return [each["about"]["node"] for row in rows for each in row if each["act"] == "recover"]


def test_a_lost_volume_is_made_anew_where_its_replica_has_halted() -> None:
    snapshot = seen(lost())
    assert shown(snapshot) == [1] and shown(seen(world())) == []
    assert why("recover", snapshot, node=1) == ""
    assert "the folder of node-1 are made anew" in sentence("recover", snapshot, node=1)
    assert BY_NAME["recover"].typed(snapshot, About(1)) == "node-1"
    assert has_come_true("recover", snapshot, seen(world()), node=1)


def test_it_is_done_when_the_replica_is_level_and_until_then_told_how_far_it_is() -> None:
    before, waits = seen(lost()), BY_NAME["recover"].waits
    assert waits(before, About(1)) == "node-1 to be level (shard 0: the volume is made)"
    halted = {"replica_0": {"halt": HALT["halt"]}}  # which is told until it has served for a while
    for changes, words in (
        ({"synced": [60, 5678], "log_seq": 60}, "the state comes, 60 of 5,678 records"),
        ({"commit": 34, "op": 34}, "1,200 operations behind"),
    ):
        raw = world(n1=halted) | {Source("replica", 1, 0): replica(1, **changes)}
        assert not has_come_true("recover", before, seen(raw), node=1), words
        assert waits(seen(raw), About(1)) == f"node-1 to be level (shard 0: {words})"
    level = seen(world(n1=halted))
    assert has_come_true("recover", before, level, node=1) and shown(level) == []


def test_where_the_lost_replica_is_the_only_one_of_its_machine_silence_is_not_taken_for_level() -> (
    None
):
    alone = {source: said for source, said in lost().items() if source.node == 1}
    before, waits = seen(alone), BY_NAME["recover"].waits
    assert shown(before) == [1] and why("recover", before, node=1) == ""
    assert waits(before, About(1)) == "node-1 to be level (shard 0: the volume is made)"
    level = {source: said for source, said in world().items() if source.node == 1}
    assert has_come_true("recover", before, seen(level), node=1)
    assert waits(seen(level), About(1)) == "node-1 to be level (all is there)"


def test_a_replica_that_an_operator_has_stopped_is_not_waited_for() -> None:
    two = site(shards=2)
    halted = lost()
    children = halted[Source("supervisor", 1, 0)]["children"]  # type: ignore[index]
    stopped = {"name": "replica-1", "pid": None, "ready": False, "halt": "", "wanted": False}
    children.append(stopped)
    before = seen(halted, two)
    back = world()
    back[Source("supervisor", 1, 0)]["children"].append(stopped)  # type: ignore[index]
    after = seen(back, two)
    assert has_come_true("recover", before, after, node=1)
    assert BY_NAME["recover"].waits(after, About(1)) == "node-1 to be level (all is there)"


def test_nothing_is_made_anew_that_is_not_lost_or_that_nobody_vouches_for() -> None:
    assert why("recover", seen(world()), node=1) == (
        "no replica of node-1 has halted: there is nothing to make anew"
    )
    there = "there `tigerchat recover --node-folder F`"
    beyond = {source: said for source, said in lost().items() if source.node != 1}
    assert why("recover", seen(beyond), node=1) == f"node-1 is on another machine: {there}"
    dead = seen(without(world(), 1))
    assert why("recover", dead, node=1).endswith(f"its supervisor does not answer: {there}")
    few = seen(without(lost(), 2))
    assert why("recover", few, node=1).startswith("shard 0 has 1 of 2 needed replicas: ")
    two = site()
    shard = replace(two.shards[0], replica_count=2, standby_count=1)
    small = seen(lost(), replace(two, shards=[shard]))
    assert why("recover", small, node=1).startswith(
        "shard 0 has 2 replicas: nobody else can vouch for what the lost one acknowledged; only a "
    )
