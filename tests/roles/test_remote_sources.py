"""From whom an edge reads the log of a shard that its node does not hold, and what it makes of what
they tell: members of other nodes that die, lag, were removed, or lie; step by step."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.cores.edge.edge import LIST, LOOKUP, MEND
from appliance.drivers.host import clock
from appliance.formats import local, remote
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.rooms import CreateRoom, ListRooms, RoomsPage
from appliance.formats.client.subscribing import SubscribeRoom
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import SMALL
from appliance.formats.record import BODY
from appliance.formats.remote import REMOTE_READ, REMOTE_READ_ROOMS
from appliance.formats.segment import first_log_seq_of, number_of, slot_of
from appliance.formats.status.replica import LogStanding
from appliance.roles.edge import remote_log
from appliance.roles.edge.remote_log import RemoteLog
from tests.cores.edge.world import World, errors, events

SEGMENT = SMALL.segment_records
WELL = {
    "status": "normal",
    "state_ready": True,
    "commit_min": 1,
    "commit_max": 1,
    "stale_ms": 0,
    "oldest_segment": 0,
}
UNFIT = {
    "it is not of the group": {"status": "outside"},
    "it changes views": {"status": "view_change"},
    "it fetches its state": {"state_ready": False},
    "it is behind": {"commit_max": 200},
}


class Member:
    """Of another node: answers as one does, out of the log of the world's shard."""

    def __init__(self, world: World) -> None:
        self.shard, self.asked, self.counts = world.shard, list[tuple[Header, bytes]](), 0
        self.standing: dict[str, Any] = dict(WELL)
        self.lacks = 0  # records, of the newest
        self.is_deaf = self.tells = False  # tells: also a question about what is not there yet
        self.lie: Callable[[bytes], bytes] = (
            bytes  # what it makes of records, and of pieces of segments
        )

    def send(self, header: Header, body: bytes) -> None:
        self.asked.append((header, body))
        self.counts += 1

    @property
    def published(self) -> int:
        return max(0, len(self.shard.log) - self.lacks)

    def answers(self) -> list[Message]:
        asked, self.asked = self.asked, []
        found = []
        for header, body in asked:
            waits = header.command == REMOTE_READ and header.op > self.published
            if self.is_deaf or waits and not self.tells:
                self.asked.append((header, body))
            else:
                found.append(self._answer(header, body))
        self.tells = False
        return found

    def _answer(self, header: Header, body: bytes) -> Message:
        op = header.op
        if header.command == REMOTE_READ:
            op, told = self._records(op)
        elif header.command == REMOTE_READ_ROOMS:
            op, told = len(self.shard.log), self._rooms(header, body)
        else:
            size = remote.piece_size(SMALL)
            extent = self.shard.files.extents.get(op, b"")
            told = self.lie(extent[header.aux * size : (header.aux + 1) * size])
        return Message(local.answer(header, header.command + 1, op=op, body=told), told)

    def _records(self, wanted: int) -> tuple[int, bytes]:
        begin = first_log_seq_of(SMALL, max(0, number_of(SMALL, max(1, self.published)) - 1))
        first = wanted if wanted >= begin else begin
        count = min(SMALL.records_max, SEGMENT - slot_of(SMALL, first), self.published + 1 - first)
        records = self.lie(b"".join(self.shard.log[first - 1 : first - 1 + max(0, count)]))
        standing = LogStanding(**self.standing)
        return first, remote.encode_records(standing, self.published, SMALL, records)

    def _rooms(self, header: Header, body: bytes) -> bytes:
        ids = [body[at : at + 16] for at in range(0, len(body), 16)]
        ids = ids or list(self.shard.rooms)[header.op : header.op + header.aux]
        return remote.encode_rooms(b"".join(map(self.shard.row, ids)), [b""] * len(ids))


