"""The life of alarms: raised, seen, cleared by themselves, a day of them; and what is only seen
against what was before."""

from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509

from appliance.cores.console import usual
from appliance.cores.console.alarm_life import DAY_MS, OVER_MAX, AlarmLife
from appliance.cores.console.console import Console
from appliance.cores.console.later_alarms import CERTIFICATE_DAYS
from appliance.cores.console.model import Source
from appliance.drivers.host.identity import make_certificate
from appliance.formats.site import valid_until_ms
from appliance.formats.site_view import SiteView
from tests.cores.console.test_acts import STOPPED, supervisor, world
from tests.cores.console.worlds import WALL_MS, Raw, healthy, names, poll, replica, site
from tests.statuses import VOLUME

DOWN = ("replica_down", "shard 0 on node-2")


def without(node: int) -> Raw:
    return healthy() | {Source("replica", node, 0): None}


def lived(*polls: Raw, console: Console | None = None, begin_s: int = 0) -> Console:
    console = Console(SiteView(site())) if console is None else console
    for second, answers in enumerate(polls, begin_s):
        poll(console, answers, now_ms=1000 * second, wall_ms=WALL_MS + 1000 * second)
    return console


def over(console: Console) -> list[tuple[str, int, int, str]]:
    return [
        (row.name, row.raised_ms - WALL_MS, row.cleared_ms - WALL_MS, row.seen_by)
        for row in console.life.over()
    ]


def test_an_alarm_is_raised_seen_by_the_first_who_says_so_and_clears_itself() -> None:
    console = lived(healthy(), without(2))
    assert console.life.see(*DOWN, "anna", WALL_MS + 1500)
    assert console.life.see(*DOWN, "otto", WALL_MS + 1600)
    told = {alarm["name"]: alarm for alarm in console.plain()["alarms"]}["replica_down"]
    assert (told["seen_by"], told["seen_ms"]) == ("anna", WALL_MS + 1500)
    assert told["means"] and told["do"]
    lived(without(2), healthy(), console=console, begin_s=2)
    assert console.life.holds == {} and console.plain()["alarms"] == []
    assert over(console)[::-1] == [
        ("replica_down", 1000, 3000, "anna"), ("quorum_thin", 1000, 3000, ""),
    ]  # fmt: skip
    assert not console.life.see(*DOWN, "anna", WALL_MS), "it is over"


def test_an_alarm_that_comes_again_is_another_one_that_nobody_has_seen() -> None:
    console = lived(without(2))
    console.life.see(*DOWN, "anna", WALL_MS)
    lived(healthy(), without(2), console=console, begin_s=1)
    assert console.life.holds[DOWN].seen_by == ""
    assert console.life.holds[DOWN].raised_ms == WALL_MS + 2000


