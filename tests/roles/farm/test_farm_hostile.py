"""Strangers, wrong passwords, and peers that say what nobody may say: refused, counted by name."""

import asyncio
import contextlib
import os
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest

from appliance.base.limits import (
    FARM_CONNECTIONS_PER_USER_MAX,
    FARM_ENTRIES_MAX,
    FARM_SERVERS_MAX,
    FARM_STRANGERS_PER_ADDRESS_MAX,
    MIB,
)
from appliance.base.prng import Prng
from appliance.cores.raft.login import Doorway, ServerLogin, path_of
from appliance.drivers.network.farm_stream import Stream
from appliance.formats.raft_legacy.configuration import Server, encode_server
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    APPEND_ENTRIES,
    APPLICATION,
    CLIENT_REQUEST,
    CLUSTER_SERVER,
    CONFIGURATION,
    INSTALL_SNAPSHOT,
    JOIN_CLUSTER,
    LEAVE_CLUSTER,
    LOG_PACK,
    REMOVE_SERVER,
    REQUEST_VOTE,
    SNAPSHOT_SYNC,
    SYNC_LOG,
    Entry,
    Request,
    encode_request,
)
from appliance.roles.farm import listener as listening
from appliance.roles.farm.settings import RAW
from tests.roles.farm.inside import Inside, ask, closed, inside, until

PATH = path_of("farm")
STRINGS, STRINGS_SOAK = 5_000, 50_000
STRING_KEPT_MAX = 42  # bytes of memory that a string may leave on an average


def go(folder: Path, port: int, story, **options: Any) -> None:
    async def run() -> None:
        async with inside(folder, port, **options) as farm:
            await story(farm)
            await farm.lives()

    asyncio.run(run())


def head(kind=APPEND_ENTRIES, source=2, destination=1, numbers=(1, 0, 0, 0), size=0) -> bytes:
    return struct.pack(">Biiqqqqi", kind, source, destination, *numbers, size)


