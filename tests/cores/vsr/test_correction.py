"""Log time that a clock was ahead of once is brought back: by one record, the same everywhere."""

import pytest

from appliance.base.limits import CORRECTION_OFF_US_MAX
from appliance.cores.vsr.appending import TOLD_TICKS_MAX
from appliance.cores.vsr.evictions import EVICT_CLOCK_FAR, EVICT_MEMBER_OLD
from appliance.formats import envelope as env
from appliance.formats import record
from appliance.formats.envelope import Message
from appliance.formats.event import Correction, decode_correction, encode_correction
from appliance.formats.geometry import SESSION_BLOCK_SIZE
from appliance.formats.session import FORBIDDEN, OK
from tests.cores.vsr.group import START_US, Group, Session
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
    raw = clock_record(group.now_us, number)
    session.core.request(operation or env.OPERATION_APPEND_CLOCK, raw, 1)
    session.take()
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
    assert before - group.now_us > AHEAD_US - DAY_US
    newest = stamped(group, session)
    assert correct(group, session) == OK
    assert abs(borne(group, session) - group.now_us) < 1_000_000
    core = group.core(group.primary)
    assert core.head.timestamp > newest, "the time of prepares never goes back"
    group.run(300)
    group.until(group.converged)
    for node in group.nodes:
        said = node.core.status_report().clock
        assert said.log_ahead_us < 1_000_000
        assert abs(said.corrected_us - AHEAD_US) < 1_000_000
    assert len({node.rooms.ahead_us for node in group.nodes}) == 1


def test_the_record_tells_what_was_so_until_it() -> None:
    group = Group(1)
    session = ahead_once(group, AHEAD_US)
    was_us = borne(group, session)
    wanted_us = group.now_us
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
    raw = clock_record(group.now_us + CORRECTION_OFF_US_MAX)
    session.core.request(env.OPERATION_APPEND_CLOCK, raw, 1)
    session.take()
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
    assert abs(borne(group, session) - group.now_us) < 1_000_000


def test_nothing_is_prepared_behind_a_correction_that_is_not_applied() -> None:
    """Whoever stamps the next message knows of it: also who leads after a view change."""
    group = Group()
    session, other = ahead_once(group, AHEAD_US), group.opened()
    stamped(group, session)
    primary = group.primary
    lost = group.drop(lambda s, t, header: header.command == env.PREPARE_OK)
    session.core.request(env.OPERATION_APPEND_CLOCK, clock_record(group.now_us), 1)
    session.take()
    group.settle()
    op = group.core(primary).op
    other.ask()
    group.settle()
    assert group.core(primary).op == op
    group.crash(primary)
    group.heal(lost)
    group.until(lambda: session.core.ready and other.core.ready, ticks=2000)
    assert session.results()[0][3] == OK
    assert abs(other.results()[0][2] - group.now_us) < 20_000_000


# --- members that would pass over it ------------------------------------------------------------


class Mixed(Group):
    """Some members run a program of before: their pings say nothing of corrections."""

    old: frozenset[int] = frozenset()

    def send(self, source: int, target: int, message: Message) -> None:
        if message.header.command == env.PING and source in self.old:
            message = Message(message.header, message.body, message.sender)
        super().send(source, target, message)


def refused(group: Group, session: Session, wanted_us: int, number: int = 1) -> tuple[int, int]:
    """(reason, what it tells) of the refusal of a correction; nothing was prepared."""
    assert group.primary is not None
    op, mark = group.core(group.primary).op, len(group.trace)
    session.core.request(env.OPERATION_APPEND_CLOCK, clock_record(wanted_us, number), 1)
    session.take()
    group.run(5)
    assert group.core(group.primary).op == op
    (header,) = group.sent(env.EVICTION, since=mark)
    return header.aux, header.op


