"""Bits flipped all over one replica's disk: found, mended from peers, never served, never the
end.
"""

import asyncio
import itertools
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from appliance.base.limits import MIB, SECTOR_SIZE
from appliance.drivers.chat.client import Client
from appliance.drivers.nvme.reader import VolumeReader
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.formats import checkpoint as ck
from appliance.formats import envelope as env
from appliance.formats import segment as seg
from appliance.formats import superblock as sb
from appliance.formats.geometry import (
    HEADER_SIZE,
    RECORD_SIZE,
    SUPERBLOCK_COPY_SIZE,
    SUPERBLOCK_COPY_STRIDE,
    Geometry,
)
from tests.drivers.nvme.rot import flip
from tests.loop_device import loop_devices
from tests.ports import FreePorts
from tests.system.local_site import NODES, LocalSite, ports_in_a_row, wait_until

ROOMS, WRITERS = 4, 8
FEW = {"rooms_count": 2, "writers": 2}  # the small geometry remembers eight devices in rooms
CHECKPOINTS_BEFORE, SEGMENTS_BEFORE = 2.4, 2.1  # two of each, and of the next one a part
VICTIM = 2
SEGMENTS_ON_DEVICES, DEVICE_SIZE = 64, 256 * MIB  # of the small geometry
MEND_S = 90.0
FLIPS = {"superblock": 20, "witness": 40, "prepare": 40, "reply": 20, "table": 40, "segment": 60}

Span = tuple[Path, int, int]  # file, offset, size


@pytest.mark.parametrize("geometry", ["small", pytest.param("production", marks=pytest.mark.soak)])
def test_bits_flipped_in_every_zone_are_found_and_mended_from_a_peer(
    tmp_path: Path, free_ports: FreePorts, seed: int, geometry: str
) -> None:
    site = LocalSite(tmp_path / "site", ports_in_a_row(free_ports), geometry=geometry)
    flip_and_check(site, seed)


@pytest.mark.soak
@pytest.mark.parametrize("sector_size", [512, 4096])
def test_bits_flipped_in_every_zone_of_a_raw_device_are_found_and_mended_from_a_peer(
    tmp_path: Path, free_ports: FreePorts, seed: int, sector_size: int
) -> None:
    with loop_devices(tmp_path, DEVICE_SIZE, [sector_size] * NODES) as devices:
        site = LocalSite(
            tmp_path / "site",
            ports_in_a_row(free_ports),
            geometry="small",
            segments_max=SEGMENTS_ON_DEVICES,
            devices=devices,
        )
        flip_and_check(site, seed)


def flip_and_check(site: LocalSite, seed: int) -> None:
    """One replica's bits, while it is stopped; judged when the log has gone on."""
    chance = random.Random(seed)
    geometry = site.geometry
    sizes = GEOMETRIES[geometry]
    with site:
        ops = round(CHECKPOINTS_BEFORE * sizes.checkpoint_ops)
        records = round(SEGMENTS_BEFORE * sizes.segment_records)
        few = FEW if geometry == "small" else {}
        bodies = asyncio.run(fill(site, ops, records, **few))
        asyncio.run(go_on(site, sizes))
        wait_until(site.caught_up, 30, "all replicas stand at the same op")
        site.supervisors[VICTIM].terminate()
        site.supervisors.pop(VICTIM).wait(20)
        flipped = flip_all(site.place(VICTIM) / "shard-0", chance)
        zones = Counter(zone for zone, _, _ in flipped)
        print(f"flipped {dict(zones)}")
        assert sum(zones.values()) >= 200 and zones == FLIPS
        site.configure(**site.settings, scrub_interval_ms=10)  # read by the one that starts
        site.start(VICTIM)
        asyncio.run(read_while_mending(site, bodies))
        marks = wait_mended(site, flipped)
        print(f"marks {marks}")
        asyncio.run(fill(site, ops, 0, **few))  # both checkpoint zones are written anew
        wait_until(site.caught_up, 30, "all replicas stand at the same op")
        volumes = [VolumeReader(site.place(node) / "shard-0") for node in range(NODES)]
        # The fourth copy follows the other three, which already count.
        wait_until(
            lambda: whole(superblocks(volumes[VICTIM])),
            10,
            lambda: f"four equal superblock copies: {superblocks(volumes[VICTIM])}",
        )
    for zone, (reference, mended) in compared(volumes).items():
        assert reference == mended, f"{zone}: {len(reference ^ mended)} places differ"


