"""An act that was not carried out is never told as done, whoever was asked and does not answer.

Who answers is scripted, at real sockets: no process of a site runs.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from appliance.__main__ import main, tigerchat
from appliance.base.errors import ConfigurationError
from appliance.commands import node as node_verbs
from appliance.drivers.network.status import StatusServer
from appliance.formats.federation_site import PeerSite, decode_code, encode_code
from appliance.formats.group import Configuration
from appliance.formats.site import load_site
from appliance.node import node_acts
from appliance.roles.operator import (
    federation,
    keeping,
    membership,
    noting,
    revoking,
    sharing,
)
from appliance.roles.operator.membership import exchanged
from tests.commands.conftest import Tigerchat
from tests.cores.console import worlds
from tests.patience import HUNG_S
from tests.ports import FreePorts

Told = Callable[..., tuple[int, str, str]]

# Every verb that acts on a site that runs, with words for a site of two nodes of which nothing
# runs. FOLDER stands for that of the site, NODE for that of its first node.
ACTS = {
    "node stop": "node-1 --force --local FOLDER",
    "node kill": "node-1 --local FOLDER",
    "node drain": "node-1 --local FOLDER",
    "node undrain": "node-1 --local FOLDER",
    "node start": "node-1 --local FOLDER",
    "node scrub": "node-1 --local FOLDER",
    "node step-down": "node-1 --local FOLDER",
    "upgrade": "--local FOLDER",
    "ship now": "--local FOLDER",
    "ship re-ship": "--shard 0 --local FOLDER",
    "member add": "node-1 --node-folder NODE",
    "member invite": "node-9 --replace node-1 --node-folder NODE",
    "member remove": "node-1 --local FOLDER",
    "member promote": "node-1 --retire node-0 --local FOLDER",
    "member retire": "node-0 --promote node-1 --local FOLDER",
    "token revoke": "--user anna --local FOLDER",
    "alarm seen": "space --of x --local FOLDER",
    "clock correct": "--yes --local FOLDER",
    "object set": "--node-folder NODE topic lobby words",
    "object peers add": "2 127.0.0.1:1 " + "a" * 64,
    "object peers remove": "2",
    "farm exclude": "node-1 --local FOLDER",
    "farm place": "0 node-1 --local FOLDER",
    "farm period": "5000 --local FOLDER",
    "farm publish": "--local FOLDER",
    "farm yield": "--local FOLDER",
    "farm remove": "node-1 --local FOLDER",
    "farm admit": "node-1 --local FOLDER",
    "farm leave": "--node-folder NODE",
    "federation share": "lobby --with oslo --local FOLDER",
    "federation unshare": "lobby --local FOLDER",
    "federation verify": "--local FOLDER",
    "federation lag": "--local FOLDER",
    "ship verify": "--shard 1 --local FOLDER",  # which is none of the site
}
# What waits for a client's answer, acts on files alone, runs something itself, or only looks.
OTHERS = """
    room create|room list|room close|room reopen|room rename|room rights
    send|import|tail|topic|pin|react|profile|snapshot room|federation accept
    format|found|join|setup|recover|restore|retention set|token|flash|ship keys
    federation init|federation add-site|federation remove-site|federation invite
    federation attach|federation bridge
    farm user|farm init|farm invite|farm join|farm recover|farm export|farm import
    update begin-with|update stage|update fits|update on-start|update on-ready|update pack
    start|object serve|object shell|farm serve|farm post|federation participant|simulate
    benchmark|report|preflight|disks|version
    alarm list|console|status|support|find|member list|retention show|snapshot verify
    ship status|object id|object show
    object watch|object peers|object dump|object verify|farm dump|farm status|federation status
    inspect checkpoint|inspect segment|inspect snapshot|inspect superblock|inspect wal
    update status
"""


def leaves(group: click.Group, *words: str) -> Iterator[str]:
    """The verbs below a group; one that also works by itself counts, its parts are listed where
    they are verbs of their own."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            if found.invoke_without_command:
                yield " ".join((*words, name))
            if name not in ("start", "simulate", "benchmark"):
                yield from leaves(found, *words, name)
        else:
            yield " ".join((*words, name))


