"""What is restored from real volumes and shipped files of a site, and what is refused."""

import asyncio
import json
import os
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from appliance.__main__ import main
from appliance.base.layout import offset_of
from appliance.cores.shipping.plan import Part
from appliance.cores.shipping.render import render
from appliance.drivers.host import process
from appliance.drivers.host.node_folder import (
    SOCKETS_FOLDER,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    NodeFolder,
    open_node,
)
from appliance.formats import manifest as mf
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND, OPERATION_NOOP
from appliance.formats.event import encode_retain
from appliance.formats.geometry import RECORD_SIZE, SMALL
from appliance.formats.record import RECORD
from appliance.formats.session import OK, RESULT_STRUCT
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from appliance.formats.site import SITE_FILE, load_site
from appliance.roles.operator.restoring import ShardRestore
from appliance.roles.operator.session import OperatorSession
from appliance.roles.operator.volume_source import VolumeSource
from tests.patience import HUNG_S
from tests.removal import folder_on_disk
from tests.roles.conftest import MakeSite
from tests.roles.replica_group import peer_ports
from tests.roles.wired_site import UNLIMITED, WiredSite, process_kept, until

MESSAGES = 150
WORDS = ("--nodes", "1", "--no-farm", "--no-objects", "--brief", "--geometry", "small")
Told = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def written_site() -> Iterator[WiredSite]:
    """One node that has two rooms with messages by turns, and has ended."""
    with folder_on_disk() as folder, peer_ports(1) as ports:
        with pytest.MonkeyPatch.context() as monkeypatch, process_kept(monkeypatch):
            made = WiredSite(folder, nodes=1, ports=ports, **UNLIMITED)
            made.run(written)
        yield made


@pytest.fixture
def site(
    written_site: WiredSite, disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WiredSite]:
    """A copy of it, whose volumes a test may break."""
    folder = disk_folder / "site"
    shutil.copytree(written_site.folder, folder, ignore=shutil.ignore_patterns(SOCKETS_FOLDER))
    with process_kept(monkeypatch):
        yield site_in(folder)


def site_in(folder: Path) -> WiredSite:
    """That of one node, which is there."""
    made = WiredSite.__new__(WiredSite)
    made.folder, made.count, made.replicas, made._serving = folder, 1, {}, []
    return made


