"""Log sessions: by which link replicas are asked, who hears the answer, when the next leaves."""

from typing import Any

import pytest

from appliance.base.prng import Prng
from appliance.cores.vsr.client import REQUEST_TICKS, Client
from appliance.cores.vsr.evictions import (
    EVICT_NO_SESSION,
    EVICTION_REASONS,
    EVICTIONS_LASTING,
)
from appliance.cores.vsr.log_sessions import (
    EVICTED,
    READY,
    REGISTERED,
    REPLY,
    SEND,
    WAIT,
    LogSession,
    LogSessions,
)
from appliance.cores.vsr.pace import WAIT_FRACTION
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Message
from appliance.formats.geometry import SESSION_BLOCK_SIZE, SMALL
from tests.cores.vsr.group import CLUSTER, SHARD

IDS = tuple(b"replica id %5d" % place for place in range(3))
APPEND = env.OPERATION_APPEND
MS = 1_000_000


class Collecting:
    """A queue that holds what a test says."""

    def __init__(self) -> None:
        self.ready, self.depth = False, 0


def client(number: int = 1) -> Client:
    return Client(
        client_id=b"client %9d" % number,
        cluster=CLUSTER,
        shard=SHARD,
        replica_count=3,
        geometry=SMALL,
        prng=Prng(number),
        members=IDS,
    )


def body_of(records: bytes) -> memoryview:
    """Of a request that is that is not copied: room for the session's block, and the records."""
    return memoryview(bytearray(SESSION_BLOCK_SIZE) + records)


def reply(session: LogSession, results: bytes = b"", op: int = 7) -> Message:
    """The answer to what a session has under way."""
    assert session.client.in_flight is not None
    asked, _ = session.client.in_flight
    block = ses.SessionBlock(session.client.client_id, op, 0, bytes(16), asked.digest, bytes(32))
    body = ses.encode(block) + results
    made = env.make(
        env.REPLY, cluster=CLUSTER, shard=SHARD, op=op, operation=asked.operation, body=body
    )
    return Message(made, body, 0)


def eviction(session: LogSession, reason: int = 1) -> Message:
    area = session.client.client_id + session.client.session.to_bytes(8, "little")
    made = env.make(env.EVICTION, cluster=CLUSTER, shard=SHARD, aux=reason, area=area)
    return Message(made, b"", 0)


def kinds(sessions: LogSessions) -> list[int]:
    return [effect[0] for effect in sessions.take_effects()]


def requests(sessions: LogSessions) -> list[tuple[Any, int]]:
    """The links of the requests that are to be sent, and their operations."""
    effects = sessions.take_effects()
    sent = [(effect[1], effect[2]) for effect in effects if effect[0] == SEND]
    return [(link, h.operation) for link, h in sent if h.command == env.REQUEST]


def opened(**options: Any) -> tuple[LogSessions, LogSession]:
    """A registered session that is connected to the first replica."""
    sessions = LogSessions()
    session = sessions.open(client(), **options)
    sessions.on_connected(0, IDS[0], "first")
    assert sessions.on_message(0, reply(session))
    assert REGISTERED in kinds(sessions) and session.ready
    return sessions, session


# --- links ----------------------------------------------------------------------------------------


def test_what_is_for_a_replica_goes_by_its_link_while_it_is_connected() -> None:
    sessions, session = opened()
    sessions.request(session, APPEND, b"", 0)
    assert requests(sessions) == [("first", APPEND)]
    sessions.on_connected(0, IDS[1], "second")
    assert requests(sessions) == []
    sessions.on_gone(0, IDS[0])
    assert requests(sessions) == [("second", APPEND)]
    sessions.on_gone(0, IDS[1])
    sessions.on_ticks(10 * REQUEST_TICKS)
    assert kinds(sessions) == []


def test_a_relay_gets_what_is_for_replicas_that_are_not_connected() -> None:
    sessions = LogSessions()
    sessions.open(client(), relay="own")
    assert requests(sessions) == [("own", env.OPERATION_REGISTER)]
    sessions.on_connected(0, IDS[0], "first")
    assert requests(sessions) == [("first", env.OPERATION_REGISTER)]


