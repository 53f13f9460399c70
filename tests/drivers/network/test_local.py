"""Sockets within a node: the shared ring, who is let in, and coming back."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from appliance.base.errors import ConfigurationError
from appliance.base.limits import LOCAL_COMMITTED_RECORDS
from appliance.base.prng import Prng
from appliance.drivers.network import local
from appliance.drivers.network.link import Connection
from appliance.drivers.network.local import LocalLink, LocalServer, make_ring
from appliance.drivers.network.local_peer import peer_allowed
from appliance.formats.envelope import PREPARE, REQUEST, SENDER_CLIENT, Message, make
from appliance.formats.local import (
    LOCAL_COMMITTED,
    LOCAL_READ_ROOMS,
    LOCAL_ROOMS,
    LOCAL_STATUS,
    answer,
    number_of,
    told,
)
from appliance.formats.status.part import plain
from appliance.formats.status.replica import Attachment
from tests.patience import HUNG_S, within
from tests.statuses import attachment, replica_status

CLUSTER, SHARD, REPLICA, SIZE_MAX = b"c" * 16, 0, 2, 1 << 20
RING_SIZE = 1 << 16
ATTACHED = attachment(RING_SIZE)


class Heard:
    """Owns either end; remembers what it hears."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.connections: list[Connection] = []
        self.told: list[Attachment | None] = []
        self.rings: list[memoryview | None] = []
        self.detached = 0
        self.counters: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self._changed = asyncio.Event()

    def on_message(self, where: Any, message: Message) -> None:
        self.messages.append(message)
        self.connections.append(where)

    def on_batch(self, where: Any) -> None:
        self._changed.set()

    def on_closed(self, connection: Connection) -> None:
        self._changed.set()

    def on_attached(
        self, link: LocalLink, told: Attachment | None, ring: memoryview | None
    ) -> None:
        self.told.append(told)
        self.rings.append(ring)
        self._changed.set()

    def on_detached(self, link: LocalLink) -> None:
        self.detached += 1
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with within(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Pair:
    """Both ends of one socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ring_fd, self.ring = make_ring(RING_SIZE)
        self.replica, self.edge = Heard(), Heard()
        self.server = self.new_server()

    def new_server(self) -> LocalServer:
        return LocalServer(
            self.replica,
            cluster=CLUSTER,
            shard=SHARD,
            sender=REPLICA,
            message_size_max=SIZE_MAX,
            ring_fd=self.ring_fd,
            attachment=lambda: ATTACHED,
            counters=self.replica.counters,
            drops=self.replica.drops,
        )

    def link(self, owner: Heard, *, attach: bool, crossing: bool = False) -> LocalLink:
        link = LocalLink(
            owner,
            self.path,
            cluster=CLUSTER,
            shard=SHARD,
            replica=REPLICA,
            attach=attach,
            message_size_max=SIZE_MAX,
            prng=Prng(1),
            counters=owner.counters,
            drops=owner.drops,
            crossing=crossing,
        )
        link.start()
        return link


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A short path: a socket's name has 107 bytes at most."""
    here = os.getcwd()
    os.chdir(tmp_path)
    yield Path("shard-0")
    os.chdir(here)


def run(path: Path, story: Callable[[Pair], Coroutine[None, None, None]]) -> None:
    async def bounded() -> None:
        pair = Pair(path)
        async with within(20):
            await pair.server.start(path)
            await story(pair)
            await pair.server.close()
        os.close(pair.ring_fd)

    uvloop.run(bounded())


@pytest.mark.parametrize(
    "said",
    [[], {}, "x", None, {"ring_size": "x"}, {"ring_size": -1}, {"ring_size": 1 << 40},
     {"ring_size": 1 << 70}, {"ring_size": None}, {"ring_size": [1]}],
)  # fmt: skip
def test_a_link_dials_again_whatever_the_answer_to_its_attaching_says(
    path: Path, said: Any
) -> None:
    async def story(pair: Pair) -> None:
        good = pair.server._attachment
        pair.server._attachment = lambda: said
        link = pair.link(pair.edge, attach=True)
        async with within(HUNG_S):
            while pair.edge.counters["dial_failed"] < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not pair.edge.told
        pair.server._attachment = good
        await pair.edge.until(lambda: bool(pair.edge.told))
        await link.close()

    run(path, story)


def test_the_ring_is_the_same_memory_at_both_ends(path: Path) -> None:
    async def story(pair: Pair) -> None:
        link = pair.link(pair.edge, attach=True)
        await pair.edge.until(lambda: bool(pair.edge.told))
        assert pair.edge.told == [ATTACHED]
        ring = pair.edge.rings[0]
        assert ring is not None and ring.readonly and len(ring) == RING_SIZE
        pair.ring[100:105] = b"hello"
        assert bytes(ring[100:105]) == b"hello"
        assert pair.server.attached_count() == 1
        await link.close()

    run(path, story)


def test_commits_are_told_to_those_who_attached_only(path: Path) -> None:
    async def story(pair: Pair) -> None:
        console = Heard()
        links = [pair.link(pair.edge, attach=True), pair.link(console, attach=False)]
        await pair.edge.until(lambda: bool(pair.edge.told))
        await console.until(lambda: bool(console.told))
        for log_seq in (8, 9):
            pair.server.committed(log_seq, 0)
        await pair.edge.until(lambda: len(pair.edge.messages) == 2)
        heard = [(m.header.command, m.header.op, m.sender) for m in pair.edge.messages]
        assert heard == [(LOCAL_COMMITTED, 8, REPLICA), (LOCAL_COMMITTED, 9, REPLICA)]
        assert not console.messages
        for link in links:
            await link.close()

    run(path, story)


def test_who_waits_for_what_crosses_hears_of_that_and_after_many_other_commits(path: Path) -> None:
    async def story(pair: Pair) -> None:
        carrying = Heard()
        links = [pair.link(pair.edge, attach=True), pair.link(carrying, attach=True, crossing=True)]
        await pair.edge.until(lambda: bool(pair.edge.told))
        await carrying.until(lambda: bool(carrying.told))
        many = 9 + LOCAL_COMMITTED_RECORDS
        told = [(7, 7), (8, 7), (9, 9), (10, 9), (many - 1, 9), (many, 9), (many + 1, 9),
                (many + 2, many + 3), (many + 3, many + 3), (many + 4, many + 3)]  # fmt: skip
        for log_seq, crossing in told:
            pair.server.committed(log_seq, crossing)
        await pair.edge.until(lambda: len(pair.edge.messages) == len(told))
        assert [(m.header.op, m.header.aux) for m in pair.edge.messages] == told
        awaited = [told[0], told[2], told[5], told[7], told[8]]
        await carrying.until(lambda: len(carrying.messages) == len(awaited))
        assert [(m.header.op, m.header.aux) for m in carrying.messages] == awaited
        for link in links:
            await link.close()
        await pair.replica.until(lambda: not pair.server.attached_count())
        assert not pair.server._seldom

    run(path, story)


def test_of_a_commit_that_could_not_be_told_the_next_one_tells(path: Path) -> None:
    async def story(pair: Pair) -> None:
        link = pair.link(pair.edge, attach=True, crossing=True)
        await pair.edge.until(lambda: bool(pair.edge.told))
        (connection,) = pair.server._attached
        assert link._connection is not None
        link._connection.transport.pause_reading()
        sent = 0
        for body in (bytes(700_000), b""):
            fill = make(LOCAL_STATUS, cluster=CLUSTER, shard=SHARD, body=body)
            while connection.send(pair.server.signer.frame(fill, body)):
                sent += 1
        pair.server.committed(8, 8)
        link._connection.transport.resume_reading()
        await pair.edge.until(lambda: len(pair.edge.messages) == sent)
        pair.server.committed(9, 8)
        await pair.edge.until(lambda: pair.edge.messages[-1].header.op == 9)
        await link.close()

    run(path, story)


def test_requests_arrive_as_a_client_and_answers_come_back(path: Path) -> None:
    async def story(pair: Pair) -> None:
        link = pair.link(pair.edge, attach=True)
        await pair.edge.until(lambda: link.connected)
        body = b"r" * 700_000
        request = make(REQUEST, cluster=CLUSTER, shard=SHARD, body=body)
        assert link.send(link.signer.frame(request, body))
        assert link.ask(LOCAL_READ_ROOMS, "a list", op=3, aux=4)
        await pair.replica.until(lambda: len(pair.replica.messages) == 2)
        first, second = pair.replica.messages
        assert first.sender == SENDER_CLIENT and first.body == body
        assert (second.header.op, second.header.aux) == (3, 4)
        rooms = answer(second.header, LOCAL_ROOMS, op=9, body=b"rows")
        pair.replica.connections[0].send(pair.server.signer.frame(rooms, b"rows"))
        await pair.edge.until(lambda: len(pair.edge.messages) == 1)
        (heard,) = pair.edge.messages
        assert heard.body == b"rows" and link.asked(heard) == "a list"
        await link.close()

    run(path, story)


def test_answers_find_their_questions_in_whatever_order_they_come(path: Path) -> None:
    async def story(pair: Pair) -> None:
        link = pair.link(pair.edge, attach=True)
        await pair.edge.until(lambda: link.connected)
        for about in ("one", "two", "three"):
            assert link.ask(LOCAL_READ_ROOMS, about)
        await pair.replica.until(lambda: len(pair.replica.messages) == 3)
        asked = [message.header for message in pair.replica.messages]
        assert len({number_of(header) for header in asked}) == 3
        text = json.dumps(plain(replica_status(oldest_segment=1))).encode()
        status = told(LOCAL_STATUS, cluster=CLUSTER, shard=SHARD, body=text)
        say, frame = pair.replica.connections[0].send, pair.server.signer.frame
        for header in (asked[1], asked[2], asked[0]):
            say(frame(answer(header, LOCAL_ROOMS, body=b"x"), b"x"))
            say(frame(status, text))
        await pair.edge.until(lambda: len(pair.edge.messages) == 6)
        rooms = [m for m in pair.edge.messages if m.header.command == LOCAL_ROOMS]
        assert [link.asked(message) for message in rooms] == ["two", "three", "one"]
        assert link.connected and link.status_in(pair.edge.messages[1]) == replica_status(
            oldest_segment=1
        )
        assert link.asked(rooms[0]) is None, "it was answered before"
        await pair.edge.until(lambda: pair.edge.counters["closed_malformed"] == 1)
        await link.close()

    run(path, story)


def test_a_member_cannot_speak_through_the_local_socket(path: Path) -> None:
    async def story(pair: Pair) -> None:
        link = pair.link(pair.edge, attach=True)
        await pair.edge.until(lambda: link.connected)
        prepare = make(PREPARE, cluster=CLUSTER, shard=SHARD)
        link.send(link.signer.frame(prepare, b""))
        link.ask(LOCAL_READ_ROOMS)
        await pair.replica.until(lambda: len(pair.replica.messages) == 1)
        assert pair.replica.drops == {"sender": 1}
        await link.close()

    run(path, story)


def test_garbage_closes_the_connection_and_nothing_else(path: Path) -> None:
    async def story(pair: Pair) -> None:
        link = pair.link(pair.edge, attach=True)
        await pair.edge.until(lambda: link.connected)
        _, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"\x17" * 4096)
        await pair.replica.until(lambda: pair.replica.drops["magic"] == 1)
        assert pair.replica.counters["closed_broken_stream"] == 1
        writer.close()
        assert link.connected
        await link.close()

    run(path, story)