async def written(site: WiredSite) -> None:
    role = await site.start_replica(0)
    await site.start_edge(0)
    await until(lambda: role.status().status == "normal")
    async with site.client(0) as client:
        rooms = [(await client.create_room(name)).room_id for name in ("one", "two")]
        for number in range(MESSAGES):
            await asyncio.gather(*[await client.post(room, f"{number}") for room in rooms])


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """`told(source, ..., to=folder)`: exit code, and what was said."""

    def run(*sources: Path, to: Path, words: tuple[str, ...] = ()) -> tuple[int, str]:
        given = [word for source in sources for word in ("--from", str(source))]
        code = main(["restore", *given, "--local", str(to), *WORDS, *words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def serve(folder: Path, rooms: dict[str, int]) -> None:
    """Roles in the place of a node's processes serve what was restored: each of these rooms goes on
    behind that op, and all before it can be read."""

    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await site.start_edge(0)
        await until(lambda: role.status().status == "normal")
        async with site.client(0) as client:
            for name, last_op in rooms.items():
                room = (await client.create_room(name)).room_id  # it is there already
                page = await client.snapshot(room, until_op=last_op, limit=5, backward=True)
                assert max(message.op for message in page.messages) == last_op
                assert (await client.send(room, "and on")).op == last_op + 1

    made = site_in(folder)
    text = encode_settings(0, client_tls=False)
    (made.node(0) / SETTINGS_FILE).write_text(text)
    process._stop_calls.clear()  # of the roles that wrote
    made.run(story)


def volume_of(site: Path) -> Path:
    return site / "node-0" / "shard-0"


def log_of(volume: Path, dropped: int = 0) -> bytes:
    """All records that a volume's checkpoint holds, behind those that were dropped; whole."""
    source, records = VolumeSource(volume), b""
    try:
        while span := source.span(dropped + len(records) // RECORD_SIZE + 1):
            assert not span.doubtful
            records += bytes(span.records)
    finally:
        source.reader.close()
    assert not source.findings
    return records


def same_ports(site: WiredSite) -> tuple[str, str]:
    """Of the new site, as those are kept for this test."""
    return "--ports", str(load_site(site.folder / SITE_FILE).nodes[0].peer_port)


def flip(path: Path, offset: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 16
    path.write_bytes(raw)


def rooms_in(said: str) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {str(row["room"]): row for row in rows if row["kind"] == "room"}


def shipped(site: WiredSite, folder: Path, records: bytes, parts: list[Part]) -> str:
    """These records as the site's node would have shipped them, a file a part and one period."""
    node = open_node(site.node(0))
    key = node.signing_key
    place = mf.shard_folder(node.site.cluster, 0)
    start_us = 1_750_000_000 * mf.SECOND_US
    period = folder / place / mf.period_folder(start_us)
    period.mkdir(parents=True)
    files = []
    for part in parts:
        first, last = (part.first_log_seq - 1) * RECORD_SIZE, part.last_log_seq * RECORD_SIZE
        rendered = render(part, records[first:last], key)
        (period / rendered.file.name).write_bytes(rendered.data)
        files.append(rendered.file)
    manifest = mf.PeriodManifest(
        node.site.cluster, 0, 0, mf.NO_MANIFEST, start_us, 3600 * mf.SECOND_US,
        parts[0].first_log_seq,
        parts[-1].last_log_seq, tuple(files),
    )  # fmt: skip
    (period / mf.manifest_name(start_us)).write_bytes(mf.sign_manifest(manifest, key))
    head = mf.ShippedHead(
        node.site.cluster, 0, 0, mf.manifest_hash(manifest), start_us, 3600 * mf.SECOND_US,
        parts[-1].last_log_seq,
    )  # fmt: skip
    (folder / place / mf.HEAD_FILE).write_bytes(mf.sign_head(head, key))
    return files[0].name


@pytest.mark.parametrize(
    "words",
    [
        ("--nodes", "3"),
        ("--accept-two-replicas",),
        ("--ports", "7400"),
        ("--segments-max", "64"),
        ("--no-objects",),
        ("--farm",),
    ],
)
def test_what_says_how_a_site_is_made_is_refused_for_one_node_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    place = ("--from", str(tmp_path), "--node-folder", str(tmp_path))
    assert main(["restore", *place, *words]) == 2
    said = capsys.readouterr().err
    assert "is of a site that --local makes" in said and "the files in F say" in said


def test_a_volume_and_what_was_shipped_of_it_give_the_same_bytes(
    site: WiredSite, told: Told, tmp_path: Path, disk_folder: Path
) -> None:
    old = log_of(volume_of(site.folder))
    count = len(old) // RECORD_SIZE
    assert count >= 2 * SMALL.segment_records
    code, said = told(volume_of(site.folder), to=disk_folder / "new")
    assert code == 0, said
    assert f"one: goes on after op {MESSAGES + 1}\n" in said
    assert f"two: goes on after op {MESSAGES + 1}\n" in said
    again = log_of(volume_of(disk_folder / "new"))
    assert again[: len(old)] == old
    assert len(again) // RECORD_SIZE >= 2 * MESSAGES + 2, "what lay in the log is there too"
    archive, whole = tmp_path / "shipped", len(again) // RECORD_SIZE
    shipped(site, archive, again, [Part(1, 100), Part(101, 200), Part(201, whole)])
    where = ("--site", str(site.folder / SITE_FILE), *same_ports(site))
    code, said = told(archive, to=disk_folder / "third", words=where)
    assert code == 0, said
    assert "found" not in said
    assert log_of(volume_of(disk_folder / "third")) == again
    serve(disk_folder / "third", {"one": MESSAGES + 1, "two": MESSAGES + 1})


def test_a_flipped_byte_is_found_and_what_hangs_on_it_is_not_taken(
    site: WiredSite, told: Told, disk_folder: Path
) -> None:
    volume = volume_of(site.folder)
    old = log_of(volume)
    slot = 20
    flip(volume / "segments" / "000000", slot * RECORD_SIZE + offset_of(RECORD, "client_id"))
    code, said = told(volume, to=disk_folder / "new", words=("--json", *same_ports(site)))
    assert code == 0, said
    rooms = rooms_in(said).values()
    cut, whole = [
        [(int(room["last_op"]), room["lost"]) for room in rooms if bool(room["lost"]) == is_cut]
        for is_cut in (True, False)
    ]
    assert f"segment 0: leaf {slot // SMALL.records_max} is broken" in said
    assert whole == [(MESSAGES + 1, None)]
    last_op, lost = cut[0]
    assert slot // 2 - 2 <= last_op < slot // 2 + 1
    assert lost == [last_op + 1, MESSAGES + 1]
    new = log_of(volume_of(disk_folder / "new"))
    starts = range(0, len(old), RECORD_SIZE)
    same = [new[at : at + RECORD_SIZE] == old[at : at + RECORD_SIZE] for at in starts]
    assert same[: slot - 2] == [True] * (slot - 2) and not same[slot]
    assert sum(same) > len(same) // 2
    serve(disk_folder / "new", {str(room["room"]): int(room["last_op"]) for room in rooms})


def test_what_is_broken_in_one_place_is_taken_from_another(
    site: WiredSite, told: Told, disk_folder: Path, tmp_path: Path
) -> None:
    volume = volume_of(site.folder)
    old = log_of(volume)
    archive, first = tmp_path / "shipped", [Part(1, 100), Part(101, 200)]
    name = shipped(site, archive, old, first)
    copy = tmp_path / "copy" / "node-0" / "shard-0"
    shutil.copytree(volume, copy)
    flip(copy / "segments" / "000000", 60 * RECORD_SIZE + 100)
    flip(volume / "segments" / "000000", 30 * RECORD_SIZE + 100)
    file = next(archive.rglob(name))
    flip(file, 48 + 60 * RECORD_SIZE + 100)
    code, said = told(volume, archive, to=disk_folder / "new")
    assert code == 0, said
    assert "segment 0: leaf 4 is broken" in said
    assert f"{name}: is damaged" in said
    assert "are lost" in said, "neither vouches for records 31 to 35 in whole"
    (disk_folder / "third").mkdir()
    code, said = told(volume, copy, to=disk_folder / "third")
    assert code == 0, said
    assert "leaf 4 is broken" in said and "leaf 8 is broken" in said
    assert "are lost" not in said, "each vouches for what the other has broken"
    assert log_of(volume_of(disk_folder / "third"))[: len(old)] == old


def test_a_broken_checkpoint_and_a_lost_segment_are_told_and_another_volume_has_them(
    site: WiredSite, told: Told, disk_folder: Path
) -> None:
    volume = volume_of(site.folder)
    old = log_of(volume)
    copy = disk_folder / "copy" / "node-1" / "shard-0"
    shutil.copytree(volume, copy)
    source = VolumeSource(volume)
    source.reader.close()
    zone = SMALL.checkpoint_zone(source.begin[0]) * SMALL.checkpoint_zone_size
    flip(volume / "data", SMALL.checkpoints_offset + zone + 300)
    (volume / "segments" / "000000").unlink()
    code, said = told(volume, to=disk_folder / "new")
    assert code == 0, said
    assert "its newest checkpoint is broken: the one before is taken" in said
    assert "segment 0 cannot be read" in said
    assert f"{SMALL.segment_records} records could not be verified" in said
    assert "whose name is unknown: nothing of it is restored; ops 1 to" in said
    code, said = told(volume, copy, to=disk_folder / "third")
    assert code == 0, said
    assert log_of(volume_of(disk_folder / "third"))[: len(old)] == old
    assert f"one: goes on after op {MESSAGES + 1}\n" in said, "and the log behind it"


def test_what_cannot_be_read_of_a_log_is_taken_from_another_volume(
    site: WiredSite, told: Told, disk_folder: Path
) -> None:
    volume = volume_of(site.folder)
    copy = disk_folder / "copy" / "node-1" / "shard-0"
    shutil.copytree(volume, copy)
    source = VolumeSource(volume)
    op = source.begin[0] + 3
    assert op < source.head_op
    slot = op % SMALL.slot_count
    flip(volume / "data", SMALL.wal_prepares_offset + slot * SMALL.message_size_max + 400)
    alone = ("--site", str(site.folder / SITE_FILE))
    code, said = told(volume, to=disk_folder / "new", words=alone)
    assert code == 1 and "data is open in another process: stop that one first" in said
    source.reader.close()
    code, said = told(volume, to=disk_folder / "new", words=alone)
    assert code == 0, said
    assert f"operations {op} to {source.head_op} of its log cannot be read" in said
    code, said = told(volume, copy, to=disk_folder / "third", words=alone)
    assert code == 0, said
    assert "cannot be read" not in said
    assert f"one: goes on after op {MESSAGES + 1}\n" in said
    assert len(log_of(volume_of(disk_folder / "new"))) < len(
        log_of(volume_of(disk_folder / "third"))
    )


def test_a_node_of_a_new_site_gets_the_state_that_every_other_one_gets(
    site: WiredSite, told: Told, disk_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume, new = volume_of(site.folder), disk_folder / "new"
    assert told(volume, to=new)[0] == 0
    node = new / "node-0"
    expected = log_of(volume_of(new))
    states = []
    for _ in range(2):
        shutil.rmtree(node / "shard-0")
        (node / "formatted").unlink()
        code = main(["restore", "--from", str(volume), "--node-folder", str(node), "--brief"])
        said = capsys.readouterr()
        assert code == 0, said.err
        states.append(next(line for line in said.out.splitlines() if ", state " in line))
        assert log_of(node / "shard-0") == expected
    assert states[0] == states[1]
    code = main(["restore", "--from", str(volume), "--node-folder", str(node), "--brief"])
    assert code == 2 and "the node is formatted" in capsys.readouterr().err
    code = main(["restore", "--from", str(volume), "--node-folder", str(site.node(0))])
    assert code == 2 and "has the site file of the old cluster" in capsys.readouterr().err


def test_an_interrupted_run_leaves_no_site_and_the_next_one_makes_it(
    site: WiredSite, told: Told, disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ShardRestore, "_tell", dies)
        assert told(volume_of(site.folder), to=disk_folder / "new")[0] == 130
    assert not (disk_folder / "new").exists()
    left = disk_folder / ".new.restoring"
    assert left.exists() and not (volume_of(left) / "volume.json").exists()
    code, said = told(volume_of(site.folder), to=disk_folder / "new")
    assert code == 0 and "removes what an earlier run left" in said
    assert not left.exists()


def test_nothing_is_made_where_it_could_deny_what_is_there(
    site: WiredSite, told: Told, disk_folder: Path, tmp_path: Path
) -> None:
    new, volume = disk_folder / "new", volume_of(site.folder)
    alone = tmp_path / "alone" / "shard-0"
    shutil.copytree(volume, alone)
    code, said = told(alone, to=new)
    assert code == 1 and "say --old-is-gone" in said
    assert told(alone, to=new, words=("--old-is-gone",))[0] == 0
    code, said = told(alone, to=new, words=("--old-is-gone",))
    assert code == 2 and f"{new} is not empty" in said
    archive = tmp_path / "shipped"
    shipped(site, archive, log_of(volume), [Part(1, 100)])
    code, said = told(archive, to=disk_folder / "third")
    assert code == 2 and "which cluster this archive is of" in said
    code, said = told(tmp_path, to=disk_folder / "third")
    assert code == 2 and "neither a volume" in said


async def dropped(site: WiredSite) -> None:
    """The oldest segment is not kept any more, and a checkpoint knows it."""
    node = open_node(site.node(0))
    raw = record.encode(
        room_id=record.SHARD_ROOM_ID, msg_id=os.urandom(16), author_id=0, client_seq=1,
        body=encode_retain(1, unshipped=True), client_id=os.urandom(16), kind=record.KIND_RETAIN,
    )  # fmt: skip
    async with OperatorSession(node, node.site.shards[0]) as session:
        answer = await session.ask(OPERATION_APPEND, raw, HUNG_S, "a drop", records=1)
        assert RESULT_STRUCT.unpack_from(answer)[3] == OK
        for _ in range(2 * SMALL.checkpoint_ops):
            await session.ask(OPERATION_NOOP, b"", HUNG_S, "what leads to a checkpoint")


def test_a_log_whose_begin_was_dropped_goes_on_if_the_rest_is_whole(
    make_site: MakeSite, told: Told, disk_folder: Path, tmp_path: Path
) -> None:
    made = make_site(1)

    async def story(site: WiredSite) -> None:
        await written(site)
        await dropped(site)

    made.run(story)
    volume = volume_of(made.folder)
    old = log_of(volume, SMALL.segment_records)
    code, said = told(volume, to=disk_folder / "new")
    assert code == 0, said
    assert "are lost" not in said
    assert f"goes on after op {MESSAGES + 1}\n" in said
    new = volume_of(disk_folder / "new")
    assert log_of(new, SMALL.segment_records)[: len(old)] == old
    # and once more, of what was restored
    words = ("--old-is-gone", *same_ports(made))
    code, said = told(new, to=disk_folder / "third", words=words)
    assert code == 0, said
    assert log_of(volume_of(disk_folder / "third"), SMALL.segment_records)[: len(old)] == old
    serve(disk_folder / "third", {"one": MESSAGES + 1, "two": MESSAGES + 1})
    flip(volume / "segments" / "000001", 30 * RECORD_SIZE + 100)
    code, said = told(volume, to=disk_folder / "fourth")
    assert code == 1 and "a record of segment 1 is broken in all that was named" in said
    assert not (disk_folder / "fourth").exists()
    # but for the files of some minutes each that were shipped
    dropped_size = SMALL.segment_records * RECORD_SIZE
    starts = range(SMALL.segment_records + 1, (dropped_size + len(old)) // RECORD_SIZE - 8, 10)
    parts = [Part(start, start + 9) for start in starts]
    shipped(made, tmp_path / "shipped", bytes(dropped_size) + old, parts)
    code, said = told(volume, tmp_path / "shipped", to=disk_folder / "fourth")
    assert code == 0, said
    assert "are lost" not in said
    assert log_of(volume_of(disk_folder / "fourth"), SMALL.segment_records)[: len(old)] == old


@contextmanager
def listening(nodes: list[NodeFolder], whose: NodeFolder | None = None) -> Iterator[None]:
    """Somebody shows the keys of these nodes, or that of `whose`, where replicas of shard 0
    listen."""
    with ExitStack() as open_ones:
        for node in nodes:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            keys = (whose or node).path
            context.load_cert_chain(keys / TLS_CERTIFICATE_FILE, keys / TLS_KEY_FILE)
            socket_ = socket.create_server((node.node.host, node.node.peer_port))
            door = open_ones.enter_context(context.wrap_socket(socket_, server_side=True))
            threading.Thread(target=_take_all, args=(door,), daemon=True).start()
            open_ones.callback(door.shutdown, socket.SHUT_RDWR)
        yield


def _take_all(door: ssl.SSLSocket) -> None:
    with suppress(OSError):
        while True:
            with suppress(ssl.SSLError, ConnectionError):
                door.accept()[0].close()


def test_who_is_a_quorum_is_named_and_who_is_less_is_told(told: Told, disk_folder: Path) -> None:
    with peer_ports(3) as ports:
        old = disk_folder / "old"
        words = ["--nodes", "3", "--ports", str(ports), "--no-farm", "--no-objects", "--brief"]
        assert main(["format", "--local", str(old), *words, "--geometry", "small"]) == 0
        nodes = [open_node(old / f"node-{index}") for index in range(3)]
        with listening(nodes[1:]):
            code, said = told(volume_of(old), to=disk_folder / "new")
        assert code == 1
        assert "of the 3 replicas of shard 0 node-1 and node-2 answer, which is a quorum" in said
        assert not (disk_folder / "new").exists()
        with listening(nodes[2:]):
            code, said = told(volume_of(old), to=disk_folder / "new")
        assert code == 0, said
        assert "shard 0 has no quorum any more; there answers node-2" in said
        assert load_site(disk_folder / "new" / SITE_FILE).cluster != nodes[0].site.cluster
        with listening(nodes[1:], whose=nodes[0]):
            code, said = told(volume_of(old), to=disk_folder / "third")
        assert code == 0 and "answers" not in said, "at its address is somebody else"


def test_a_shard_of_which_nothing_is_left_begins_empty_if_that_is_said(
    told: Told, disk_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = disk_folder / "old", disk_folder / "new"
    words = ["--nodes", "1", "--shards", "2", "--no-farm", "--no-objects", "--brief"]
    assert main(["format", "--local", str(old), *words, "--geometry", "small"]) == 0
    code, said = told(volume_of(old), to=new)
    assert code == 2 and "nothing that was named is of shard 1" in said
    damaged = old / "node-0" / "shard-1"
    for copy in range(4):
        flip(damaged / "data", copy * 64 * 1024 + 100)
    code, said = told(volume_of(old), damaged, to=new)
    assert code == 2 and "SUPERBLOCK_MISSING" in said
    code, said = told(volume_of(old), to=new, words=("--lost-shard", "1", "--json"))
    assert code == 0, said
    shards = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [(row["shard"], row["log_seq"]) for row in shards] == [(0, 0), (1, 0)]
    for shard in range(2):
        source = VolumeSource(new / "node-0" / f"shard-{shard}")
        source.reader.close()
        assert source.manifest is not None and not source.findings
