"""From messages to records in batches, and back from results to acks."""

import ast
import uuid
from pathlib import Path
from uuid import UUID

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base import limits
from appliance.base.prng import Prng
from appliance.cores.edge.publish import ZERO16, Batch, MessageIds, pack_items, pack_probe
from appliance.formats import record
from appliance.formats import session as replies
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.fields import id_of
from appliance.formats.client.sending import SendMessage
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE, SMALL
from tests.cores.edge.world import World, acks, errors
from tests.cores.rooms import shard as rooms


def test_packed_records_are_those_that_the_format_makes() -> None:
    batch, ids = Batch(7), MessageIds(Prng(1))
    items = [
        (b"r" * 16, 5, b"p" * 16, b"m" * 16, 0, b"hello"),
        (b"r" * 16, 6, bytes(16), b"n" * 16, 0, b""),
    ]
    batch.view[:] = b"\xff" * len(batch.view)  # bytes of an older batch must not shine through
    pack_items(batch, items, author_id=9, client_id=b"c" * 16, ids=ids)
    expected = b"".join(
        record.encode(
            room_id=room,
            msg_id=msg,
            author_id=9,
            body=body,
            client_id=b"c" * 16,
            client_seq=seq,
            parent_id=parent,
        )
        for room, seq, parent, msg, _, body in items
    )
    assert bytes(batch.view[: 2 * RECORD_SIZE]) == expected


def test_a_batch_takes_no_memory_before_messages_are_written_into_it() -> None:
    """An edge has four of a MiB for each shard, and few of its requests are ever full."""
    process = psutil.Process()
    before = process.memory_info().rss
    batches = [Batch(PRODUCTION.records_max) for _ in range(64)]
    whole = sum(len(batch.view) for batch in batches)
    assert whole > 60 << 20
    assert process.memory_info().rss - before < whole // 2
    batches[0].view[:] = b"x" * len(batches[0].view)


def new_message_id(world: World, off_s: int = 0) -> UUID:
    """An id as a device makes it whose clock is off by so much."""
    made_ms = world.now_us // 1000 + off_s * 1000
    return UUID(int=made_ms << 80 | 7 << 76 | 2 << 62 | 1)


BOOK = Path(__file__).parents[3] / "docs/client-protocol.md"
TOLD_OF_A_RETRY = """A message whose `msg_id` the node made gets another one each time it is sent,
with the time of then: sent again when its numbers were forgotten, it is stored a second time."""


@pytest.mark.parametrize(
    ("of_client", "code"),
    [(True, replies.DUPLICATE_EXPIRED), (False, replies.OK)],
    ids=["of the client", "of the node"],
)
def test_a_retry_under_forgotten_numbers_is_known_by_the_id_of_its_client_alone(
    of_client: bool, code: int
) -> None:
    """As the page of the client protocol says it, in these words."""
    assert " ".join(TOLD_OF_A_RETRY.split()) in " ".join(BOOK.read_text().split())
    shard, ids = rooms.Shard(SMALL), MessageIds(Prng(1))
    assert shard.one(rooms.create(0)).code == replies.OK
    ids.on_tick(shard.timestamp)
    own = ids.next() if of_client else ZERO16  # by a clock that goes as the node's

    def sent() -> int:
        batch = Batch(SMALL.records_max)
        ids.on_tick(shard.timestamp)
        item = (rooms.room_id(0), 1, ZERO16, own, record.KIND_MESSAGE, b"once?")
        pack_items(batch, [item], author_id=50, client_id=b"c" * 16, ids=ids)
        return shard.one(bytes(batch.view[:RECORD_SIZE]), advance_us=1000).code

    assert sent() == replies.OK and sent() == replies.DUPLICATE
    for client in range(SMALL.windows_max):
        late = rooms.make(0, client, 1, author=2 + client)
        assert shard.one(late, advance_us=2 * limits.WINDOW_EVICT_AGE_US).code == replies.OK
    assert sent() == code


def test_every_client_of_ours_makes_its_ids() -> None:
    calls = [
        (path.name, {each.arg for each in node.keywords})
        for path in (Path(__file__).parents[3] / "appliance").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "SendMessage"
    ]
    assert len(calls) >= 2 and not [name for name, named in calls if "msg_id" not in named]


