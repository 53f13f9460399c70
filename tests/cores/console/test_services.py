"""Farm, objects and other sites, as consoles show them, and the alarms of each."""

from typing import Any

from msgspec import UNSET

from appliance.cores.console.console import Console
from appliance.cores.console.model import Source
from appliance.formats.status.farm import MovesStatus, PostedStatus, SignedDirectory
from appliance.formats.status.part import plain
from tests.cores.console.worlds import edge, healthy, looked, names
from tests.cores.directory.statuses import server, status, view


def farm_answer(node: int, **changes: Any) -> dict[str, Any]:
    """What a member of the farm answers."""
    rows = [
        PostedStatus(id=i, index=i, age_ms=1000 * i, recent=True, endpoints=1) for i in (1, 2, 3)
    ]
    answer: dict[str, Any] = {
        "node": node,
        "id": node + 1,
        "role": "leader" if node == 1 else "follower",
        "term": 4,
        "leader": 2,
        "commit": 70 + node,
        "members": [server(i, 70 if node == 1 else 0) for i in (1, 2, 3)],
        "view": view(publisher=3, scores={3: (1, 2, 8, 0, -3)}, documents=rows),
        "directory": SignedDirectory(version=69),
    }
    return plain(status(**answer | changes))


def farmed(**changes: Any) -> Console:
    members = {Source("farm", i, 0): farm_answer(i, **changes) for i in range(3)}
    return looked(healthy() | members)


def test_the_farm_is_shown_as_its_leader_knows_it() -> None:
    console = farmed()
    table = console.tables()[-1]
    assert table.title == "Farm"
    assert [[cell.text for cell in row][:6] for row in table.rows] == [
        ["node-0", "follower", "4", "70", "1 s", "–"],
        ["node-1", "leader", "4", "70", "2 s", "–"],
        ["node-2", "follower", "4", "70", "3 s", "publishes 69"],
    ]
    shown = console.plain()["farm"]
    assert (shown["leader"], shown["term"], shown["publisher"]) == (2, 4, 3)
    assert shown["why"] == "1 shard, up 2 h, 8/8 of its network free" and names(console) == []


def test_a_member_that_the_site_does_not_describe_is_shown_by_its_id() -> None:
    table = farmed(members=[server(2), server(9)]).tables()[-1]
    assert [row[0].text for row in table.rows] == ["node-1", "9"]


def test_a_farm_without_a_leader_and_an_expired_directory_are_alarms() -> None:
    assert names(farmed(leader=-1)) == [("farm_no_leader", "farm")]
    assert names(farmed(counts={"second_leader_of_term": 1})) == [("farm_two_leaders", "farm")]
    expired = farmed(directory=SignedDirectory(version=69, expired_ms=5000))
    assert names(expired) == [("directory_expired", "farm")]
    silent = looked(healthy() | {Source("farm", 0, 0): None})
    assert names(silent) == [("farm_no_leader", "farm")]
    gone = farmed(out="member was taken out", view=UNSET, role="", leader=-1)
    assert names(gone) == [("farm_no_leader", "farm")]


def test_what_is_to_move_is_shown_and_an_alarm_once_it_stands_for_ten_minutes() -> None:
    steps = ["shard 0: node-2 is synced to 93 %", "shard 1: node-1 is taken in"]
    moving = MovesStatus(steps=steps, stood_ms=600_000)
    table = farmed(moves=moving).tables()[-1]
    assert table.title == "Moves" and names(farmed(moves=moving)) == []
    assert [[cell.text for cell in row] for row in table.rows] == [
        [steps[0], "10 min"],
        [steps[1], "–"],
    ]
    stands = farmed(moves=MovesStatus(steps=steps, stood_ms=600_001, trouble="it lags"))
    (alarm,) = stands.alarms()
    assert alarm.name == "move_stands" and alarm.text == f"{steps[0]}, for 10 min; it lags"
    here = farmed(moves=MovesStatus(here={0: "no room"}))
    assert names(here) == [("move_stands", f"node-{node}") for node in range(3)]


def test_a_member_without_a_view_does_not_speak_for_the_farm() -> None:
    viewless = {Source("farm", 0, 0): farm_answer(0, view=UNSET, term=9)}
    others = {Source("farm", i, 0): farm_answer(i) for i in (1, 2)}
    assert looked(healthy() | viewless | others).plain()["farm"]["term"] == 4
    assert names(looked(healthy() | viewless)) == [("farm_no_leader", "farm")]


