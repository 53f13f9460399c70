"""When an edge looks again after a reply of the log: for records that wait, and for nobody else."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from appliance.base.prng import Prng
from appliance.cores.edge.edge import REQUEST
from appliance.cores.vsr.pace import WAIT_FRACTION
from appliance.drivers.host import clock
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import RECORD_SIZE, SESSION_BLOCK_SIZE
from appliance.formats.site import Shard, Site
from appliance.roles.edge.log_sessions import EdgeLogSessions
from tests.clockwork import passing, run
from tests.cores.edge.world import World, acks

REPLICA = b"the only replica"
TOOK_S = 0.020  # a request, in the shard of this test
PEOPLE = 3


class Edge(World):
    """An edge with one log session, over a replica that answers when it is told to;
    a flush comes when it is asked for, and after whatever a client says."""

    log_sessions: EdgeLogSessions | None = None

    def __init__(self) -> None:
        super().__init__(log_sessions=1)
        self.people = [self.open(number=number) for number in range(PEOPLE)]
        self.place = self.room(self.people[0])
        self.said = [0] * PEOPLE
        self.flushes = 0
        self.asked: list[tuple[Header, bytes]] = []

    async def connect(self) -> None:
        """What was this world's own is the log's from now on."""
        self.edge.on_evicted(0, 0)
        shard = Shard(0, [0], [REPLICA], 1, 0, 16)
        self.log_sessions = EdgeLogSessions(
            Site(bytes(16), [], [shard], "site", "chat"),
            edge=self.edge,
            prng=Prng(1),
            wake=self.flush,
            drops=Counter(),
        )
        self.log_sessions.on_connected(0, REPLICA, self._take)
        await passing(0)
        del self.asked[:-1]  # it asks for a session as often as it learns of a replica
        self.answer()

    def _take(self, header: Header, body: bytes) -> None:
        if header.command == env.REQUEST:
            self.asked.append((header, bytes(body)))

    def _perform(self, effect: tuple[Any, ...]) -> None:
        if effect[0] == REQUEST and self.log_sessions is not None:
            self.log_sessions.request(*effect[1:])
        else:
            super()._perform(effect)

    def flush(self) -> None:
        self.flushes += 1
        assert self.log_sessions is not None
        self.log_sessions.go_on()
        self.step()

    def speak(self, *numbers: int) -> None:
        """They say the next thing each, and a flush follows."""
        for number in numbers:
            self.said[number] += 1
            self.say(self.people[number], self.place, self.said[number], 1)
        self.flush()

    def answer(self) -> int:
        """The request that was asked is answered, and a flush follows; the records that it had."""
        assert self.log_sessions is not None
        header, body = self.asked.pop(0)
        asking = ses.decode(body)
        assert asking is not None
        results = self.shard.apply(body[SESSION_BLOCK_SIZE:])
        count = len(body[SESSION_BLOCK_SIZE:]) // RECORD_SIZE
        block = ses.SessionBlock(asking.client, 7, count, bytes(16), header.digest, bytes(32))
        reply = ses.encode(block) + results
        made = env.make(
            env.REPLY, cluster=bytes(16), shard=0, op=7, operation=header.operation, body=reply
        )
        self.log_sessions.on_message(0, Message(made, reply, 0))
        self.flush()
        return count


@pytest.fixture(autouse=True)
def _time_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def now_ns() -> int:
        return round(asyncio.get_running_loop().time() * 1e9)

    monkeypatch.setattr(clock, "monotonic_ns", now_ns)


def test_nobody_waits_so_nobody_looks_again() -> None:
    async def story() -> None:
        edge = Edge()
        await edge.connect()
        for _ in range(3):
            edge.speak(0)
            await passing(TOOK_S)
            edge.flushes = 0
            assert edge.answer() == 1
            await passing(TOOK_S)
            assert edge.flushes == 1  # the one of the reply
        assert acks(edge.take(edge.people[0])) == [(1, 2), (2, 3), (3, 4)]

    run(story)


def test_who_waits_for_others_leaves_without_them_after_a_part_of_a_request() -> None:
    async def story() -> None:
        edge = Edge()
        await edge.connect()
        edge.speak(0)
        edge.speak(1)
        await passing(TOOK_S)
        assert edge.answer() == 1
        assert edge.asked == []  # the first one may come back
        edge.flush()  # because of something else
        await passing(TOOK_S / WAIT_FRACTION - 0.001)
        assert edge.asked == []
        before = edge.flushes
        await passing(0.001)
        assert edge.flushes == before + 1
        assert edge.answer() == 1

    run(story)


def test_who_speaks_while_others_are_waited_for_is_not_left_until_the_next_tick() -> None:
    async def story() -> None:
        edge = Edge()
        await edge.connect()
        edge.speak(0)
        edge.speak(1, 2)
        await passing(TOOK_S)
        assert edge.answer() == 1
        edge.speak(0)  # all are there
        await passing(TOOK_S)
        assert edge.answer() == PEOPLE
        edge.speak(1)  # alone, and for some time
        assert edge.asked == []
        await passing(TOOK_S / WAIT_FRACTION)
        assert edge.answer() == 1

    run(story)
