"""Acts on the site and on the farm: what each says, why it is refused, what proves it done."""

from dataclasses import replace
from typing import Any

from appliance.cores.console.about import About
from appliance.cores.console.act import SITE
from appliance.cores.console.acts import ACTS, BY_NAME, offers, unwritten
from appliance.cores.console.farm import Farm, FarmMember
from appliance.cores.console.model import SiteSnapshot, Source
from tests.cores.console.test_acts import has_come_true, seen, sentence, why, without, world
from tests.cores.console.worlds import Raw, replica, site

HOUR_MS = 3_600_000


def shipping(*, cursor: int = 40, log_seq: int = 52, **changes: Any) -> Raw:
    """Node 1 ships shard 0, nodes 0 and 2 wait for it."""
    raw = world()
    for node in range(3):
        shard = {
            "shard": 0, "attached": True, "cursor": cursor, "log_seq": log_seq, "hole": "",
            "late_s": 0.0, "generation": 1, "node": 1, "ships": node == 1,
        }  # fmt: skip
        own = changes if node == 1 else {}
        raw[Source("shipper", node, 0)] = {"node": node, "late_s_max": 9, "shards": [shard | own]}
    return raw


def test_what_is_committed_is_shipped_now_and_told_when_it_is() -> None:
    snapshot = seen(shipping())
    assert why("ship-now", snapshot) == ""
    assert sentence("ship-now", snapshot) == (
        "The present period ends now, and what was committed until now is shipped: about 12 "
        "records."
    )
    assert has_come_true("ship-now", snapshot, seen(shipping(cursor=52, log_seq=60)))
    assert not has_come_true("ship-now", snapshot, seen(shipping(cursor=51)))
    closing = seen(shipping(cursor=52, closing=True))
    assert not has_come_true("ship-now", snapshot, closing), "the period is not closed yet"
    gone = seen(without(shipping(cursor=52), 1))
    assert not has_come_true("ship-now", snapshot, gone), "nobody says so"
    failing = seen(shipping(error="the target is away"))
    assert BY_NAME["ship-now"].waits(failing, About()).endswith("; shard 0: the target is away")


def test_nothing_is_shipped_or_verified_where_nobody_ships() -> None:
    silent = seen(without(shipping(), 0, 1, 2))
    off = world()
    for node in range(3):
        off[Source("shipper", node, 0)] = {"node": node, "late_s_max": 0, "shards": []}
    for act in ("ship-now", "ship-verify"):
        assert why(act, silent) == "no shipper answers: start the node"
        assert why(act, seen(off)).startswith('ship_target is "off" in node.toml of every node')
        assert why(act, seen(shipping())) == ""
    beyond = {source: said for source, said in shipping().items() if source.node != 1}
    assert why("ship-now", seen(beyond)) == (
        "shard 0: node-1 ships it and was not asked; say this there, or claim it with --claim"
    )


def ahead(log_ahead_ms: int) -> Raw:
    raw = world()
    for node in range(3):
        clock = {"log_ahead_us": log_ahead_ms * 1000}
        raw[Source("replica", node, 0)] = replica(
            node, role="backup" if node else "primary", clock=clock
        )
    return raw


def test_log_time_is_brought_back_where_it_is_ahead_and_a_quorum_works() -> None:
    snapshot = seen(ahead(2 * HOUR_MS))
    of = {"shard": 0}
    assert why("clock-correct", snapshot, **of) == ""
    assert "Log time of shard 0 goes back by 2 h" in sentence("clock-correct", snapshot, **of)
    assert BY_NAME["clock-correct"].typed(snapshot, About(**of)) == "shard 0"
    assert [row["act"] for row in offers(snapshot, "Shards", About(shard=0))][-1] == "clock-correct"
    after = seen(ahead(0))
    assert has_come_true("clock-correct", snapshot, after, **of)
    assert why("clock-correct", after, **of) == "shard 0: log time is not ahead of the clock"
    assert why("clock-correct", seen(without(ahead(HOUR_MS), 0, 1, 2)), **of) == (
        "shard 0: no replica of this machine serves: start it first"
    )
    few = seen(without(ahead(HOUR_MS), 0, 1))
    assert why("clock-correct", few, **of).startswith("shard 0 has 1 of 2 needed replicas: ")
    assert not BY_NAME["clock-correct"].seen(
        seen(without(ahead(0), 0, 1, 2)), About(**of), snapshot
    )


