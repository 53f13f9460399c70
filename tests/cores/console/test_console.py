"""Answers of processes in, tables, alarms and curves out. Screens are stored as text."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import FormatError
from appliance.cores.console import alarms
from appliance.cores.console.alarms import LAG_OPS_MAX, WRITE_P99_US_MAX
from appliance.cores.console.cells import duration, latency, lines
from appliance.cores.console.console import HISTORY_MAX, Console
from appliance.cores.console.model import CLOCK_JUMP_KEPT_MS, Source
from appliance.formats.nvme_health import decode_health
from appliance.formats.site import Site
from appliance.formats.site_view import SiteView
from tests.cores.console.worlds import edge, healthy, replica, site
from tests.formats.test_nvme_health import page

STORED = Path(__file__).parent
DOCS = STORED.parents[2] / "docs"
WALL_MS = 1_700_000_000_000


def looked(*polls: dict[Source, dict[str, Any] | None], shards: int = 1) -> Console:
    """A console after these polls, one a second."""
    console = Console(SiteView(site(shards=shards)))
    for second, answers in enumerate(polls):
        console.on_poll(answers, now_ms=1000 * second, wall_ms=WALL_MS + 1000 * second)
    return console


def shown(console: Console) -> str:
    """All tables as the terminal shows them."""
    return "\n\n".join("\n".join(lines(table)) for table in console.tables()) + "\n"


def names(console: Console) -> list[tuple[str, str]]:
    return [(alarm.name, alarm.subject) for alarm in console.alarms()]


def one(**changes: Any) -> list[tuple[str, str, str]]:
    """The alarms when the replica on node 1 answers with these changes."""
    answers = healthy() | {Source("replica", 1, 0): replica(1, **changes)}
    return [(alarm.name, alarm.severity, alarm.text) for alarm in looked(answers).alarms()]


def test_screen_of_a_healthy_site_is_the_stored_one() -> None:
    console = looked(healthy(), healthy(records=8178, acked=3500))
    assert shown(console) == (STORED / "healthy.txt").read_text()


def test_screen_after_a_kill_is_the_stored_one() -> None:
    down = healthy(records=8178, acked=3500)
    down[Source("replica", 0, 0)] = down[Source("edge", 0, 0)] = None
    down[Source("replica", 1, 0)] = replica(1, role="primary", view=4, silent={0: 130})
    down[Source("replica", 2, 0)] = replica(2, view=4, commit=800, silent={0: 130})
    console = looked(healthy(), down, down, down)
    assert shown(console) == (STORED / "killed.txt").read_text()


def test_screen_of_one_node_shows_the_others_as_peers_see_them() -> None:
    own = {
        Source("replica", 1, 0): replica(1, view=4, silent={2: 400}),
        Source("edge", 1, 0): edge(),
    }
    console = looked(own, own)
    assert shown(console) == (STORED / "one_node.txt").read_text()


def test_each_alarm_has_its_cause() -> None:
    assert one() == []
    assert one(status="view_change") == [("not_normal", "warn", "view change")]
    assert one(state_ready=False) == [("sync", "warn", "adopts the state of a peer")]
    assert one(stale_ms=33_400) == [
        ("stale", "bad", "hears no quorum for 33 s: what is read here may be old")
    ]
    assert one(faulty=3) == [("faulty", "warn", "3 broken journal slots being repaired")]
    assert one(halted=["DISK_FULL", "no space"])[0] == (
        "replica_halted",
        "bad",
        "DISK_FULL: no space",
    )
    assert one(refused={"ab": "life 7"}) == [("member_refused", "bad", "life 7")]
    assert one(suspicious={"node-2": {"nonce": 2, "signature": 1}}) == [
        ("suspicious", "bad", "node-2: nonce 2, signature 1")
    ]
    assert one(silent={2: 200}) == [("peer_down", "warn", "hears nothing from replica 2")]


def test_limits_of_alarms_are_met_before_they_sound() -> None:
    behind = {"op": 1234, "commit_max": 1234}
    assert one(**behind, commit_min=1234 - LAG_OPS_MAX) == []
    assert one(**behind, commit_min=1233 - LAG_OPS_MAX) == [
        ("lag", "warn", f"{LAG_OPS_MAX + 1} ops behind")
    ]
    volume = replica()["volume"]
    journal = volume["journal"] | {"p99_us": WRITE_P99_US_MAX}
    assert one(volume=volume | {"journal": journal}) == []
    journal = journal | {"p99_us": WRITE_P99_US_MAX + 1}
    assert one(volume=volume | {"journal": journal}) == [
        ("disk_slow", "warn", "durable write p99 100 ms")
    ]
    extent = {"extent_size": 1 << 30}
    assert one(volume=volume | extent | {"extents": 3276}) == []
    assert one(volume=volume | extent | {"extents": 3277}) == [
        ("space", "warn", "80 % of the volume's extents are taken, 819.0 GiB left")
    ]
    assert one(volume=volume | {"disk_size": 1000, "disk_free": 201}) == []
    for free, severity, words in (
        (200, "warn", "80 % of its disk is taken"),
        (99, "warn", "90 % of its disk is taken"),
        (50, "bad", "95 % of its disk is taken"),
        (0, "bad", "100 % of its disk is taken, nothing left"),
    ):
        ((name, how_bad, text),) = one(volume=volume | {"disk_size": 1000, "disk_free": free})
        assert (name, how_bad) == ("space", severity) and text.startswith(words)
    taken, days = volume | extent | {"extents": 3277}, {"days_left": 12.34}
    ((_, _, text),) = one(volume=taken | days)
    assert text.endswith("819.0 GiB left, for about 12.3 days at this pace")
    reserve = volume | {"disk_free": 1 << 28}
    for also, words in ((False, "the others go on"), (True, "the shard takes no messages")):
        assert one(volume=reserve, space={"short": True, "sparing": also}) == [
            ("space", "bad", f"its disk has only 0.25 GiB left, its reserve: {words}")
        ]
    late = {"late_s": 700.4, "late_s_max": 600}
    assert one(shipping=late) == [
        ("ship_late", "warn", "700 s late; `tigerchat ship status` says why")
    ]
    assert one(shipping=late | {"late_s": 600}) == []
    assert one(shipping=late | {"late_s_max": 0}) == []
    assert one(volume=volume | {"alarm": "no space left"}) == [("disk", "bad", "no space left")]


def test_a_disk_that_fails_wears_out_or_lost_data_is_an_alarm_with_its_name() -> None:
    volume = replica()["volume"]
    well = asdict(decode_health(page({160: "0000000000000000"})))

    def told(**changes: Any) -> list[tuple[str, str, str]]:
        return one(volume=volume | {"health": {"disks": {"nvme0": well | changes}}})

    assert told() == told(used_percent=89) == told(spare_percent=10) == []
    assert told(used_percent=90) == [("disk_health", "warn", "90 % of its expected life is used")]
    assert told(spare_percent=9) == [("disk_health", "bad", "hardly any spare blocks are left")]
    assert told(media_errors=1234, warnings=["read_only"]) == [
        (
            "disk_health",
            "bad",
            "it takes no more writes; 1,234 times it could not give data back whole",
        )
    ]


def test_disks_are_shown_where_they_tell_of_themselves_or_hold_a_raw_volume() -> None:
    volume = replica()["volume"]
    untold = {"untold": {"disk": "it is no NVMe disk of this machine"}}
    health = {"disks": {"nvme0": asdict(decode_health(page()))}}

    def screen(**changes: Any) -> str:
        answers = healthy() | {Source("replica", 1, 0): replica(1, volume=volume | changes)}
        return shown(looked(answers))

    assert "disks of" not in screen(health=untold)
    assert "/dev/loop7  not told: it is no NVMe" in screen(health=untold, device="/dev/loop7")
    words = screen(health=health)
    assert "disk_health" in words and "nvme0 on node-1" in words and "38 °C" in words


def test_a_replica_that_syncs_is_not_called_late_as_well() -> None:
    syncs = {"sync": [1, 900, 300], "synced": [10, 300]}
    assert one(**syncs, commit_min=0) == [("sync", "warn", "adopts the state of a peer")]


def test_a_sync_is_over_when_all_is_there_whatever_is_remembered_until_a_checkpoint() -> None:
    assert one(sync=[1, 900, 300], synced=[300, 300]) == []


def shipped_late(*kept: int, **others: Any) -> list[str]:
    """Names of alarms when these replicas know of a late period and the others know nothing."""
    late = {"late_s": 700, "late_s_max": 600}
    answers = healthy()
    for i in range(3):
        answers[Source("replica", i, 0)] = (
            replica(i, shipping=late)
            if i in kept
            else replica(i, shipping=late | {"late_s": 0}, **others)
        )
    return [alarm.name for alarm in looked(answers).alarms()]


def test_who_adopts_a_state_does_not_hide_that_shipping_is_late() -> None:
    assert "ship_late" in shipped_late(0, 1, state_ready=False)
    assert "ship_late" not in shipped_late(0, 1)  # one that is further knows that it was shipped


def shipper(
    node: int, late_s: float, cursor: int = 0, hole: str = "", *, log_seq: int = 400
) -> dict[str, Any]:
    """What the shipper of a node answers."""
    return {
        "node": node,
        "late_s_max": 5,
        "shards": [
            {
                "shard": 0,
                "attached": True,
                "cursor": cursor,
                "log_seq": log_seq,
                "late_s": late_s,
                "hole": hole,
            }
        ],
    }


def test_shipping_is_late_also_where_nothing_was_ever_shipped() -> None:
    """Replicas know of no period then; a shipper has read when the first record came."""
    answers = healthy() | {Source("shipper", n, 0): shipper(n, 33.4) for n in range(3)}
    assert [(alarm.name, alarm.text[:9]) for alarm in looked(answers).alarms()] == [
        ("ship_late", "33 s late")
    ]
    answers[Source("shipper", 1, 0)] = shipper(1, 0, log_seq=0)  # it has read nothing yet
    assert names(looked(answers)) == [("ship_late", "shard 0")]
    answers[Source("shipper", 2, 0)] = shipper(2, 0, cursor=400)
    assert names(looked(answers)) == []
    answers[Source("shipper", 1, 0)] = shipper(1, 99_999, cursor=300)  # of a member of before
    assert names(looked(answers)) == []


def test_a_target_that_lacks_what_was_shipped_elsewhere_is_told() -> None:
    answers = healthy() | {Source("shipper", 1, 0): shipper(1, 0, hole="/b lacks 79 periods")}
    assert [(alarm.name, alarm.severity, alarm.text) for alarm in looked(answers).alarms()] == [
        ("ship_hole", "warn", "/b lacks 79 periods; copy them from the former target")
    ]


def test_an_alarm_keeps_the_age_that_another_console_tells() -> None:
    bad = healthy() | {Source("edge", 2, 0): None}
    console = Console(SiteView(site()))
    console.remember([("edge_down", "edge 0 on node-2", 1000), ("sync", "shard 0 on node-1", 0)])
    console.on_poll(bad, now_ms=61_000, wall_ms=WALL_MS)
    assert [(alarm.name, alarm.since_ms) for alarm in console.alarms()] == [("edge_down", 1000)]


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
        console.on_poll(answers, now_ms=1000, wall_ms=WALL_MS)
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
    assert names(console) == lost
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


def supervisor(silent_ms: int = 0, **halts: str) -> dict[str, Any]:
    """What the supervisor of a node answers."""
    return {
        "children": [
            {
                "name": name.replace("_", "-"),
                "pid": 100,
                "ready": not halt,
                "halt": halt,
                "halt_since_ms": 500,
                "silent_ms": silent_ms if name == "edge_0" else 0,
            }
            for name, halt in ({"replica_0": "", "edge_0": ""} | halts).items()
        ]
    }


def test_a_halt_keeps_its_reason_and_its_age_while_the_process_is_tried_again() -> None:
    reason = "HALT DISK_FULL: no room for 24117248 bytes; free space on the volume's file system"
    halted = healthy() | {Source("supervisor", 1, 0): supervisor(replica_0=reason)}
    silent = halted | {Source("replica", 1, 0): None}
    trying = halted | {Source("replica", 1, 0): replica(1, status="recovering")}
    console = Console(SiteView(site()))
    for second, answers in enumerate((silent, trying, silent, silent), 1):
        console.on_poll(answers, now_ms=1000 * second, wall_ms=WALL_MS)
        (alarm,) = [alarm for alarm in console.alarms() if alarm.severity == "bad"]
        assert (alarm.name, alarm.text) == ("replica_halted", reason)
        assert 1000 * second - alarm.since_ms == 1000 * second - 500
    assert console.tables()[2].rows[1][4].text == "HALT DISK_FULL"


def test_a_process_whose_beat_stands_is_named_until_it_is_heard_again() -> None:
    console = Console(SiteView(site()))
    for silent_ms, expected in ((0, []), (2500, [("role_stuck", "edge-0 on node-1")]), (0, [])):
        answers = healthy() | {Source("supervisor", 1, 0): supervisor(silent_ms)}
        console.on_poll(answers, now_ms=1000, wall_ms=WALL_MS)
        assert names(console) == expected
        assert [alarm.text for alarm in console.alarms()] == ["its beat stands for 2 s"][
            : len(expected)
        ]


def test_the_process_of_each_replica_and_edge_is_shown() -> None:
    console = looked(healthy() | {Source("supervisor", 1, 0): supervisor()})
    assert [row[-1].text for row in console.tables()[2].rows] == ["–", "100", "–"]
    assert [row[-1].text for row in console.tables()[3].rows] == ["–", "100", "–"]


def test_processes_are_shown_as_the_kernel_has_them_and_with_what_it_refused() -> None:
    told = supervisor()
    told["children"][0] |= {
        "cores": [0, 2, 3, 4],
        "scheduling": "fifo 10",
        "locked_bytes": 4096,
        "core_dump_bytes": 0,
        "refused": {},
    }
    console = looked(healthy() | {Source("supervisor", 1, 0): told})
    (table,) = [table for table in console.tables() if table.title == "Processes"]
    at = [row[1].text for row in table.rows].index(told["children"][0]["name"])
    texts = [cell.text for cell in table.rows[at]]
    assert texts[3:] == ["0,2-4", "fifo 10", "locked", "off"] and texts[0] == "node-1"
    told["children"][0] |= {"refused": {"memory_lock": "too much"}, "locked_bytes": 0}
    console = looked(healthy() | {Source("supervisor", 1, 0): told})
    (table,) = [table for table in console.tables() if table.title == "Processes"]
    cell = table.rows[at][5]
    assert (cell.text, cell.tone) == ("not locked: too much", "warn")
    assert console.plain()["processes"][at]["placed"]["cores"] == (0, 2, 3, 4)


def test_quorum_is_lost_with_the_second_of_three() -> None:
    answers = healthy()
    answers[Source("replica", 0, 0)] = None
    assert names(looked(answers)) == [("replica_down", "shard 0 on node-0")]
    answers[Source("replica", 2, 0)] = None
    console = looked(answers)
    assert names(console)[0] == ("no_quorum", "shard 0")
    assert console.plain()["shards"][0]["serving"] == 1


def test_members_elsewhere_count_for_the_quorum_while_they_are_heard() -> None:
    own = {Source("replica", 1, 0): replica(1, silent={0: 151})}
    assert names(looked(own)) == [("peer_down", "shard 0 on node-0")]
    own = {Source("replica", 1, 0): replica(1, silent={0: 151, 2: 151})}
    assert names(looked(own))[0] == ("no_quorum", "shard 0")


def test_an_alarm_keeps_its_time_while_it_holds_and_starts_anew_after() -> None:
    bad = healthy() | {Source("edge", 2, 0): None}
    console = looked(bad, bad, bad, healthy(), bad)
    assert console.plain()["alarms"][0]["for_ms"] == 0
    console = looked(healthy(), bad, bad, bad)
    assert console.plain()["alarms"][0]["for_ms"] == 2000


def test_rates_need_two_looks_and_survive_a_restart() -> None:
    assert looked(healthy()).plain()["point"]["records_per_s"] == 0
    grown = looked(healthy(records=1000), healthy(records=1500))
    assert grown.plain()["point"]["records_per_s"] == 500
    restarted = looked(healthy(acked=1500), healthy(acked=3))
    edges = restarted.tables()[3]
    assert [row[5].text for row in edges.rows] == ["0", "0", "0"]


def test_a_shard_without_answers_makes_no_rate_when_it_comes_back() -> None:
    silent = dict.fromkeys(healthy())
    console = looked(healthy(records=10), silent, healthy(records=900))
    assert console.plain()["point"]["records_per_s"] == 0


def test_the_curves_hold_five_minutes() -> None:
    console = Console(SiteView(site()))
    for second in range(HISTORY_MAX + 5):
        console.on_poll(healthy(), now_ms=1000 * second, wall_ms=WALL_MS + 1000 * second)
    history = console.history()
    assert len(history) == HISTORY_MAX
    assert history[0]["at"] == WALL_MS + 5000
    assert history[-1] == console.plain()["point"]


@pytest.mark.parametrize(
    ("jump_ms", "words"),
    [
        (-3000, "the clock jumped back by 3.0 s"),
        (500, "the clock jumped forward by 0.5 s"),
        (499, None),
    ],
)
def test_a_clock_that_jumps_is_told_for_ten_minutes(jump_ms: int, words: str | None) -> None:
    console = looked(healthy())
    console.on_poll(healthy(), now_ms=1000, wall_ms=WALL_MS + 1000 + jump_ms)
    late = 1000 + CLOCK_JUMP_KEPT_MS
    for now_ms in (1000, late):
        console.on_poll(healthy(), now_ms=now_ms, wall_ms=WALL_MS + now_ms + jump_ms)
        assert [alarm.text for alarm in console.alarms()] == ([words] if words else [])
    console.on_poll(healthy(), now_ms=late + 1, wall_ms=WALL_MS + late + 1 + jump_ms)
    assert console.alarms() == ()


@pytest.mark.parametrize(
    ("agreed", "text"),
    [
        (True, "its clock is 3600.0 s behind the time that the others agree on"),
        (False, "no quorum of clocks agrees; its one is 3600.0 s behind the one that is used"),
    ],
)
def test_a_wrong_clock_is_named_by_its_node_once(agreed: bool, text: str) -> None:
    answers = healthy()
    for source, answer in answers.items():
        if source.kind == "replica":
            errors = {"0": 0, "1": -3_600_000_000, "2": 999_000}
            answers[source] = answer | {"clock": {"agreed": agreed, "errors_us": errors}}
    (alarm,) = looked(answers).alarms()
    assert (alarm.name, alarm.severity, alarm.subject) == ("clock", "warn", "node-1")
    assert alarm.text == text


@pytest.mark.parametrize(
    ("ahead_us", "alarm"),
    [
        (5_000_000, None),
        (6_000_000, ("warn", "log time is 6 s ahead of this clock")),
        (60_000_000, ("warn", "log time is 1 min ahead of this clock")),
        (
            34_556_400_000_000,
            (
                "bad",
                "log time is 399 d 23 h ahead of this clock: set it, or `tigerchat clock correct`",
            ),
        ),
    ],
)
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_log_that_is_ahead_of_the_clocks_is_told_once_for_a_shard(
    nodes: int, ahead_us: int, alarm: tuple[str, str] | None
) -> None:
    answers = {
        source: answer | {"clock": {"log_ahead_us": ahead_us}}
        for source, answer in healthy().items()
        if source.kind == "replica" and source.node < nodes
    }
    console = looked(answers)
    (severity, text) = alarm or ("", "")
    expected = [("log_ahead", severity, "shard 0 on node-0", text)] if alarm else []
    told = [
        (alarm.name, alarm.severity, alarm.subject, alarm.text)
        for alarm in console.alarms()
        if alarm.name != "peer_down"
    ]
    assert told == expected


def test_page_and_terminal_show_the_same_cells() -> None:
    console = looked(healthy(), healthy(records=9000))
    for table, plain in zip(console.tables(), console.plain()["tables"], strict=True):
        assert [[text for text, _ in row] for row in plain["rows"]] == [
            [cell.text for cell in row] for row in table.rows
        ]
        for line, row in zip(lines(table)[1:], plain["rows"], strict=True):
            assert [text for text, _ in row if text not in line] == []


def test_colours_do_not_move_columns() -> None:
    console = looked(healthy(), healthy())
    for table in console.tables():
        painted = lines(table, lambda text, tone: f"<{tone}>{text}</{tone}>" if tone else text)
        bare = [line.replace("</", "<") for line in painted]
        for tone in ("plain", "good", "warn", "bad", "faint"):
            bare = [line.replace(f"<{tone}>", "") for line in bare]
        assert [line.rstrip() for line in bare] == lines(table)


def test_two_shards_stand_beside_each_other() -> None:
    answers = {
        Source("replica", (i + s) % 3, s): replica(i, role="backup" if i else "primary")
        for s in range(2)
        for i in range(3)
    }
    console = looked(answers, shards=2)
    rows = console.tables()[1].rows
    assert [row[1].text for row in rows] == ["node-0", "node-1"]
    assert console.alarms() == ()


@pytest.mark.parametrize("broken", [{}, {"status": "normal"}, replica() | {"volume": None}])
def test_an_answer_of_another_shape_is_a_typed_error(broken: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        looked({Source("replica", 0, 0): broken})
    with pytest.raises(FormatError):
        looked({Source("edge", 0, 0): broken})


def test_figures_are_said_shortly() -> None:
    assert [latency(us) for us in (0, 95, 950, 12_345, 250_400)] == [
        "–",
        "0.10 ms",
        "0.95 ms",
        "12.3 ms",
        "250 ms",
    ]
    assert [duration(s * 1000) for s in (0, 59, 60, 250, 3600, 11_100, 200_000)] == [
        "0 s",
        "59 s",
        "1 min",
        "4 min 10 s",
        "1 h",
        "3 h 5 min",
        "2 d 7 h",
    ]


def farm_answer(node: int, **changes: Any) -> dict[str, Any]:
    """What a member of the farm answers."""
    rows = [{"id": i, "index": i, "age_ms": 1000 * i} for i in (1, 2, 3)]
    view = {"publisher": 3, "scores": {"3": [1, 2, 8, 0, -3]}, "documents": rows}
    answer = {
        "out": "",
        "role": "leader" if node == 1 else "follower",
        "term": 4,
        "leader": 2,
        "commit": 70 + node,
        "members": [{"id": i, "match": 70 if node == 1 else 0} for i in (1, 2, 3)],
        "view": view,
        "directory": {"version": 69, "expired_ms": 0},
    }
    return answer | changes


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
    plain = console.plain()["farm"]
    assert (plain["leader"], plain["term"], plain["publisher"]) == (2, 4, 3)
    assert plain["why"] == "1 shard, up 2 h, 8/8 of its network free" and names(console) == []


def test_a_farm_without_a_leader_and_an_expired_directory_are_alarms() -> None:
    assert names(farmed(leader=-1)) == [("farm_no_leader", "farm")]
    assert names(farmed(counts={"second_leader_of_term": 1})) == [("farm_two_leaders", "farm")]
    expired = farmed(directory={"version": 69, "expired_ms": 5000})
    assert names(expired) == [("directory_expired", "farm")]
    silent = looked(healthy() | {Source("farm", 0, 0): None})
    assert names(silent) == [("farm_no_leader", "farm")]


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


def federation_answer(node: int, *, carries: bool, **changes: Any) -> dict[str, Any]:
    """What the federation of a node answers, which shares two rooms with uni and one with lab."""
    rooms = [
        {"sites": sites, "outgoing": 3, "backlog": 40, "waiting": 2, "ready": 1, "wanted": 5}
        | {"count_sent": 200, "count_resent": 25, "dropped_signature": 2}
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


def test_rules_page_for_what_the_console_calls_bad_and_warn_of_everything_else() -> None:
    """An alarm that is added or judged anew has its rule; the operator's page has it as well."""
    known = dict(re.findall(r"^(\w+) +(bad|warn) ", alarms.__doc__ or "", re.MULTILINE))
    source = Path(alarms.__file__).read_text()
    assert {name for name, _ in re.findall(r'"(\w+)",\s+"(bad|warn)"', source)} <= set(known)
    text = (DOCS / "prometheus" / "alerts.yaml").read_text()
    chosen = dict(re.findall(r'tigerchat_console_alarms{name(=|=~|!~)"([\w|]+)"} > 0', text))
    bad = {name for name, severity in known.items() if severity == "bad"}
    assert set(chosen["=~"].split("|")) == bad
    assert set(chosen["!~"].split("|")) == bad | {chosen["="]}
    assert chosen["="] in known
    # series die with the process that tells them: who is asked, or nothing at all, has rules too
    for expression in ('up{job="tigerchat"} == 0', "absent(tigerchat_up)", "tigerchat_up == 0"):
        assert f"expr: {expression}\n" in text
    page = (DOCS / "console.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| (bad|warn)", page, re.MULTILINE))
    assert told == known