class Far(World):
    """The edge of a node that does not hold the shard, and three members that do."""

    def __init__(self, folder: Path) -> None:
        super().__init__(attached=False)
        self.counters = Counter[str]()
        self.log = RemoteLog(
            0, cluster=bytes(16), edge=self.edge, folder=folder, counters=self.counters
        )
        self.members = [Member(self) for _ in range(3)]

    def start(self) -> "Far":
        self.log.start()
        for number in range(len(self.members)):
            self.come(number)
        self.publish()
        return self

    def come(self, number: int) -> None:
        self.log.on_open(number, f"node-{number}", self.members[number].send)

    def go(self, number: int) -> None:
        self.members[number].asked.clear()
        self.log.on_gone(number)

    @property
    def source(self) -> int:
        assert self.log.told, "nobody tells it"
        return int(self.log.told.removeprefix("node-"))

    def _perform(self, effect: tuple[Any, ...]) -> None:
        if effect[0] == LOOKUP:
            self.log.lookup(effect[2])
        elif effect[0] == LIST:
            self.log.list(effect[2], effect[3])
        elif effect[0] == MEND:
            self.log.repair(effect[2])
        else:
            super()._perform(effect)

    def publish(self, log_seq: int | None = None) -> None:
        """All answers that are on their way arrive."""
        for _ in range(10_000):
            told = [(n, m) for n, member in enumerate(self.members) for m in member.answers()]
            for number, message in told:
                self.log.on_message(number, message)
            self.step()
            if not told:
                return
        raise AssertionError("it asks for ever")


@pytest.fixture
def far(tmp_path: Path) -> Far:
    return Far(tmp_path)


def test_a_follower_hears_all_in_order_whoever_goes_or_lags(far: Far, seed: int) -> None:
    chance = random.Random(seed)
    far.start()
    session = far.open()
    room = far.room(session)
    far.send(session, SubscribeRoom(room_id=room, since_op=0))
    far.settle()
    heard, said = events(far.take(session)), 0
    for _ in range(60):
        count = chance.randint(1, 9)
        far.say(session, room, said + 1, count)
        said += count
        for member in far.members:
            member.lacks = chance.choice((0, 0, 3, 12))
        far.process()
        if chance.random() < 0.5:
            gone = far.source
            far.go(gone)
            far.publish()
            far.come(gone)
        if chance.random() < 0.3:
            far.log.poll()
        far.settle()
        heard += events(far.take(session))
    for member in far.members:
        member.lacks = 0
    far.settle()
    heard += events(far.take(session))
    assert heard == list(range(1, said + 2))
    assert said > 2 * SEGMENT and not [name for name in far.counters if name != "remote_sources"]


@pytest.mark.parametrize("standing", UNFIT.values(), ids=UNFIT)
def test_the_log_is_not_begun_with_one_that_cannot_be_read_and_the_next_is_asked(
    far: Far, standing: dict[str, Any]
) -> None:
    far.members[0].standing |= standing
    far.start()
    far.publish()
    assert not far.log.is_attached and far.members[0].counts == 1  # and is not asked on and on
    far.log.poll()
    far.publish()
    assert far.source == 1 and not far.edge.behind


@pytest.mark.parametrize("changed", [*UNFIT.values(), {"stale_ms": 900}])
def test_a_source_that_cannot_be_read_any_more_gives_way(far: Far, changed: dict[str, Any]) -> None:
    far.start()
    session = far.open()
    room = far.room(session)
    assert far.source == 0
    far.members[0].standing |= changed
    far.members[0].tells = True
    far.publish()
    assert far.edge.behind or far.edge.stale
    far.log.poll()
    far.say(session, room, 1, 3)
    far.settle()
    assert far.source == 1 and not far.edge.behind and not far.edge.stale


def test_one_that_knows_less_than_is_here_gives_way_and_takes_nothing_back(far: Far) -> None:
    far.start()
    session = far.open()
    room = far.room(session)
    far.say(session, room, 1, 9)
    far.settle()
    far.members[1].lacks = 6
    far.go(0)
    far.members[1].tells = True
    far.publish()
    assert far.source == 1 and far.edge.logs[0].log_seq == 10
    far.log.poll()
    assert far.source == 2 and far.edge.logs[0].log_seq == 10