@pytest.mark.parametrize(
    ("replicas", "standbys", "picked"),
    [(3, 0, [0]), (3, 0, [1]), (3, 0, [0, 1]), (1, 1, [0]), (3, 2, [3]), (5, 1, [2, 4])],
)
def test_while_a_member_may_not_know_it_none_is_prepared_and_updated_it_is(
    replicas: int, standbys: int, picked: list[int]
) -> None:
    """Of those that do not lead, the picked ones are old."""
    group = Mixed(replicas, standby_count=standbys)
    session, later = ahead_once(group, AHEAD_US), group.opened()
    stamped(group, session)
    others = [place for place in range(replicas + standbys) if place != group.primary]
    group.old = frozenset(others[i] for i in picked)
    for place in others:
        group.restart(place)
    group.run(100)
    assert group.primary not in others
    wanted_us = group.now_us
    assert refused(group, session, wanted_us) == (EVICT_MEMBER_OLD, min(group.old))
    group.old = frozenset()
    group.run(100)
    assert correct(group, later) == OK
    group.until(group.converged)
    assert len({node.rooms.ahead_us for node in group.nodes if node.rooms}) == 1


@pytest.mark.parametrize("how", ["it came back older", "it is down", "it is down since the start"])
def test_what_a_member_said_once_holds_for_a_few_pings_only(how: str) -> None:
    group = Mixed(standby_count=1)
    session = ahead_once(group, AHEAD_US)
    stamped(group, session)
    group.run(100)
    group.crash(3)
    if how == "it came back older":
        group.old = frozenset({3})
        group.start(3)
        group.run(5)
    elif how == "it is down":
        group.run(TOLD_TICKS_MAX + 1)
    else:
        for place in range(3):
            group.restart(place)
        group.until(lambda: group.primary is not None)
        group.run(100)
    assert refused(group, session, group.now_us) == (EVICT_MEMBER_OLD, 3)


def test_a_correction_that_waited_for_its_turn_is_judged_when_that_comes() -> None:
    group = Mixed()
    others = [ahead_once(group, AHEAD_US)]
    others += [group.opened() for _ in range(group.geometry.pipeline_max)]
    session = group.opened()
    group.run(100)
    primary = group.core(group.primary or 0)
    lost = group.drop(lambda s, t, header: header.command == env.PREPARE_OK)
    for other in others:
        other.ask()
        group.settle()
    wanted_us, mark = group.now_us, len(group.trace)
    session.core.request(env.OPERATION_APPEND_CLOCK, clock_record(wanted_us), 1)
    session.take()
    group.settle()
    assert any(q.header.operation == env.OPERATION_APPEND_CLOCK for q in primary.request_queue)
    primary.peers[(primary.index + 1) % 3].knows = (0, 0)
    group.heal(lost)
    group.rules.append(lambda s, t, header: header.command == env.PING)
    group.until(lambda: bool(group.sent(env.EVICTION, since=mark)))
    assert group.sent(env.EVICTION, since=mark)[0].aux == EVICT_MEMBER_OLD
    assert all(node.rooms.ahead_us == 0 for node in group.nodes if node.rooms)


# --- a time that is wrong -----------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(
    "off_us",
    [
        -(CORRECTION_OFF_US_MAX + 1_000_000),
        CORRECTION_OFF_US_MAX + 1_000_000,
        DAY_US,
        -DAY_US,
        -3_000 * DAY_US,
        -START_US,
        (1 << 64) - 1 - 2 * START_US,
    ],
)
def test_a_time_far_from_the_groups_is_refused_and_both_are_told(
    replicas: int, off_us: int
) -> None:
    group = Group(replicas)
    session = ahead_once(group, AHEAD_US)
    stamped(group, session)
    now_us = group.now_us
    wanted_us = max(0, now_us + off_us)
    reason, told_us = refused(group, session, wanted_us)
    assert reason == EVICT_CLOCK_FAR
    assert abs(told_us - group.now_us) < 1_000_000
    assert all(node.rooms.ahead_us == 0 for node in group.nodes if node.rooms)


@pytest.mark.parametrize("off_us", [-CORRECTION_OFF_US_MAX + 2_000_000, 0, CORRECTION_OFF_US_MAX])
def test_a_time_near_the_groups_is_taken(off_us: int) -> None:
    group = Group()
    session = ahead_once(group, AHEAD_US)
    stamped(group, session)
    session.core.request(env.OPERATION_APPEND_CLOCK, clock_record(group.now_us + off_us), 1)
    session.take()
    group.until(lambda: session.core.ready)
    assert session.results()[0][3] == OK
