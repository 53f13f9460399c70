"""Replica processes as they run on nodes: a group that serves, and each way in which one stops."""

import asyncio
import contextlib
import random
import resource
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from appliance.formats import session
from appliance.formats.geometry import RECORD_SIZE, ROOM_ROW_SIZE, SMALL
from appliance.formats.local import LOCAL_READ_ROOMS, LOCAL_ROOMS
from appliance.formats.record import BODY, RECORD_STRUCT, SHARD_ROOM_ID
from appliance.formats.segment import RingView
from tests.patience import HUNG_S
from tests.roles.edge_site import until
from tests.roles.replica_group import EdgeLike, Group, peer_ports
from tests.system.local_site import WAITS_BRIEFLY, run

GARBAGE_COUNT, GARBAGE_COUNT_SOAK = 12_000, 100_000
GARBAGE_AT_ONCE = 8  # connections: neither end waits for the other
GARBAGE_WARM = 4_000  # connections after which memory is looked at first


@pytest.fixture
def ports() -> Iterator[int]:
    """A first port; those of all nodes are reserved while the test lasts."""
    with peer_ports(3) as first:
        yield first


@pytest.fixture
def group(disk_folder: Path, ports: int) -> Iterator[Group]:
    with Group(disk_folder, nodes=3, ports=ports) as made:
        yield made


@pytest.fixture
def lone(disk_folder: Path, ports: int) -> Iterator[Group]:
    with Group(disk_folder, nodes=1, ports=ports) as made:
        yield made


def test_a_group_acknowledges_and_every_replica_holds_the_same(group: Group) -> None:
    group.start_all()

    async def story() -> None:
        async with EdgeLike(group, home=0, seed=1) as edge:
            await edge.create_room()
            for _ in range(20):
                results = await edge.append(SMALL.records_max)
                assert {result[3] for result in results} == {session.OK}
            newest = 1 + 20 * SMALL.records_max
            assert results[-1][1] == newest
            while edge.committed < newest:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            read_ring(edge, newest)
            edge.local.ask(LOCAL_READ_ROOMS, body=bytes(16) + edge.room_id, aux=7)
            answer = await edge.answer()
            assert answer.header.command == LOCAL_ROOMS and answer.header.aux == 7
            assert answer.body[:ROOM_ROW_SIZE] == bytes(ROOM_ROW_SIZE)
            assert answer.body[ROOM_ROW_SIZE:][:16] == edge.room_id
            edge.local.ask(LOCAL_READ_ROOMS, op=0, aux=10)
            rows = (await edge.answer()).body
            rooms = [rows[at : at + 16] for at in range(0, len(rows), ROOM_ROW_SIZE)]
            assert rooms == [SHARD_ROOM_ID, edge.room_id]
            assert not edge.drops

    uvloop.run(story())
    newest = 1 + 20 * SMALL.records_max

    def is_whole(status: dict[str, Any]) -> bool:
        """It has all, and its links stand: those between backups may come after the last record."""
        return status["log_seq"] == newest and all(status["links"].values())

    statuses = [group.until(i, is_whole) for i in range(3)]
    assert sorted(status["role"] for status in statuses) == ["backup", "backup", "primary"]
    for status in statuses:
        assert not status["dropped"] and status["halted"] is None
        assert status["volume"]["journal"]["count"] > 20
        assert status["process"]["rss"] < 200_000_000
    received = sum(status["received"].get("prepare", 0) for status in statuses)
    assert received >= 2 * 21


def read_ring(edge: EdgeLike, newest: int) -> None:
    """The newest record lies in the shared ring, where its log_seq says."""
    assert edge.ring is not None
    view = RingView(edge.ring, SMALL)
    number, slot = divmod(newest - 1, SMALL.segment_records)
    copied = view.records(number, slot, 1)
    assert copied is not None and len(copied) == RECORD_SIZE
    assert RECORD_STRUCT.unpack(copied)[-1] == newest
    assert copied[BODY:].startswith(b"message %d" % newest)