def test_a_new_session_is_connected_to_whom_its_group_is_connected_to() -> None:
    sessions = LogSessions()
    sessions.on_connected(4, IDS[2], "third")
    sessions.on_connected(4, IDS[0], "first")
    sessions.on_connected(5, IDS[1], "of another")
    session = sessions.open(client(), group=4)
    assert session.client.connected == {IDS[0], IDS[2]}
    links = [e[1] for e in sessions.take_effects() if e[2].command == env.PING_CLIENT]
    assert links == ["first", "third"]  # as the members are, whoever came first


def test_a_replica_that_comes_or_goes_is_told_to_the_sessions_of_its_group_alone() -> None:
    sessions = LogSessions()
    one, two = sessions.open(client(1), group=1), sessions.open(client(2), group=2)
    sessions.on_connected(1, IDS[0], "first")
    assert (one.client.connected, two.client.connected) == ({IDS[0]}, set())
    sessions.on_gone(2, IDS[0])
    assert one.client.connected == {IDS[0]}


# --- who hears ------------------------------------------------------------------------------------


def test_a_message_is_for_the_session_that_it_names() -> None:
    sessions = LogSessions()
    one, two = sessions.open(client(1)), sessions.open(client(2))
    assert sessions.on_message(0, reply(two))
    assert (one.ready, two.ready) == (False, True)
    assert sessions.take_effects() == [(REGISTERED, two)]
    assert not sessions.on_message(1, reply(one))  # of another group
    stranger = LogSessions().open(client(3))
    assert not sessions.on_message(0, reply(stranger))
    sessions.close(two)
    assert not sessions.on_message(0, eviction(two))
    assert not one.ready and kinds(sessions) == []


def test_has_session_and_are_busy_tell_how_groups_stand() -> None:
    sessions, session = opened()
    idle = sessions.open(client(2), group=1)
    assert sessions.has_session(0) and not sessions.has_session(1)
    assert sessions.are_busy  # one is not registered yet
    sessions.close(idle)
    assert not sessions.are_busy
    sessions.request(session, APPEND, b"", 0)
    assert sessions.are_busy


def test_ticks_of_the_sessions_are_as_long_as_those_of_the_replicas() -> None:
    sessions = LogSessions(ticks_each=3)
    session = sessions.open(client())
    for ticks, counted in ((2, 0), (1, 1), (7, 3), (2, 4)):
        sessions.on_ticks(ticks)
        assert session.client.ticks == counted


# --- asking ---------------------------------------------------------------------------------------


def test_what_is_asked_waits_for_the_session_and_is_answered_once() -> None:
    sessions = LogSessions()
    session = sessions.open(client())
    sessions.on_connected(0, IDS[0], "first")
    sessions.ask(session, APPEND, b"", 0)
    assert {operation for _, operation in requests(sessions)} == {env.OPERATION_REGISTER}
    sessions.on_message(0, reply(session))
    assert requests(sessions) == [("first", APPEND)]
    answer = reply(session, b"the result")
    sessions.on_message(0, answer)
    sessions.on_message(0, answer)
    assert sessions.take_effects() == [(REPLY, session, b"the result", answer.header)]
    sessions.on_ticks(10 * REQUEST_TICKS)
    assert requests(sessions) == []


def test_what_is_asked_goes_out_again_after_its_session_was_lost() -> None:
    sessions, session = opened()
    sessions.ask(session, APPEND, b"", 0)
    sessions.take_effects()
    sessions.on_message(0, eviction(session, reason=EVICT_NO_SESSION))
    effects = sessions.take_effects()
    assert effects[0] == (EVICTED, session, EVICT_NO_SESSION, 0)
    assert effects[1][2].operation == env.OPERATION_REGISTER
    sessions.on_message(0, reply(session, op=9))
    assert requests(sessions) == [("first", APPEND)]
    sessions.on_message(0, reply(session, b"x"))
    assert kinds(sessions) == [REPLY]


@pytest.mark.parametrize("reason", sorted(EVICTION_REASONS))
def test_what_is_itself_the_reason_is_not_asked_again(reason: int) -> None:
    """A loop of sessions that each end by it would fill the log with their beginnings."""
    sessions, session = opened()
    sessions.ask(session, APPEND, b"", 0)
    sessions.on_message(0, eviction(session, reason=reason))
    assert (session.asked is None) == (reason in EVICTIONS_LASTING)
    sessions.take_effects()
    sessions.on_message(0, reply(session, op=9))
    assert requests(sessions) == ([] if reason in EVICTIONS_LASTING else [("first", APPEND)])