# --- load ---------------------------------------------------------------------------------------


async def fill(
    site: LocalSite,
    ops: int,
    records: int,
    prefix: str = "flips",
    *,
    rooms_count: int = ROOMS,
    writers: int = WRITERS,
) -> dict[UUID, list[str]]:
    """Write until the log has grown by so much; the bodies of every room, in its order."""
    access = site.access()
    before = site.answer(0)
    said: dict[UUID, dict[int, str]] = {}

    async def write(number: int, rooms: list[UUID]) -> None:
        async with Client(
            access.endpoints, access.token, patience_s=60, first_endpoint=number
        ) as client:
            for turn in itertools.count():
                now = site.status(0) if turn % 20 == 0 else None
                if now and now["op"] - before["op"] >= ops:
                    if now["log_seq"] - before["log_seq"] >= records:
                        return
                sent = [
                    (room, text, await client.post(room, text))
                    for room in rooms
                    for text in [f"{number}.{turn}.{i}" for i in range(2 + turn % 3)]
                ]
                for room, text, answer in sent:
                    said[room][(await answer).op] = text

    async with Client(access.endpoints, access.token, patience_s=60) as client:
        rooms = [(await client.create_room(f"{prefix}-{n}")).room_id for n in range(rooms_count)]
    said.update({room: {} for room in rooms})
    await asyncio.gather(*(write(number, rooms) for number in range(writers)))
    return {room: [said[room][op] for op in sorted(said[room])] for room in rooms}


async def go_on(site: LocalSite, sizes: Geometry) -> None:
    """Write to another room until a third of what lies between two checkpoints follows the newest:
    in slots that a replica still needs."""
    access = site.access()
    async with Client(access.endpoints, access.token, patience_s=60) as client:
        room = (await client.create_room("behind-a-checkpoint")).room_id
        while True:
            now = site.answer(0)
            if now["op"] - now["checkpoint"] >= sizes.checkpoint_ops / 3:
                return
            await client.send(room, "one more")


async def read_while_mending(site: LocalSite, bodies: dict[UUID, list[str]]) -> None:
    """Whole histories through the victim's own edge: what it does give is right."""
    access = site.access()
    async with Client(
        access.endpoints, access.token, patience_s=60, first_endpoint=VICTIM
    ) as client:
        for room, wanted in bodies.items():
            given: list[str] = []
            start = 1
            while True:
                page = await client.snapshot(room, from_op=start, limit=1000)
                given += [m.body for m in page.messages if m.body and "." in m.body]
                if not page.has_more:
                    break
                start = page.messages[-1].op + 1
            assert given == wanted


# --- damage -------------------------------------------------------------------------------------


def flip_all(
    folder: Path, chance: random.Random, flips: dict[str, int] = FLIPS
) -> list[tuple[str, Path, int]]:
    """Flip the wanted number of bits in each zone; (zone, file, offset of the byte) of each."""
    spans = used(VolumeReader(folder), folder)
    out = []
    for zone, count in flips.items():
        places = spans[zone]
        assert places, f"nothing is stored in zone {zone}"
        taken: set[tuple[Path, int]] = set()
        while len(taken) < count:
            file, offset, size = chance.choice(places)
            taken.add((file, offset + chance.randrange(size)))
        for file, offset in sorted(taken):
            flip(file, offset, chance.randrange(8))
            out.append((zone, file, offset))
    return out