def test_every_verb_is_known_to_act_or_not() -> None:
    others = {words.strip() for line in OTHERS.splitlines() for words in line.split("|")} - {""}
    assert set(leaves(tigerchat)) == ACTS.keys() | others


@pytest.fixture(scope="module")
def folder(
    tigerchat: Tigerchat, tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts
) -> Path:
    """A local site of two nodes of which nothing runs."""
    folder = tmp_path_factory.mktemp("acts") / "run"
    words = ("--nodes", 2, "--accept-two-replicas", "--ports", free_ports(1)[0])
    made = tigerchat("format", "--local", folder, *words, "--geometry", "small", "--brief")
    assert made.returncode == 0, made.stderr
    assert tigerchat("federation", "init", "paris", "--local", folder).returncode == 0
    paris = decode_code(tigerchat("federation", "invite", "--local", folder).stdout, PeerSite)
    oslo = encode_code(PeerSite("oslo", "ab" * 32, paris.nodes))
    assert tigerchat("federation", "add-site", oslo, "--local", folder).returncode == 0
    return folder


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """`told("node", "stop", "node-1")`: exit code and what was printed on both streams."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_setting_of_a_site_that_does_not_run_is_set_and_nobody_is_asked_to_write_it(
    told: Told, folder: Path
) -> None:
    for days, words in (("30", "30 days are kept"), ("everything", "everything is kept")):
        code, out, err = told("retention", "set", days, "--local", folder)
        assert (code, err) == (0, "") and words in out


@pytest.mark.parametrize("verb", ACTS)
def test_nothing_is_done_when_nobody_is_there(
    told: Told, folder: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    for module in (membership, revoking, sharing):
        monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    words = ACTS[verb].replace("FOLDER", str(folder)).replace("NODE", str(folder / "node-0"))
    before = verb.split()
    if verb.startswith("object peers"):
        before[2:2] = ["--node-folder", str(folder / "node-0")]
    code, out, err = told(*before, *words.split())
    assert code in (1, 2) and err.startswith("tigerchat: "), (code, out, err)
    assert "Traceback" not in err and out == ""


# --- who answers is scripted ----------------------------------------------------------------------


def child(name: str, **changes: Any) -> dict[str, Any]:
    plain = {"pid": 1, "spawning": False, "ready": True, "wanted": True, "starts": 1, "halt": ""}
    return {"name": name, **plain, **changes}


@contextmanager
def answering(folder: Path, doors: dict[str, dict[str, Any] | None]) -> Iterator[list[Any]]:
    """Processes that answer at these sockets below the folder, and take every wish for done; one
    that says None takes a connection and is silent. Gives the wishes as they came."""
    wishes: list[Any] = []
    loop, stop, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    def hears(place: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def hear(wish: dict[str, Any]) -> dict[str, Any]:
            wishes.append((place, wish))
            return {"done": True, **(doors[place] or {})}

        return hear

    async def serve() -> None:
        servers = [
            StatusServer(
                folder / place,
                cluster=load_site(folder / "site.toml").cluster,
                number=0,
                status=lambda said=said: said,
                on_wish=hears(place),
            )
            for place, said in doors.items()
            if said is not None
        ]
        for server in servers:
            await server.start()
        ready.set()
        await stop.wait()
        for server in servers:
            await server.close()
        if rest := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(rest)

    silent = []
    for place, said in doors.items():
        if said is None:
            silent.append(socket.socket(socket.AF_UNIX))
            (folder / place).unlink(missing_ok=True)
            silent[-1].bind(str(folder / place))
            silent[-1].listen()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(HUNG_S)
    try:
        yield wishes
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(HUNG_S)
        loop.close()
        for door in silent:
            door.close()


SITE, NODE = "supervisor-0", "node-1/sockets/supervisor-0"
EDGE = "node-1/sockets/edge-0"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_acts, "START_S", 0.3)
    for module in (keeping, node_acts, node_verbs):
        monkeypatch.setattr(module, "STOP_S", 0.3)
    monkeypatch.setattr(keeping, "ANSWER_S", 0.3)
    monkeypatch.setattr(federation, "ANSWER_S", 0.3)


def test_a_node_of_one_process_is_not_drained(
    told: Told, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noting, "PATIENCE_S", 0.1)  # nobody commits what was done
    with answering(folder, {SITE: {"children": [child("node-1")]}, EDGE: worlds.edge()}) as wishes:
        code, out, err = told("node", "drain", "node-1", "--local", folder)
        assert (code, out, wishes) == (1, "", [])
        assert "one process (`start --one-process`)" in err and "nothing was changed" in err
        code, out, _ = told("node", "start", "node-1", "--local", folder)
        assert code == 0 and "node-1 is started" in out, "its edge was never stopped"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("words", [("drain", "node-1"), ("stop", "node-1", "--force")])
def test_what_has_not_ended_is_not_told_as_stopped(
    told: Told, folder: Path, words: tuple[str, ...]
) -> None:
    """Neither while it runs on, nor while it is spawned, nor when its supervisor fell silent."""
    for still in ({"pid": 1}, {"pid": None, "spawning": True}):
        node = child("node-1", **(still if words[0] == "stop" else {}))
        doors = {SITE: {"children": [node]}, NODE: {"children": [child("edge-0", **still)]}}
        with answering(folder, doors):
            code, out, err = told("node", *words, "--local", folder)
            assert (code, out) == (1, "") and "ended after" in err
    with answering(folder, {SITE: {"children": [child("node-1")]}, NODE: None, EDGE: None}):
        if words[0] == "drain":
            code, out, err = told("node", *words, "--local", folder)
            assert (code, out) == (1, "") and "nobody keeps the processes" in err


@pytest.mark.usefixtures("impatient")
def test_what_does_not_serve_is_not_told_as_started(told: Told, folder: Path) -> None:
    down, up = child("node-1", ready=False), child("node-1")
    cold = child("edge-0", ready=False, wanted=False, pid=None)
    for node, edge, what in (
        (down, child("edge-0"), "node-1 is not ready"),
        (up, cold, "not every edge of node-1 is ready"),
    ):
        doors = {SITE: {"children": [node]}, NODE: {"children": [edge]}}
        with answering(folder, doors) as wishes:
            code, out, err = told("node", "start", "node-1", "--local", folder)
            assert (code, out) == (1, "") and what in err
            assert (SITE, {"start": "node-1"}) in wishes
    assert (NODE, {"start": "edge-0"}) in wishes


def test_nobody_ships_where_every_target_is_off(told: Told, folder: Path) -> None:
    off = {"node": 0, "target": "off", "late_s_max": 600, "shards": []}
    doors = {f"node-{node}/sockets/shipper-0": off for node in range(2)}
    with answering(folder, doors):
        code, out, err = told("ship", "now", "--local", folder)
    assert (code, out) == (1, "") and 'ship_target is "off"' in err


@pytest.mark.usefixtures("impatient")
def test_sites_are_not_told_as_known_while_a_federation_is_stuck(told: Told, folder: Path) -> None:
    with answering(folder, {"node-1/sockets/federation-0": None}):
        code, out, err = told("federation", "remove-site", "oslo", "--local", folder)
        assert (code, out) == (1, "") and "node-1: its federation runs and does not answer" in err
        code, out, _ = told("federation", "verify", "--local", folder)
        assert code == 1 and "node-1: its federation does not answer" in out


def test_members_change_places_only_where_one_votes_and_the_other_does_not() -> None:
    a, b, c, d = (bytes([number]) * 16 for number in range(4))
    group = Configuration(epoch=1, op=1, replica_count=2, members=(a, b, c, d))
    assert exchanged(group, 0, c, a) == (c, b, a, d)
    assert exchanged(group, 0, a, c) is None, "it is so already"
    with pytest.raises(ConfigurationError, match="shard 0: both vote already"):
        exchanged(group, 0, a, b)
    with pytest.raises(ConfigurationError, match="shard 0: neither of them votes"):
        exchanged(group, 0, c, d)
    with pytest.raises(ConfigurationError, match="both must be members"):
        exchanged(group, 0, bytes(16), bytes([9]) * 16)