def test_what_is_over_is_kept_for_a_day_and_within_a_bound() -> None:
    console = lived(without(2), healthy())
    wall = WALL_MS + 1000 + DAY_MS
    poll(console, healthy(), now_ms=2000 + DAY_MS, wall_ms=wall)
    assert len(console.life.over()) == 2
    poll(console, healthy(), now_ms=3000 + DAY_MS, wall_ms=wall + 1000)
    assert console.life.over() == []
    for second in range(4, 4 + 2 * OVER_MAX, 2):
        lived(without(2), healthy(), console=console, begin_s=second + DAY_MS // 1000)
    assert len(console.life.over()) == OVER_MAX


def test_alarms_outlive_the_console_that_knew_them() -> None:
    first = lived(healthy(), without(1), healthy(), without(2))
    first.life.see(*DOWN, "anna", WALL_MS)
    again = Console(SiteView(site()))
    again.life.restore(first.life.kept())
    assert again.life.rows() == first.life.rows()
    lived(without(2), console=again, begin_s=9)
    assert again.life.holds[DOWN].raised_ms == WALL_MS + 3000, "it was raised before"
    assert again.life.holds[DOWN].seen_by == "anna"
    other = Console(SiteView(site()))
    other.life.restore(first.life.kept())
    lived(healthy(), console=other, begin_s=9)
    assert other.life.holds == {} and other.life.over()[0].cleared_ms == WALL_MS + 9000


@pytest.mark.parametrize("kept", [[{}], [{"name": 1}], ["x"], 7, [{"burn": 1}]])
def test_what_no_console_has_written_is_refused_and_changes_nothing(kept: Any) -> None:
    life = AlarmLife()
    with pytest.raises((TypeError, ValueError)):
        life.restore(kept)
    assert life.rows() == []


# --- remedies -------------------------------------------------------------------------------------


def remedies(raw: Raw) -> dict[str, list[str]]:
    console = lived(raw)
    return {
        alarm["name"]: [f"{offer['act']} {offer['about']}" for offer in alarm["acts"]]
        for alarm in console.plain()["alarms"]
    }


def test_an_alarm_has_the_act_beside_it_that_ends_it() -> None:
    stopped = world(n2={"replica_0": STOPPED}) | {Source("replica", 2, 0): None}
    assert remedies(stopped)["replica_down"] == ["start {'node': 2, 'process': 'replica-0'}"]
    assert remedies(without(2))["replica_down"] == [], "its supervisor does it"
    ahead = healthy() | {Source("replica", 0, 0): replica(0, clock={"log_ahead_us": 10**10})}
    assert remedies(ahead)["log_ahead"] == ["clock-correct {'shard': 0}"]
    halted = world(n2={"replica_0": STOPPED | {"wanted": True, "halt": "VOLUME_MOVED"}})
    halted[Source("replica", 2, 0)] = None
    assert remedies(halted)["replica_halted"] == ["recover {'node': 2}"]
    full = VOLUME | {"extents": 99, "extents_max": 100}
    short = healthy() | {Source("replica", 0, 0): replica(0, role="primary", volume=full)}
    assert remedies(short)["space"] == ["retention-show {}", "retention-set {}"]


# --- rules ----------------------------------------------------------------------------------------


def test_a_shard_that_no_further_failure_may_hit_is_told() -> None:
    assert names(lived(healthy())) == []
    assert ("quorum_thin", "shard 0") in names(lived(without(2)))
    both = without(2) | {Source("replica", 1, 0): None}
    assert ("quorum_thin", "shard 0") not in names(lived(both)), "it is lost already"
    one = Console(SiteView(site(1)))
    alone = {Source("replica", 0, 0): replica(0, role="primary") | {"peers": {}}}
    poll(one, alone, now_ms=0, wall_ms=WALL_MS)
    assert names(one) == [], "it never has one to spare"


def test_a_process_that_gives_no_data_is_told_and_not_one_that_is_being_started() -> None:
    raw = world() | {Source("shipper", 1, 0): None}
    assert names(lived(raw)) == [("role_down", "shipper on node-1")]
    for changes, words in (
        ({}, "gives no data: it does not answer"),
        ({"ready": False, "pid": None}, "does not run"),
        (STOPPED, "stopped by an operator"),
        ({"ready": False}, ""),
    ):
        raw[Source("supervisor", 1, 0)] = supervisor(shipper=changes)
        found = [a.text for a in lived(raw).alarms() if a.name == "role_down"]
        assert found == ([words] if words else []), changes


def writing(p50_us: int, count: int = 500) -> Raw:
    journal = {"count": count, "p50_us": p50_us, "p99_us": p50_us}
    raw = healthy()
    for node in range(3):
        volume = VOLUME | {"journal": journal}
        raw[Source("replica", node, 0)] = replica(
            node, role="backup" if node else "primary", volume=volume
        )
    return raw


def after(console: Console, minutes: int, raw: Raw, *, begin: int = 0) -> list[str]:
    """The names of alarms after that many looks, one a minute."""
    for minute in range(begin, begin + minutes):
        poll(console, raw, now_ms=minute * 60_000, wall_ms=WALL_MS + minute * 60_000)
    return sorted({alarm.name for alarm in console.alarms()})


def test_durable_writes_are_slow_against_their_own_median_of_a_day() -> None:
    console = Console(SiteView(site()))
    known = usual.KNOWN_MINUTES_MIN
    assert after(console, known - 2, writing(2000)) == []
    assert after(console, 1, writing(9000), begin=known) == [], "an hour is not known yet"
    assert after(console, 3, writing(2000), begin=known + 1) == []
    assert after(console, 1, writing(4000), begin=known + 4) == [], "twice is borne"
    assert after(console, 1, writing(4100), begin=known + 5) == ["flush_slow"]
    (first, *_) = console.alarms()
    assert first.text == "durable writes take 4.10 ms, over a day 2.00 ms"
    assert after(console, 1, writing(9000, count=3), begin=known + 6) == ["flush_slow"]
    kept = console.usual.kept()
    again = Console(SiteView(site()))
    again.usual.restore(kept)
    assert again.usual.medians == console.usual.medians
    assert after(again, 1, writing(4100), begin=known + 7) == ["flush_slow"]
    for broken in ([1], [[0, 0, ["x"]]], [[0, 0, 1]], 7):
        with pytest.raises((TypeError, ValueError)):
            again.usual.restore(broken)  # type: ignore[arg-type]


def test_who_has_just_begun_to_look_takes_what_is_usual_from_a_console() -> None:
    """As a verb, or the machine's own screen."""
    said: dict[str, Any] = {"since": [], "usual_us": [(0, 0, 2000), (0, 1, 5000)]}
    raw = writing(4100) | {Source("console", 1, 0): said}
    slow = [("flush_slow", "shard 0 on node-0")]
    assert names(lived(raw)) == slow
    own = Console(SiteView(site()))
    own.usual.restore([[0, node, [3000] * usual.KNOWN_MINUTES_MIN] for node in range(3)])
    poll(own, raw, now_ms=0, wall_ms=WALL_MS)
    assert names(own) == [], "what it knows itself counts"


def test_quick_disks_are_not_slow_by_some_microseconds() -> None:
    console = Console(SiteView(site()))
    after(console, usual.KNOWN_MINUTES_MIN + 1, writing(30))
    assert after(console, 1, writing(900), begin=100) == []


def test_a_certificate_that_ends_within_a_month_is_told() -> None:
    _, pem = make_certificate("node-1", "127.0.0.1")
    end = valid_until_ms(pem)
    assert end == 2_524_521_600_000  # as it is made: the last day of 2049
    of = site()
    of.nodes[1] = replace(of.nodes[1], certificate_pem=pem)
    of.nodes[2] = replace(of.nodes[2], client_certificate_pem=pem)

    def told(left_ms: int) -> list[tuple[str, str, str]]:
        console = Console(SiteView(of))
        poll(console, healthy(), now_ms=0, wall_ms=end - left_ms)
        return [(a.severity, a.subject, a.text) for a in console.alarms()]

    assert told(CERTIFICATE_DAYS * DAY_MS) == []
    assert told(CERTIFICATE_DAYS * DAY_MS - 1) == [
        ("warn", "node-1", "its certificate of nodes ends in 29 days"),
        ("warn", "node-2", "its certificate that clients are shown ends in 29 days"),
    ]
    assert told(2 * DAY_MS)[0] == ("bad", "node-1", "its certificate of nodes ends in 2 days")
    assert told(-1)[0][2] == "its certificate of nodes has ended"


def test_the_end_of_a_certificate_is_read_as_its_library_reads_it() -> None:
    _, pem = make_certificate("node-1", "127.0.0.1")
    said = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
    assert valid_until_ms(pem) == int(said.timestamp()) * 1000
    with pytest.raises(ValueError, match="certificate"):
        valid_until_ms("nothing")