def rings(volume: VolumeReader, folder: Path) -> dict[str, list[Span]]:
    """Where slots of the log and replies are stored; what a replica that runs is about to write is
    left out."""
    geometry, data = volume.geometry, folder / "data"

    def messages(start: int, stride: int, count: int) -> list[Span]:
        places = range(start, start + stride * count, stride)
        sizes = ((at, message_size(volume, at)) for at in places)
        return [(data, at, size) for at, size in sizes if size]

    ends = geometry.wal_headers_offset + geometry.slot_count * SECTOR_SIZE
    slots, clients = geometry.slot_count, geometry.clients_max
    return {
        "witness": [
            (data, at, SECTOR_SIZE) for at in range(geometry.wal_headers_offset, ends, SECTOR_SIZE)
        ],
        "prepare": messages(geometry.wal_prepares_offset, geometry.message_size_max, slots),
        "reply": messages(geometry.replies_offset, geometry.reply_size_max, clients),
    }


def used(volume: VolumeReader, folder: Path) -> dict[str, list[Span]]:
    """Where a stopped replica with two checkpoints stores something, by zone; of the superblock one
    copy."""
    geometry, data = volume.geometry, folder / "data"
    ringed = rings(volume, folder)
    assert len(ringed["prepare"]) == geometry.slot_count
    start, stride = geometry.replies_offset, geometry.reply_size_max
    rows = range(start, start + stride * geometry.clients_max, stride)
    written = sum(any(volume.read(at, SECTOR_SIZE) or b"") for at in rows)
    assert len(ringed["reply"]) == written, "a stopped replica holds half a reply"
    tables = [
        (data, address, size)
        for zone in (0, 1)
        for address, size in table_spans(volume, geometry, zone)
    ]
    segments = []
    for extent in volume.extents():
        raw = volume.read_extent(extent)
        assert raw is not None
        file, start_at = folder / "segments" / f"{extent:06d}", 0
        if not file.exists():  # on a device they lie behind all else
            file, start_at = data, geometry.data_size + extent * geometry.extent_size
        tail = raw[geometry.segment_data_size :]
        if any(tail[:8]):
            footer = seg.decode_footer(tail, geometry)
            segments.append((file, start_at, geometry.segment_records * RECORD_SIZE))
            segments.append((file, start_at + geometry.segment_data_size, footer.size))
    return {
        "superblock": [(data, SUPERBLOCK_COPY_STRIDE, SUPERBLOCK_COPY_SIZE)],
        **ringed,
        "table": tables,
        "segment": segments,
    }


def message_size(volume: VolumeReader, address: int) -> int:
    """Bytes of the message stored there, header included; 0 where none is."""
    raw = volume.read(address, SECTOR_SIZE)
    assert raw is not None
    header = env.decode_stored(raw[:HEADER_SIZE])
    return HEADER_SIZE + header.body_size if header else 0


def table_spans(volume: VolumeReader, geometry: Geometry, zone: int) -> list[tuple[int, int]]:
    """(address, size) of the manifest and the table chunks of a checkpoint zone."""
    start = geometry.checkpoints_offset + zone * geometry.checkpoint_zone_size
    head = volume.read(start, 64 * SECTOR_SIZE)
    assert head is not None
    manifest = newest_manifest(head, geometry)
    out = [(start, len(ck.encode(manifest)))]
    for name, state in manifest.tables.items():
        for chunk in range(len(state.chunk_ids)):
            place = ck.ChunkLocation(
                ck.KIND_TABLE, 0, ck.table_chunk_index(geometry, name, chunk), 0
            )
            out.append((start + ck.zone_offset(geometry, place), geometry.table_chunk_size))
    return out


def newest_manifest(raw: bytes, geometry: Geometry) -> ck.Manifest:
    """The manifest at the start of a zone: its own counts say how long it is."""
    head = ck.HEAD_SIZE
    counts = [int.from_bytes(raw[at : at + 4], "little") for at in range(132, 168, 4)]
    size = head + ck.ID_SIZE * (counts[0] + sum(counts[2::2]))
    return ck.decode(raw[:size], geometry)


# --- judgement ----------------------------------------------------------------------------------