def test_what_is_to_be_written_is_asked_for_and_judged() -> None:
    room, days = BY_NAME["room-create"], BY_NAME["retention-set"]
    assert unwritten(room, {}) == "write first: Name of the room"
    assert unwritten(room, {"room": "general"}) == ""
    assert unwritten(room, {"room": " general"}).startswith("the name is ' general'; allowed: 1 to")
    assert unwritten(room, {"room": "a", "more": "b"}) == "more is written than the act asks for"
    assert unwritten(days, {"days": "30.5"}) == "" == unwritten(days, {"days": "everything"})
    for wrong in ("-1", "0", "nan", "x", "99999"):
        assert unwritten(days, {"days": wrong}).startswith(f"days are {wrong!r}; allowed: every")
    assert days.typed(seen(world()), About()) == "retention"
    assert "Now everything is kept." in sentence("retention-set", seen(world()))
    assert "write first: Name of the user" in unwritten(BY_NAME["token"], {"rights": "r"})


def test_a_new_name_and_rights_of_a_room_are_judged_before_anybody_is_asked() -> None:
    rename, rights = BY_NAME["room-rename"], BY_NAME["room-rights"]
    assert unwritten(rename, {"room": "a", "new_name": "b"}) == ""
    assert unwritten(rename, {"room": "a"}) == "write first: Its new name"
    for wrong in ({"room": " a", "new_name": "b"}, {"room": "a", "new_name": " b"}):
        assert "no space at either end" in unwritten(rename, wrong)
    usual = {asked.name: asked.usual for asked in rights.asks} | {"room": "a"}
    assert unwritten(rights, usual).startswith("nothing is to be changed: write who may")
    for right, who in (
        ("read", "moderators"), ("send", "anna, Bo Berg"), ("send", "all"), ("moderate", "anna"),
    ):  # fmt: skip
        assert unwritten(rights, usual | {right: who}) == "", (right, who)
    for right, who in (("moderate", "moderators"), ("send", "anna,,bo"), ("read", "a\nb")):
        assert unwritten(rights, usual | {right: who}).startswith(f"{right} is "), (right, who)
    assert "no space at either end" in unwritten(rights, usual | {"room": " a", "read": "all"})


def test_rooms_and_standbys_need_a_quorum() -> None:
    few = seen(without(world(), 1, 2))
    rooms = ("room-create", "room-close", "room-reopen", "room-rename", "room-rights")
    for act in (*rooms, "member-add"):
        assert why(act, seen(world())) == ""
        assert why(act, few).startswith("shard 0 has 1 of 2 needed replicas: ")


def test_a_node_was_added_when_its_shard_has_it() -> None:
    snapshot, four = seen(world()), site(4)
    shard = replace(four.shards[0], replica_count=3, standby_count=1)
    after = seen(world(), replace(four, shards=[shard]))
    assert has_come_true("member-add", snapshot, after)


def test_a_bundle_is_offered_of_nodes_on_this_machine() -> None:
    snapshot = seen({source: said for source, said in world().items() if source.node != 1})
    shown = [row for row in offers(snapshot, SITE, About()) if row["act"] == "support"]
    assert [row["about"]["node"] for row in shown] == [0, 2]
    assert why("support", snapshot, node=0) == ""
    assert why("support", snapshot, node=1) == (
        "node-1 is on another machine: ask the console there, or there `tigerchat support "
        "--node-folder F`"
    )


def test_each_act_says_of_what_it_is_one() -> None:
    kinds = {act.name: act.kind for act in ACTS}
    assert {name for name, kind in kinds.items() if kind == "member"} == {
        "promote", "retire", "remove",
    }  # fmt: skip
    assert {name for name, kind in kinds.items() if kind == "shard"} == {
        "step-down", "clock-correct", "farm-place",
    }  # fmt: skip
    assert (kinds["stop"], kinds["drain"], kinds["token"]) == ("process", "node", "site")
    assert all(not act.asks or not act.shown(seen(world()), About(1)) for act in ACTS)


# --- the farm -------------------------------------------------------------------------------------


def farm(snapshot: SiteSnapshot, **changes: Any) -> SiteSnapshot:
    """Members 1 to 3 of nodes 0 to 2; node 0 leads, node 1 publishes."""
    members = tuple(FarmMember(i, 1, 1) for i in (1, 2, 3))
    found = replace(Farm(1, 1, 1, members, 2, "", 7, 0), **changes)
    return replace(snapshot, farm=found)