def test_attaching_late_is_refused(path: Path) -> None:
    async def story(pair: Pair) -> None:
        link = pair.link(pair.edge, attach=True)
        await pair.edge.until(lambda: link.connected)
        attach = make(0x40, cluster=CLUSTER, shard=SHARD)
        link.send(link.signer.frame(attach, b""))
        await pair.edge.until(lambda: pair.edge.detached == 1)
        assert pair.replica.counters["closed_attach_not_first"] == 1
        await pair.edge.until(lambda: len(pair.edge.told) == 2)  # and dials again
        await link.close()

    run(path, story)


def leave_behind(path: Path) -> None:
    """What a replica that was killed leaves at its socket's name."""
    path.touch()


def test_an_edge_attaches_anew_to_a_replica_that_was_restarted(path: Path) -> None:
    async def story(pair: Pair) -> None:
        link = pair.link(pair.edge, attach=True)
        await pair.edge.until(lambda: link.connected)
        await pair.server.close()
        await pair.edge.until(lambda: pair.edge.detached == 1)
        assert not link.connected and not link.ask(LOCAL_READ_ROOMS)
        leave_behind(path)
        pair.server = pair.new_server()
        await pair.server.start(path)
        await pair.edge.until(lambda: len(pair.edge.told) == 2)
        assert link.connected
        await link.close()

    run(path, story)


