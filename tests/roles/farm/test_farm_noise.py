"""100,000 strings of users who have logged in: mutated frames, and noise.

What claims to be the word of a leader in the member's own term or a later one is none of them: a
member of the farm that says so is believed, as everywhere in Raft.
"""

import asyncio
import contextlib
import struct
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.errors import FarmFrameError
from appliance.base.limits import FARM_ENTRIES_SIZE_MAX, MIB
from appliance.base.prng import Prng
from appliance.drivers.network.farm_stream import Stream
from appliance.formats.raft_legacy.configuration import decode_server, server_checked
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    ANSWER_OF,
    APPEND_ENTRIES,
    CLIENT_REQUEST,
    CONFIGURATION,
    ENTRY_SIZE,
    INSTALL_SNAPSHOT,
    JOIN_CLUSTER,
    PRE_VOTE,
    REMOVE_SERVER,
    REQUEST_SIZE,
    RESPONSE_SIZE,
    SYNC_LOG,
    Entry,
    Request,
    decode_request,
    decode_response,
    encode_request,
)
from tests.formats.raft_legacy.vectors import vectors
from tests.patience import HUNG_S
from tests.roles.farm.inside import Inside, ask, closed, inside, until

STRINGS, STRINGS_SOAK = 600, 100_000
USERS = ("node2", "node2", "gateway", "admin", "poster")
ASKED_BY_ANYBODY = (CLIENT_REQUEST, ADD_SERVER, REMOVE_SERVER)
MAY = {"poster": (CLIENT_REQUEST,), "admin": ASKED_BY_ANYBODY}  # others: everything
OF_LEADERS = (APPEND_ENTRIES, INSTALL_SNAPSHOT)
NEVER_YES = {*OF_LEADERS, JOIN_CLUSTER, SYNC_LOG, ADD_SERVER, REMOVE_SERVER}
TERM, SOURCE = 9, 1  # where they stand in a frame
SERVER_ID = REQUEST_SIZE + ENTRY_SIZE  # in an AddServer


def bases() -> list[bytes]:
    """Frames that are in order: the recorded ones, as said by member 2 to member 1, and posts."""
    found = [data[:1] + struct.pack(">ii", 2, 1) + data[9:] for _, data in vectors("request")]
    for value in (
        b'{"cluster":"farm","date":5,"id":2,"meta":{"publishConfig":"on"}}',
        b'{"cluster":"farm","config":{"exclude":["x"]},"date":7,"id":1}',
        b'{"hello":1}',
    ):
        found.append(encode_request(Request(CLIENT_REQUEST, entries=(Entry(0, 1, value),))))
    found.append(encode_request(Request(PRE_VOTE, 2, 1, 3, 1, 9)))
    return found


def frames(text: bytes) -> Iterator[tuple[int, int]]:
    """Where the complete frames in it begin and end, by the sizes that stand in it alone."""
    begin = 0
    while len(text) - begin >= REQUEST_SIZE:
        (size,) = struct.unpack_from(">i", text, begin + REQUEST_SIZE - 4)
        if not 0 <= size <= min(FARM_ENTRIES_SIZE_MAX, len(text) - begin - REQUEST_SIZE):
            return
        yield begin, begin + REQUEST_SIZE + size
        begin += REQUEST_SIZE + size


def tamed(text: bytes) -> bytes:
    """Without leaders' words of a term that counts, and without servers that would be dialled."""
    made = bytearray(text)
    for begin, end in frames(text):
        if made[begin] in OF_LEADERS:
            made[begin + TERM : begin + TERM + 8] = bytes(8)
        if made[begin] == ADD_SERVER:
            with contextlib.suppress(FarmFrameError, ValueError):
                (entry,) = decode_request(text[begin:end]).entries
                server_checked(*decode_server(entry.value))
                made[begin + SERVER_ID : begin + SERVER_ID + 4] = struct.pack(">i", 1)
    return bytes(made)


def mutated(prng: Prng, frame: bytes) -> bytes:
    """A frame with bytes or bits changed, cut, stretched, or with a number at one of its bounds."""
    made = bytearray(frame)
    for _ in range(prng.between(1, 2)):
        place = prng.below(max(1, len(made)))
        kind = prng.below(7)
        if kind == 0:
            made[place : place + 1] = prng.bytes(1)
        elif kind == 1 and made:
            made[min(place, len(made) - 1)] ^= 1 << prng.below(8)
        elif kind == 2:
            del made[place:]
        elif kind == 3:
            del made[place : place + prng.between(1, 8)]
        elif kind == 4:
            made[place:place] = prng.bytes(prng.between(1, 8))
        elif kind == 5 and len(made) >= REQUEST_SIZE:
            at = prng.choice((1, 5, 9, 17, 25, 33))
            number = prng.choice((0, 1, 2, (1 << 31) - 1, 1 << 31, (1 << 62) + 1, (1 << 64) - 1))
            wide = struct.pack(">Q", number)
            made[at : at + (4 if at < TERM else 8)] = wide[-4:] if at < TERM else wide
        elif len(made) >= REQUEST_SIZE:
            size = prng.choice((0, 1, 12, 13, 100, 1 << 20, (1 << 24) + 1, (1 << 31) - 1, 1 << 31))
            made[REQUEST_SIZE - 4 : REQUEST_SIZE] = struct.pack(">I", size)
    return bytes(made)


