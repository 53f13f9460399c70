"""In which log session messages collect: one request is filled before another one is used, and the
order of every device is kept, whichever is answered first."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.prng import Prng
from appliance.cores.edge.publish import LogSession, MessageIds, log_session_for, pack_items
from appliance.cores.edge.session import Session
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.sending import MessageAck
from appliance.formats.geometry import SMALL
from tests.cores.edge.world import World, acks, device, errors

LOG_SESSIONS = 4
FULL = SMALL.records_max
DEVICES = 4


def people(world: World, count: int) -> tuple[list[Session], UUID]:
    """Sessions of devices of their own, and a room that they all know."""
    sessions = [world.open(number=number) for number in range(count)]
    room = world.room(sessions[0])
    for session in sessions:
        world.say(session, room, 1, 1)
        world.settle()
        world.take(session)
    return sessions, room


def answer(world: World, index: int = 0) -> int:
    """One of the requests that wait is answered; its log session may not ask again yet."""
    log_session, records, _ = world.requests.pop(index)
    world.edge.on_reply(0, log_session, world.shard.apply(records))
    world.step()
    return log_session


class Loop:
    """Each device sends its next message when the one before is acknowledged."""

    def __init__(self, devices: int) -> None:
        self.world = World(log_sessions=LOG_SESSIONS)
        self.sessions, self.room = people(self.world, devices)
        self._said = [1] * devices
        for number in range(devices):
            self._say(number)

    def _say(self, number: int) -> None:
        self._said[number] += 1
        self.world.say(self.sessions[number], self.room, self._said[number], 1)

    def answer(self) -> int:
        """The oldest request is answered; who was in it says the next thing before the log session
        asks again, as `pace` has it. How many records the request had."""
        count = self.world.requests[0][2]
        log_session = answer(self.world)
        for number, session in enumerate(self.sessions):
            for frame in self.world.take(session):
                assert type(frame) is MessageAck
                self._say(number)
        self.world.edge.on_ready(0, log_session)
        self.world.step()
        return count


def test_what_one_request_can_take_is_sent_in_one() -> None:
    loop = Loop(FULL)
    assert loop.answer() == 1  # the first one left at once
    assert [loop.answer() for _ in range(10)] == [FULL] * 10


def test_beyond_one_full_request_and_another_that_waits_two_are_in_flight() -> None:
    loop = Loop(4 * FULL)
    counts = []
    for _ in range(40):
        counts.append(loop.answer())
        assert len(loop.world.requests) >= 2
    assert sum(counts[8:]) > 32 * FULL * 3 // 4


def test_a_device_keeps_its_log_session_until_all_it_has_sent_is_answered() -> None:
    world = World(log_sessions=LOG_SESSIONS)
    (one, *others), room = people(world, 2 + FULL)
    world.say(one, room, 2, 1)
    for session in others[:FULL]:  # the next request of that log session is full
        world.say(session, room, 2, 1)
    world.say(others[FULL], room, 2, 1)
    assert [log_session for log_session, _, _ in world.requests] == [0, 1]
    world.say(one, room, 3, 1)  # behind what it has sent, though another log session has space
    assert answer(world) == 0
    world.say(one, room, 4, 1)
    assert answer(world) == 1
    world.edge.on_ready(0, 1)
    world.step()
    assert not world.requests  # nothing of it is in the other log session
    world.edge.on_ready(0, 0)
    world.settle()
    assert [seq for seq, _ in acks(world.take(one))] == [2, 3, 4]
    world.say(one, room, 5, 1)
    assert [log_session for log_session, _, _ in world.requests] == [0]


def test_a_device_that_comes_back_goes_on_where_what_it_has_sent_before_is() -> None:
    world = World(log_sessions=LOG_SESSIONS)
    (one, *others), room = people(world, 1 + FULL)
    for session in others:
        world.say(session, room, 2, 1)
    world.say(one, room, 2, 2)  # the second one is the first of another request of that log session
    world.edge.on_close(one)
    back = world.open(number=0)
    world.say(back, room, 2, 3)
    while world.requests:
        world.edge.on_ready(0, answer(world, len(world.requests) - 1))  # the newest first
        world.step()
    world.settle()
    frames = world.take(back)
    assert errors(frames) == []
    assert sorted(seq for seq, _ in acks(frames)) == [2, 3, 4]


def test_one_that_was_evicted_is_passed_by_while_another_is_registered() -> None:
    world = World(log_sessions=2)
    sessions, room = people(world, 1)
    world.edge.on_evicted(0, 0)
    world.say(sessions[0], room, 2, 1)
    assert [log_session for log_session, _, _ in world.requests] == [1]
    world.settle()
    world.edge.on_evicted(0, 1)
    world.say(sessions[0], room, 3, 1)
    assert not world.requests
    world.edge.on_ready(0, 0)
    world.step()
    assert [log_session for log_session, _, _ in world.requests] == [0]


def test_where_no_next_request_has_space_the_emptiest_takes_what_comes() -> None:
    log_sessions, ids = [LogSession(SMALL, 0, index) for index in range(2)], MessageIds(Prng(1))

    def send(number: int, count: int) -> int:
        name = id_bytes(device(number))
        log_session = log_session_for(log_sessions, name)
        for seq in range(1, count + 1):
            item = (bytes(16), seq, bytes(16), b"m" * 16, 0, b"")
            pack_items(log_session.filling(), [item], author_id=1, client_id=name, ids=ids)
            log_session.claim(object(), 1, name)
        return log_session.index

    for log_session in log_sessions:
        log_session.on_ready()
    assert send(1, 3 * FULL) == 0
    assert send(2, FULL) == 1
    assert send(3, 1) == 1
    assert send(1, 1) == 0  # it has to


def test_nothing_is_remembered_of_devices_whose_messages_are_answered() -> None:
    world = World(log_sessions=2)
    sessions, room = people(world, 5)
    for seq in range(2, 6):
        for session in sessions:
            world.say(session, room, seq, 3)
        world.edge.on_close(sessions.pop())
        world.settle()
    names = [id_bytes(device(number)) for number in range(5)]
    assert not [
        1 for log_session in world.edge.log_sessions[0] for name in names if log_session.holds(name)
    ]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("say", "say", "say", "answer", "answer", "lose", "come back")),
            st.integers(0, DEVICES - 1),
            st.integers(1, 12),
        ),
        max_size=40,
    ),
    st.integers(2, LOG_SESSIONS),
)
def test_order_of_every_device_is_kept_though_requests_overtake_and_devices_come_back(
    steps: list[tuple[str, int, int]], log_sessions: int
) -> None:
    """Acks name rising ops, and nothing is ever refused as out of order."""
    world = World(log_sessions=log_sessions)
    sessions, room = people(world, DEVICES)
    said, ops = [1] * DEVICES, [{} for _ in range(DEVICES)]

    def take(number: int) -> bool:
        """Whether all is well; busy: that device would go back."""
        frames = world.take(sessions[number])
        ops[number].update(acks(frames))
        names = {frame.name for frame in frames if type(frame) is ErrorFrame}
        assert names <= {"busy"}
        return not names

    for what, number, count in steps:
        if what == "say":
            world.say(sessions[number], room, said[number] + 1, count)
            said[number] += count
        elif what == "come back":
            take(number)
            world.edge.on_close(sessions[number])
            sessions[number] = world.open(number=number)
            first = max(ops[number], default=1) + 1
            world.say(sessions[number], room, first, said[number] + 1 - first)
        elif world.requests and what == "answer":
            world.edge.on_ready(0, answer(world, count % len(world.requests)))
            world.step()
        elif (
            world.requests
        ):  # the session of the log is lost, when its request was committed or not
            log_session, records, _ = world.requests.pop(count % len(world.requests))
            if number % 2:
                world.shard.apply(records)
            world.edge.on_evicted(0, log_session)
            world.edge.on_ready(0, log_session)
            world.step()
        if [each for each in range(DEVICES) if not take(each)]:
            return
    world.settle()
    for number in range(DEVICES):
        assert take(number)
        assert sorted(ops[number]) == list(range(2, said[number] + 1))
        told = [ops[number][seq] for seq in sorted(ops[number])]
        assert told == sorted(set(told))
