"""Every row of the request table: on a primary, on a backup, before and after a restart."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.cores.vsr.evictions import EVICTION_REASONS
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Message
from appliance.formats.geometry import RECORD_SIZE, SMALL
from tests.cores.vsr.group import CLUSTER, SHARD, Group, Session

STRANGER = b"nobody knows me."
ZERO = bytes(16)


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def session(group: Group) -> Session:
    """A session with two requests answered: registered, and the room created."""
    out = group.opened()
    group.run(10)
    assert out.core.request_number == 1
    return out


def request(
    client: bytes,
    *,
    number: int,
    session: int,
    parent: bytes = ZERO,
    body: bytes = b"",
    count: int | None = None,
    operation: int = env.OPERATION_APPEND,
    view: int = 0,
) -> Message:
    count = len(body) // RECORD_SIZE if count is None else count
    whole = ses.encode(ses.SessionBlock(client, session, count, parent, ZERO, bytes(32))) + body
    header = env.make(
        env.REQUEST,
        cluster=CLUSTER,
        shard=SHARD,
        operation=operation,
        view=view,
        aux=number,
        body=whole,
    )
    return Message(header, whole)


def following(asking: Session, /, **changes: object) -> Message:
    """The session's next request, with one thing changed."""
    core = asking.core
    fields = {
        "number": core.request_number + 1,
        "session": core.session,
        "parent": core.reply_digest,
        "body": asking.records(1),
    } | changes
    return request(asking.client_id, **fields)  # type: ignore[arg-type]


def register(client: bytes, **changes: object) -> Message:
    fields = {"number": 0, "session": 0, "operation": env.OPERATION_REGISTER} | changes
    return request(client, **fields)  # type: ignore[arg-type]


def outcome(group: Group, target: int, message: Message) -> str:
    """What becomes of a request: one word or two. Nothing is delivered further."""
    core = group.core(target)
    before = dict(core.counters)
    queued, mark = len(core.request_queue), len(group.trace)
    group.deliver(message.sender if message.sender < 6 else -1, target, message)
    for source, _, header in group.trace[mark:]:
        if source != target:
            continue
        if header.command == env.PREPARE:
            return "prepared"
        if header.command == env.EVICTION:
            return f"evicted {EVICTION_REASONS[header.aux]}"
        if header.command == env.REPLY:
            return "answered again"
        if header.command == env.REQUEST:
            assert header is message.header, "forwarded unchanged"
            return "forwarded"
    if len(core.request_queue) > queued:
        return "queued"
    dropped = [
        k for k, v in core.counters.items() if k.startswith("dropped_") and v > before.get(k, 0)
    ]
    return dropped[0].replace("_", " ") if dropped else "nothing"


def at_primary(group: Group, message: Message) -> str:
    assert group.primary is not None
    return outcome(group, group.primary, message)


# --- malformed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [0, env.OPERATION_ROOT, 9, 17, 255])
def test_an_unknown_operation_evicts(group: Group, session: Session, operation: int) -> None:
    assert at_primary(group, following(session, operation=operation)) == "evicted invalid_operation"


@pytest.mark.parametrize(
    "changes",
    [
        {"body": b""},
        {"count": 2},
        {"count": 0},
        {"body": bytes(RECORD_SIZE - 1), "count": 1},
        {"body": bytes(RECORD_SIZE * (SMALL.records_max + 1))},
        {"operation": env.OPERATION_NOOP},
    ],
)
def test_a_body_of_the_wrong_size_evicts(
    group: Group, session: Session, changes: dict[str, Any]
) -> None:
    assert at_primary(group, following(session, **changes)) == "evicted invalid_body_size"


def test_records_that_are_not_valid_evict(group: Group, session: Session) -> None:
    broken = bytearray(session.records(2))
    broken[RECORD_SIZE + 100] ^= 1
    assert at_primary(group, following(session, body=bytes(broken))) == "evicted invalid_body"


def test_a_request_without_a_whole_session_block_is_dropped(group: Group, session: Session) -> None:
    body = following(session).body
    for cut in (body[:100], b"", body[:28] + b"\1" + body[29:], body[:96] + b"\1" + body[97:]):
        header = env.make(env.REQUEST, cluster=CLUSTER, shard=SHARD, operation=16, aux=2, body=cut)
        assert at_primary(group, Message(header, cut)) == "dropped request invalid"


# --- when -----------------------------------------------------------------------------------------


def test_a_request_of_a_newer_view_is_not_judged_by_an_old_primary(
    group: Group, session: Session
) -> None:
    """client_newer_view_not_evicted_by_old_primary: who registered it knew more, perhaps."""
    view = group.core(0).view
    stranger = request(STRANGER, number=1, session=77, body=session.records(1), view=view + 1)
    assert at_primary(group, stranger) == "dropped request newer view"
    stranger = request(STRANGER, number=1, session=77, body=session.records(1), view=view)
    assert at_primary(group, stranger) == "evicted no_session"


