"""Log time that a clock was ahead of once is brought back: by one record, the same everywhere."""

import pytest

from appliance.formats import envelope as env
from appliance.formats import record
from appliance.formats.event import Correction, decode_correction, encode_correction
from appliance.formats.geometry import SESSION_BLOCK_SIZE
from appliance.formats.session import FORBIDDEN, OK
from tests.cores.vsr.group import Group, Session
from tests.cores.vsr.test_clock import DAY_US, ahead_once, stamped

AHEAD_US = 400 * DAY_US


def clock_record(wanted_us: int, number: int = 1) -> bytes:
    return record.encode(
        room_id=record.SHARD_ROOM_ID,
        msg_id=b"corrects a clock",
        author_id=0,
        body=encode_correction(Correction(wanted_us)),
        client_id=b"operator %7d" % number,
        client_seq=1,
        kind=record.KIND_CLOCK,
    )


def correct(group: Group, session: Session, number: int = 1, operation: int = 0) -> int:
    """The code that a correction to the group's clocks is answered with."""
    raw = clock_record(group.times()[1], number)
    session.core.request(operation or env.OPERATION_APPEND_CLOCK, raw, 1)
    group.take_client(session)
    group.until(lambda: session.core.ready)
    return session.results()[0][3]


def borne(group: Group, session: Session) -> int:
    """The time that a message bears which is sent now."""
    stamped(group, session)
    return session.results()[0][2]


@pytest.mark.parametrize("replicas", [1, 3])
def test_messages_bear_the_time_of_the_clock_again_and_ops_go_on(replicas: int) -> None:
    group = Group(replicas)
    session = ahead_once(group, AHEAD_US)
    before = borne(group, session)
    assert before - group.times()[1] > AHEAD_US - DAY_US
    newest = stamped(group, session)
    assert correct(group, session) == OK
    assert abs(borne(group, session) - group.times()[1]) < 1_000_000
    core = group.core(group.primary)
    assert core.head.timestamp > newest, "the time of prepares never goes back"
    group.run(300)
    group.until(group.converged)
    for node in group.nodes:
        said = node.core.status_report()["clock"]
        assert said["log_ahead_us"] < 1_000_000
        assert abs(said["corrected_us"] - AHEAD_US) < 1_000_000
    assert len({node.rooms.ahead_us for node in group.nodes}) == 1


def test_the_record_tells_what_was_so_until_it() -> None:
    group = Group(1)
    session = ahead_once(group, AHEAD_US)
    was_us = borne(group, session)
    wanted_us = group.times()[1]
    assert correct(group, session) == OK
    core = group.core(0)
    body = core.prepare_in_memory(core.head).body[SESSION_BLOCK_SIZE:]
    told = decode_correction(bytes(body[record.BODY : record.BODY + 24]))
    assert told is not None
    assert (told.wanted_us, told.ahead_us) == (wanted_us, 0)
    assert was_us < told.was_us < was_us + 1_000_000
    assert record.sealed(body)
    assert int.from_bytes(body[record.TIMESTAMP : record.TIMESTAMP + 8], "little") == wanted_us


def test_a_log_that_is_not_ahead_refuses_and_keeps_its_time() -> None:
    group = Group(1)
    session = group.opened()
    group.put(session)
    raw = clock_record(group.times()[1] + DAY_US)
    session.core.request(env.OPERATION_APPEND_CLOCK, raw, 1)
    group.take_client(session)
    group.until(lambda: session.core.ready)
    assert session.results()[0][3] == FORBIDDEN
    assert group.nodes[0].rooms.ahead_us == 0
    assert borne(group, session) == group.core(0).head.timestamp


def test_a_clock_record_among_others_is_refused() -> None:
    group = Group(1)
    session = ahead_once(group, AHEAD_US)
    assert correct(group, session, operation=env.OPERATION_APPEND) == FORBIDDEN
    assert group.nodes[0].rooms.ahead_us == 0


@pytest.mark.parametrize("again", [False, True])
def test_restarts_view_changes_and_checkpoints_keep_a_correction(again: bool) -> None:
    """Also a second one, after the clocks were ahead once more."""
    group = Group()
    session = ahead_once(group, AHEAD_US)
    stamped(group, session)
    assert correct(group, session) == OK
    if again:
        for node in group.nodes:
            node.clock_error_us = DAY_US
        group.run(9000)  # until that is what they agree on
        stamped(group, session)
        for node in group.nodes:
            node.clock_error_us = 0
        group.run(9000)
        assert correct(group, session, 2) == OK
    behind = (group.primary + 1) % 3
    group.crash(behind)
    op = group.core(group.primary).checkpoint_op
    while group.core(group.primary).checkpoint_op <= op + 48:
        group.put(session)
        group.run(1)
    group.start(behind)  # it adopts a state, or goes through the log
    group.until(group.converged, ticks=2000)
    aheads = {node.rooms.ahead_us for node in group.nodes}
    assert len(aheads) == 1 and aheads.pop() > AHEAD_US - DAY_US
    group.crash(group.primary)
    group.until(lambda: group.primary is not None)
    assert abs(borne(group, session) - group.times()[1]) < 1_000_000


def test_nothing_is_prepared_behind_a_correction_that_is_not_applied() -> None:
    """Whoever stamps the next message knows of it: also who leads after a view change."""
    group = Group()
    session, other = ahead_once(group, AHEAD_US), group.opened()
    stamped(group, session)
    primary = group.primary
    lost = group.drop(lambda s, t, header: header.command == env.PREPARE_OK)
    session.core.request(env.OPERATION_APPEND_CLOCK, clock_record(group.times()[1]), 1)
    group.take_client(session)
    group.settle()
    op = group.core(primary).op
    other.ask()
    group.settle()
    assert group.core(primary).op == op
    group.crash(primary)
    group.heal(lost)
    group.until(lambda: session.core.ready and other.core.ready, ticks=2000)
    assert session.results()[0][3] == OK
    assert abs(other.results()[0][2] - group.times()[1]) < 20_000_000
