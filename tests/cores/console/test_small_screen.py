"""What a screen of 80 columns shows: the cells of page and `status`, and what to do next."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from appliance.cores.console.about import About
from appliance.cores.console.acts import BY_NAME, unwritten
from appliance.cores.console.cells import lines
from appliance.cores.console.console import Console
from appliance.cores.console.model import Source
from appliance.cores.console.remedies import REMEDIES
from appliance.cores.console.small_screen import (
    ELSEWHERE,
    WIDTH,
    act_lines,
    act_offers,
    alarm_lines,
    alarm_offers,
    log_lines,
    marked,
    member_lines,
    network_lines,
    overview_lines,
    text_of,
    wrapped,
)
from appliance.formats.settings import SETTINGS_FILE, Settings, encode_settings, load_settings
from appliance.formats.site_view import SiteView
from appliance.formats.status.console import FAILED, OperatorAct
from tests.cores.console.test_services import farmed, server
from tests.cores.console.worlds import WALL_MS, Raw, healthy, looked, poll, replica, site
from tests.cores.directory.statuses import view as farm_view
from tests.statuses import VOLUME

HOUR_US = 3_600_000_000
START = "`tigerchat start --node-folder /var/lib/tigerchat/node`"

HEALTHY = """\
No alarms.

shard  primary  view  serving  committed op  records  records/s
0      node-0      3   3 of 3         1,234    5,700         22

shard  replica  node    role     status  lag  write p99  process
0      0        node-0  primary  normal    0    0.42 ms        –
0      1        node-1  backup   normal    0    0.42 ms        –
0      2        node-2  backup   normal    0    0.42 ms        –

edge  node    connections  acked/s  ack p99  refused  process
0     node-0           21        0  3.10 ms        2        –
0     node-1           21        0  3.10 ms        2        –
0     node-2           21        0  3.10 ms        2        –"""

LOST = """\
replica_down  shard 0 on node-2  for 0 s
  does not answer
  A replica on this machine does not answer.
  What to do: Its supervisor starts it again, but for what an operator has
  stopped. Where all of the node is down, start that: `systemctl start
  tigerchat`, or `tigerchat start --node-folder F`. If it stays away, read the
  node's output."""


def lost() -> Raw:
    """The processes of node-2 answer no more."""
    gone: Raw = {Source("replica", 2, 0): None, Source("edge", 2, 0): None}
    return {**healthy(), **gone}


def kept(*, stopped: str = "") -> Raw:
    """Each node has a supervisor, and a process of that name was stopped on node-1."""
    answers: Raw = healthy()
    for node in range(3):
        children = [
            {
                "name": name,
                "pid": 7,
                "ready": True,
                "halt": "",
                "wanted": (node, name) != (1, stopped),
            }
            for name in ("replica-0", "edge-0", "shipper")
        ]
        answers[Source("supervisor", node, 0)] = {"children": children}
    return answers


def settings(folder: Path, index: int, **changes: int | bool | str) -> Settings:
    """Of a node, as its file says them."""
    (folder / SETTINGS_FILE).write_text(encode_settings(index, **changes))
    return load_settings(folder / SETTINGS_FILE)


def test_a_healthy_site_fits_and_is_what_status_shows() -> None:
    console = looked(healthy(), healthy(records=5700))
    text = text_of(overview_lines(console, START))
    assert text == HEALTHY
    assert len(text.splitlines()) <= 24 - 4, "there is room for head, views, a sentence and keys"
    in_full = [line.split() for table in console.tables() for line in lines(table)]
    for line in text.splitlines()[2:]:
        words = line.split()
        assert any(set(words) <= set(full) for full in in_full), line


@pytest.mark.parametrize("answers", [healthy(), lost(), kept(stopped="replica-0")])
def test_every_view_fits_into_80_columns(answers: Raw) -> None:
    console = looked(answers)
    for view in (overview_lines(console, START), alarm_lines(console), member_lines(console)):
        assert max(map(len, text_of(view).splitlines())) <= WIDTH


def test_an_alarm_says_what_it_means_what_to_do_and_by_which_verb() -> None:
    assert LOST in text_of(alarm_lines(looked(healthy(), lost())))
    down = {**kept(stopped="replica-0"), Source("replica", 1, 0): None}
    text = text_of(alarm_lines(looked(down)))
    assert "or: tigerchat node start node-1 --process replica-0" in text
    assert text_of(alarm_lines(looked(healthy()))) == "No alarms."


def changed(node: int, **changes: Any) -> Raw:
    """The replica of that node answers so."""
    return kept() | {Source("replica", node, 0): replica(node, **changes)}