def test_a_killed_primary_is_replaced_and_comes_back(group: Group) -> None:
    group.start_all()

    async def story() -> None:
        primary = group.primary()
        async with EdgeLike(group, home=(primary + 1) % 3, seed=2) as edge:
            await edge.create_room()
            await edge.append(3)
            view = group.until(primary, lambda s: s["status"] == "normal")["view"]
            group.kill(primary)
            results = await edge.append(2)
            assert {result[3] for result in results} == {session.OK}
            while not any(told["view"] > view for told in edge.told):  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # it tells, unasked
            group.start(primary)
            for _ in range(30):
                await edge.append(1)
            await asyncio.to_thread(
                group.until,
                primary,
                lambda s: (
                    s["log_seq"] >= 36
                    and s["status"] == "normal"
                    and s["commit_min"] == s["commit_max"]
                ),
            )

    uvloop.run(story())


def test_a_whole_group_that_was_killed_continues(group: Group) -> None:
    group.start_all()

    async def first() -> None:
        async with EdgeLike(group, home=1, seed=3) as edge:
            await edge.create_room()
            for _ in range(5):
                await edge.append(4)

    async def second() -> None:
        async with EdgeLike(group, home=2, seed=4) as edge:
            await edge.create_room()
            (result,) = await edge.append(1)
            assert result[1] == 23  # log_seq: nothing before was lost or doubled

    uvloop.run(first())
    for index in range(3):
        group.kill(index)
    group.start_all()
    uvloop.run(second())


# --- stopping -------------------------------------------------------------------------------------


def ended(group: Group, index: int, within: float = HUNG_S) -> tuple[int, list[str]]:
    """Exit code and lines of stderr of a process that ends by itself."""
    process = group.processes[index]
    assert process is not None
    _, errors = process.communicate(timeout=within)
    return process.returncode, errors.splitlines()


def test_sigterm_closes_cleanly(lone: Group) -> None:
    lone.start_all()
    process = lone.processes[0]
    assert process is not None
    process.send_signal(signal.SIGTERM)
    assert ended(lone, 0) == (0, [])
    assert not (lone.node(0) / "sockets" / "shard-0").exists()
    lone.start_all()  # the volume is free again


def test_a_primary_that_is_told_to_stop_lets_another_one_lead_first(group: Group) -> None:
    group.start_all()
    view = group.until(0, lambda s: s["status"] == "normal" and s["view"] > 0)["view"]
    primary = view % 3
    group.until(primary, lambda s: s["role"] == "primary" and all(s["links"].values()))
    others = [index for index in range(3) if index != primary]
    before = {
        index: group.until(index, lambda s: s["status"] == "normal" and s["view"] == view)
        for index in others
    }
    process = group.processes[primary]
    assert process is not None
    process.send_signal(signal.SIGTERM)
    assert ended(group, primary) == (0, [])
    group.until((view + 1) % 3, lambda s: s["role"] == "primary")
    for index in others:
        now = group.status(index)
        assert now is not None and now["view"] == view + 1 and now["status"] == "normal"
        lost = before[index]["marks"].get("heartbeat_lost", 0)
        assert now["marks"].get("heartbeat_lost", 0) == lost, "somebody had to miss it"


def test_a_second_process_on_one_volume_is_refused(lone: Group) -> None:
    lone.start_all()
    first = lone.processes[0]
    lone.start(0)
    code, lines = ended(lone, 0)
    second, lone.processes[0] = lone.processes[0], first
    assert second is not None and code == 1
    assert len(lines) == 1 and "works as this replica: stop that one first" in lines[0]
    assert lone.status(0) is not None


def test_a_taken_port_is_a_mistake_of_the_operator(lone: Group, ports: int) -> None:
    with socket.create_server(("127.0.0.1", ports)):
        lone.start(0)
        code, lines = ended(lone, 0)
    assert code == 2
    assert len(lines) == 1 and f"peer_port {ports}" in lines[0] and "site.toml" in lines[0]


def test_a_volume_without_superblock_halts_with_one_line(lone: Group) -> None:
    data = lone.node(0) / "shard-0" / "data"
    with open(data, "r+b") as file:
        file.write(b"\xff" * 256 * 1024)
    lone.start(0)
    code, lines = ended(lone, 0)
    assert code == 3
    assert len(lines) == 1 and lines[0].startswith("tigerchat: HALT SUPERBLOCK_MISSING")
    assert str(lone.node(0)) in lines[0] and "replica 0" in lines[0]