def test_a_probe_tells_whether_there_is_a_room_and_changes_nothing() -> None:
    shard, ids = rooms.Shard(SMALL), MessageIds(Prng(1))

    def ask(room: int) -> int:
        batch = Batch(SMALL.records_max)
        pack_probe(batch, rooms.room_id(room), ids)
        return shard.one(bytes(batch.view[:RECORD_SIZE])).code

    assert ask(0) == replies.ROOM_UNKNOWN
    assert shard.one(rooms.create(0)).code == replies.OK
    before = shard.checkpoint()
    assert [ask(0), ask(0), ask(1)] == [
        replies.SEQUENCE_GAP,
        replies.SEQUENCE_GAP,
        replies.ROOM_UNKNOWN,
    ]
    after = shard.checkpoint()
    assert (after.tables, after.leaves) == (before.tables, before.leaves)


def test_message_ids_are_uuid7_of_now_and_never_repeat() -> None:
    ids = MessageIds(Prng(5))
    seen = set()
    for tick in range(20):
        ids.on_tick(1_800_000_000_000_000 + tick * 10_000)
        for _ in range(50):
            value = id_of(ids.next())
            assert value.version == 7
            assert value.variant == uuid.RFC_4122
            assert value.int >> 80 == 1_800_000_000_000 + tick * 10
            seen.add(value)
    assert len(seen) == 1000


def test_an_idle_log_session_sends_a_batch_of_one_at_once() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.say(session, room, 1, 1)
    assert [count for _, _, count in world.requests] == [1]


def test_what_arrives_while_a_request_is_in_flight_goes_out_as_one_batch() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    for seq in range(1, 6):
        world.say(session, room, seq, 1)
    assert [count for _, _, count in world.requests] == [1]
    world.process(1)
    assert [count for _, _, count in world.requests] == [4]
    world.settle()
    assert acks(world.take(session)) == [(seq, seq + 1) for seq in range(1, 6)]


def test_a_batch_never_holds_more_than_the_most_records() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.say(session, room, 1, 30)
    counts = []
    while world.requests:
        counts += [count for _, _, count in world.requests]
        world.process(1)
    assert sum(counts) == 30
    assert max(counts) == SMALL.records_max
    world.settle()
    assert [seq for seq, _ in acks(world.take(session))] == list(range(1, 31))


def test_beyond_the_bound_the_answer_is_busy_with_a_time_to_wait() -> None:
    world = World(log_sessions=1)
    session = world.open()
    room = world.room(session)
    most = (1 + limits.LOG_SESSION_BATCHES_MAX) * SMALL.records_max
    world.say(session, room, 1, most + 3)
    refused = [frame for frame in world.take(session) if type(frame) is ErrorFrame]
    assert [(frame.name, frame.client_seq, frame.retry_after) for frame in refused] == [
        ("busy", most + i, 50) for i in (1, 2, 3)
    ]
    world.settle()
    assert len(acks(world.take(session))) == most
    world.say(session, room, most + 1, 3)  # and the same numbers again are right
    world.settle()
    assert len(acks(world.take(session))) == 3


def test_a_lost_session_of_the_log_loses_no_message_and_doubles_none() -> None:
    world = World(log_sessions=1)
    session = world.open()
    room = world.room(session)
    world.say(session, room, 1, 3)
    ((_, records, _),) = world.requests
    world.requests.clear()
    world.shard.apply(records)  # committed, but the reply never comes
    world.edge.on_evicted(0, 0)
    world.step()
    assert not world.requests  # not before the log session is ready
    world.say(session, room, 4, 1)
    world.edge.on_ready(0, 0)
    world.step()
    assert [count for _, _, count in world.requests] == [3]
    world.settle()
    assert sorted(acks(world.take(session))) == [(1, 2), (2, 3), (3, 4), (4, 5)]
    assert len(world.ops(room)) == 5


def test_a_duplicate_gets_the_first_ack_again_with_its_message_id() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.say(session, room, 1, 1)
    world.settle()
    (first,) = world.take(session)
    world.send(
        session,
        SendMessage(room_id=room, client_seq=1, body="again", msg_id=new_message_id(world)),
    )
    world.settle()
    (again,) = world.take(session)
    assert again == first


def test_the_ack_of_a_duplicate_waits_for_the_replica_of_this_node() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.say(session, room, 1, 1)
    world.process()
    assert acks(world.take(session)) == [(1, 2)]
    world.say(session, room, 1, 1)
    world.process()
    assert acks(world.take(session)) == []
    world.publish()
    assert acks(world.take(session)) == [(1, 2)]
    assert session.in_flight == 0