def stuck(name: str) -> Raw:
    """A process of node-1 does not turn its loop."""
    raw = kept()
    for child in (raw[Source("supervisor", 1, 0)] or {})["children"]:
        child["silent_ms"] = 2500 if child["name"] == name else 0
    return raw


VOLUME_SLOW = VOLUME | {"journal": VOLUME["journal"] | {"p99_us": 150_000}}
FULL = VOLUME | {"disk_size": 1000, "disk_free": 50}
AHEAD = {"agreed": True, "errors_us": {"1": 1_000_000}}
LATE = {"late_s": 700, "late_s_max": 600}


@pytest.mark.parametrize(
    "answers, name, subject",
    [
        (changed(1, volume=VOLUME_SLOW), "disk_slow", "shard 0 on node-1"),
        (changed(1, volume=FULL), "space", "shard 0 on node-1"),
        (changed(0, role="primary", clock=AHEAD), "clock", "node-1"),
        (kept() | {Source("replica", 1, 0): None}, "replica_down", "shard 0 on node-1"),
        *((stuck(role), "role_stuck", f"{role} on node-1") for role in ("replica-0", "shipper")),
        (changed(0, role="primary", shipping=LATE), "ship_late", "shard 0"),
        (changed(1, faulty=3), "faulty", "shard 0 on node-1"),
        (changed(1, commit=1234, commit_min=600), "lag", "shard 0 on node-1"),
    ],
)
def test_a_fault_is_named_in_the_poll_that_sees_it_with_its_remedy_as_on_the_page(
    answers: Raw, name: str, subject: str
) -> None:
    console = looked(answers)
    (told,) = [
        alarm for alarm in console.plain()["alarms"]
        if (alarm["name"], alarm["subject"]) == (name, subject)
    ]  # fmt: skip
    text = text_of(alarm_lines(console))
    (begin,) = [i for i, line in enumerate(text.splitlines()) if line.startswith(f"{name}  ")]
    block = " ".join("\n".join(text.splitlines()[begin:]).split("\n\n")[0].split())
    assert block.startswith(f"{name} {subject} for ")
    for words in (told["text"], told["means"], f"What to do: {told['do']}"):
        assert words in block
    allowed = [offer["verb"] for offer in told["acts"] if not offer["refusal"]]
    assert [verb.strip() for verb in block.split(" or: ")[1:]] == allowed
    assert max(map(len, text.splitlines())) <= WIDTH


def test_the_next_step_is_that_of_the_worst_alarm() -> None:
    text = text_of(overview_lines(looked(lost()), START)).replace("\n", " ")
    assert text.startswith("2 bad alarms  1 warning Next: " + REMEDIES["edge_down"].do)


def test_with_everything_down_it_says_how_to_start() -> None:
    text = text_of(overview_lines(looked(dict.fromkeys(healthy())), START))
    assert "Nothing of this node answers" in text
    assert START in text.replace("\n", " ")


def test_acts_are_those_of_the_table_each_once_with_its_refusal() -> None:
    console = looked(kept(stopped="replica-0"))
    offers = act_offers(console)
    found = [(offer["act"], About(**offer["about"])) for offer in offers]
    assert len(found) == len(set(found))
    assert ("start", About(1, "replica-0")) in found and ("drain", About(0)) in found
    refused = next(o for o in offers if o["act"] == "stop" and o["about"]["process"] == "replica-0")
    sites = [o["kind"] == "site" for o in offers]
    assert sites == sorted(sites) and sites[-1], "what is about all comes last"
    assert "needed replicas" in refused["refusal"]
    at = offers.index(refused)
    text = text_of(act_lines(offers, at))
    assert f">  {refused['label']}" in text and "refused: without " in text
    assert text.count("refused: ") == 1, "of the chosen one alone"
    assert "nothing that could be done" in text_of(act_lines([], 0))


def every_console() -> list[Console]:
    """So that each act is offered by one."""
    ahead = {Source("replica", i, 0): replica(i, clock={"log_ahead_us": HOUR_US}) for i in range(3)}
    standby = site(4)
    shard = dataclasses.replace(standby.shards[0], replica_count=3, standby_count=1)
    standby = dataclasses.replace(standby, shards=[shard])
    four = Console(SiteView(standby))
    poll(four, kept(), now_ms=0, wall_ms=WALL_MS)
    halted = kept()
    child = {"name": "replica-0", "pid": None, "ready": False, "halt": "VOLUME_MOVED"}
    halted |= {Source("supervisor", 1, 0): {"children": [child]}, Source("replica", 1, 0): None}
    return [
        four,
        looked(halted),
        looked(kept(stopped="edge-0")),
        looked(kept() | ahead),
        farmed(),
        farmed(members=[server(2), server(3)], view=farm_view(publisher=3, excluded=["2"])),
    ]