# What a member that is logged in says: (bytes, the word under which it is counted).
FRAMES = {
    "2 GiB announced": (head(size=(1 << 31) - 1), "size_too_large"),
    "one byte too many announced": (head(size=16 * MIB + 1), "size_too_large"),
    "negative size": (head(size=-1), "size_negative"),
    "most negative size": (head(size=-(1 << 31)), "size_negative"),
    "negative size of a value": (head(size=13) + struct.pack(">qBi", 1, 1, -1), "size_negative"),
    "value past the entries": (head(size=13) + struct.pack(">qBi", 1, 1, 99), "entry_remainder"),
    "remainder": (head(size=5) + b"12345", "entry_remainder"),
    "too many entries": (
        head(size=13 * (FARM_ENTRIES_MAX + 1)) + bytes(13) * (FARM_ENTRIES_MAX + 1),
        "entries_too_many",
    ),
    "vote response as request": (head(2), "response_as_request"),
    "append response as request": (head(4), "response_as_request"),
    "install response as request": (head(17), "response_as_request"),
    "pre-vote response as request": (head(34), "response_as_request"),
    "type 0": (head(0), "type_unknown"),
    "type 18": (head(18), "type_unknown"),
    "type 255": (head(255), "type_unknown"),
    "negative source": (head(source=-1), "id_invalid"),
    "negative destination": (head(destination=-7), "id_invalid"),
    "negative term": (head(numbers=(-1, 0, 0, 0)), "index_out_of_range"),
    "term at the sign": (head(numbers=((1 << 63) - 1, 0, 0, 0)), "index_out_of_range"),
    "negative index": (head(numbers=(1, 1, -1, 0)), "index_out_of_range"),
    "term jump in an append": (head(numbers=(1 << 41, 0, 0, 0)), "term_jump"),
    "term jump in a vote": (head(REQUEST_VOTE, numbers=(1 << 50, 0, 0, 0)), "term_jump"),
    "for another destination": (head(destination=3), "destination_wrong"),
    "for nobody": (head(destination=0), "destination_wrong"),
    "of another member": (head(source=3), "source_not_own"),
    "of the member itself": (head(source=1), "source_not_own"),
    "of no server": (head(source=0), "source_not_own"),
    "client request of another id": (head(CLIENT_REQUEST, source=7), "source_not_own"),
    "value type 3 in an append": (
        encode_request(Request(APPEND_ENTRIES, 2, 1, 99, entries=(Entry(9, 3, b""),))),
        "value_type_in_log",
    ),
    "value type 77 in an append": (
        encode_request(Request(APPEND_ENTRIES, 2, 1, 99, entries=(Entry(9, 77, b""),))),
        "value_type_in_log",
    ),
    "broken configuration": (
        encode_request(Request(APPEND_ENTRIES, 2, 1, 99, entries=(Entry(9, 2, b"x"),))),
        "configuration_malformed",
    ),
    "value of a leader too large": (
        encode_request(Request(APPEND_ENTRIES, 2, 1, 99, entries=(Entry(9, 1, bytes(MIB + 1)),))),
        "value_too_large",
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_member_that_sends_such_a_frame_is_hung_up_on_and_counted(
    tmp_path: Path, free_port: int, name: str
) -> None:
    data, reason = FRAMES[name]

    async def story(farm: Inside) -> None:
        async with farm.visit("node2") as stream:
            stream[1].write(data)
            assert await closed(stream) == b""
            await farm.counted(reason)
        status = farm.member.node.status()
        assert (status.role, status.last) == ("leader", 1)

    go(tmp_path, free_port, story)


def gzip_bomb() -> bytes:
    packer = zlib.compressobj(wbits=31)
    zeros = packer.compress(struct.pack(">iiq", 8, 9, 0))
    return zeros + packer.compress(bytes(200 * MIB)) + packer.flush()


# What is answered no, by name: (request, whom it comes from, the word).
NOES = {
    "stranger's JoinCluster": (
        Request(JOIN_CLUSTER, 2, 1, 9, entries=(Entry(1, CONFIGURATION, bytes(16)),)),
        "node2",
        "join_uninvited",
    ),
    "JoinCluster without a configuration": (
        Request(JOIN_CLUSTER, 2, 1, 9),
        "node2",
        "join_malformed",
    ),
    "SyncLog to a member": (
        Request(SYNC_LOG, 2, 1, 9, entries=(Entry(1, LOG_PACK, gzip_bomb()),)),
        "node2",
        "sync_uninvited",
    ),
    "snapshot block that is none": (
        Request(INSTALL_SNAPSHOT, 2, 1, 9, entries=(Entry(1, SNAPSHOT_SYNC, b"x"),)),
        "node2",
        "block_malformed",
    ),
    "AddServer without a server": (Request(ADD_SERVER), "admin", "change_malformed"),
    "AddServer with an underscore": (
        Request(ADD_SERVER, entries=(Entry(0, 3, encode_server(Server(4, "tcp://a_b:1"))),)),
        "admin",
        "change_malformed",
    ),
    "AddServer of the leader": (
        Request(ADD_SERVER, entries=(Entry(0, 3, encode_server(Server(1, "tcp://a:1"))),)),
        "admin",
        "change_server_listed",
    ),
    "RemoveServer of the leader": (
        Request(REMOVE_SERVER, entries=(Entry(0, CLUSTER_SERVER, bytes([0, 0, 0, 1])),)),
        "admin",
        "change_of_leader",
    ),
    "RemoveServer of nobody": (
        Request(REMOVE_SERVER, entries=(Entry(0, CLUSTER_SERVER, bytes([0, 0, 0, 9])),)),
        "admin",
        "change_server_unknown",
    ),
    "RemoveServer of five bytes": (
        Request(REMOVE_SERVER, entries=(Entry(0, CLUSTER_SERVER, bytes(5)),)),
        "admin",
        "change_malformed",
    ),
    "a configuration posted by a client": (
        Request(CLIENT_REQUEST, entries=(Entry(0, CONFIGURATION, bytes(16)),)),
        "poster",
        "client_value_type",
    ),
    "a value of a client too large": (
        Request(CLIENT_REQUEST, entries=(Entry(0, APPLICATION, bytes(MIB + 1)),)),
        "poster",
        "client_value_too_large",
    ),
    "a status of another node": (
        Request(CLIENT_REQUEST, entries=(Entry(0, APPLICATION, b'{"id":1,"date":1}'),)),
        "node2",
        "poster_not_id",
    ),
}


@pytest.mark.parametrize("name", NOES)
def test_such_a_request_is_answered_no_and_counted(
    tmp_path: Path, free_port: int, name: str
) -> None:
    request, who, reason = NOES[name]

    async def story(farm: Inside) -> None:
        async with farm.visit(who) as stream:
            answer = await ask(stream, request)
            assert not answer.accepted
            assert farm.count(reason) == 1

    go(tmp_path, free_port, story)


@pytest.mark.parametrize(
    ("who", "kind"),
    [
        *(("poster", kind) for kind in (1, 3, 6, 8, 10, 12, 14, 16, 33)),
        *(("admin", kind) for kind in (1, 3, 10, 12, 14, 16, 33)),
    ],
)
def test_a_user_of_another_class_is_hung_up_on(
    tmp_path: Path, free_port: int, who: str, kind: int
) -> None:
    async def story(farm: Inside) -> None:
        async with farm.visit(who) as stream:
            stream[1].write(head(kind, source=1))
            assert await closed(stream) == b""
            await farm.counted("type_not_allowed")

    go(tmp_path, free_port, story)


def test_what_is_said_before_the_login_is_no_frame(tmp_path: Path, free_port: int) -> None:
    async def story(farm: Inside) -> None:
        for data in (head(), encode_request(Request(CLIENT_REQUEST)) + b"\r\n\r\n"):
            stream = await farm.stream()
            stream[1].write(data)
            stream[1].write_eof()
            answer = await closed(stream)
            assert not answer.startswith(b"HTTP/1.1 101"), answer  # a nonce may hold "101"
            stream[1].close()

    go(tmp_path, free_port, story)


def test_a_slow_head_is_cut_off(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "FARM_HANDSHAKE_MS_MAX", 300)

    async def story(farm: Inside) -> None:
        stream = await farm.stream()
        stream[1].write(b"GET / HTTP/1.1\r\n")
        assert await closed(stream) == b""
        await farm.counted("handshake_late")

    go(tmp_path, free_port, story)


def test_too_many_strangers_are_turned_away_and_those_inside_stay(
    tmp_path: Path, free_port: int
) -> None:
    async def story(farm: Inside) -> None:
        async with farm.visit("node2") as stream:
            strangers = [await farm.stream() for _ in range(FARM_STRANGERS_PER_ADDRESS_MAX)]
            await until(lambda: farm.door.strangers.total() == FARM_STRANGERS_PER_ADDRESS_MAX)
            one_more = await farm.stream()
            assert await closed(one_more) == b""
            await farm.counted("strangers_too_many_of_address")
            answer = await ask(stream, Request(CLIENT_REQUEST))
            assert answer.accepted
            for stranger in strangers:
                stranger[1].close()
            await until(lambda: not farm.door.strangers.total())

    go(tmp_path, free_port, story)


def test_the_65th_stranger_of_all_is_turned_away(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "FARM_STRANGERS_PER_ADDRESS_MAX", 1000)

    async def story(farm: Inside) -> None:
        strangers = [await farm.stream() for _ in range(64)]
        await until(lambda: farm.door.strangers.total() == 64)
        assert await closed(await farm.stream()) == b""
        await farm.counted("strangers_too_many")
        for stranger in strangers:
            stranger[1].close()
        await until(lambda: not farm.door.strangers.total())

    go(tmp_path, free_port, story)


def test_the_ninth_connection_of_a_user_closes_its_oldest_idle_one(
    tmp_path: Path, free_port: int
) -> None:
    async def story(farm: Inside) -> None:
        async with contextlib.AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(farm.visit("poster"))
                for _ in range(FARM_CONNECTIONS_PER_USER_MAX)
            ]
            for stream in streams[1:]:
                assert (await ask(stream, Request(CLIENT_REQUEST))).accepted
            ninth = await stack.enter_async_context(farm.visit("poster"))
            assert (await ask(ninth, Request(CLIENT_REQUEST))).accepted
            assert await closed(streams[0]) == b""
            await farm.counted("idle_closed_for_another")

    go(tmp_path, free_port, story)


def test_no_stranger_closes_a_members_connection_where_nobody_logs_in(
    tmp_path: Path, free_port: int
) -> None:
    """Without a login all are one user: who said nothing yet gives way, and then who posts."""

    async def story(farm: Inside) -> None:
        async with contextlib.AsyncExitStack() as stack:

            async def connected() -> Stream:
                stream = await farm.stream()
                stack.callback(stream[1].close)
                own = stream[1].get_extra_info("sockname")
                await until(lambda: own in farm.raw_addresses())
                return stream

            member = await connected()
            vote = Request(REQUEST_VOTE, 2, 1, 0)
            assert not (await ask(member, vote)).accepted
            poster = await connected()
            assert (await ask(poster, Request(CLIENT_REQUEST))).accepted
            silent = [await connected() for _ in range(FARM_CONNECTIONS_PER_USER_MAX - 1)]
            assert farm.count("idle_closed_for_another") == 0, "a member's is not counted"
            there = farm.door.visitors["raw"]
            for number, stream in enumerate(silent):
                await connected()
                assert sum(v.said and not v.closed for v in there) == 2, "the silent come first"
                assert await closed(stream) == b""
                await farm.counted("idle_closed_for_another", number + 1)
            assert (await ask(poster, Request(CLIENT_REQUEST))).accepted
            for _ in range(FARM_CONNECTIONS_PER_USER_MAX):
                assert (await ask(await connected(), Request(CLIENT_REQUEST))).accepted
            assert sum(v.of_member and not v.closed for v in there) == 1
            assert await closed(poster) == b""
            assert not (await ask(member, vote)).accepted, "a member's connection stays"

            for visitor in there:
                if not visitor.of_member:
                    visitor.close()
            assert not farm.door._make_room(there), "what is closing makes room once"
            for _ in range(FARM_SERVERS_MAX):
                assert not (await ask(await connected(), vote)).accepted
            assert sum(visitor.of_member for visitor in there) == FARM_SERVERS_MAX

    go(tmp_path, free_port, story, carrier=RAW)


def test_a_leave_cluster_from_no_leader_makes_nobody_leave(tmp_path: Path, free_port: int) -> None:
    async def story(farm: Inside) -> None:
        async with farm.visit("node2") as stream:
            answer = await ask(stream, Request(LEAVE_CLUSTER, 2, 1, 0))
            assert not answer.accepted

    go(tmp_path, free_port, story)


def test_two_farms_on_one_listener_share_nothing(tmp_path: Path, free_port: int) -> None:
    async def run() -> None:
        async with inside(tmp_path, free_port, "north", "south") as farm:
            north, south = farm.members["north"], farm.members["south"]
            async with farm.visit("gateway", "north") as stream:
                value = b'{"cluster":"north","date":5,"id":9}'
                entry = Entry(0, APPLICATION, value)
                assert (await ask(stream, Request(CLIENT_REQUEST, entries=(entry,)))).accepted
            assert north.directory.documents[9].value == value
            assert south.directory.documents == {}
            assert south.node.status().last == 1
            assert set(os.listdir(tmp_path)) == {"north", "south"}

    asyncio.run(run())


@pytest.mark.parametrize("count", [STRINGS, pytest.param(STRINGS_SOAK, marks=pytest.mark.soak)])
def test_random_strings_before_the_login_change_nothing(
    tmp_path: Path, free_port: int, seed: int, count: int
) -> None:
    """By the login's own code; those after it are another test's."""
    prng = Prng(seed)

    async def story(farm: Inside) -> None:
        doorway: Doorway = farm.door.doorway
        real = (PATH.encode(), b"GET ", b" HTTP/1.1\r\n", b"Authorization: Digest ", b"\r\n\r\n")

        def before() -> None:
            login = ServerLogin(doorway, "10.0.0.1", prng.bytes)
            parts = [prng.choice(real) if prng.chance(1, 2) else prng.bytes(prng.below(60))]
            parts += [prng.choice(real) for _ in range(prng.below(4))]
            result = login.on_bytes(b"".join(parts), 1)
            assert result is None or result.login is None

        warm = count // 25
        for _ in range(warm):
            before()
        tracemalloc.start()
        first = tracemalloc.get_traced_memory()[0]
        for number in range(count - warm):
            before()
            if number % 500 == 0:
                await asyncio.sleep(0)
        assert tracemalloc.get_traced_memory()[0] - first < count * STRING_KEPT_MAX
        tracemalloc.stop()
        status = farm.member.node.status()
        assert (status.role, status.last) == ("leader", 1)

    go(tmp_path, free_port, story)
