"""What a replica tells edges of other nodes that read its log."""

import asyncio
from typing import Any

from appliance.formats import local, remote
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import RECORD_SIZE, SMALL
from appliance.formats.remote import REMOTE_READ, REMOTE_READ_SEGMENT
from appliance.formats.segment import SegmentView
from appliance.roles.replica.role import ReplicaRole
from tests.roles.conftest import MakeSite
from tests.roles.wired_site import WiredSite, until


class Heard:
    """What a replica answers to an edge of another node."""

    def __init__(self, role: ReplicaRole) -> None:
        self.readers, self._role, self._number = role._answers.remote, role, 0
        self.answers: list[tuple[Header, bytes]] = []
        self.readers._send = lambda connection, header, body: self.answers.append((header, body))
        self._connection: Any = object()

    def ask(self, command: int, *, op: int = 0, aux: int = 0) -> None:
        self._number += 1
        cluster = self._role._node.site.cluster
        header = local.question(command, self._number, cluster=cluster, shard=0, op=op, aux=aux)
        self.readers.on_question(self._connection, Message(header))

    async def answer(self, command: int, *, op: int = 0, aux: int = 0) -> tuple[Header, bytes]:
        count = len(self.answers)
        self.ask(command, op=op, aux=aux)
        await until(lambda: len(self.answers) > count)
        return self.answers[-1]

    async def records(self, op: int) -> tuple[int, int]:
        """The first one that is brought, and how many."""
        header, body = await self.answer(REMOTE_READ, op=op)
        told = remote.decode_records(body, SMALL)
        assert told is not None
        return header.op, len(told[2]) // RECORD_SIZE


def test_a_replica_tells_what_is_committed_in_its_ring_and_what_is_durable_of_older(
    make_site: MakeSite,
) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        edge = await site.start_edge(0)
        heard = Heard(role)
        await until(lambda: not edge.health())
        assert (await heard.records(0))[0] == 1
        async with site.client(0) as client:
            room = (await client.create_room("long")).room_id
            sent = [await client.post(room, "said") for _ in range(250)]
            await asyncio.gather(*sent)
        newest = role._published
        assert 250 < newest < 300
        assert await heard.records(0) == (101, SMALL.records_max)
        assert await heard.records(50) == (101, SMALL.records_max)  # not in the ring any more
        assert await heard.records(199) == (199, 2)  # and no further than the segment
        newest = role._published
        assert await heard.records(newest) == (newest, 1)

        count = len(heard.answers)
        heard.ask(REMOTE_READ, op=newest + 1)
        assert len(heard.answers) == count  # kept
        await until(lambda: len(heard.answers) > count)  # for a moment
        assert heard.answers[-1][0].op == newest + 1

        await until(lambda: role._rooms.newest_sealed()[0] == 1)
        whole = b""
        for piece in range(remote.piece_count(SMALL) + 1):
            whole += (await heard.answer(REMOTE_READ_SEGMENT, op=1, aux=piece))[1]
        view = SegmentView(whole, SMALL)
        view.verify(None)
        assert view.number == 1 and len(whole) == SMALL.extent_size
        for number in (2, 3, 1 << 63):  # open, or never there
            assert (await heard.answer(REMOTE_READ_SEGMENT, op=number))[1] == b""
        role._rooms._segment._durable_segments = 1  # as while the newest one is being written
        assert (await heard.answer(REMOTE_READ_SEGMENT, op=1))[1] == b""
        assert (await heard.answer(REMOTE_READ_SEGMENT, op=0))[1] != b""
        role._rooms._segment._durable_segments = 2

    make_site(1).run(story)


def test_a_replica_that_does_not_belong_to_the_group_says_so(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        heard = Heard(role)
        await until(lambda: role._answers._standing().status == "normal")
        index, role._core.index = role._core.index, -1
        heard.ask(REMOTE_READ)
        role._core.index = index
        ((_, body),) = heard.answers
        told = remote.decode_records(body, SMALL)
        assert told is not None and told[0].status not in ("normal", "view_change")

    make_site(1).run(story)
