"""The table of acts: what each says will happen, each reason why it is refused, and what proves it
done."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.cores.console.about import About
from appliance.cores.console.acts import ACTS, BY_NAME, is_named, offers, refusal
from appliance.cores.console.console import Console
from appliance.cores.console.farm import Farm, FarmMember
from appliance.cores.console.model import SiteSnapshot, Source
from appliance.formats.site import Site
from appliance.formats.site_view import SiteView
from tests.cores.console.worlds import WALL_MS, Raw, edge, healthy, poll, replica, site

ROLES = ("replica-0", "edge-0", "console", "shipper", "farm", "keeper")


def supervisor(**changes: dict[str, Any]) -> dict[str, Any]:
    """A node whose processes all run, but for what `changes` say of some, by name."""
    children = []
    for name in ROLES:
        child = {"name": name, "pid": 7, "ready": True, "halt": "", "wanted": True}
        children.append(child | changes.get(name.replace("-", "_"), {}))
    return {"children": children}


STOPPED = {"pid": None, "ready": False, "wanted": False}


def world(**nodes: dict[str, dict[str, Any]]) -> Raw:
    """All well; `n1={"edge_0": STOPPED}` changes processes of node 1."""
    answers: Raw = healthy()
    for node in range(3):
        answers[Source("supervisor", node, 0)] = supervisor(**nodes.get(f"n{node}", {}))
    return answers


def without(raw: Raw, *nodes: int) -> Raw:
    """As if these nodes had been killed: nobody there answers."""
    return {source: None if source.node in nodes else said for source, said in raw.items()}


def seen(raw: Raw, of: Site | None = None) -> SiteSnapshot:
    console = Console(SiteView(site() if of is None else of))
    poll(console, raw, now_ms=1000, wall_ms=WALL_MS)
    return console.seen()


def why(act: str, snapshot: SiteSnapshot, **about: Any) -> str:
    named = About(**about)
    assert is_named(BY_NAME[act], snapshot, named)
    return refusal(act, snapshot, named)


def sentence(act: str, snapshot: SiteSnapshot, **about: Any) -> str:
    return BY_NAME[act].sentence(snapshot, About(**about))


def has_come_true(act: str, before: SiteSnapshot, after: SiteSnapshot, **about: Any) -> bool:
    row, named = BY_NAME[act], About(**about)
    assert not row.seen(before, named, before), "it is told by its effect alone"
    return row.seen(after, named, before)


def test_edges_are_drained_while_others_serve() -> None:
    snapshot = seen(world())
    assert why("drain", snapshot, node=1) == ""
    assert sentence("drain", snapshot, node=1) == (
        "node-1 sends its 21 chat clients to other nodes and takes none any more; its replicas go "
        "on."
    )
    after = seen(world(n1={"edge_0": STOPPED}))
    assert has_come_true("drain", snapshot, after, node=1)
    assert why("drain", after, node=1) == "node-1 is drained already"
    ending = seen(world(n1={"edge_0": {"wanted": False}}))
    assert not has_come_true("drain", snapshot, ending, node=1), "it still runs"


def test_the_last_edge_of_a_site_is_not_taken_from_its_clients() -> None:
    snapshot = seen(without(world(n1={"edge_0": {"wanted": False}}), 2))
    sentence = (
        "no edge that serves is left: chat clients would have nowhere to go; bring another node up "
        "first (`tigerchat status`)"
    )
    assert why("drain", snapshot, node=0) == f"without node-0 {sentence}"
    assert why("stop", snapshot, node=0, process="edge-0") == f"without edge-0 of node-0 {sentence}"
    beyond = {s: said for s, said in world().items() if s.node == 0}
    assert why("drain", seen(beyond), node=0) == "", "nodes on other machines serve"


def test_edges_are_taken_back() -> None:
    snapshot = seen(world(n1={"edge_0": STOPPED}))
    assert why("undrain", snapshot, node=1) == ""
    assert sentence("undrain", snapshot, node=1) == "node-1 takes chat clients again."
    assert has_come_true("undrain", snapshot, seen(world()), node=1)
    assert why("undrain", seen(world()), node=1) == "node-1 takes chat clients already"


def test_a_replica_is_stopped_while_the_others_are_a_quorum() -> None:
    snapshot = seen(world())
    of = {"node": 1, "process": "replica-0"}
    assert why("stop", snapshot, **of) == ""
    assert sentence("stop", snapshot, **of) == (
        "replica-0 of node-1 stops until it is started again. Then 2 replicas of shard 0 serve, 2 "
        "are needed: no other one may fail."
    )
    assert "; another replica leads. Then 2" in sentence(
        "stop", snapshot, node=0, process="replica-0"
    )
    assert BY_NAME["stop"].typed(snapshot, About(**of)) == "node-1"
    assert BY_NAME["stop"].typed(snapshot, About(1, "edge-0")) == ""
    after = world(n1={"replica_0": STOPPED})
    after[Source("replica", 1, 0)] = None
    assert has_come_true("stop", snapshot, seen(after), **of)


def test_no_stop_takes_a_quorum_away() -> None:
    expected = (
        "without node-1 shard 0 has 1 of 2 needed replicas: nothing could be acknowledged; bring "
        "the others up first (`tigerchat status`)"
    )
    of = {"node": 1, "process": "replica-0"}
    assert why("stop", seen(without(world(), 2)), **of) == expected
    changing = world()
    changing[Source("replica", 2, 0)] = replica(2, status="view_change")
    assert why("stop", seen(changing), **of) == expected
    told = seen(world(n2={"replica_0": {"wanted": False}}))
    assert told.shards[0].normal_count == 3
    assert why("stop", told, **of) == expected, "node-2 was told to end, and serves a moment more"


def test_a_stop_is_regretted_when_others_were_told_so_and_not_while_a_leader_is_chosen() -> None:
    of = About(1, "replica-0")
    regret = BY_NAME["stop"].regret
    told = seen(world(n1={"replica_0": {"wanted": False}}, n2={"replica_0": {"wanted": False}}))
    assert regret(told, of).startswith("without node-1 shard 0 has 1 of 2 needed replicas: ")
    choosing = world(n1={"replica_0": {"wanted": False}})
    for node in range(3):
        choosing[Source("replica", node, 0)] = replica(node, status="view_change")
    assert regret(seen(choosing), of) == "" == regret(told, About(1, "edge-0"))
    assert BY_NAME["stop"].undo == "start"


def test_what_else_a_process_is_not_stopped_for() -> None:
    snapshot = seen(world())
    stop = {"node": 1}
    assert why("stop", snapshot, **stop, process="nothing") == (
        "node-1 has no process nothing: console, edge-0, farm, keeper, replica-0, shipper"
    )
    assert why("stop", snapshot, **stop, process="console") == (
        "the console of node-1 is not stopped alone, as operators see and act by it: `tigerchat "
        "node stop node-1` stops the whole node"
    )
    gone = seen(world(n1={"keeper": STOPPED}))
    assert why("stop", gone, **stop, process="keeper") == "keeper of node-1 is stopped already"
    assert why("stop", snapshot, **stop, process="keeper") == ""
    assert sentence("stop", snapshot, **stop, process="keeper") == (
        "keeper of node-1 stops until it is started again; meanwhile what is older than the site "
        "keeps stays on the disk."
    )
    assert sentence("stop", snapshot, **stop, process="edge-0") == (
        "edge-0 of node-1 stops until it is started again; its 21 chat clients go to other edges."
    )


def test_a_shipper_in_mid_file_is_left_alone() -> None:
    shard = {"shard": 0, "attached": True, "cursor": 1, "log_seq": 9, "hole": "", "late_s": 0.0}
    raw = world()
    raw[Source("shipper", 1, 0)] = {
        "node": 1,
        "late_s_max": 600,
        "shards": [shard | {"doing": "put records 2 to 9"}],
    }
    assert why("stop", seen(raw), node=1, process="shipper") == (
        "the shipper of node-1 is at work in shard 0 (put records 2 to 9): wait until it has done "
        "so (`tigerchat ship status`)"
    )
    raw[Source("shipper", 1, 0)] = {"node": 1, "late_s_max": 600, "shards": [shard]}
    assert why("stop", seen(raw), node=1, process="shipper") == ""


def test_a_process_is_started_that_an_operator_has_stopped() -> None:
    snapshot = seen(world(n1={"keeper": STOPPED}))
    of = {"node": 1, "process": "keeper"}
    assert why("start", snapshot, **of) == ""
    assert sentence("start", snapshot, **of) == "keeper of node-1 is started again."
    assert has_come_true("start", snapshot, seen(world()), **of)
    coming = seen(world(n1={"keeper": {"ready": False}}))
    assert not has_come_true("start", snapshot, coming, **of)
    assert why("start", seen(world()), **of) == "keeper of node-1 runs already"
    assert "has no process x: " in why("start", snapshot, node=1, process="x")


@pytest.mark.parametrize(
    ("act", "about"),
    [
        ("drain", {}),
        ("undrain", {}),
        ("stop", {"process": "edge-0"}),
        ("start", {"process": "edge-0"}),
    ],
)
def test_nodes_that_cannot_be_told_are_named_with_what_to_do(
    act: str, about: dict[str, Any]
) -> None:
    elsewhere = {source: said for source, said in world().items() if source.node != 1}
    words = " --process edge-0" if about else ""
    assert why(act, seen(elsewhere), node=1, **about) == (
        "node-1 is on another machine: do it on the console of that machine, or there with "
        f"`tigerchat node {act} node-1{words} --node-folder F`"
    )
    alone = world()
    alone[Source("supervisor", 1, 0)] = None
    assert "roles of node-1 are one process (`start --one-process`)" in why(
        act, seen(alone), node=1, **about
    )
    assert why(act, seen(without(world(), 1)), node=1, **about) == (
        "nobody keeps the processes of node-1, its supervisor does not answer: start the node "
        "first, under systemd with `systemctl start tigerchat`"
    )


def reading(rounds: int, hurried: int) -> Raw:
    raw = world()
    raw[Source("replica", 1, 0)] = replica(1, scrub=[rounds, hurried])
    return raw


def test_a_replica_reads_all_that_it_holds_and_that_is_told_when_it_has() -> None:
    of = {"node": 1, "process": "replica-0"}
    snapshot = seen(reading(3, 0))
    assert why("scrub", snapshot, **of) == ""
    assert sentence("scrub", snapshot, **of).startswith(
        "replica-0 of node-1 reads its volume from end"
    )
    assert BY_NAME["scrub"].verb(snapshot, About(**of)) == "tigerchat node scrub node-1 --shard 0"
    assert has_come_true("scrub", snapshot, seen(reading(5, 5)), **of)
    assert not has_come_true("scrub", snapshot, seen(reading(4, 5)), **of)
    assert not has_come_true("scrub", snapshot, seen(reading(4, 4)), **of), (
        "half of it was read before"
    )
    assert not has_come_true("scrub", snapshot, seen(reading(0, 0)), **of), "it was started anew"
    assert why("scrub", seen(reading(3, 5)), **of) == (
        "node-1 reads all that its replica-0 holds already"
    )
    assert why("scrub", seen(without(world(), 1)), **of) == (
        "replica-0 of node-1 does not serve: bring it up first"
    )
    assert (
        why("scrub", snapshot, node=1, process="edge-0") == "edge-0 of node-1 is no replica of it"
    )
    beyond = {source: said for source, said in world().items() if source.node != 1}
    assert why("scrub", seen(beyond), **of).endswith(
        "`tigerchat node scrub node-1 --node-folder F`"
    )


# --- groups ---------------------------------------------------------------------------------------


def test_a_primary_steps_down_for_the_next_that_is_level() -> None:
    snapshot = seen(world())
    of = {"node": 0, "shard": 0}
    assert why("step-down", snapshot, **of) == ""
    assert sentence("step-down", snapshot, **of) == (
        "node-0 lets node-1 lead shard 0; messages on their way are sent again, clients see a "
        "pause of some milliseconds."
    )
    after = world()
    for node, role in enumerate(("backup", "primary", "backup")):
        after[Source("replica", node, 0)] = replica(node, role=role, view=4)
    assert has_come_true("step-down", snapshot, seen(after), **of)
    assert why("step-down", seen(after), **of) == "node-0 does not lead shard 0: node-1 does"


def test_nobody_steps_down_where_nobody_could_lead_then() -> None:
    of = {"node": 0, "shard": 0}
    assert why("step-down", seen(without(world(), 1)), **of) == (
        "node-1 in shard 0 does not serve: bring it up first (`tigerchat status`)"
    )
    lagging = world()
    lagging[Source("replica", 1, 0)] = replica(1, commit=700)
    assert why("step-down", seen(lagging), **of) == (
        "node-1 in shard 0 lags by 534 operations: wait until `tigerchat status` shows it level"
    )
    assert why("step-down", seen(without(world(), 0)), **of) == (
        "shard 0 has no primary now: wait until one of its replicas leads"
    )
    few = seen(without(world(), 1, 2))
    assert why("step-down", few, **of).startswith("shard 0 has 1 of 2 needed replicas: ")
    elsewhere = {source: said for source, said in world().items() if source.node != 0}
    assert why("step-down", seen(elsewhere), **of).endswith(
        "`tigerchat node step-down node-0 --shard 0 --node-folder F`"
    )
    one = site(1)
    alone = {source: said for source, said in world().items() if source.node == 0}
    alone[Source("replica", 0, 0)] = replica(0, role="primary") | {"peers": {}}
    assert why("step-down", seen(alone, one), **of) == (
        "node-0 is the only replica of shard 0 that votes: nobody else can lead"
    )


def standing_by(**changes: Any) -> tuple[Raw, Site]:
    """Three that vote, and node 3, a standby."""
    four = site(4)
    (shard,) = four.shards
    of = replace(four, shards=[replace(shard, replica_count=3, standby_count=1)])
    peer = {"view": 3, "commit_min": 1234, "checkpoint": 960, "silent_ticks": 2}
    raw = world()
    for node in range(3):
        raw[Source("replica", node, 0)]["peers"]["3"] = peer  # type: ignore[index]
    raw[Source("replica", 3, 0)] = replica(3, role="standby", **changes)
    raw[Source("edge", 3, 0)] = edge()
    raw[Source("supervisor", 3, 0)] = supervisor()
    return raw, of


def test_a_standby_votes_in_the_place_of_another_when_it_is_level() -> None:
    snapshot = seen(*standing_by())
    words = (
        "node-3 votes in the place of node-1, which becomes a standby; 3 vote in shard 0, as "
        "before."
    )
    for act, node, other in (("promote", 3, 1), ("retire", 1, 3)):
        of = {"node": node, "other": other}
        assert why(act, snapshot, **of) == ""
        assert sentence(act, snapshot, **of) == words
        assert BY_NAME[act].typed(snapshot, About(**of)) == f"node-{node}"
        after = replace(snapshot, shards=(exchanged(snapshot, 3, 1),))
        assert has_come_true(act, snapshot, after, **of)
        assert why(act, after, **of) == "node-3 votes in the place of node-1 already"
        lags, site4 = standing_by(commit=100)
        assert why(act, seen(lags, site4), **of) == (
            "node-3 in shard 0 lags by 1,134 operations: wait until `tigerchat status` shows it "
            "level"
        )
        assert why(act, seen(without(*standing_by()[:1], 3), site4), **of) == (
            "node-3 in shard 0 does not serve: bring it up first (`tigerchat status`)"
        )
        few = seen(without(*standing_by()[:1], 0, 1), site4)
        assert why(act, few, **of) == (
            "shard 0 has 1 of 2 needed replicas: no change of its members can be committed; bring "
            "replicas back first (`tigerchat status`)"
        )
    assert "both vote; name a standby" in why("promote", snapshot, node=2, other=1)
    assert "neither of them votes" in why(
        "promote", replace(snapshot, shards=(exchanged(snapshot, 1, 1),)), node=3, other=1
    )


def exchanged(snapshot: SiteSnapshot, up: int, down: int) -> Any:
    """The shard as it is once these two nodes have changed places."""
    (shard,) = snapshot.shards
    members = [
        replace(member, standby=member.node != up)
        if member.node in (up, down)
        else member
        for member in shard.members
    ]  # fmt: skip
    if up == down:
        members = [replace(m, standby=m.node in (up, 3)) for m in shard.members]
    return replace(shard, members=tuple(members))


def test_an_exchange_that_would_leave_no_quorum_is_refused() -> None:
    """Node 0 is away: the group works with 1 and 2. Node 3 may take the place of 0, and of no
    other without being counted itself."""
    raw, of = standing_by()
    snapshot = seen(without(raw, 0), of)
    assert why("promote", snapshot, node=3, other=0) == ""
    raw[Source("supervisor", 3, 0)] = supervisor(replica_0={"wanted": False})
    ends = seen(without(raw, 0), of)
    assert "node-3 in shard 0 does not serve" in why("promote", ends, node=3, other=1)


def test_a_standby_is_removed_and_nobody_who_votes() -> None:
    snapshot = seen(*standing_by())
    assert why("remove", snapshot, node=3) == ""
    assert sentence("remove", snapshot, node=3) == (
        "node-3 belongs to no shard any more (shard 0); what it holds stays on its disk and is "
        "kept up no more."
    )
    assert BY_NAME["remove"].typed(snapshot, About(3)) == "node-3"
    assert BY_NAME["stop"].typed(snapshot, About(3, "replica-0")) == ""
    assert sentence("stop", snapshot, node=3, process="replica-0") == (
        "replica-0 of node-3 stops until it is started again; meanwhile the standby falls behind."
    )
    assert why("remove", snapshot, node=1) == (
        "node-1 votes in shard 0: let a standby take its place first, with `tigerchat member "
        "retire node-1 --promote STANDBY`"
    )
    (shard,) = snapshot.shards
    gone = tuple(replace(m, removed=m.node == 3) for m in shard.members)
    after = replace(snapshot, shards=(replace(shard, members=gone),))
    assert has_come_true("remove", snapshot, after, node=3)
    assert why("remove", after, node=3) == "node-3 is a member of no shard"
    few = seen(without(standing_by()[0], 0, 1), standing_by()[1])
    assert why("remove", few, node=3).startswith("shard 0 has 1 of 2 needed replicas: no change")
    one = site(1)
    alone = {source: said for source, said in world().items() if source.node == 0}
    assert why("remove", seen(alone, one), node=0).startswith(
        "node-0 is the last replica that votes in shard 0: "
    )


def test_a_farm_keeps_its_majority() -> None:
    """As a look has it once members of the farm were heard."""
    farm = Farm(1, 1, 1, tuple(FarmMember(i, 1, 1) for i in (1, 2, 3)), 1, "", 1, 0)
    for silent, left in (({}, 2), ({2: None}, 1)):
        snapshot = replace(seen(world()), farm=farm)
        kept = tuple(
            (node, name, replace(p, answers=node not in silent))
            for node, name, p in snapshot.processes
        )  # fmt: skip
        said = why("stop", replace(snapshot, processes=kept), node=1, process="farm")
        assert said == ("" if left == 2 else
            "without node-1 the farm has 1 of 2 needed members: nobody would sign its directory; "
            "bring the others up first (`tigerchat farm status`)")  # fmt: skip


# --- the table ------------------------------------------------------------------------------------


def test_an_act_is_about_what_the_site_has_and_nothing_else_is_said() -> None:
    snapshot = seen(world())
    for act in ACTS:
        assert is_named(act, snapshot, About()) == (act.named == ())
        whole = About(1, "edge-0", 0, 2)
        assert not is_named(act, snapshot, whole), "more is said than it is about"
        strange = {"node": 3, "process": "edge-0", "shard": 1, "other": 7}
        far = About(**{name: strange[name] for name in act.named})
        assert far == About() or not is_named(act, snapshot, far)
    assert not is_named(BY_NAME["promote"], snapshot, About(1, other=1))
    assert not is_named(BY_NAME["drain"], snapshot, About(-2))


def test_a_row_offers_what_fits_with_why_it_is_refused_and_the_verb_that_does_the_same() -> None:
    snapshot = seen(without(world(n0={"keeper": STOPPED}), 2))
    rows = offers(snapshot, "Replicas", About(1, "replica-0"))
    assert [row["act"] for row in rows] == ["scrub", "stop"]
    assert rows[1]["about"] == {"node": 1, "process": "replica-0"}
    assert rows[1]["refusal"] == why("stop", snapshot, node=1, process="replica-0") != ""
    assert rows[1]["verb"] == "tigerchat node stop node-1 --process replica-0"
    assert rows[1]["typed"] == "node-1"
    edges = offers(snapshot, "Edges", About(1, "edge-0"))
    assert [row["act"] for row in edges] == ["drain", "stop"]
    assert [row["act"] for row in offers(snapshot, "Shards", About(shard=0))] == ["step-down"]
    assert [row["act"] for row in offers(snapshot, "Processes", About(0, "keeper"))] == ["start"]
    standby = seen(*standing_by())
    beside = offers(standby, "Replicas", About(3, "replica-0"))
    assert [(row["act"], row["about"].get("other")) for row in beside] == [
        ("scrub", None), ("stop", None), ("promote", 0), ("promote", 1), ("promote", 2),
        ("remove", None),
    ]  # fmt: skip


def test_names_that_a_shell_would_obey_are_quoted_in_verbs() -> None:
    strange = site()
    strange.nodes[1] = replace(strange.nodes[1], name="<b>; rm -rf ~")
    snapshot = seen(world(), strange)
    assert BY_NAME["drain"].verb(snapshot, About(1)) == "tigerchat node drain '<b>; rm -rf ~'"


def test_acts_that_touch_who_serves_a_shard_are_told_from_others() -> None:
    assert {act.name for act in ACTS if act.touches_group(About(1, "replica-0"))} == set(BY_NAME)
    assert {act.name for act in ACTS if act.touches_group(About(1, "edge-0"))} == {
        "step-down", "promote", "retire", "remove", "member-add", "clock-correct",
    }  # fmt: skip


def test_what_an_operator_has_stopped_is_told_as_stopped() -> None:
    raw = world(n1={"edge_0": STOPPED, "replica_0": STOPPED})
    for kind in ("edge", "replica"):
        raw[Source(kind, 1, 0)] = None
    console = Console(SiteView(site()))
    poll(console, raw, now_ms=1000, wall_ms=WALL_MS)
    texts = {(alarm.name, alarm.text) for alarm in console.alarms()}
    assert {(name, "stopped by an operator") for name in ("edge_down", "replica_down")} <= texts
    tables = {table.title: table for table in console.tables()}
    assert tables["Replicas"].rows[1][4].text == tables["Edges"].rows[1][2].text == "stopped"
