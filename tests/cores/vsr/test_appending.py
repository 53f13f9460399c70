"""Records are prepared so that ids are bound from when the programs of all members know that."""

import pytest

from appliance.cores.vsr.appending import TOLD_TICKS_MAX
from appliance.formats import envelope as env
from appliance.formats import record
from appliance.formats.session import MSG_ID_TAKEN, OK
from tests.cores.vsr.group import Group, Rule, Session
from tests.cores.vsr.session import ROOM


def silent(group: Group, index: int) -> Rule:
    """What this member says of its program is lost, as if it was one of before."""
    return group.drop(lambda source, _, header: source == index and header.command == env.PING)


def form(group: Group, session: Session) -> int:
    """The operation of the prepare of a message that is sent now."""
    group.put(session)
    assert group.primary is not None
    core = group.core(group.primary)
    header = core.journal.at(core.op)
    assert header is not None
    return header.operation


def taken(group: Group, session: Session, number: int) -> int:
    """The code for a message of another user that bears the id of this session's first one."""
    raw = record.encode(
        room_id=ROOM,
        msg_id=(session.number << 64 | 1).to_bytes(16, "little"),
        author_id=2,
        body=b"as if it was that one",
        client_id=b"mallory %8d" % number,
        client_seq=1,
    )
    session.core.request(env.OPERATION_APPEND, raw, 1)
    session.take()
    group.until(lambda: session.core.ready)
    code: int = session.results()[0][3]
    return code


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("standbys", [0, 1])
def test_ids_are_bound_when_all_have_said_that_they_know_it(replicas: int, standbys: int) -> None:
    group = Group(replicas, standby_count=standbys)
    session = group.opened()
    group.run(100)
    assert form(group, session) == env.OPERATION_APPEND_BINDING
    assert taken(group, session, 1) == MSG_ID_TAKEN
    group.until(group.converged)
    assert len({node.core.state_machine.log_seq for node in group.nodes}) == 1


@pytest.mark.parametrize("index", [2, 3], ids=["a replica", "a standby"])
def test_while_a_member_does_not_say_so_nothing_is_prepared_that_it_would_halt_at(
    index: int,
) -> None:
    group = Group(3, standby_count=1)
    old = silent(group, index)
    session = group.opened()
    group.run(100)
    assert form(group, session) == env.OPERATION_APPEND
    assert taken(group, session, 1) == OK
    group.run(TOLD_TICKS_MAX + 100)
    assert form(group, session) == env.OPERATION_APPEND
    group.heal(old)
    group.run(100)
    assert form(group, session) == env.OPERATION_APPEND_BINDING
    assert taken(group, session, 2) == MSG_ID_TAKEN


def test_who_said_so_long_ago_may_run_another_program_by_now() -> None:
    group = Group(3)
    group.run(100)  # in which nothing is appended
    assert group.primary is not None
    silent(group, (group.primary + 1) % 3)
    group.run(TOLD_TICKS_MAX + 100)
    assert form(group, group.opened()) == env.OPERATION_APPEND


def test_once_the_log_holds_one_it_goes_on_so_whoever_is_away_or_leads() -> None:
    group = Group(3)
    session = group.opened()
    group.run(100)
    assert form(group, session) == env.OPERATION_APPEND_BINDING
    group.run(100)
    first = group.primary
    assert first is not None
    group.crash(first)
    group.until(lambda: group.primary is not None)
    group.run(TOLD_TICKS_MAX + 100)
    assert form(group, session) == env.OPERATION_APPEND_BINDING
    for node in group.running():  # and after a restart, which applies what it finds
        group.restart(node.index)
    group.until(lambda: group.primary is not None)
    assert form(group, session) == env.OPERATION_APPEND_BINDING


def test_only_primaries_decide_it() -> None:
    group = Group(1)
    session = group.opened()
    session.core.request(env.OPERATION_APPEND_BINDING, session.records(1), 1)
    session.take()
    group.run(50)
    assert "evicted_invalid_operation" in group.core(0).counters