class Speaker:
    """Says one string after the other as some user, and sees what becomes of each."""

    def __init__(self, farm: Inside, prng: Prng) -> None:
        self.farm, self.prng = farm, prng
        self.bases = bases()
        self.fates: Counter[str] = Counter()
        self.taken: list[bytes] = []  # values that were answered yes

    def text(self) -> bytes:
        if self.prng.chance(1, 4):
            kind = self.prng.choice((*ANSWER_OF, self.prng.below(256)))
            return tamed(bytes([kind]) + self.prng.bytes(self.prng.between(0, 150)))
        return tamed(mutated(self.prng, self.prng.choice(self.bases)))

    def refused(self) -> int:
        member = self.farm.member
        return self.farm.door.counts.total() + member.counts.total()

    async def visit(self, strings: int) -> int:
        """Say so many on one connection, or as many as it takes; how many that were."""
        user = self.prng.choice(USERS)
        async with asyncio.timeout(HUNG_S), self.farm.visit(user) as stream:
            for said in range(1, strings + 1):
                if not await self.say(user, stream, self.text()):
                    return said
        return strings

    async def say(self, user: str, stream: Stream, text: bytes) -> bool:
        """Whether the connection goes on behind it."""
        before, end = self.refused(), 0
        stream[1].write(text)
        for begin, end in frames(text):
            try:
                data = await stream[0].readexactly(RESPONSE_SIZE)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                assert not getattr(error, "partial", b"")
                assert self.refused() > before, "it was hung up on without a word in the counts"
                self.fates["hung up"] += 1
                return False
            self.check(user, text[begin:end], data)
        if end == len(text):
            return True
        with contextlib.suppress(OSError):
            stream[1].write_eof()
        assert await closed(stream) == b"", "what is no whole frame is not answered"
        self.fates["hung up" if self.refused() > before else "waited for more"] += 1
        return False

    def check(self, user: str, frame: bytes, data: bytes) -> None:
        request, answer = decode_request(frame), decode_response(data)
        assert request.type in MAY.get(user, ANSWER_OF)
        if user != "gateway":
            own = 2 if user == "node2" else 0
            assert request.source in ((0, own) if request.type in ASKED_BY_ANYBODY else (own,))
        assert answer.type == ANSWER_OF[request.type]
        assert answer.source == 1
        assert not (answer.accepted and request.type in NEVER_YES), request
        self.fates[f"{'yes' if answer.accepted else 'no'} to {request.type}"] += 1
        if answer.accepted and request.type == CLIENT_REQUEST:
            self.taken += [entry.value for entry in request.entries]


def in_the_log(farm: Inside) -> list[bytes]:
    """Values that somebody posted, of the entries that are not compacted."""
    log = farm.member.node.member.log
    entries = log.take(log.before + 1, log.last)
    assert [entry.type for entry in entries].count(CONFIGURATION) == (0 if log.before else 1)
    values = [entry.value for entry in entries if entry.type != CONFIGURATION]
    return [value for value in values if value != b"{}" and b'"appended"' not in value]


@pytest.mark.parametrize("count", [STRINGS, pytest.param(STRINGS_SOAK, marks=pytest.mark.soak)])
def test_each_string_after_the_login_is_answered_or_ends_its_own_connection(
    tmp_path: Path, free_port: int, seed: int, count: int
) -> None:
    async def run() -> None:
        async with inside(tmp_path, free_port) as farm, farm.visit("poster") as other:
            speaker, said = Speaker(farm, Prng(seed)), 0
            while said < count // 5:
                said += await speaker.visit(20)
            tracemalloc.start()
            first = tracemalloc.get_traced_memory()[0]
            while said < count:
                said += await speaker.visit(20)
                async with asyncio.timeout(HUNG_S):
                    await ask(other, Request(CLIENT_REQUEST))
            grown = tracemalloc.get_traced_memory()[0] - first
            tracemalloc.stop()
            assert grown < 2 * MIB + 1024 * len(speaker.taken)
            await until(lambda: len(farm.door.tasks) == 1)
            member = farm.member
            assert [v.writer.is_closing() for v in farm.door.visitors["poster"]] == [False]
            assert not member.tokens and not member.acts and not member.node.member.pending
            assert len(farm.door.counts) + len(member.counts) < 100
            posted = in_the_log(farm)
            assert posted == speaker.taken[len(speaker.taken) - len(posted) :]
            assert posted, "some are valid all the same"
            fates = speaker.fates
            assert min(fates[fate] for fate in ("hung up", "waited for more", "no to 3")) > 0
            await farm.lives()

    asyncio.run(run())
