"""What `tigerchat upgrade` waits for, and what it refuses, one rule after the other: who answers is
scripted, at real sockets, and changes what it says when it is restarted."""

import os
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from appliance.__main__ import main
from appliance.base.errors import StorageError
from appliance.commands import upgrade as upgrade_verb
from appliance.cores.console.figures import Peer
from appliance.cores.console.model import Member, ShardLine
from appliance.cores.console.stakes import short_of
from appliance.drivers.host.durable_file import lock_folder
from appliance.drivers.host.resources import program
from appliance.formats.site import SITE_FILE, load_site
from appliance.formats.volume_level import NOT_TOLD, VOLUME_LEVEL
from appliance.node import upgrade as upgrading
from appliance.node.upgrade import KeptNode, KeptRestart, Upgrade
from appliance.roles.operator import keeping
from appliance.roles.operator.keeping import Keeper, until
from tests.commands.conftest import Tigerchat
from tests.commands.test_acts import SITE, answering, child
from tests.commands.test_upgrade import keeper, node
from tests.ports import FreePorts

Doors = dict[str, dict[str, Any] | None]
Told = Callable[..., tuple[int, str, str]]
PATIENCE_S, PAUSE_S = 0.05, 0.01  # who is scripted lacks what it lacks at the first look already
REPLICAS, STANDBY = 3, 3


