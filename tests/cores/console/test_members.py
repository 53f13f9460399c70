"""Who belongs to a site, as consoles show it that ran before it changed."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.cores.console.console import Console
from appliance.cores.console.model import Source
from appliance.formats.site import Site
from appliance.formats.site_view import SiteView
from tests.cores.console.worlds import WALL_MS, edge, healthy, looked, names, poll, replica, site

MEMBERS = [(bytes([1, i]) * 8).hex() for i in range(3)]


def test_who_was_removed_is_neither_shown_nor_counted_nor_an_alarm() -> None:
    group = {"members": MEMBERS[:2], "replica_count": 2, "epoch": 0, "members_op": 1200}
    answers = healthy()
    for i in range(2):
        said = replica(i, **group, role="backup" if i else "primary")
        answers[Source("replica", i, 0)] = said | {"peers": {1 - i: said["peers"][str(1 - i)]}}
    for gone in (
        None,
        replica(
            2,
            status="view_change",
            members=MEMBERS,
            epoch=0,
            replica_count=3,
            members_op=0,
            commit=100,
            state_ready=False,
            role="removed",
        ),
    ):
        answers[Source("replica", 2, 0)] = gone
        answers[Source("edge", 2, 0)] = None
        console = looked(answers)
        assert names(console) == []
        assert [row[2].text for row in console.tables()[2].rows] == ["node-0", "node-1"]
        assert [row[1].text for row in console.tables()[3].rows] == ["node-0", "node-1"]
        assert console.tables()[1].rows[0][3].text == "2 of 2"


IDS = [bytes.fromhex(text) for text in MEMBERS] + [bytes([1, 3]) * 8]
ORDER = (3, 1, 2, 0)  # nodes by the index in the group, once node 3 has taken the place of node 0


def described(nodes: int = 4) -> Site:
    """As the file is once `member add` has described node 3."""
    found = site(nodes)
    (shard,) = found.shards
    return replace(found, shards=[replace(shard, replica_count=3, standby_count=nodes - 3)])


def promoted(silent: int | None = None, **changes: Any) -> dict[Source, dict[str, Any] | None]:
    """All nodes after that, in the first view with a primary; of node `silent` no replica answers.
    Peers, and whose clock is off, are named by the index in the group."""
    answers: dict[Source, dict[str, Any] | None] = {}
    for index, node in enumerate(ORDER):
        role = "primary" if index == 1 else "standby" if index == 3 else "backup"
        said = replica(index, role=role, epoch=1, members_op=900, **{"view": 1} | changes)
        said |= {"members": [IDS[n].hex() for n in ORDER], "replica_count": 3}
        of_peer = {"view": 1, "commit_min": 1234, "checkpoint": 960, "silent_ticks": 2}
        said["peers"] = {str(other): of_peer for other in range(4) if other != index}
        answers[Source("replica", node, 0)] = None if node == silent else said
        answers[Source("edge", node, 0)] = edge()
    return answers


def polled(console: Console, *polls: dict[Source, dict[str, Any] | None]) -> Console:
    for answers in polls:
        poll(console, answers, now_ms=1000, wall_ms=WALL_MS)
    return console


def primary_of(console: Console) -> str:
    return console.tables()[1].rows[0][1].text


@pytest.mark.parametrize("silent", [None, 2, 3])
def test_a_console_that_ran_before_the_change_names_the_primary_and_counts_the_quorum(
    silent: int | None,
) -> None:
    console = polled(Console(SiteView(site())), healthy())
    console.on_site(described())
    polled(console, promoted(silent))
    assert primary_of(console) == "node-1"
    lost = [] if silent is None else [("replica_down", f"shard 0 on node-{silent}")]
    thin = [("quorum_thin", "shard 0")] if lost else []
    assert names(console) == lost + thin
    roles = {row[2].text: row[3].text for row in console.tables()[2].rows}
    assert roles["node-0"] == "standby" and (silent == 3 or roles["node-3"] == "backup")
    assert console.tables()[1].rows[0][3].text == f"{3 - bool(lost)} of 3"


def test_a_primary_that_the_site_file_does_not_describe_yet_is_nobody_else() -> None:
    answers = {source: raw for source, raw in promoted(view=3).items() if source.node != 3}
    console = polled(Console(SiteView(site())), answers)
    assert primary_of(console) == "none"


def test_an_epoch_has_no_primary_before_its_first_vote() -> None:
    assert primary_of(polled(Console(SiteView(described())), promoted(view=0))) == "none"


def test_the_views_of_a_former_epoch_lead_nobody_any_more() -> None:
    answers = promoted()
    late = replica(2, view=5, epoch=0, members_op=0, members=MEMBERS, replica_count=3)
    answers[Source("replica", 2, 0)] = late
    assert primary_of(polled(Console(SiteView(described())), answers)) == "node-1"


def test_who_belongs_is_still_known_when_nobody_answers_any_more() -> None:
    console = Console(SiteView(described()))
    polled(console, promoted(), dict.fromkeys(promoted()))
    assert [row[2].text for row in console.tables()[2].rows] == [f"node-{n}" for n in range(4)]
    down = [subject for name, subject in names(console) if name == "replica_down"]
    assert down == [f"shard 0 on node-{n}" for n in range(4)]
    assert [member.standby for member in console.shards()[0].members] == [True, False, False, False]


def test_a_clock_that_is_off_is_that_of_the_node_that_has_this_index_now() -> None:
    off = {"agreed": True, "errors_us": {"0": 2_000_000}}
    console = polled(Console(SiteView(described())), promoted(clock=off))
    assert [subject for name, subject in names(console) if name == "clock"] == ["node-3"]