def test_a_link_opens_though_its_process_stands_still_past_the_time_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over when there is a connection, but before the task that dialled has heard."""
    time_ms, monotonic = 500, time.monotonic
    monkeypatch.setattr(local, "HANDSHAKE_MS_MAX", time_ms)

    class Still(Heard):
        def on_attached(self, link: LocalLink, *given: Any) -> None:
            end = monotonic() + 2 * time_ms / 1000
            while monotonic() < end:  # as a process that gets no processor
                pass
            super().on_attached(link, *given)

    async def story(pair: Pair) -> None:
        owner = Still()
        link = pair.link(owner, attach=True)
        await owner.until(lambda: bool(owner.told))
        await asyncio.sleep(0)  # whoever dialled hears of it, one way or another
        await asyncio.sleep(0)
        assert link.connected and link.ask(LOCAL_READ_ROOMS)
        await pair.replica.until(lambda: bool(pair.replica.messages))
        assert len(owner.told) == 1 and not owner.counters["dial_failed"]
        await link.close()

    run(path, story)


def test_a_socket_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    async def story() -> None:
        pair = Pair(tmp_path)
        with pytest.raises(ConfigurationError, match="cannot be made .* let this user write"):
            await pair.server.start(tmp_path / ("x" * 120))
        os.close(pair.ring_fd)

    uvloop.run(story())


# --- peer credentials -----------------------------------------------------------------------------

STRANGER = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
listener = socket.socket(socket.AF_UNIX); listener.bind("\\0" + sys.argv[1] + "-theirs")
listener.listen()
ours = socket.socket(socket.AF_UNIX); ours.connect("\\0" + sys.argv[1])
listener.accept()
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another user")
def test_processes_of_other_users_are_strangers_at_both_ends() -> None:
    name = f"tigerchat-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        child = subprocess.Popen([sys.executable, "-c", STRANGER, name])
        accepted, _ = listener.accept()
        with accepted, socket.socket(socket.AF_UNIX) as dialled:
            assert not peer_allowed(accepted)
            dialled.connect("\0" + name + "-theirs")
            assert not peer_allowed(dialled)
        assert child.wait(HUNG_S) == 0


def test_processes_of_the_same_user_are_no_strangers() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_allowed(ours)