@pytest.mark.parametrize("last", [{}, {"status": "view_change"}, {"state_ready": False}])
def test_what_is_here_is_served_as_the_past_when_nobody_is_left(
    far: Far, monkeypatch: pytest.MonkeyPatch, last: dict[str, Any]
) -> None:
    """Whatever the last one said of itself before it went."""
    far.start()
    session = far.open()
    room = far.room(session)
    far.send(session, SnapshotRequest(room_id=room, from_op=1))
    far.settle()
    before_us = clock.realtime_us()
    for member in far.members:
        member.standing |= last
        member.tells = True
        far.publish()
    for number in range(3):
        far.go(number)
    monkeypatch.setattr(remote_log, "REMOTE_SILENT_MS_MAX", 0)
    far.log.poll()
    assert far.log.told == "" and not far.edge.behind
    assert 0 < far.edge.stale[0] <= clock.realtime_us()
    assert not last or far.edge.stale[0] <= before_us  # since the last one that was well
    far.take(session)
    far.send(session, SnapshotRequest(room_id=room, from_op=1))
    (chunk,) = [frame for frame in far.take(session) if type(frame) is SnapshotChunk]
    assert [message.op for message in chunk.messages] == [1] and chunk.stale_since is not None
    far.send(session, ListRooms())
    far.log.poll()
    assert errors(far.take(session)) == ["unavailable"]  # and does not wait for ever


def test_who_tells_a_record_that_cannot_be_is_left_and_all_that_it_told(far: Far) -> None:
    far.start()
    session = far.open()
    room = far.room(session)
    far.send(session, SubscribeRoom(room_id=room, since_op=0))
    far.settle()
    far.members[0].lie = lambda raw: raw[:BODY] + b"?" + raw[BODY + 1 :] if raw else raw
    far.say(session, room, 1, 5)
    far.settle()
    assert far.counters["remote_a_record_is_not_whole"] == 1 and far.source == 1
    assert events(far.take(session)) == list(range(1, 7))
    assert far.edge.logs[0].record(6) == far.shard.log[5]


def test_where_all_tell_what_cannot_be_they_are_asked_at_leisure(far: Far) -> None:
    for member in far.members:
        member.lie = lambda raw: bytes(len(raw))
    far.start()
    session = far.open()
    far.send(session, CreateRoom(name="general"))
    far.process()
    far.publish()
    asked = sum(member.counts for member in far.members)
    assert asked <= 6 and not far.log.is_attached
    far.log.poll()
    far.publish()
    assert sum(member.counts for member in far.members) <= asked + 2


def test_history_older_than_the_ring_is_copied_and_asked_elsewhere_when_it_is_broken(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_log, "REMOTE_AGAIN_MS", 0)
    far.start()
    session = far.open()
    room = far.room(session)
    for first in range(1, 4 * SEGMENT, 20):
        far.say(session, room, first, 20)
        far.settle()
    right = far.shard.files.extents[0][: remote.piece_size(SMALL)]
    wrong = right[:5000] + bytes([right[5000] ^ 1]) + right[5001:]
    far.members[0].lie = lambda raw: wrong if raw == right else raw
    far.take(session)
    far.send(session, SnapshotRequest(room_id=room, from_op=1, limit=20))
    found: list[Any] = []
    for _ in range(20):
        far.tick(2)
        far.publish()
        found += far.take(session)
    assert not errors(found)
    (chunk,) = [frame for frame in found if type(frame) is SnapshotChunk]
    assert [message.op for message in chunk.messages] == list(range(1, 21))
    assert far.counters["remote_broken_segment"] == 1 and far.source == 1


def test_rooms_are_listed_in_order_and_asked_of_the_next_one_when_the_source_goes(far: Far) -> None:
    far.start()
    session = far.open()
    names = [f"room {number:03}" for number in range(300)]
    for name in names:
        far.room(session, name)
    far.members[0].is_deaf = True
    far.send(session, ListRooms(limit=1000))
    far.publish()
    assert not far.take(session)
    far.go(0)
    far.publish()
    (page,) = [frame for frame in far.take(session) if type(frame) is RoomsPage]
    assert [item.name for item in page.rooms] == names


def test_the_oldest_segment_is_not_taken_from_one_that_says_nonsense(far: Far) -> None:
    far.members[0].standing |= {"oldest_segment": 1 << 60}
    far.start()
    session = far.open()
    far.room(session)
    assert far.edge.logs[0].segments.oldest == 0


def test_once_stopped_it_asks_and_tells_nothing(far: Far) -> None:
    far.start()
    far.log.stop()
    assert 0 not in far.edge.logs
    counts = [member.counts for member in far.members]
    far.log.lookup([bytes(16)])
    far.log.list(0, 9)
    far.log.repair([0])
    for member in far.members:
        member.tells = True
    far.publish()
    far.log.poll()
    assert [member.counts for member in far.members] == counts and 0 not in far.edge.logs
    far.log.start()
    far.publish()
    assert 0 in far.edge.logs