def test_a_copy_of_a_volume_is_not_opened_until_its_operator_says_that_it_was_moved(
    lone: Group,
) -> None:
    place, word = lone.node(0), ("recover", "--moved", "--node-folder", str(lone.node(0)))
    lone.start_all()
    refused = run(*word, constants=WAITS_BRIEFLY)
    assert refused.returncode == 1 and "works as this replica: stop that one" in refused.stderr
    lone.kill(0)
    refused = run(*word)
    assert refused.returncode == 2 and "nothing to say" in refused.stderr
    shutil.copytree(place / "shard-0", place / "copy")
    (place / "shard-0").rename(place / "former")
    (place / "copy").rename(place / "shard-0")
    for _ in range(2):  # as its supervisor tries again
        lone.start(0)
        code, lines = ended(lone, 0)
        assert code == 3 and len(lines) == 1
        assert lines[0].startswith(f"tigerchat: HALT VOLUME_COPIED at {place / 'shard-0'}")
        assert lines[0].endswith("say so: `tigerchat recover --moved`")
    said = run(*word)
    assert said.returncode == 0, said.stderr
    assert "the other one will never run again" in said.stdout
    lone.start_all()
    lone.kill(0)
    lone.start_all()  # it knows by itself now which file it is
    assert not list(place.glob("*.moved"))


def test_a_failed_write_halts_with_one_line(lone: Group) -> None:
    def limit_files() -> None:
        at = SMALL.wal_prepares_offset
        resource.setrlimit(resource.RLIMIT_FSIZE, (at, at))

    process = lone.start(0, before=limit_files)

    async def story() -> None:
        async with EdgeLike(lone, home=0, seed=5) as edge:
            asked = asyncio.create_task(edge.create_room())
            async with asyncio.timeout(HUNG_S):
                while process.poll() is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert not asked.done(), "nothing was acknowledged"
            asked.cancel()

    uvloop.run(story())
    code, lines = ended(lone, 0)
    assert code == 3
    assert len(lines) == 1 and lines[0].startswith("tigerchat: HALT STORAGE_WRITE")
    assert "File too large" in lines[0] and "check the disk" in lines[0]


def test_a_process_that_was_stopped_catches_up_one_tick_and_serves(lone: Group) -> None:
    lone.start_all()
    process = lone.processes[0]
    assert process is not None
    before = lone.until(0, lambda s: s["status"] == "normal")
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    after = lone.until(0, lambda s: s["ticks_late"] > before["ticks_late"])
    assert after["status"] == "normal" and after["view"] == before["view"]


# --- strangers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "count", [GARBAGE_COUNT, pytest.param(GARBAGE_COUNT_SOAK, marks=pytest.mark.soak)]
)
def test_random_bytes_at_the_peer_port_cost_nothing(
    lone: Group, ports: int, seed: int, count: int
) -> None:
    lone.start_all()
    process = lone.processes[0]
    assert process is not None
    memory = psutil.Process(process.pid).memory_info
    chances = [random.Random(seed + thrower) for thrower in range(GARBAGE_AT_ONCE)]
    with ThreadPoolExecutor(GARBAGE_AT_ONCE) as throwers:

        def throw_all(number: int) -> None:
            share = number // GARBAGE_AT_ONCE
            list(throwers.map(lambda chance: throw(ports, chance, share), chances))

        throw_all(GARBAGE_WARM)
        before = memory().rss
        throw_all(count - GARBAGE_WARM)
    until(lambda: memory().rss < before * 1.1, "what they took is given back")
    status = lone.until(0, lambda s: s["connections"] == 0)
    events = status["connection_events"]
    assert events["accepted"] == count
    assert sum(n for name, n in events.items() if name.startswith("closed_")) == count
    assert set(events) <= {"accepted", "closed_handshake", "closed_handshake_end", "closed_lost"}
    assert not status["dropped"]  # no byte of a stranger came as far as the checks
    assert status["status"] == "normal" and status["process"]["files"] < 60

    async def still_serves() -> None:
        async with EdgeLike(lone, home=0, seed=6) as edge:
            await edge.create_room()

    uvloop.run(still_serves())


def throw(port: int, chance: random.Random, count: int) -> None:
    """So many connections, one after the other, with some random bytes each; the other end must
    close them."""
    for _ in range(count):
        with socket.socket() as stranger:
            stranger.connect(("127.0.0.1", port))
            stranger.sendall(chance.randbytes(chance.randrange(1, 200)))
            with contextlib.suppress(OSError):  # closed with a reset, which is as good
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):
                    pass
