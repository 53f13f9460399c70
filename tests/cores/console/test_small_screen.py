"""What a screen of 80 columns shows: the cells of page and `status`, and what to do next."""

import dataclasses
from pathlib import Path

import pytest

from appliance.cores.console.about import About
from appliance.cores.console.cells import lines
from appliance.cores.console.console import Console
from appliance.cores.console.model import Source
from appliance.cores.console.remedies import REMEDIES
from appliance.cores.console.small_screen import (
    WIDTH,
    act_lines,
    act_offers,
    alarm_lines,
    log_lines,
    member_lines,
    network_lines,
    overview_lines,
    text_of,
)
from appliance.formats.settings import SETTINGS_FILE, Settings, encode_settings, load_settings
from appliance.formats.status.console import FAILED, OperatorAct
from tests.cores.console.worlds import Raw, healthy, looked, site

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


def test_the_next_step_is_that_of_the_worst_alarm() -> None:
    text = text_of(overview_lines(looked(lost()), START)).replace("\n", " ")
    assert text.startswith("2 bad alarms  1 warning Next: " + REMEDIES["edge_down"].do)


def test_with_everything_down_it_says_how_to_start() -> None:
    text = text_of(overview_lines(looked(dict.fromkeys(healthy())), START))
    assert "Nothing of this node answers" in text
    assert START in text.replace("\n", " ")


def test_acts_are_those_of_the_table_each_once_with_its_refusal() -> None:
    console = looked(kept(stopped="replica-0"))
    offers = act_offers(console, ["drain", "stop", "start"])
    found = [(offer["act"], About(**offer["about"])) for offer in offers]
    assert len(found) == len(set(found))
    assert ("start", About(1, "replica-0")) in found and ("drain", About(0)) in found
    refused = next(o for o in offers if o["act"] == "stop" and o["about"]["process"] == "replica-0")
    assert "needed replicas" in refused["refusal"]
    at = offers.index(refused)
    text = text_of(act_lines(offers, at))
    assert f">  {refused['label']}" in text and "refused: without " in text
    assert text.count("refused: ") == 1, "of the chosen one alone"
    assert "nothing that could be done" in text_of(act_lines([], 0))


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
