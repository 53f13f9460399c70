"""Where the message lies that has an id: found by its own and no other, by who may read it."""

from typing import Any

import pytest

from appliance.base.limits import (
    MESSAGE_ID_AGE_US_MAX,
    MESSAGE_ID_AHEAD_US_MAX,
    MESSAGE_SEARCH_MS_MAX,
    ROOM_WAIT_MS_MAX,
)
from appliance.base.prng import Prng
from appliance.cores.edge.log import ShardLog
from appliance.cores.edge.message_search import MessageSearch, segments_of
from appliance.formats.author import author_id_of
from appliance.formats.client.fields import id_bytes, id_of
from appliance.formats.client.found_message import FoundMessage
from appliance.formats.client_errors import MessageUnknown, RateLimited, TokenExpired, Unavailable
from appliance.formats.geometry import SMALL
from appliance.formats.imported import encode_head
from appliance.formats.record import (
    KIND_AUDIT,
    KIND_IMPORTED,
    KIND_MESSAGE,
    KIND_ROOM_CREATE,
    SHARD_ROOM_ID,
    encode,
)
from appliance.formats.room_name import room_id_of
from tests.cores.edge.test_history import broken_in
from tests.cores.edge.test_message_id import DAY_US, made
from tests.cores.edge.world import START_US, TICK_NS, World, token

ROOMS = ("general", "random", "secret")
HOUR_US = DAY_US // 24
ONE = SMALL.segment_records  # records of a segment


def archived(number: int) -> bytes:
    return id_bytes(made(0, version=8, number=number))


def lived(off_us: int, number: int) -> bytes:
    return id_bytes(made(off_us, number=number))


class Writer:
    """Puts records into the log of a world as its replica would, with whatever id."""

    def __init__(self, step_us: int = 1, **words: Any) -> None:
        self.world = World(**words)
        self.world.shard.step_us = step_us
        self._seqs: dict[bytes, int] = {}
        for number, name in enumerate(ROOMS):
            self.put(name, bytes([number + 1]) * 16, KIND_ROOM_CREATE, name.encode())

    def put(
        self, room: str, msg_id: bytes, kind: int = KIND_MESSAGE, body: bytes = b"said"
    ) -> None:
        room_id = SHARD_ROOM_ID if kind == KIND_AUDIT else room_id_of(room)
        seq = self._seqs[room_id] = self._seqs.get(room_id, 0) + 1
        if kind == KIND_AUDIT:
            self.world.shard.rooms.setdefault(
                room_id, {"count": 0, "head": bytes(32), "created": 1, "sealed": 0}
            )
        record = encode(
            room_id=room_id, msg_id=msg_id, author_id=author_id_of("ada"), body=body,
            client_id=b"d" * 16, client_seq=seq, kind=kind,
        )  # fmt: skip
        self.world.shard.apply(record)
        self.world.publish()

    def fill(self, count: int, first: int = 1 << 32) -> list[bytes]:
        """So many messages that nobody looks for; their ids."""
        ids = [archived(first + n) for n in range(count)]
        for msg_id in ids:
            self.put("random", msg_id)
        return ids


def search(world: World, msg_id: bytes, **words: Any) -> MessageSearch:
    return world.edge.readers.search("10.0.0.1", token(**words), msg_id)


def driven(world: World, searching: MessageSearch) -> FoundMessage:
    """To its end; the clock goes on when it waits."""
    try:
        for _ in range(20_000):
            found = searching.step()
            if found is not None:
                return found
            if searching.waits:
                world.tick(1)
        raise AssertionError("the search does not end")
    finally:
        searching.close()


def lies(world: World, msg_id: bytes, **words: Any) -> tuple[str, int]:
    found = driven(world, search(world, msg_id, **words))
    assert found.msg_id == id_of(msg_id)
    assert found.room_id == id_of(room_id_of(found.room))
    return found.room, found.op


def missed(world: World, msg_id: bytes, **words: Any) -> str:
    with pytest.raises(MessageUnknown) as error:
        lies(world, msg_id, **words)
    return str(error.value)


