"""`tigerchat upgrade` refuses before anything is changed, and stops at a node that does not come
back. Who answers is scripted, at real sockets; `tests/system/test_upgrade.py` upgrades real nodes.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.__main__ import main
from appliance.commands import upgrade as upgrade_verb
from appliance.drivers.host.process import own_command, own_source
from appliance.drivers.host.resources import program
from appliance.formats.volume_level import VOLUME_LEVEL
from tests.commands.conftest import Tigerchat
from tests.commands.test_acts import SITE, answering, child
from tests.ports import FreePorts
from tests.statuses import REPLICA

Told = Callable[..., tuple[int, str, str]]
NEW = {"program": own_command(), "source": own_source()}


@pytest.fixture(scope="module")
def folder(
    tigerchat: Tigerchat, tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts
) -> Path:
    """A local site of two nodes of which nothing runs."""
    folder = tmp_path_factory.mktemp("upgrade") / "run"
    words = ("--nodes", 2, "--accept-two-replicas", "--ports", free_ports(1)[0])
    made = tigerchat("format", "--local", folder, *words, "--geometry", "small", "--brief")
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def upgrade(capsys: pytest.CaptureFixture[str], folder: Path) -> Told:
    """`upgrade("node-1", "--back")`: exit code and what was printed on both streams."""

    def run(*words: object) -> tuple[int, str, str]:
        place = () if "--node-folder" in words else ("--local", folder)
        patience = ("--patience", 0.3)
        code = main([str(word) for word in ("upgrade", *words, *place, *patience)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def keeper(*, ended: bool = False, **changes: Any) -> dict[str, Any]:
    """What keeps the nodes, of which each runs or has ended."""
    more = {"pid": None} if ended else {}
    children = [child(f"node-{index}", **more, **changes) for index in range(2)]
    return {"program": "former", "volume_level": VOLUME_LEVEL, "children": children}


def node(index: int, **changes: Any) -> dict[str, dict[str, Any] | None]:
    """The doors of a node that serves, as far as it is asked here."""
    kept = {"pid": 7, "program": "former", "volume_level": VOLUME_LEVEL, "children": []}
    edge = {"health": "", "connections": 0, "subscriptions": 0, "lagging": 0}
    edge |= {"acked": 0, "refused": 0, "ack": {"p50_us": 0, "p99_us": 0}}
    role = "primary" if index == 0 else "backup"
    replica = REPLICA | {"role": role, "replica": index, "view": 0, "node": index}
    sockets = f"node-{index}/sockets"
    return {
        f"{sockets}/supervisor-0": kept | changes,
        f"{sockets}/shard-0": replica,
        f"{sockets}/edge-0": edge,
    }


def test_what_cannot_start_another_program_is_not_asked_to(upgrade: Told, folder: Path) -> None:
    with answering(folder, {SITE: keeper() | {"program": ""}}) as wishes:
        code, out, err = upgrade()
    assert (code, out, wishes) == (1, "", [])
    assert "cannot start another program" in err and "nothing was changed" in err


def test_an_unknown_node_is_named_beside_those_there_are(upgrade: Told, folder: Path) -> None:
    with answering(folder, {SITE: keeper()}) as wishes:
        code, out, err = upgrade("node-7")
    assert (code, out, wishes) == (2, "", [])
    assert "node-7 is no node" in err and "allowed: node-0, node-1" in err


def test_a_node_that_does_not_come_back_ends_it_and_the_others_are_as_they_were(
    upgrade: Told, folder: Path
) -> None:
    with answering(folder, {SITE: keeper(ended=True)}) as wishes:
        code, out, err = upgrade()
    assert code == 1 and "upgrade: node-0: has stopped" in out
    assert "node-0 does not come back" in err and "its supervisor does not answer" in err
    assert "begin again when it serves, or go back" in err
    assert wishes == [(SITE, {"stop": "node-0"}), (SITE, {"start": "node-0"} | NEW)]


def test_one_that_is_started_by_another_program_has_not_come_back(
    upgrade: Told, folder: Path
) -> None:
    doors = {SITE: keeper(ended=True), **node(0), **node(1, program=program())}
    with answering(folder, doors):
        code, _, err = upgrade("--force", "node-0")
        assert code == 1 and "its supervisor does not answer" in err, "that is the former one"
        code, out, err = upgrade("--force", "node-1")
    assert code == 0 and f"node-1: runs {program()} already" in out, err
    assert "1 of 2 nodes run" in out and "`upgrade --back` goes back" in out


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({}, "the replica of shard 0 on node-1 does not serve"),
        (node(1), "without it shard 0 has 1 of 2 needed replicas"),
    ],
    ids=["is down", "is not enough"],
)
def test_a_node_that_cannot_be_missed_is_not_stopped(
    upgrade: Told, folder: Path, other: dict[str, Any], why: str
) -> None:
    with answering(folder, {SITE: keeper(), **node(0), **other}) as wishes:
        code, out, err = upgrade("node-0")
    assert (code, out, wishes) == (1, "", [])
    assert "node-0 is not stopped" in err and why in err


def test_a_node_is_not_stopped_while_another_one_lags(upgrade: Told, folder: Path) -> None:
    late = node(1)
    late["node-1/sockets/shard-0"] = (late["node-1/sockets/shard-0"] or {}) | {"commit_min": 34}
    with answering(folder, {SITE: keeper(), **node(0), **late}) as wishes:
        code, out, err = upgrade("node-0")
    assert (code, out, wishes) == (1, "", [])
    assert "the replica of shard 0 on node-1 is 1200 ops behind" in err


def test_there_is_no_way_back_once_all_nodes_were_switched(upgrade: Told, folder: Path) -> None:
    with answering(folder, {SITE: keeper(replaced=True)}) as wishes:
        code, out, err = upgrade("--back")
    assert (code, out, wishes) == (1, "", [])
    assert "there is no way back any more" in err


def test_the_way_back_leads_to_their_own_program_of_those_that_were_switched(
    upgrade: Told, folder: Path
) -> None:
    kept = keeper(ended=True)
    kept["children"][1]["replaced"] = True
    with answering(folder, {SITE: kept}) as wishes:
        code, _, err = upgrade("--back")
    assert code == 1 and "node-1 does not come back" in err
    back = {"start": "node-1", "program": [], "source": ""}
    assert wishes == [(SITE, {"stop": "node-1"}), (SITE, back)]


@pytest.mark.parametrize(
    ("writes", "sentence"),
    [
        (VOLUME_LEVEL - 1, "it would halt with VOLUME_NEWER"),
        (VOLUME_LEVEL + 1, "there is no way back"),
    ],
)
def test_what_one_of_both_programs_would_not_take_is_told_before(
    upgrade: Told, folder: Path, monkeypatch: pytest.MonkeyPatch, writes: int, sentence: str
) -> None:
    monkeypatch.setattr(upgrade_verb, "VOLUME_LEVEL", writes)
    with answering(folder, {SITE: keeper(), **node(0), **node(1)}) as wishes:
        code, out, err = upgrade()
        assert (code, out, wishes) == (1, "", [])
        assert sentence in err and "nothing was changed" in err
        assert "node-0 is not stopped" not in err
        if writes > VOLUME_LEVEL:
            _, _, err = upgrade("--no-way-back")
            assert "node-0 is not stopped" in err or "node-1 is not stopped" in err


def test_a_node_of_one_process_is_not_upgraded(upgrade: Told, folder: Path) -> None:
    doors = {SITE: keeper(), "node-1/sockets/edge-0": {"health": ""}}
    with answering(folder, doors) as wishes:
        code, out, err = upgrade()
    assert (code, out, wishes) == (1, "", [])
    assert "one process (`start --one-process`)" in err and "nothing was changed" in err


def test_a_program_that_would_not_start_there_says_so_before(
    upgrade: Told, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade_verb, "PAUSE_S", 0.0)
    settings = folder / "node-1" / "node.toml"
    before = settings.read_text()
    try:
        settings.write_text(before + "\nof_another_version = 1\n")
        with answering(folder, {SITE: keeper()}) as wishes:
            code, out, err = upgrade("node-1")
    finally:
        settings.write_text(before)
    assert (code, out, wishes) == (1, "", [])
    assert "would not start on" in err and "of_another_version" in err


# --- the node of a machine ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("/nowhere/restart tigerchat", "No such file or directory; name a command by --restart"),
        (
            f"{sys.executable} -c 'raise SystemExit(\"no such unit\")'",
            "failed with 1: no such unit",
        ),
        ("true", "node-0 does not come back"),
    ],
)
def test_a_machine_whose_node_is_not_restarted_ends_it(
    upgrade: Told, folder: Path, command: str, why: str
) -> None:
    with answering(folder, node(0)):
        code, out, err = upgrade(
            "--node-folder", folder / "node-0", "--force", "--restart", command
        )
    assert code == 1 and why in err, err
    assert "node-0: its chat clients are on other nodes" in out


def test_a_machine_without_a_node_that_runs_is_told_so(upgrade: Told, folder: Path) -> None:
    code, out, err = upgrade("--node-folder", folder / "node-0")
    assert (code, out) == (1, "") and "nobody keeps the processes of" in err
    code, out, err = upgrade("--node-folder", folder)
    assert (code, out) == (2, "") and "no folder of a formatted node" in err
    code, out, err = upgrade("--node-folder", folder / "node-0", "--back")
    assert (code, out) == (2, "") and "run the former program's `upgrade` there" in err