def test_a_request_waits_for_nothing_in_a_view_change(group: Group, session: Session) -> None:
    primary = group.primary
    group.core(primary).status = Status.VIEW_CHANGE
    assert outcome(group, primary, following(session)) == "dropped request not normal"


def test_a_request_is_dropped_while_the_view_is_not_durable(group: Group, session: Session) -> None:
    core = group.core(group.primary)
    core.superblock = replace(core.superblock, log_view=core.view - 1)
    core.superblock_writing = core.superblock
    assert outcome(group, core.index, following(session)) == "dropped request persisting"


# --- a known client -------------------------------------------------------------------------------


def test_the_next_request_is_prepared(group: Group, session: Session) -> None:
    assert at_primary(group, following(session)) == "prepared"


def test_client_duplicate_request_same_reply_bytes(group: Group, session: Session) -> None:
    session.ask()
    header, body = session.core.in_flight
    group.settle()
    first, mark = session.replies[-1][0], len(group.trace)
    assert at_primary(group, Message(header, body)) == "answered again"
    assert [h.digest for h in group.sent(env.REPLY, since=mark)] == [first.digest]


def test_client_request_collision_dropped(group: Group, session: Session) -> None:
    session.ask()
    group.settle()
    other = following(session, number=session.core.request_number)
    assert at_primary(group, other) == "dropped request collision"


def test_client_reply_parent_checked(group: Group, session: Session) -> None:
    assert at_primary(group, following(session, parent=ZERO)) == "dropped request wrong parent"
    assert at_primary(group, following(session, parent=b"x" * 16)) == "dropped request wrong parent"


@pytest.mark.parametrize("ahead", [-1, 2, 3, 1000])
def test_a_request_number_out_of_order_is_dropped(
    group: Group, session: Session, ahead: int
) -> None:
    number = session.core.request_number + ahead
    assert at_primary(group, following(session, number=number)) == "dropped request out of order"


def test_client_session_too_low(group: Group, session: Session) -> None:
    lower = following(session, session=session.core.session - 1)
    assert at_primary(group, lower) == "evicted session_too_low"
    higher = following(session, session=session.core.session + 1)
    assert at_primary(group, higher) == "dropped request out of order"


def test_a_register_again_is_answered_while_nothing_else_was_asked(group: Group) -> None:
    session = group.client()
    group.run(5)
    first = next(h for h in group.sent(env.REQUEST) if h.operation == env.OPERATION_REGISTER)
    again = register(session.client_id, view=first.view)
    assert at_primary(group, again) == "answered again"
    group.put(session, 0)
    session.ask()
    group.settle()
    assert at_primary(group, again) == "dropped register of a used session"


# --- an unknown client ----------------------------------------------------------------------------


def test_an_unknown_client_registers_or_is_told_to(group: Group, session: Session) -> None:
    asked = request(STRANGER, number=1, session=3, body=session.records(1))
    assert at_primary(group, asked) == "evicted no_session"
    assert at_primary(group, register(STRANGER)) == "prepared"


def test_a_client_whose_register_is_on_its_way_is_not_evicted(
    group: Group, session: Session
) -> None:
    assert at_primary(group, register(STRANGER)) == "prepared"
    mark = len(group.trace)
    asked = request(STRANGER, number=1, session=3, body=session.records(1))
    assert at_primary(group, asked) not in ("prepared", "evicted no_session")
    assert not group.sent(env.EVICTION, since=mark)
    assert at_primary(group, register(STRANGER)) == "dropped request in flight"


# --- pipeline and queue ---------------------------------------------------------------------------


def test_one_request_of_a_client_at_a_time(group: Group, session: Session) -> None:
    asked = following(session)
    assert at_primary(group, asked) == "prepared"
    assert at_primary(group, asked) == "dropped request in flight"
    assert at_primary(group, following(session)) == "dropped request in flight"


def test_a_full_pipeline_queues_and_a_full_queue_drops(group: Group, session: Session) -> None:
    clients = [b"client %9d" % i for i in range(SMALL.pipeline_max + SMALL.clients_max + 2)]
    outcomes = [at_primary(group, register(client)) for client in clients]
    assert outcomes[: SMALL.pipeline_max] == ["prepared"] * SMALL.pipeline_max
    queued = outcomes[SMALL.pipeline_max : -2]
    assert queued == ["queued"] * SMALL.clients_max
    assert outcomes[-2:] == ["dropped request queue full"] * 2
    assert at_primary(group, register(clients[SMALL.pipeline_max])) == "dropped request in flight"
    group.settle()
    assert len(group.core(0).sessions.entries) == SMALL.clients_max
    assert not group.core(group.primary).request_queue


