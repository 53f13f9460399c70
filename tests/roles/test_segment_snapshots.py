"""Snapshots of sealed segments that nodes make by themselves, with shipping off."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.signature import SIGNATURE_SIZE
from appliance.drivers.host.node_folder import SNAPSHOTS_FOLDER, open_node
from appliance.formats import snapshot
from appliance.formats.geometry import SMALL
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from tests import forked
from tests.patience import HUNG_S
from tests.roles.edge_site import until
from tests.roles.replica_group import EdgeLike, Group, peer_ports

FILES_MAX = (1 << 20) // snapshot.file_size(SMALL.segment_records)
SEGMENTS = FILES_MAX + 2


@pytest.fixture
def group(disk_folder: Path) -> Iterator[Group]:
    with peer_ports(3) as ports, Group(disk_folder, nodes=3, ports=ports) as made:
        for index in range(3):
            settings = encode_settings(index, ship_target="off", snapshots_mib=1)
            (made.node(index) / SETTINGS_FILE).write_text(settings)
        yield made


def shippers(group: Group) -> list[forked.Started]:
    words = ("start", "shipper", "--node-folder")
    return [forked.start([*words, group.node(index)], environment=os.environ) for index in range(3)]


def stop(processes: list[forked.Started]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(HUNG_S)


def files(group: Group, index: int) -> dict[str, bytes]:
    place = group.node(index) / SNAPSHOTS_FOLDER / "shard-00000"
    return {path.name: path.read_bytes() for path in place.glob("*.tig")}


def test_every_node_keeps_the_newest_segments_in_the_same_bytes_but_for_its_signature(
    group: Group,
) -> None:
    group.start_all()

    async def say(count: int) -> None:
        async with EdgeLike(group, home=0, seed=count) as edge:
            await edge.create_room()
            for _ in range(-(-count // SMALL.records_max)):
                await edge.append(SMALL.records_max)

    newest = f"segment-{SEGMENTS - 1:09}.tig"
    processes = shippers(group)
    try:
        asyncio.run(say(SEGMENTS * SMALL.segment_records))
        until(lambda: all(newest in files(group, index) for index in range(3)), newest)
    finally:
        stop(processes)
    seen = [files(group, index) for index in range(3)]
    names = [f"segment-{number:09}.tig" for number in range(SEGMENTS - FILES_MAX, SEGMENTS)]
    assert all(sorted(found) == names for found in seen)
    for name in names:
        assert len({found[name][:-SIGNATURE_SIZE] for found in seen}) == 1
        assert len({found[name][-SIGNATURE_SIZE:] for found in seen}) == 3
    for index, found in enumerate(seen):
        key = open_node(group.node(index)).signing_key.public
        whole = snapshot.parse(found[newest], key)
        assert (whole.record_count, whole.last_op) == (
            SMALL.segment_records,
            SEGMENTS * SMALL.segment_records,
        )
    lost = group.node(1) / SNAPSHOTS_FOLDER / "shard-00000" / newest
    lost.unlink()
    (lost.parent / "segment-000000000.tig.part").write_bytes(b"half")
    processes = shippers(group)
    try:
        until(lambda: files(group, 1) == seen[1], "the lost one made again")
        until(lambda: not list(lost.parent.glob("*.part")), "the half one removed")
    finally:
        stop(processes)
