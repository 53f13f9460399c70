"""An older copy that nobody notices at the door: whatever follows is a halt with a name."""

import pytest

from appliance.cores.vsr import denial
from appliance.cores.vsr.evaluate import Verdict
from appliance.cores.vsr.status import Status
from appliance.simulation.machine import Machine
from tests.cores.vsr.eyes import Eyes
from tests.cores.vsr.group import TINY, Group, Session
from tests.cores.vsr.test_evaluate import BLANK, MISSING, dvc, start, verdict

NAMES = {"VOLUME_OUTDATED", "DIVERGED"}


class Blind(Eyes):
    """Sees what is committed, and not what becomes of it."""

    def watch_commits(self, machine: Machine) -> None:
        for op in range(1, machine.replica.commit_min + 1):
            self.committed.setdefault(op, b"")


class Forgetful(Group):
    """A group that may lose what it had committed: a test looks itself at what becomes of it."""

    eyes_of = Blind


def begun(group: Group) -> Session:
    session = group.opened()
    group.run(60)
    return session


def put_back(group: Group, index: int, copy: bytes) -> None:
    """The process ends and finds an older copy of its volume when it starts again."""
    if group.nodes[index].replica is not None:
        group.crash(index)
    group.nodes[index].halted = None
    group.nodes[index].disk.poke(0, copy)


# --- of two ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("other", ["goes on", "starts again too"])
@pytest.mark.parametrize("count", [2, 20])
def test_of_two_the_copy_of_the_last_life_halts_and_the_right_volume_is_let_in_again(
    victim: int, other: str, count: int
) -> None:
    """The other one remembers that life and, of what it had acknowledged since, all but the newest
    op: that one may have been acknowledged by nobody.
    """
    group = Group(2, geometry=TINY, segments_max=64)
    session = begun(group)
    copy = bytes(group.nodes[victim].disk.data)
    group.put(session, count)
    group.crash(victim)
    right = bytes(group.nodes[victim].disk.data)
    put_back(group, victim, copy)
    if other == "starts again too":
        group.restart(1 - victim)
    group.start(victim)
    group.run(300)
    code, reason = group.nodes[victim].halted
    assert code == "VOLUME_OUTDATED" and "remembers" in reason
    assert group.nodes[1 - victim].halted is None
    put_back(group, victim, right)
    group.start(victim)
    group.until(group.converged, ticks=3000)
    group.put(session, 3)
    group.check()


@pytest.mark.parametrize("seed", range(3))
def test_of_two_whoever_counts_the_lists_halts_by_name_if_one_denies_what_is_committed(
    seed: int,
) -> None:
    """Also where the one that knows better has forgotten of whom it heard."""
    group = Group(2, geometry=TINY, seed=seed, segments_max=64)
    session = begun(group)
    copy = bytes(group.nodes[1].disk.data)
    group.put(session, 5)
    put_back(group, 1, copy)
    group.core(0).told.clear()
    group.start(1)
    group.run(1 + 7 * seed)
    if group.nodes[0].halted is None:
        group.restart(0)
        group.core(0).told.clear()
    group.run(300)
    assert {node.halted[0] for node in group.nodes if node.halted} <= NAMES
    assert any(node.halted for node in group.nodes)


# --- of three -------------------------------------------------------------------------------------


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("count", [5, 20])
def test_of_three_the_one_whose_commits_a_newer_log_denies_halts(count: int, served: bool) -> None:
    """The one that forgot and one that never knew have gone on without it: it can be told by its
    own log alone, and it keeps what they have lost.
    """
    group = Forgetful(3, geometry=TINY, segments_max=64)
    session = begun(group)
    cut = group.isolate(2)
    copy = bytes(group.nodes[0].disk.data)
    group.put(session, count)
    group.crash(1)
    kept = bytes(group.nodes[1].disk.data)
    put_back(group, 0, copy)
    group.heal(cut)
    group.start(0)
    group.run(200)
    assert group.primary is not None, "nobody of these two can tell"
    if served:
        group.client()
    group.start(1)
    group.run(300)
    code, reason = group.nodes[1].halted
    assert code == "DIVERGED" and "is committed here" in reason
    assert (
        bytes(group.nodes[1].disk.data)[TINY.wal_headers_offset :]
        == (kept[TINY.wal_headers_offset :])
    )
    assert [node.halted for node in group.nodes if node.index != 1] == [None, None]
    assert group.primary is not None


def test_of_three_a_log_that_ends_below_what_is_committed_begins_no_view() -> None:
    """The one that knows better and one of the others change the view."""
    group = Forgetful(3, geometry=TINY, segments_max=64)
    session = begun(group)
    cut = group.isolate(2)
    copy = bytes(group.nodes[0].disk.data)
    group.put(session, 12)
    alone = group.isolate(1)
    put_back(group, 0, copy)
    group.heal(cut)
    group.start(0)
    group.until(lambda: group.core(2).status == Status.NORMAL and group.core(2).is_primary)
    group.crash(2)
    group.heal(alone)
    group.run(300)
    halted = [node.halted[0] for node in group.nodes if node.halted]
    assert halted and set(halted) <= NAMES


# --- the lists ------------------------------------------------------------------------------------


def test_of_two_lists_one_that_denies_what_is_committed_has_forgotten() -> None:
    for lists in ((dvc(0, 9, commit=8), dvc(1, 6)), (dvc(1, 6), dvc(0, 9, commit=8))):
        found = verdict(*lists, replica_count=2)
        assert found.verdict == Verdict.CONTRADICTED and found.denied_by == 0b10
        assert found.reason == "op 8 is committed, and replica 1 never had it"
    found = verdict(dvc(0, 9, {8: BLANK}), dvc(1, 9, commit=8), replica_count=2)
    assert found.denied_by == 0b01


def test_of_three_what_is_committed_is_kept_though_two_deny_it() -> None:
    assert verdict(dvc(0, 9, commit=8), dvc(1, 6), dvc(2, 6)) == start(8, floor=8)
    assert verdict(dvc(0, 8, commit=8), dvc(1, 6), dvc(2, 6)) == start(8, floor=8)


def test_of_two_that_both_deny_what_is_committed_nobody_is_said_to_have_forgotten() -> None:
    """Whoever counts the lists halts, and not with the word that has its volume thrown away."""
    found = verdict(dvc(0, 8, {8: MISSING}, commit=8), dvc(1, 6), replica_count=2)
    assert (found.verdict, found.denied_by) == (Verdict.CONTRADICTED, 0b11)
    assert found.reason == "op 8 is committed, and replica 0 and 1 never had it"
    group = Group(2, geometry=TINY, segments_max=64)
    begun(group)
    member = group.core(0)
    assert denial.by_lists(member, found)
    code, reason = member.halted
    assert code == "DIVERGED" and found.reason in reason