def wait_mended(site: LocalSite, flipped: list[tuple[str, Path, int]]) -> dict[str, int]:
    """Until what this replica may still need is whole; what it did for that, by mark.

    Slots at or below the checkpoint, the checkpoint's own zones and replies are written anew as the
    log goes on: those are compared in the end.
    """
    peer = VolumeReader(site.place((VICTIM + 1) % NODES) / "shard-0")
    status = site.answer(VICTIM + 1 - NODES)
    wrong = [
        (zone, file, offset)
        for zone, file, offset in flipped
        if zone == "segment" or op_at(peer, zone, offset) > status["checkpoint"]
    ]
    assert {zone for zone, _, _ in wrong} == {"segment", "witness", "prepare"}

    def broken() -> int:
        """How many are; those that were mended are not looked at again."""
        time.sleep(0.5)
        wrong[:] = [
            (zone, file, offset)
            for zone, file, offset in wrong
            if byte_at(file, offset) != byte_at(peer.folder / place_of(file), offset)
        ]
        return len(wrong)

    wait_until(
        lambda: not wrong, MEND_S, lambda: f"still broken: {wrong}; {site.status(VICTIM)}", broken
    )
    marks: dict[str, int] = site.answer(VICTIM)["marks"]
    assert marks["scrub_found_segment"] > 0 and marks["segment_backfilled"] > 0
    return marks


def op_at(volume: VolumeReader, zone: str, offset: int) -> int:
    """The op whose witness or prepare holds the byte; -1 in other zones and behind a prepare's end.

    A slot may hold a younger and shorter prepare by now: what it left of the older is nobody's.
    """
    geometry = volume.geometry
    if zone == "witness":
        start = offset // SECTOR_SIZE * SECTOR_SIZE
    elif zone == "prepare":
        inside = (offset - geometry.wal_prepares_offset) % geometry.message_size_max
        start = offset - inside
    else:
        return -1
    header = env.decode_stored((volume.read(start, SECTOR_SIZE) or b"")[:HEADER_SIZE])
    if header is None:
        return -1  # broken there as well, which a slot that is needed is not for long
    end = SECTOR_SIZE if zone == "witness" else HEADER_SIZE + header.body_size
    return header.op if offset - start < end else -1


def place_of(file: Path) -> Path:
    """The file's place in its volume's folder."""
    return Path(file.parent.name, file.name) if file.parent.name == "segments" else Path(file.name)


def byte_at(file: Path, offset: int) -> int:
    """One byte as the disk holds it."""
    sector = offset // SECTOR_SIZE * SECTOR_SIZE
    with file.open("rb") as volume:
        os.posix_fadvise(volume.fileno(), sector, SECTOR_SIZE, os.POSIX_FADV_DONTNEED)
        return os.pread(volume.fileno(), SECTOR_SIZE, sector)[offset - sector]


def superblocks(volume: VolumeReader) -> list[tuple[sb.Superblock, int, bytes] | None]:
    """What each copy holds: (block, number of the copy, digest)."""
    return [
        sb.decode(volume.read(i * SUPERBLOCK_COPY_STRIDE, SUPERBLOCK_COPY_SIZE) or b"")
        for i in range(4)
    ]


def whole(copies: list[tuple[sb.Superblock, int, bytes] | None]) -> bool:
    """Whether all four are there, in their places, and say the same."""
    if not all(copies) or len({copy[2] for copy in copies if copy}) != 1:
        return False
    return [copy[1] for copy in copies if copy] == [0, 1, 2, 3]


def compared(
    volumes: list[VolumeReader], victim: int = VICTIM
) -> dict[str, tuple[set[Any], set[Any]]]:
    """By zone: what a peer and the victim store, as sets of (place, bytes' digest)."""
    pair = volumes[(victim + 1) % NODES], volumes[victim]
    out = {}
    spans = {v: used(v, v.folder) for v in pair}
    for zone in FLIPS:
        if zone != "superblock":
            out[zone] = tuple(contents(v, spans[v][zone]) for v in pair)
    return out  # type: ignore[return-value]


def contents(volume: VolumeReader, spans: list[Span]) -> set[tuple[str, int, bytes]]:
    found = set()
    for file, offset, size in spans:
        with file.open("rb") as data:
            data.seek(offset)
            found.add((str(file.relative_to(volume.folder)), offset, data.read(size)))
    return found