@pytest.fixture(scope="module")
def folder(
    tigerchat: Tigerchat, tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts
) -> Path:
    """A local site of three nodes that vote and a standby, of which nothing runs."""
    folder = tmp_path_factory.mktemp("rules") / "run"
    words = ("--nodes", REPLICAS, "--standbys", 1, "--ports", free_ports(1)[0])
    made = tigerchat("format", "--local", folder, *words, "--geometry", "small", "--brief")
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(autouse=True)
def brief_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrading, "PAUSE_S", PAUSE_S)


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str]) -> Told:
    """`tigerchat upgrade` with these words: exit code and what was printed on both streams."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main(["upgrade", "--patience", str(PATIENCE_S), *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def all_serve() -> Doors:
    """The doors of all nodes: node-0 leads, the last one is a standby."""
    doors: Doors = {}
    for index in range(REPLICAS + 1):
        doors |= deepcopy(node(index, pid=100 + index))
    standby = doors[f"node-{STANDBY}/sockets/shard-0"]
    assert standby is not None
    standby["role"] = "standby"
    return doors


def said_by(doors: Doors, index: int, name: str) -> dict[str, Any]:
    """What a process of a node says; change it, and it says so from then on."""
    said = doors[f"node-{index}/sockets/{name}"]
    assert said is not None
    return said


class Site:
    """Scripted nodes, and an upgrade of them. `restarted` are those that were, in order."""

    def __init__(self, folder: Path, doors: Doors) -> None:
        self.folder, self.doors = folder, doors
        self.restarted: list[int] = []
        self.said: list[str] = []
        self.after: dict[tuple[int, str], dict[str, Any]] = {}  # what doors say once restarted

    def nodes(self, indices: Sequence[int]) -> list[KeptNode]:
        return [KeptNode(self.folder / f"node-{n}", f"node-{n}", n) for n in indices]

    def restart(self, node: KeptNode) -> None:
        self.restarted.append(node.index)
        said = {"pid": 200 + node.index, "program": "later"}
        said_by(self.doors, node.index, "supervisor-0").update(said)
        for (index, name), more in self.after.items():
            if index == node.index:
                said_by(self.doors, index, name).update(more)

    def made(self, indices: Sequence[int], *, force: bool = False) -> Upgrade:
        return Upgrade(
            load_site(self.folder / SITE_FILE),
            self.nodes(indices),
            program="later",
            restart=self.restart,
            patience_s=PATIENCE_S,
            force=force,
            say=self.said.append,
        )

    def upgrade(self, *indices: int, force: bool = False) -> str:
        """Why it ended before its end; empty: it did not."""
        with answering(self.folder, self.doors):
            try:
                self.made(indices, force=force).run(self.nodes(indices))
            except StorageError as error:
                return str(error)
        return ""


# --- one that was restarted is back when nothing lacks --------------------------------------------


@pytest.mark.parametrize(
    ("name", "says", "why"),
    [
        ("supervisor-0", {"pid": 101}, "its supervisor does not answer"),
        ("supervisor-0", {"program": "another"}, "it runs another"),
        ("supervisor-0", {"program": ""}, "it runs an earlier version"),
        (
            "supervisor-0",
            {"children": [child("federation", ready=False)]},
            "its federation is not ready",
        ),
        ("supervisor-0", {"children": [child("farm", ready=False)]}, "its farm is not ready"),
        (
            "supervisor-0",
            {"children": [child("replica-0", halt="VOLUME_NEWER")]},
            "its replica-0 halted: VOLUME_NEWER",
        ),
        ("shard-0", {"status": "recovering"}, "the replica of shard 0 on node-1 does not serve"),
        ("shard-0", {"commit_min": 34}, "the replica of shard 0 on node-1 is 1200 ops behind"),
        ("edge-0", {"health": "stale"}, "its edge 0: stale"),
        ("edge-0", {"connections": "what no edge says"}, "its edge 0 does not answer"),
    ],
)
def test_a_node_that_lacks_something_is_not_back_and_none_behind_it_is_touched(
    folder: Path, name: str, says: dict[str, Any], why: str
) -> None:
    site = Site(folder, all_serve())
    site.after[1, name] = says
    told = site.upgrade(1, 2, force=True)
    assert f"node-1 does not come back within 0 s: {why}" in told
    assert site.restarted == [1]
    assert not any("serves and is level" in line for line in site.said)


def test_a_node_is_back_whatever_its_operator_has_stopped_and_however_others_are(
    folder: Path,
) -> None:
    site = Site(folder, all_serve())
    stopped = child("shipper", ready=False, wanted=False, pid=None)
    site.after[1, "supervisor-0"] = {"children": [stopped, child("replica-0")]}
    said_by(site.doors, 2, "edge-0")["health"] = "stale"
    assert site.upgrade(1) == ""
    assert site.restarted == [1] and "by later" in site.said[-1]


def test_one_that_runs_the_program_is_passed_over_and_waited_for_all_the_same(folder: Path) -> None:
    site = Site(folder, all_serve())
    said_by(site.doors, 1, "supervisor-0").update(program="later", children=[child("farm")])
    assert site.upgrade(1) == "" and site.restarted == []
    said_by(site.doors, 1, "supervisor-0")["children"][0]["ready"] = False
    assert "node-1 does not come back within 0 s: its farm is not ready" in site.upgrade(1)
    assert site.restarted == []


def without(folder: Path, doors: Doors, index: int) -> None:
    """All replicas tell that the node belongs to the group no more; its own is gone."""
    (shard,) = load_site(folder / SITE_FILE).shards
    ids = [own.hex() for node, own in enumerate(shard.replica_ids) if node != index]
    for node_index in range(REPLICAS + 1):
        group = {"epoch": 1, "members_op": 9, "replica_count": REPLICAS - 1, "members": ids}
        said_by(doors, node_index, "shard-0").update(group, view=1)
    said_by(doors, index, "shard-0").clear()


def test_one_that_belongs_to_no_shard_is_back_without_a_replica_and_nobody_waits_for_it(
    folder: Path,
) -> None:
    site = Site(folder, all_serve())
    without(folder, site.doors, 2)
    assert site.upgrade(2) == "" and site.restarted == [2]
    site.restarted.clear()
    told = site.upgrade(1)
    assert "without it shard 0 has 1 of 2 needed replicas" in told, "of two both are needed"
    assert site.restarted == []


# --- before one is stopped, the others are there --------------------------------------------------


@pytest.mark.parametrize("down", [0, 2])
def test_a_node_is_stopped_only_while_the_others_that_vote_are_there(
    folder: Path, down: int
) -> None:
    site = Site(folder, all_serve())
    said_by(site.doors, down, "shard-0")["status"] = "recovering"
    told = site.upgrade(1)
    assert "node-1 is not stopped within 0 s" in told
    assert f"the replica of shard 0 on node-{down} does not serve" in told
    assert site.restarted == []
    assert site.upgrade(1, force=True) == "" and site.restarted == [1]


def test_no_node_waits_for_a_standby_and_a_standby_for_none(folder: Path) -> None:
    site = Site(folder, all_serve())
    said_by(site.doors, STANDBY, "shard-0")["status"] = "recovering"
    assert site.upgrade(1) == "" and site.restarted == [1]
    site = Site(folder, all_serve())
    said_by(site.doors, 0, "shard-0")["status"] = "recovering"
    assert site.upgrade(STANDBY) == "" and site.restarted == [STANDBY]


def test_one_that_does_not_serve_is_not_missed(folder: Path) -> None:
    site = Site(folder, all_serve())
    for index in (0, 1):
        said_by(site.doors, index, "shard-0")["status"] = "recovering"
    site.after[1, "shard-0"] = {"status": "normal"}
    assert site.upgrade(1) == "" and site.restarted == [1]


def test_who_does_not_serve_comes_first_and_who_leads_comes_last(folder: Path) -> None:
    site = Site(folder, all_serve())
    said_by(site.doors, 2, "supervisor-0")["children"] = [child("farm", ready=False)]
    site.after[2, "supervisor-0"] = {"children": [child("farm")]}
    assert site.upgrade(0, 1, 2) == ""
    assert site.restarted == [2, 1, 0]


def test_who_leads_is_asked_anew_before_each_node(folder: Path) -> None:
    """Another one may have been made the primary by what was done before."""
    site = Site(folder, all_serve())
    site.after[1, "shard-0"] = {"view": 5}  # of which node-2 is the primary
    assert site.upgrade(0, 1, 2) == ""
    assert site.restarted == [1, 0, 2]


@pytest.mark.parametrize(
    ("index", "standby", "removed", "serve", "left"),
    [
        (0, (), (), (0, 1, 2), None),
        (0, (), (), (0, 1), 1),
        (0, (), (), (1, 2), None),
        (0, (2,), (), (0, 1, 2), 1),
        (2, (2,), (), (0, 1), None),
        (0, (), (2,), (0, 1, 2), 1),
        (2, (), (2,), (0, 1), None),
    ],
)
def test_replicas_that_vote_and_serve_are_counted_without_that_of_the_node(
    index: int, standby: tuple[int, ...], removed: tuple[int, ...], serve: tuple[int, ...],
    left: int | None,
) -> None:  # fmt: skip
    members = tuple(
        Member(
            shard=0, index=n, node=n, standby=n in standby, asked=False, own=None,
            seen=Peer(n, 0, 9, 0, silent_ms=0) if n in serve else None,
            removed=n in removed,
        )
        for n in range(3)
    )  # fmt: skip
    shard = ShardLine(
        number=0, members=members, view=0, primary=None, commit_max=9, records=9,
        records_per_s=0.0, normal_count=3, quorum=2,
    )  # fmt: skip
    assert short_of(shard, index) == left


# --- what is known before anything is changed -----------------------------------------------------


@pytest.mark.parametrize(
    ("says", "is_taken"),
    [
        ({"volume_level": VOLUME_LEVEL + 1}, False),
        ({"volume_level": VOLUME_LEVEL + 1, "program": "later"}, True),
        ({"volume_level": NOT_TOLD}, True),
    ],
)
def test_levels_count_of_other_programs_that_tell_theirs(
    folder: Path, says: dict[str, Any], is_taken: bool
) -> None:
    site = Site(folder, all_serve())
    said_by(site.doors, 1, "supervisor-0").update(says)
    with answering(folder, site.doors):
        upgrade = site.made([0, 1, 2])
        upgrade.poll()
        if is_taken:
            upgrade.check_levels(VOLUME_LEVEL, no_way_back=False)
            return
        with pytest.raises(StorageError, match="it would halt with VOLUME_NEWER"):
            upgrade.check_levels(VOLUME_LEVEL, no_way_back=False)


def test_the_node_of_a_machine_is_restarted_by_no_program_that_would_not_take_it(
    verb: Told, folder: Path
) -> None:
    doors = all_serve()
    said_by(doors, 1, "supervisor-0")["volume_level"] = VOLUME_LEVEL + 1
    with answering(folder, doors) as wishes:
        code, out, err = verb("--node-folder", folder / "node-1", "--restart", "true")
    assert (code, out, wishes) == (1, "", [])
    assert "it would halt with VOLUME_NEWER; nothing was changed" in err


def test_only_one_upgrade_at_a_time_works_on_a_site_or_node(verb: Told, folder: Path) -> None:
    with answering(folder, {SITE: keeper(ended=True), **all_serve()}) as wishes:
        for place, words in (
            (folder, ("--local", folder, "node-1")),
            (folder / "node-1", ("--node-folder", folder / "node-1", "--restart", "true")),
        ):
            held = lock_folder(place, upgrade_verb.LOCK)
            try:
                code, out, err = verb(*words)
            finally:
                os.close(held)
            assert (code, out) == (2, "") and f"{place} is in use by process" in err
            code, _, err = verb(*words)
            assert code == 1 and "in use" not in err, "it was let go of"
    assert [wish for _, wish in wishes if "stop" in wish] == [{"stop": "node-1"}]


def test_a_folder_that_is_written_just_now_is_seen_at_again(
    verb: Told, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade_verb, "PAUSE_S", 0.0)
    settings, seen = folder / "node-1" / "node.toml", list[Path]()
    before, real = settings.read_text(), upgrade_verb.check_takes

    def takes(place: Path) -> None:
        seen.append(place)
        try:
            real(place)
        finally:
            settings.write_text(before)

    monkeypatch.setattr(upgrade_verb, "check_takes", takes)
    settings.write_text(before[: len(before) // 2] + "half =")
    with answering(folder, {SITE: keeper(ended=True)}):
        _, out, err = verb("--local", folder, "node-1")
    assert seen == [folder / "node-1"] * 2
    assert "would not start" not in err and "node-1: has stopped" in out


def test_a_node_that_the_keeper_does_not_keep_is_not_upgraded(verb: Told, folder: Path) -> None:
    kept = keeper()
    kept["children"] = kept["children"][:1]
    with answering(folder, {SITE: kept}) as wishes:
        code, out, err = verb("--local", folder, "node-1")
    assert (code, out, wishes) == (2, "", [])
    assert "node-1 is no node of the site that runs; allowed: node-0" in err


def test_a_machine_whose_node_is_one_process_is_told_so(verb: Told, folder: Path) -> None:
    doors: Doors = {"node-1/sockets/edge-0": {"health": ""}}
    with answering(folder, doors) as wishes:
        code, out, err = verb("--node-folder", folder / "node-1", "--restart", "true")
    assert (code, out, wishes) == (1, "", [])
    assert "one process (`start --one-process`)" in err and "nothing was changed" in err


@pytest.mark.parametrize(
    "words", [("--local", "run"), ("--back",), ("node-1",)], ids=["local", "back", "names"]
)
def test_the_node_of_a_machine_is_upgraded_alone(
    verb: Told, folder: Path, words: tuple[str, ...]
) -> None:
    code, out, err = verb("--node-folder", folder / "node-0", *words)
    assert (code, out) == (2, "") and "upgrades the node of this machine alone" in err


def test_a_command_that_restarts_belongs_to_a_machine(verb: Told, folder: Path) -> None:
    code, out, err = verb("--local", folder, "--restart", "true")
    assert (code, out) == (2, "") and "--restart belongs to --node-folder" in err


def test_what_keeps_the_nodes_is_said_to_run_the_former_program_still(
    verb: Told, folder: Path
) -> None:
    doors = all_serve()
    for index in range(REPLICAS + 1):
        said_by(doors, index, "supervisor-0")["program"] = program()
    kept = keeper()
    kept["children"] = [child(f"node-{index}") for index in range(REPLICAS + 1)]
    with answering(folder, {SITE: kept, **doors}) as wishes:
        code, out, err = verb("--local", folder)
    assert (code, err, wishes) == (0, "", [])
    assert f"4 of 4 nodes run {program()}" in out
    assert "the process that keeps them runs former until the site is started anew" in out


# --- what is asked of whoever keeps processes -----------------------------------------------------


def kept_by(folder: Path) -> Keeper:
    return Keeper(folder, load_site(folder / SITE_FILE).cluster)


def test_one_that_has_not_ended_is_not_started_by_another_program(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrading, "STOP_S", PATIENCE_S)
    restart = KeptRestart(kept_by(folder), None, lambda line: None)
    with answering(folder, {SITE: keeper()}) as wishes:
        with pytest.raises(StorageError, match="node-1 has not ended"):
            restart(KeptNode(folder / "node-1", "node-1", 1))
    assert wishes == [(SITE, {"stop": "node-1"})]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"done": False, "ending": True}, "the site is being stopped"),
        ({"done": False, "fixed": True}, "run by no other program than its supervisor's"),
        ({"done": False}, "node-1 was removed, or added since the site was started"),
    ],
)
def test_a_wish_that_is_not_granted_says_why(
    folder: Path, answer: dict[str, Any], why: str
) -> None:
    with answering(folder, {SITE: keeper() | answer}):
        with pytest.raises(StorageError, match=why):
            kept_by(folder).start("node-1", program=["other"], source="")


def test_a_wish_that_nobody_hears_is_not_granted(folder: Path) -> None:
    with pytest.raises(StorageError, match="nobody keeps the processes of"):
        kept_by(folder).stop("node-1")
    with answering(folder, {SITE: keeper()}):
        with pytest.raises(StorageError, match="node-9 was removed, or added"):
            kept_by(folder).child("node-9")


def test_edges_alone_are_stopped_and_those_that_are_wanted(folder: Path) -> None:
    gone = child("edge-0", pid=None, wanted=False)
    ended = child("edge-1", pid=None)
    with answering(folder, {SITE: {"children": [child("replica-0"), gone, ended]}}) as wishes:
        kept_by(folder).stop_edges("node-0")
    assert wishes == [(SITE, {"stop": "edge-1"})]


def test_one_that_is_too_busy_to_answer_once_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeping, "POLL_S", 0.0)
    answers = iter([StorageError("nobody answers"), False, True])

    def condition() -> bool:
        answer = next(answers)
        if isinstance(answer, StorageError):
            raise answer
        return answer

    def silent() -> bool:
        raise StorageError("nobody answers")

    until(condition, 60, "it has not ended")
    with pytest.raises(StorageError, match="it has not ended after 0 s.*: nobody answers"):
        until(silent, 0, "it has not ended")