def looked_in(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The segments in which anything is looked for from now on, in order."""
    numbers: list[int] = []
    look = ShardLog.with_message_id

    def with_message_id(log: ShardLog, number: int, msg_id: bytes) -> bytes | None:
        numbers.append(number)
        return look(log, number, msg_id)

    monkeypatch.setattr(ShardLog, "with_message_id", with_message_id)
    return numbers


def test_every_record_is_found_by_its_id_and_nothing_else_is(seed: int) -> None:
    """Ids of any time and kind, in a log of two years, several segments of it sealed."""
    prng = Prng(seed)
    writer = Writer(step_us=2 * DAY_US)
    expected: dict[bytes, tuple[str, int]] = {}
    ops = dict.fromkeys(ROOMS, 1)

    def fresh(number: int) -> bytes:
        return (
            lived(prng.between(-400, 900) * DAY_US, number),
            archived(number),
            prng.bytes(16),
        )[prng.below(3)]

    for number in range(1, 3 * ONE + 30):
        room = ROOMS[prng.below(3)]
        ops[room] += 1
        msg_id = fresh(number)
        writer.put(room, msg_id)
        expected[msg_id] = (room, ops[room])
    assert sorted(writer.world.shard.files.extents) == [0, 1, 2]
    for msg_id, where in expected.items():
        assert lies(writer.world, msg_id) == where
        other = bytes([*msg_id[:3], msg_id[3] ^ 1 << prng.below(8), *msg_id[4:]])
        if other not in expected:
            missed(writer.world, other)
    for number in range(60):
        missed(writer.world, fresh((1 << 40) + number))


def test_it_is_said_whose_it_is_and_when_it_was_said() -> None:
    writer = Writer()
    writer.put("general", lived(0, 1))
    writer.put("general", archived(2), KIND_IMPORTED, encode_head(77, "Ada") + b"said")
    found = driven(writer.world, search(writer.world, lived(0, 1)))
    assert (found.room, found.op, found.author, found.timestamp) == (
        "general",
        2,
        "ada",
        START_US + 3,
    )
    assert (found.kind, found.said_at, found.said_by) == (KIND_MESSAGE, None, None)
    found = driven(writer.world, search(writer.world, archived(2)))
    assert (found.kind, found.said_at, found.said_by) == (KIND_IMPORTED, 77, "Ada")


@pytest.mark.parametrize("msg_id", [lived(0, 7), archived(7)])
@pytest.mark.parametrize("between", [1, ONE, 3 * ONE])
def test_of_several_with_one_id_the_oldest_is_meant(msg_id: bytes, between: int) -> None:
    """In one segment, in neighbours, with the older one sealed long ago."""
    writer = Writer()
    writer.put("general", msg_id)
    writer.fill(between)
    writer.put("general", msg_id)
    writer.put("secret", msg_id)
    assert lies(writer.world, msg_id) == ("general", 2)


def test_who_may_not_read_a_room_is_answered_as_if_there_were_no_such_message() -> None:
    writer = Writer()
    rights = {"general": ["read", "send"], "secret": ["send", "moderate"]}
    writer.put("secret", lived(0, 1))
    writer.fill(ONE)
    writer.put("general", lived(0, 1))
    writer.put("secret", lived(0, 2))
    assert lies(writer.world, lived(0, 1)) == ("secret", 2)
    assert lies(writer.world, lived(0, 1), rights=rights) == ("general", 2)
    assert missed(writer.world, lived(0, 2), rights=rights) == missed(
        writer.world, lived(0, 3), rights=rights
    )
    missed(writer.world, lived(0, 2), rights={})


def test_the_log_s_own_records_are_nobody_s_messages() -> None:
    writer = Writer()
    writer.put("", lived(0, 1), KIND_AUDIT)
    missed(writer.world, lived(0, 1), rights={"*": ["admin"]})


def test_a_step_looks_into_one_segment_and_first_into_those_of_the_id_s_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Writer(step_us=6 * HOUR_US)  # 25 days a segment
    writer.fill(7 * ONE)
    log = writer.world.edge.logs[0]
    stored = [START_US + n * writer.world.shard.step_us for n in range(log.log_seq)]
    numbers = looked_in(monkeypatch)
    edges = (MESSAGE_ID_AHEAD_US_MAX, -MESSAGE_ID_AGE_US_MAX)
    for off_us in (-400 * DAY_US, *(stored[4 * ONE + 50] - START_US + edge for edge in edges)):
        msg_id, made_us = lived(off_us, 1), START_US + off_us
        near = {
            n // ONE
            for n, stored_us in enumerate(stored)
            if -edges[0] <= stored_us - made_us <= -edges[1]
        }
        first = list(segments_of(log, msg_id, likely=True))
        then = list(segments_of(log, msg_id, likely=False))
        assert near <= set(first) and len(first) <= len(near) + 1
        assert sorted(first + then) == list(range(8)) and then == sorted(then)
        searching, steps = search(writer.world, msg_id), 0
        numbers.clear()
        with pytest.raises(MessageUnknown):
            while searching.step() is None:
                steps += 1
                assert len(numbers) <= steps
                writer.world.tick(searching.waits)
        searching.close()
        assert numbers == first + then
    assert list(segments_of(log, archived(1), likely=True)) == []


def test_a_search_waits_for_its_rates() -> None:
    writer = Writer(rates={"device_rate": 1})
    writer.fill(3 * ONE)
    writer.put("general", archived(1))
    began_ns = writer.world.now_ns
    for _ in range(3):
        lies(writer.world, archived(1))
    steps = 3 * (1 + 4)  # a round without any segment, then four segments
    assert writer.world.now_ns - began_ns > steps // 2 * 1_000_000_000


def test_a_search_does_not_last_for_ever() -> None:
    writer = Writer()
    searching = search(writer.world, archived(1))
    writer.world.tick(MESSAGE_SEARCH_MS_MAX * 1_000_000 // TICK_NS)
    with pytest.raises(Unavailable, match="took longer than 60 s"):
        searching.step()


def test_a_search_ends_with_its_token() -> None:
    writer = Writer()
    searching = search(writer.world, archived(1))
    writer.world.edge.on_tick(writer.world.now_ns, writer.world.now_us + 3600 * 1_000_000)
    with pytest.raises(TokenExpired):
        searching.step()


def test_who_comes_too_often_is_told_to_wait() -> None:
    writer = Writer(rates={"user_rate": 1})
    with pytest.raises(RateLimited):
        for _ in range(50):
            searching = search(writer.world, archived(1))
            searching.step()
            searching.close()


def test_a_broken_footer_denies_nothing_and_is_waited_for() -> None:
    writer = Writer()
    world, msg_id = writer.world, archived(1)
    writer.put("general", msg_id)
    writer.fill(4 * ONE)
    sound = world.shard.files.extents[0]
    at = sound.index(msg_id, SMALL.segment_data_size)
    world.shard.files.extents[0] = broken_in(sound, at)
    world.attach()
    searching = search(world, msg_id)
    with pytest.raises(Unavailable, match="it is being repaired"):
        driven(world, searching)
    assert world.mends == {0}
    searching = search(world, msg_id)
    for _ in range(10):
        assert searching.step() is None
    assert searching.waits
    world.shard.files.extents[0] = sound
    assert driven(world, searching).op == 2


@pytest.mark.parametrize("before", [0, 1, ONE, ONE + 1])
def test_what_comes_a_moment_later_is_waited_for_and_no_longer(before: int) -> None:
    writer = Writer()
    world = writer.world
    writer.fill(2 * ONE - len(ROOMS) - 1)  # a message, and the segment is full
    searching = search(world, archived(1))
    for _ in range(20):
        assert searching.step() is None
    assert searching.waits
    writer.fill(before, first=1 << 33)
    assert searching.step() is None
    world.tick(ROOM_WAIT_MS_MAX * 1_000_000 // TICK_NS - 1)
    writer.put("general", archived(1))
    writer.fill(before, first=1 << 34)
    assert driven(world, searching).op == 2
    searching = search(world, archived(2))
    while not searching.waits:
        assert searching.step() is None
    world.tick(ROOM_WAIT_MS_MAX * 1_000_000 // TICK_NS)
    with pytest.raises(MessageUnknown):
        for number in range(10):  # others go on
            writer.fill(1, first=(1 << 35) + number)
            assert searching.step() is None
            world.tick(1)


def test_what_comes_is_looked_at_once_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer()
    searching = search(writer.world, archived(1))
    while not searching.waits:
        assert searching.step() is None
    numbers = looked_in(monkeypatch)
    for number in range(30):
        writer.fill(1, first=(1 << 33) + number)
        assert searching.step() is None
        assert len(numbers) == number // 10
        if number % 10 == 9:
            assert searching.waits
            writer.world.tick(1)


def test_what_comes_a_moment_later_is_found_by_a_search_that_lasts_longer() -> None:
    """Its rates are waited for; then what was committed meanwhile is looked at."""
    writer = Writer(rates={"device_rate": 1})
    writer.fill(3 * ONE)
    searching = search(writer.world, archived(1))
    while not searching.waits:
        assert searching.step() is None
    writer.fill(ONE, first=1 << 33)  # none of the segments that it began with
    writer.put("general", archived(1))
    assert driven(writer.world, searching).op == 2


def test_what_was_freed_is_unknown() -> None:
    writer = Writer()
    writer.put("general", archived(1))
    writer.fill(4 * ONE)
    writer.world.shard.files.oldest = 1
    del writer.world.shard.files.extents[0]
    missed(writer.world, archived(1))


def test_a_node_that_may_lack_it_does_not_deny_it() -> None:
    writer = Writer()
    world = writer.world
    writer.put("general", archived(1))
    world.edge.on_replica_status(0, "", world.now_us)
    assert lies(world, archived(1)) == ("general", 2)
    with pytest.raises(Unavailable, match="hears no quorum"):
        lies(world, archived(2))
    world.edge.on_replica_status(0, "")
    missed(world, archived(2))
    world.edge.on_replica_status(0, "recovering")
    with pytest.raises(Unavailable, match="is recovering"):
        lies(world, archived(2))
    world.edge.on_replica_status(0, "")
    world.edge.on_detached(0)
    with pytest.raises(Unavailable, match="is not there"):
        lies(world, archived(1))


def test_a_replica_that_fetches_its_state_denies_nothing() -> None:
    writer = Writer()
    writer.put("general", archived(1))
    writer.world.shard.fetch()
    with pytest.raises(Unavailable, match="fetching its state"):
        lies(writer.world, archived(1))


def test_a_log_that_is_read_anew_meanwhile_is_searched_anew() -> None:
    writer = Writer()
    searching = search(writer.world, archived(1))
    for _ in range(2):
        searching.step()  # of the two rounds the second has begun
    writer.world.edge.on_detached(0)
    writer.put("random", archived(2))
    writer.fill(ONE)
    writer.put("general", archived(1))
    writer.world.attach()
    assert driven(writer.world, searching).op == 2