def test_what_must_not_be_done_twice_goes_out_again_only_if_it_had_not_left() -> None:
    sessions, session = opened()
    sessions.request(session, env.OPERATION_NOOP, b"", 0)
    sessions.ask(session, APPEND, b"", 0, again=False)
    sessions.on_message(0, eviction(session))
    sessions.take_effects()
    sessions.on_message(0, reply(session, op=9))
    assert requests(sessions) == [("first", APPEND)]
    sessions.on_message(0, eviction(session))
    assert session.asked is None
    sessions.take_effects()
    sessions.on_message(0, reply(session, op=11))
    assert requests(sessions) == []


def test_what_is_requested_is_lost_with_its_session() -> None:
    sessions, session = opened()
    sessions.request(session, APPEND, b"", 0)
    sessions.take_effects()
    sessions.on_message(0, eviction(session))
    sessions.on_message(0, reply(session, op=9))
    assert session.ready
    assert requests(sessions) == [("first", env.OPERATION_REGISTER)]


@pytest.mark.parametrize("withdrawn", [True, False])
def test_the_answer_to_what_was_withdrawn_is_nobodys(withdrawn: bool) -> None:
    sessions, session = opened()
    sessions.ask(session, APPEND, b"", 0)
    first = reply(session, b"of the first")
    if withdrawn:
        sessions.withdraw(session)
    sessions.take_effects()
    sessions.ask(session, env.OPERATION_NOOP, b"", 0)  # one request is under way at a time
    assert requests(sessions) == []
    sessions.on_message(0, first)
    assert requests(sessions) == [("first", env.OPERATION_NOOP)]
    sessions.on_message(0, reply(session, b"of the second"))
    assert [effect[2] for effect in sessions.take_effects()] == [b"of the second"]


def test_a_request_that_is_not_copied_is_the_same_as_one_that_was_copied() -> None:
    records = b"some records" * 9
    (copied, one), (uncopied, other) = opened(), opened(queue=Collecting())
    copied.request(one, APPEND, records, 2)
    body = body_of(records)
    uncopied.request_paced(other, APPEND, body, 2, 0)
    (first,), (second,) = copied.take_effects(), uncopied.take_effects()
    assert first[2].raw == second[2].raw  # the header, with its digest of the body
    assert first[3] == second[3] == body
    assert second[3].obj is body.obj


# --- pace -----------------------------------------------------------------------------------------


def paced() -> tuple[LogSessions, LogSession, Collecting]:
    """A session that was answered at 20 ms what two had asked, while three others collected."""
    queue = Collecting()
    sessions, session = opened(queue=queue)
    queue.ready = True
    sessions.request_paced(session, APPEND, body_of(b""), 2, 0)
    queue.ready, queue.depth = False, 3
    sessions.on_message(0, reply(session))
    sessions.take_effects()
    assert sessions.on_answered(session, 20 * MS) == 20 * MS
    return sessions, session, queue


def test_a_session_is_ready_once_enough_has_collected_and_only_until_that_is_known() -> None:
    sessions, session, queue = paced()
    queue.depth = 5
    sessions.go_on(20 * MS)
    assert sessions.take_effects() == [(READY, session)]
    queue.ready = True
    sessions.go_on(20 * MS)
    assert kinds(sessions) == []


def test_a_session_that_has_a_request_under_way_is_not_ready() -> None:
    sessions, session, queue = paced()
    sessions.request_paced(session, APPEND, body_of(b""), 2, 20 * MS)
    sessions.take_effects()
    queue.depth = 5
    sessions.go_on(90 * MS)
    assert kinds(sessions) == []


def test_who_waits_for_others_is_waited_for_once_and_ready_when_that_is_over() -> None:
    sessions, session, _ = paced()
    wait_ns = 20 * MS // WAIT_FRACTION
    sessions.go_on(20 * MS)
    assert sessions.take_effects() == [(WAIT, session, wait_ns)]
    sessions.go_on(21 * MS)
    assert kinds(sessions) == []
    sessions.on_waited(session)
    sessions.go_on(20 * MS + wait_ns - 1)
    assert sessions.take_effects() == [(WAIT, session, 1)]
    sessions.on_waited(session)
    sessions.go_on(20 * MS + wait_ns)
    assert sessions.take_effects() == [(READY, session)]


def test_nobody_is_waited_for_where_nothing_has_collected() -> None:
    sessions, _, queue = paced()
    queue.depth = 0
    sessions.go_on(20 * MS)
    assert kinds(sessions) == []
