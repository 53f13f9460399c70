"""Answers of processes in, tables, alarms and curves out. Screens are stored as text."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import FormatError
from appliance.cores.console import alarms, later_alarms
from appliance.cores.console.acts import BY_NAME
from appliance.cores.console.alarms import WRITE_P99_US_MAX
from appliance.cores.console.cells import duration, latency, lines
from appliance.cores.console.console import HISTORY_MAX, Console
from appliance.cores.console.figures import LAG_OPS_MAX
from appliance.cores.console.model import CLOCK_JUMP_KEPT_MS, Source
from appliance.cores.console.remedies import REMEDIES
from appliance.formats.nvme_health import decode_health
from appliance.formats.site_view import SiteView
from tests.cores.console.worlds import (
    WALL_MS,
    Raw,
    edge,
    healthy,
    looked,
    names,
    poll,
    replica,
    shown,
    site,
)
from tests.formats.test_nvme_health import page

STORED = Path(__file__).parent
DOCS = STORED.parents[2] / "docs"


def one(**changes: Any) -> list[tuple[str, str, str]]:
    """The alarms when the replica on node 1 answers with these changes."""
    answers = healthy() | {Source("replica", 1, 0): replica(1, **changes)}
    found = looked(answers).alarms()
    return [(a.name, a.severity, a.text) for a in found if a.name != "quorum_thin"]


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
    assert one(other_versions={"node-2": "speaks version 9"}) == [
        ("member_refused", "bad", "node-2 speaks version 9")
    ]
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
    poll(console, bad, now_ms=61_000, wall_ms=WALL_MS)
    assert [(alarm.name, alarm.since_ms) for alarm in console.alarms()] == [("edge_down", 1000)]


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
        poll(console, answers, now_ms=1000 * second, wall_ms=WALL_MS)
        (alarm,) = [alarm for alarm in console.alarms() if alarm.severity == "bad"]
        assert (alarm.name, alarm.text) == ("replica_halted", reason)
        assert 1000 * second - alarm.since_ms == 1000 * second - 500
    assert console.tables()[2].rows[1][4].text == "HALT DISK_FULL"


def test_a_process_whose_beat_stands_is_named_until_it_is_heard_again() -> None:
    console = Console(SiteView(site()))
    for silent_ms, expected in ((0, []), (2500, [("role_stuck", "edge-0 on node-1")]), (0, [])):
        answers = healthy() | {Source("supervisor", 1, 0): supervisor(silent_ms)}
        poll(console, answers, now_ms=1000, wall_ms=WALL_MS)
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
    assert texts[0] == "node-1" and texts[3:] == [
        "yes",
        "96 MiB",
        "0,2-4",
        "fifo 10",
        "locked",
        "off",
    ]
    silent = healthy() | {Source("supervisor", 1, 0): told, Source("replica", 1, 0): None}
    (table,) = [table for table in looked(silent).tables() if table.title == "Processes"]
    assert [cell.text for cell in table.rows[at]][3:5] == ["no", "–"]
    told["children"][0] |= {"refused": {"memory_lock": "too much"}, "locked_bytes": 0}
    console = looked(healthy() | {Source("supervisor", 1, 0): told})
    (table,) = [table for table in console.tables() if table.title == "Processes"]
    cell = table.rows[at][7]
    assert (cell.text, cell.tone) == ("not locked: too much", "warn")
    assert console.plain()["processes"][at]["placed"]["cores"] == (0, 2, 3, 4)


def test_quorum_is_lost_with_the_second_of_three() -> None:
    answers = healthy()
    answers[Source("replica", 0, 0)] = None
    assert names(looked(answers)) == [
        ("replica_down", "shard 0 on node-0"),
        ("quorum_thin", "shard 0"),
    ]
    answers[Source("replica", 2, 0)] = None
    console = looked(answers)
    assert names(console)[0] == ("no_quorum", "shard 0")
    assert console.plain()["shards"][0]["serving"] == 1


def test_members_elsewhere_count_for_the_quorum_while_they_are_heard() -> None:
    own = {Source("replica", 1, 0): replica(1, silent={0: 151})}
    assert names(looked(own)) == [("peer_down", "shard 0 on node-0"), ("quorum_thin", "shard 0")]
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


def test_what_a_replica_commits_that_catches_up_is_no_rate_of_the_shard() -> None:
    """It was away for a night: what it makes up for in a second was said by day."""

    def alone(commit: int, records: int) -> Raw:
        told = replica(0, commit=commit, records=records, commit_max=max(commit, 10_000))
        return {Source("replica", 0, 0): told}

    rates = []
    console = Console(SiteView(site()))
    away = [(5000, 7000), (9000, 11_000), (10_000, 12_000), (10_002, 12_004)]
    for second, said in enumerate(away):
        poll(console, alone(*said), now_ms=1000 * second, wall_ms=WALL_MS + 1000 * second)
        rates.append(console.plain()["point"]["records_per_s"])
    assert rates == [0, 0, 0, 4]
    assert console.plain()["shards"][0]["records"] == 12_004


def test_a_shard_without_answers_makes_no_rate_when_it_comes_back() -> None:
    silent = dict.fromkeys(healthy())
    console = looked(healthy(records=10), silent, healthy(records=900))
    assert console.plain()["point"]["records_per_s"] == 0


def test_the_curves_hold_five_minutes() -> None:
    console = Console(SiteView(site()))
    for second in range(HISTORY_MAX + 5):
        poll(console, healthy(), now_ms=1000 * second, wall_ms=WALL_MS + 1000 * second)
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
    poll(console, healthy(), now_ms=1000, wall_ms=WALL_MS + 1000 + jump_ms)
    late = 1000 + CLOCK_JUMP_KEPT_MS
    for now_ms in (1000, late):
        poll(console, healthy(), now_ms=now_ms, wall_ms=WALL_MS + now_ms + jump_ms)
        assert [alarm.text for alarm in console.alarms()] == ([words] if words else [])
    poll(console, healthy(), now_ms=late + 1, wall_ms=WALL_MS + late + 1 + jump_ms)
    assert console.alarms() == ()


def test_a_clock_that_is_off_by_a_second_is_named_though_the_way_to_it_hides_a_part() -> None:
    for error_us, found in ((900_000, 1), (-998_000, 1), (899_000, 0)):
        answers = healthy()
        for source, answer in answers.items():
            if source.kind == "replica":
                answers[source] = answer | {"clock": {"errors_us": {"2": error_us}}}
        assert names(looked(answers)) == [("clock", "node-2")] * found, error_us


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
            errors = {"0": 0, "1": -3_600_000_000, "2": 899_000}
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


def test_rules_page_for_what_the_console_calls_bad_and_warn_of_everything_else() -> None:
    """An alarm that is added or judged anew has its rule; the operator's page has it as well."""
    known = dict(re.findall(r"^(\w+) +(bad|warn) ", alarms.__doc__ or "", re.MULTILINE))
    source = Path(alarms.__file__).read_text() + Path(later_alarms.__file__).read_text()
    assert {name for name, _ in re.findall(r'"(\w+)",\s+"(bad|warn)"', source)} <= set(known)
    assert REMEDIES.keys() == known.keys()
    assert {name for remedy in REMEDIES.values() for name in remedy.acts} <= BY_NAME.keys()
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


def test_the_ways_of_clients_are_shown_with_why_they_were_refused() -> None:
    told = edge(
        connections_by_transport={"websocket": 20, "http": 0, "long_poll": 0},
        bytes_received={"websocket": 3 << 20, "http": 0, "long_poll": 0},
        bytes_sent={"websocket": 70 << 20, "http": 1 << 20, "long_poll": 0},
        refused_by_transport={
            "tcp": {"node_full": 1200, "no_descriptor": 2},
            "websocket": {"other_site": 1, "token_expired": 5, "node_full": 1, "rate_limited": 1},
        },
        ended_by_transport={"websocket": {"closing": 3}},
    )
    table = looked(healthy() | {Source("edge", 1, 0): told}).tables()[-1]
    assert table.title == "Transports"
    assert [[cell.text for cell in row[1:]] for row in table.rows] == [
        ["node-1", "websocket", "20", "3 MiB", "70 MiB", "8", "3"]
        + ["token_expired 5, closing 3, node_full 1"],
        ["node-1", "http", "0", "0 MiB", "1 MiB", "0", "0", "–"],
        ["node-1", "tcp", "0", "0 MiB", "0 MiB", "1,202", "0", "node_full 1,200, no_descriptor 2"],
    ]