def test_a_node_is_kept_out_of_the_directory_and_let_in_again() -> None:
    snapshot = farm(seen(world()))
    out = farm(seen(world()), excluded=(3,))
    assert why("farm-exclude", snapshot, node=2) == ""
    assert BY_NAME["farm-exclude"].typed(snapshot, About(2)) == "node-2"
    assert has_come_true("farm-exclude", snapshot, out, node=2)
    assert why("farm-exclude", out, node=2) == "node-2 is kept out of the directory already"
    assert why("farm-lift", out, node=2) == ""
    assert has_come_true("farm-lift", out, snapshot, node=2)
    assert why("farm-lift", snapshot, node=2) == "node-2 is not kept out of the directory"
    rows = [row["act"] for row in offers(out, "Farm", About(2))]
    assert rows == ["farm-lift", "farm-remove"]
    led = [row["act"] for row in offers(snapshot, "Farm", About(0))]
    assert led == ["farm-exclude", "farm-yield", "farm-remove"]


def test_the_farm_is_led_by_another_and_its_directory_signed_anew() -> None:
    snapshot = farm(seen(world()))
    assert why("farm-yield", snapshot, node=0) == ""
    assert has_come_true("farm-yield", snapshot, farm(seen(world()), leader=3), node=0)
    assert why("farm-yield", snapshot, node=1) == "node-1 does not lead the farm"
    alone = farm(seen(world()), members=(FarmMember(1, 1, 1),))
    assert why("farm-yield", alone, node=0).endswith("is the only member of the farm: nobody else "
                                                     "can lead")  # fmt: skip
    assert why("farm-publish", snapshot, node=1) == ""
    assert has_come_true("farm-publish", snapshot, farm(seen(world()), directory=8), node=1)
    assert why("farm-publish", snapshot, node=0) == "node-0 does not publish the directory"
    beyond = {source: said for source, said in world().items() if source.node == 2}
    for act, node in (("yield", 0), ("publish", 1)):
        assert why(f"farm-{act}", farm(seen(beyond)), node=node).endswith(
            f"is on another machine: there `tigerchat farm {act} --node-folder F`"
        )


def test_a_member_leaves_the_farm_and_is_let_in_again() -> None:
    snapshot = farm(seen(world()))
    out = farm(seen(world()), members=(FarmMember(1, 1, 1), FarmMember(2, 1, 1)))
    assert why("farm-remove", snapshot, node=2) == ""
    assert BY_NAME["farm-remove"].typed(snapshot, About(2)) == "node-2"
    assert has_come_true("farm-remove", snapshot, out, node=2)
    assert why("farm-remove", out, node=2) == "node-2 is no member of the farm"
    assert "farm-remove" not in [row["act"] for row in offers(out, "Farm", About(2))]
    assert why("farm-admit", out, node=2) == ""
    assert has_come_true("farm-admit", out, snapshot, node=2)
    assert why("farm-admit", snapshot, node=2) == "node-2 is a member of the farm already"
    shown = [row for row in offers(out, SITE, About()) if row["act"] == "farm-admit"]
    assert [row["about"] for row in shown] == [{"node": 2}], "it stands in no row of the farm"
    assert "farm-admit" not in [row["act"] for row in offers(snapshot, SITE, About())]
    alone = farm(seen(world()), members=(FarmMember(1, 1, 1),))
    assert why("farm-remove", alone, node=0) == (
        "node-0 is the only member of the farm: nobody would sign its directory"
    )


def test_what_the_farm_says_of_all_is_offered_where_there_is_a_farm() -> None:
    snapshot = farm(seen(world()))
    of_all = (("Shards", About(shard=0), "farm-place"), (SITE, About(), "farm-period"))
    for group, row, act in of_all:
        assert act in [shown["act"] for shown in offers(snapshot, group, row)]
        assert act not in [shown["act"] for shown in offers(seen(world()), group, row)]
    period = BY_NAME["farm-period"]
    assert unwritten(period, {"ms": "200"}) == "" == unwritten(period, {"ms": " 3600000 "})
    for wrong in ("199", "3600001", "-5", "x", "1e3", "2" * 90):
        assert unwritten(period, {"ms": wrong}) == "ms must be 200 to 3600000"
    assert unwritten(BY_NAME["farm-place"], {}).startswith("write first: Names of nodes")


def test_nothing_is_done_to_a_farm_that_nobody_leads() -> None:
    nobody, none = farm(seen(world()), leader=0), seen(world())
    other = {"farm-place": {"shard": 0}, "farm-period": {}}
    for act in [act.name for act in ACTS if act.name.startswith("farm-")]:
        of = other.get(act, {"node": 0})
        assert why(act, nobody, **of).startswith("nobody leads the farm: nothing could be")
        assert why(act, none, **of) == ("no member of the farm answers here: start the site first")