def objects_answer(node: int, vector: str, **changes: Any) -> dict[str, Any]:
    """What the objects of a node answer."""
    answer = {
        "node": node,
        "source": f"{0x1000 + node:x}",
        "vv": vector,
        "alarm": "",
        "counters": {"applied": 9, "refused_record_depth": 2, "refused_no_header": 1},
        "sessions": [{"peer": "node-1", "complete": node == 0}],
        "live_links": 2,
        "sites": [{"site": 7}],
    }
    return answer | changes


def test_the_objects_are_shown_with_links_lag_and_refused_packets() -> None:
    answers = {
        Source("metadata", 0, 0): objects_answer(0, "1000-a,1001-3"),
        Source("metadata", 1, 0): objects_answer(1, "1000-4"),
        Source("metadata", 2, 0): None,
    }
    console = looked(healthy() | answers)
    table = console.tables()[-1]
    assert table.title == "Objects"
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["node-0", "1000", "node-1", "2", "7", "0", "3", "1000-a,1001-3"],
        ["node-1", "1001", "node-1?", "2", "7", "9", "3", "1000-4"],
    ]
    assert [line["behind"] for line in console.plain()["objects"]] == [0, 9]
    assert names(console) == []


def test_objects_that_take_no_edits_are_an_alarm() -> None:
    full = objects_answer(1, "", alarm="the store of objects is full")
    assert names(looked(healthy() | {Source("metadata", 1, 0): full})) == [
        ("objects_refuse", "node-1")
    ]


def test_an_edge_to_which_no_node_tells_the_log_of_a_shard_is_an_alarm() -> None:
    told = edge(remote={1: "node-2", 2: "", 3: ""})
    console = looked(healthy() | {Source("edge", 1, 0): told})
    assert names(console) == [("edge_untold", "edge 0 on node-1")]
    (alarm,) = console.alarms()
    assert alarm.severity == "bad" and alarm.text == "no node tells it the log of shard 2, 3"
    assert names(looked(healthy() | {Source("edge", 1, 0): edge(remote={1: "node-2"})})) == []


def federation_answer(node: int, *, carries: bool, **changes: Any) -> dict[str, Any]:
    """What the federation of a node answers, which shares two rooms with uni and one with lab."""
    sizes = {"log": 9, "outgoing": 3, "backlog": 40, "waiting": 2, "ready": 1, "wanted": 5}
    counted = {"counts": {"sent": 200, "resent": 25}, "dropped": {"signature": 2}}
    rooms = [
        {"room": "", "channel": "00", "sites": sites, "numbers": {}, **sizes, **counted}
        for sites in ({"uni": 3}, {"uni": 3, "lab": 1})
    ]
    shard = {"shard": 0, "carries": carries, "error": "", "rooms": rooms}
    answer = {
        "node": node,
        "site": "home",
        "sites": ["uni", "lab"],
        "links": {"uni": 2},
        "dropped": {"lamport": 7},
        "shards": [shard],
    }
    return answer | changes


def test_each_other_site_is_shown_with_links_what_waits_loss_and_drops() -> None:
    answers = {
        Source("federation", 0, 0): federation_answer(0, carries=True, links={"uni": 2, "lab": 1}),
        Source("federation", 1, 0): federation_answer(1, carries=False),
        Source("federation", 2, 0): None,
    }
    console = looked(healthy() | answers)
    table = console.tables()[-1]
    assert table.title == "Federation"
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["home on node-0", "uni", "2", "2", "86", "6", "10", "12.5 %", "lamport 7, signature 4"],
        ["home on node-0", "lab", "1", "1", "43", "3", "5", "12.5 %", "–"],
        ["home on node-1", "uni", "2", "0", "0", "0", "0", "–", "lamport 7"],
        ["home on node-1", "lab", "0", "0", "0", "0", "0", "–", "–"],
    ]
    assert console.plain()["federation"][0]["sites"][1]["unacknowledged"] == 43
    assert names(console) == [], "who stands by needs no link"


def test_a_site_that_cannot_be_reached_and_rooms_that_are_not_carried_are_alarms() -> None:
    cut = federation_answer(0, carries=True)
    console = looked(healthy() | {Source("federation", 0, 0): cut})
    assert names(console) == [("site_away", "site lab")]
    cut["shards"][0]["error"] = "the store is full"
    console = looked(healthy() | {Source("federation", 0, 0): cut})
    assert names(console) == [("sharing_broken", "node-0"), ("site_away", "site lab")]