# --- a backup -------------------------------------------------------------------------------------


def a_backup(group: Group) -> int:
    return next(i for i in range(3) if i != group.primary)


def test_a_backup_forwards_what_is_new_and_answers_what_it_knows(
    group: Group, session: Session
) -> None:
    backup = a_backup(group)
    asked = following(session)
    assert outcome(group, backup, asked) == "forwarded"
    group.settle()
    group.run(5)
    assert outcome(group, backup, asked) == "answered again"
    assert outcome(group, backup, register(STRANGER)) == "forwarded"


def test_a_backup_never_evicts_and_never_forwards_without_a_reason(
    group: Group, session: Session
) -> None:
    backup, core = a_backup(group), session.core
    stranger = request(STRANGER, number=1, session=3, body=session.records(1))
    collision = following(session, number=core.request_number)
    old = following(session, number=core.request_number - 1)
    for asked in (stranger, collision, old):
        assert outcome(group, backup, asked) == "dropped request not forwarded"


def test_a_forwarded_request_is_not_forwarded_again(group: Group, session: Session) -> None:
    asked = following(session)
    asked.sender = group.primary
    assert outcome(group, a_backup(group), asked) == "dropped request forwarded twice"


def test_the_primary_takes_a_forwarded_request_as_its_own(group: Group, session: Session) -> None:
    asked = following(session)
    asked.sender = a_backup(group)
    assert at_primary(group, asked) == "prepared"


# --- whole stories --------------------------------------------------------------------------------


def test_client_batch_of_the_largest_size(group: Group, session: Session) -> None:
    group.put(session, 1, SMALL.records_max)
    assert [r[0] for r in session.results()] == list(range(2, 2 + SMALL.records_max))


def test_client_register_evict_oldest(group: Group) -> None:
    """The session whose reply is the oldest goes, on every replica the same one."""
    sessions = [group.opened(), *(group.client() for _ in range(SMALL.clients_max - 1))]
    group.put(sessions[0])
    newcomer = group.client()
    group.until(group.converged)
    for index in range(3):
        left = list(group.core(index).sessions.entries)
        assert sessions[1].client_id not in left
        assert sessions[0].client_id in left and newcomer.client_id in left
    assert len({group.core(i).sessions.encode() for i in range(3)}) == 1


def test_client_evicted_reregisters_no_duplicates(group: Group) -> None:
    sessions = [group.opened(), *(group.client() for _ in range(SMALL.clients_max))]
    evicted = sessions[0]
    group.until(group.converged)
    assert evicted.client_id not in group.core(0).sessions.entries
    lost = evicted.records(3)
    evicted.core.request(env.OPERATION_APPEND, lost, 3)
    evicted.take()
    group.until(lambda: bool(evicted.evictions) and evicted.core.ready)
    assert evicted.evictions == [1] and EVICTION_REASONS[1] == "no_session"
    for _ in range(2):
        evicted.core.request(env.OPERATION_APPEND, lost, 3)
        evicted.take()
        group.until(lambda: evicted.core.ready)
    assert [(r[1], r[3]) for r in evicted.results()] == [(n, ses.DUPLICATE) for n in (2, 3, 4)]
    assert group.core(group.primary).state_machine.log_seq == 4


def test_a_reply_survives_a_restart_of_all(group: Group, session: Session) -> None:
    """Before a checkpoint by replay, after one from its slot; the bytes are the same."""
    for last in (20, SMALL.checkpoint_ops + 1):
        group.fill(session, last)
        session.ask()
        header, body = session.core.in_flight
        group.settle()
        first = session.replies[-1][0]
        group.until(group.converged)
        for index in range(3):
            group.crash(index)
        for index in range(3):
            group.start(index)
        group.until(group.converged)
        mark = len(group.trace)
        group.deliver(-session.number, group.primary, Message(header, body))
        group.settle()
        assert [h.digest for h in group.sent(env.REPLY, since=mark)] == [first.digest]


def test_a_reply_of_a_checkpoint_is_read_from_its_slot_after_a_restart(
    group: Group, session: Session
) -> None:
    group.fill(session, SMALL.checkpoint_ops - 1)
    session.ask()
    header, body = session.core.in_flight
    group.settle()
    first = session.replies[-1][0]
    assert first.op == SMALL.checkpoint_ops
    group.until(group.converged)
    for index in range(3):
        group.crash(index)
    for index in range(3):
        group.start(index)
    group.until(group.converged)
    entry = group.core(group.primary).sessions.get(session.client_id)
    assert entry.body is None
    mark = len(group.trace)
    group.deliver(-session.number, group.primary, Message(header, body))
    group.settle()
    assert [h.digest for h in group.sent(env.REPLY, since=mark)] == [first.digest]
