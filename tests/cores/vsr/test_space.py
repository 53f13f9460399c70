"""Disks that are about to be full: enough that are not, and the group takes messages; else none."""

import pytest

from appliance.cores.vsr import space
from appliance.cores.vsr.quorums import quorums
from appliance.formats import envelope as env
from appliance.formats.session import OK, STORAGE_FULL
from tests.cores.vsr.group import Group, Session


def short(group: Group, *indexes: int) -> None:
    """The drivers of these replicas find no room, of the others enough; pings tell it."""
    for index in range(group.replica_count):
        if group.nodes[index].replica is not None:
            group.core(index).on_space(short=index in indexes)
    group.run(5)


def answered(group: Group, session: Session) -> int:
    """The code that a message is answered with."""
    session.ask()
    group.until(lambda: session.core.ready)
    (result,) = session.results()
    return int(result[3])


def test_one_of_three_may_be_short_and_two_may_not() -> None:
    group = Group()
    session = group.opened()
    for indexes, code in (((), OK), ((0,), OK), ((2,), OK), ((1, 2), STORAGE_FULL)):
        short(group, *indexes)
        assert answered(group, session) == code, indexes
        assert group.core(0).status_report().space.sparing == (code != OK)
    short(group, 2)
    session.again()
    assert answered(group, session) == OK
    group.check()


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 5, 6])
def test_so_many_may_be_short_as_any_quorum_can_spare(replicas: int) -> None:
    group = Group(replicas)
    session = group.opened()
    row = quorums(replicas)
    spared = replicas - max(row.replication, row.view_change)
    short(group, *range(spared))
    assert answered(group, session) == OK
    short(group, *range(spared + 1))
    assert answered(group, session) == STORAGE_FULL


def test_who_was_short_and_fell_silent_still_counts() -> None:
    group = Group()
    session = group.opened()
    short(group, 2)
    group.crash(2)
    group.run(300)
    assert answered(group, session) == OK
    short(group, 1)
    assert answered(group, session) == STORAGE_FULL


def test_a_group_that_is_short_leads_checkpoints_and_answers_the_same_everywhere() -> None:
    """What needs no segment goes on, whoever leads; all judge the refused records alike."""
    group = Group(segments_max=64)
    session = group.opened()
    short(group, 0, 1, 2)
    sealed = group.core(0).state_machine.log_seq
    for turn in range(group.geometry.checkpoint_ops + 8):
        if turn:
            session.again()
        assert answered(group, session) == STORAGE_FULL
    assert group.core(0).checkpoint_op > 0
    group.crash(group.primary)
    group.until(lambda: group.primary is not None)
    session.again()
    assert answered(group, session) == STORAGE_FULL, "the new primary has heard it as well"
    for node in group.running():
        assert node.core.state_machine.log_seq == sealed
    group.check()


def test_the_refusal_is_in_the_log_and_only_primaries_make_it() -> None:
    group = Group()
    session = group.opened()
    short(group, 0, 1)
    assert answered(group, session) == STORAGE_FULL
    core = group.core(group.primary)
    header = core.journal.at(core.op)
    assert header.operation == env.OPERATION_APPEND_SPARING
    assert space.is_scarce(core)
    session.again()
    session.core.request(env.OPERATION_APPEND_SPARING, session.records(1), 1)
    session.take()
    group.run(50)
    assert "evicted_invalid_operation" in core.counters