def test_after_a_refused_message_the_later_ones_are_gaps_and_others_are_untouched() -> None:
    world = World(log_sessions=1)
    session, other = world.open(number=1), world.open(number=2)
    room = world.room(session)
    world.say(session, room, 1, 1)
    world.send(
        session,
        SendMessage(room_id=room, client_seq=3, body="gap"),
        SendMessage(room_id=room, client_seq=4, body="gap"),
    )
    world.say(other, room, 1, 2)
    world.settle()
    frames = world.take(session)
    assert acks(frames) == [(1, 2)]
    assert [
        (frame.name, frame.client_seq, frame.expected)
        for frame in frames
        if type(frame) is ErrorFrame
    ] == [("sequence_gap", 3, 2), ("sequence_gap", 4, 2)]
    assert acks(world.take(other)) == [(1, 3), (2, 4)]


def test_every_refusal_of_the_shard_has_its_error() -> None:
    for code, name in (
        (replies.DUPLICATE_EXPIRED, "duplicate_expired"),
        (replies.ROOM_UNKNOWN, "room_unknown"),
        (replies.FORBIDDEN, "room_closed"),
        (replies.LIMIT, "limit_reached"),
        (replies.STORAGE_FULL, "storage_full"),
        (replies.MSG_ID_TAKEN, "msg_id_taken"),
    ):
        world = World()
        session = world.open(binary=False)
        room = world.room(session)
        world.shard.refuse_with = code
        world.say(session, room, 1, 1)
        world.settle()
        assert errors(world.take(session)) == [name]
        assert session.in_flight == 0


@pytest.mark.parametrize(
    ("off_s", "told"),
    [
        (0, None),
        (-60, None),
        (-61, "1 min 1 s behind this node's clock"),
        (-3 * 3600 - 300, "3 h 5 min behind"),
        (-29 * 86_400 - 3600, "29 d 1 h behind"),
        (120, "2 min 0 s ahead of this node's clock"),
    ],
)
@pytest.mark.parametrize("binary", [True, False])
def test_a_client_whose_clock_is_off_is_told_so_when_its_message_may_be_an_old_one(
    off_s: int, told: str | None, binary: bool
) -> None:
    world = World()
    session = world.open(binary=binary)
    room = world.room(session)
    world.shard.refuse_with = replies.DUPLICATE_EXPIRED
    msg_id = new_message_id(world, off_s)
    world.send(session, SendMessage(room_id=room, client_seq=1, body="x", msg_id=msg_id))
    world.settle()
    (error,) = [frame for frame in world.take(session) if type(frame) is ErrorFrame]
    assert error.name == "duplicate_expired" and error.detail.startswith("perhaps stored before")
    assert (told or "") in error.detail
    assert ("set it" in error.detail) == (told is not None)


def test_an_id_that_tells_no_time_says_nothing_of_a_clock() -> None:
    world = World()
    session = world.open(rights={"*": ["moderate", "import"]})
    room = world.room(session)
    world.shard.refuse_with = replies.DUPLICATE_EXPIRED
    msg_id, kind = UUID(int=8 << 76 | 2 << 62 | 1), record.KIND_IMPORTED
    message = SendMessage(room_id=room, client_seq=1, body="1 Ada\nx", msg_id=msg_id, kind=kind)
    world.send(session, message)
    world.settle()
    (error,) = [frame for frame in world.take(session) if type(frame) is ErrorFrame]
    assert error.name == "duplicate_expired" and "clock" not in error.detail


def test_answers_for_a_client_that_left_are_dropped() -> None:
    world = World()
    session = world.open()
    room = world.room(session)
    world.say(session, room, 1, 3)
    world.edge.on_close(session)
    world.settle()
    assert world.take(session) == []
    assert len(world.ops(room)) == 4


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 12), st.integers(0, 3)), max_size=25),
    st.integers(1, 4),
)
def test_order_of_every_device_is_kept_whatever_the_batches(
    sends: list[tuple[int, int, int]], log_sessions: int
) -> None:
    world = World(log_sessions=log_sessions)
    sessions = [world.open(number=number, binary=number % 2 == 0) for number in range(5)]
    room = world.room(sessions[0])
    next_seq, answers = [1] * 5, [[] for _ in range(5)]
    for number, count, processed in sends:
        world.say(sessions[number], room, next_seq[number], count)
        next_seq[number] += count
        world.process(processed)
        for i, session in enumerate(sessions):
            answers[i] += world.take(session)
        if any(errors(frames) for frames in answers):  # busy: that device would go back
            break
    world.settle()
    for i, session in enumerate(sessions):
        answers[i] += world.take(session)
        got = acks(answers[i])
        assert [seq for seq, _ in got] == list(range(1, len(got) + 1))
        assert [op for _, op in got] == sorted(op for _, op in got)
        assert len(got) + len(errors(answers[i])) == next_seq[i] - 1
    assert sum(len(acks(frames)) for frames in answers) + 1 == len(world.ops(room))