def test_each_act_of_the_table_is_offered_or_stands_elsewhere_for_a_reason() -> None:
    found = {offer["act"] for console in every_console() for offer in act_offers(console)}
    assert found == BY_NAME.keys() - ELSEWHERE.keys()
    assert ELSEWHERE.keys() < BY_NAME.keys() and all(ELSEWHERE.values())


def test_the_label_of_an_act_names_all_that_it_is_about() -> None:
    """It stands beside no row."""
    for console in every_console():
        for offer in act_offers(console):
            for name in ("node", "other"):
                of = {"farm-yield", "farm-publish", "step-down"}  # whoever it is: there is one
                if name in offer["about"] and offer["act"] not in of:
                    node = console.seen().site.nodes[offer["about"][name]].name
                    assert node in offer["label"], offer["label"]


def test_who_has_seen_an_alarm_stands_beside_it() -> None:
    console = looked(healthy(), lost())
    for offer, alarm in zip(alarm_offers(console), console.alarms(), strict=True):
        assert offer["act"] == "alarm-seen" and offer["refusal"] == ""
        assert unwritten(BY_NAME["alarm-seen"], offer["written"]) == ""
        assert offer["written"] == {"alarm": alarm.name, "subject": alarm.subject}
    alarm = console.alarms()[1]
    assert "seen by" not in text_of(alarm_lines(console))
    console.life.see(alarm.name, alarm.subject, "anna", 1)
    assert text_of(alarm_lines(console)).count("seen by anna") == 1
    shown = alarm_lines(console, chosen=1)
    line = text_of(shown).splitlines()[marked(shown)]
    assert line.startswith(f">  {alarm.name}  {alarm.subject}")


def test_what_an_act_gives_is_shown_whole() -> None:
    token = "eyJ" + "x-y" * 100
    lines = text_of(wrapped(f"one\n\n{token}\ntwo words", 80)).splitlines()
    assert lines[:2] == ["one", ""] and lines[-1] == "two words"
    assert "".join(lines[2:-1]) == token and max(map(len, lines)) == 80


def test_the_network_is_what_site_and_node_say(tmp_path: Path) -> None:
    described = site(shards=2)
    first = dataclasses.replace(described.nodes[0], objects_port=7490, farm_port=7491)
    described = dataclasses.replace(described, nodes=[first, *described.nodes[1:]])
    own = settings(tmp_path, 0, console_host="10.0.0.7", client_tls=False)
    text = text_of(network_lines(described, own, [("eth0", "10.0.0.7"), ("lo", "::1")]))
    for words in (
        "chat page and clients  127.0.0.1:7440  TCP, no TLS",
        "console                10.0.0.7:7480   TCP, TLS",
        "peers of shard 1       127.0.0.1:7401  TCP, TLS",
        "objects                127.0.0.1:7490  TCP, TLS",
        "farm                   127.0.0.1:7491",
        "eth0          10.0.0.7",
        "node-2       127.0.0.1:7402  127.0.0.1:7442",
    ):
        assert words in text, text


def test_the_log_has_acts_of_operators_and_says_where_lines_would_be() -> None:
    act = OperatorAct(
        number=1, at_ms=1_700_000_000_000, what="stop node-1 edge-0", who="x", came_from="terminal",
        verb="", state=FAILED, words="it does not end",
    )  # fmt: skip
    text = text_of(log_lines([act], ["a line", "another one"], "none"))
    assert "11-14 22:13:20     stop node-1 edge-0  failed: it does not end" in text
    assert text.endswith("\n\na line\nanother one")
    assert text_of(log_lines([], [], "look elsewhere")) == "look elsewhere"


def test_what_strangers_chose_begins_no_line_and_commands_nothing(tmp_path: Path) -> None:
    strange = Console(looked(healthy()).view)
    named = site()
    nodes = [dataclasses.replace(named.nodes[0], name="[b]x\x1b[2J\nNo alarms."), *named.nodes[1:]]
    strange.on_site(dataclasses.replace(named, nodes=nodes))
    text = text_of(log_lines([], ["\x1b]0;title\x07 [red]said[/red]"], "none"))
    assert text == "\ufffd]0;title\ufffd [red]said[/red]"
    shown = text_of(network_lines(strange.view.site, settings(tmp_path, 1), []))
    assert "[b]x\ufffd[2J\ufffdNo alarms." in shown
    assert all(each.isprintable() or each == "\n" for each in shown)
