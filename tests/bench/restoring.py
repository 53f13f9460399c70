"""How long it takes to make a cluster of one node out of a volume of one that is gone."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from appliance.cores.rooms.rebuild import Rebuild
from appliance.cores.vsr.open import NewReplica
from appliance.cores.vsr.restored import first_checkpoint, restored_writes
from appliance.drivers.host.process import child_environment
from appliance.drivers.nvme.volume import create
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.geometry import PRODUCTION
from appliance.formats.room_name import room_creator_id, room_id_of
from appliance.formats.segment import ring_size
from tests.system.local_site import COMMAND

RECORDS, RECORDS_QUICK = 1_000_000, 20_000
SECONDS_MAX = 60
MIB_MAX = 500  # of memory, at its highest
ROOMS, BATCH = 100, 64  # a device in each room; records of a prepare
CLUSTER, REPLICA = os.urandom(16), os.urandom(16)
START_US = 1_750_000_000_000_000


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """A volume of so many records in a hundred rooms, restored by the command."""
    count = RECORDS_QUICK if quick else RECORDS
    volume = folder / "old" / "node-0" / "shard-0"
    volume.parent.mkdir(parents=True)
    write_volume(volume, count)
    words = [*COMMAND, "restore", "--from", str(volume), "--old-is-gone"]
    words += ["--local", str(folder / "new"), "--nodes", "1", "--no-farm", "--no-objects", "--json"]
    log = folder / "restore.log"
    begun = time.monotonic()
    with log.open("w") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said, env=child_environment())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    took_s, memory = time.monotonic() - begun, used.ru_maxrss / 1024
    if process.returncode != 0 or f'"log_seq":{count},' not in log.read_text().replace(" ", ""):
        raise SystemExit(f"bench: restore said {log.read_text()[-2000:]}")
    log.unlink()
    shutil.rmtree(folder / "old")
    shutil.rmtree(folder / "new")
    say(f"restoring {count} records: {took_s:.1f} s, {memory:.0f} MiB at most")
    return {
        "kind": "restore",
        "what": f"restoring {count} records of one volume",
        "value": round(took_s, 1),
        "unit": "s",
        "bar": f"at most {SECONDS_MAX}, and {MIB_MAX} MiB of memory",
        "held": took_s <= SECONDS_MAX and memory <= MIB_MAX,
        "memory_mib": round(memory),
    }


def write_volume(volume: Path, count: int) -> None:
    """The volume of a lone replica, whose checkpoint holds it all."""
    segments_max = count // PRODUCTION.segment_records + 8
    new = NewReplica(
        cluster=CLUSTER,
        shard=0,
        replica_id=REPLICA,
        members=[REPLICA],
        replica_count=1,
        segments_max=segments_max,
        view=0,
    )
    writes = _writes(count, new)
    create(volume, geometry="production", segments_max=segments_max, writes=writes, brief=True)


def _writes(count: int, new: NewReplica) -> Iterator[tuple[int, bytes]]:
    ring = memoryview(bytearray(ring_size(PRODUCTION)))
    made = Rebuild(geometry=PRODUCTION, cluster=CLUSTER, shard=0, ring=ring, gap_room="gaps")
    for body, timestamp in _prepares(count):
        for write in made.apply(OPERATION_APPEND, timestamp, memoryview(body)):
            address = PRODUCTION.data_size + write.number * PRODUCTION.extent_size + write.offset
            yield address, bytes(write.data)
    for write in made.finish():
        address = PRODUCTION.data_size + write.number * PRODUCTION.extent_size + write.offset
        yield address, bytes(write.data)
    assert made.rooms.log_seq == count
    state = first_checkpoint(PRODUCTION, made.state(), new, timestamp=made.timestamp)
    yield from restored_writes(PRODUCTION, new, state)


def _prepares(count: int) -> Iterator[tuple[bytes, int]]:
    """Rooms by turns, a prepare a millisecond."""
    rooms = [room_id_of(f"room {number}") for number in range(ROOMS)]
    text = "x" * 200
    made = 0
    while made < count:
        timestamp = START_US + made * 20 + BATCH
        batch = range(made, min(made + BATCH, count))
        body = b"".join(
            record.encode(
                room_id=rooms[number % ROOMS],
                msg_id=number.to_bytes(16, "big"),
                author_id=1 + number % ROOMS,
                body=(f"room {number}" if number < ROOMS else text).encode(),
                client_id=room_creator_id(rooms[number], 1 + number)
                if number < ROOMS
                else b"device of tests.",
                client_seq=1 if number < ROOMS else number // ROOMS,
                kind=record.KIND_ROOM_CREATE if number < ROOMS else record.KIND_MESSAGE,
                timestamp=timestamp - len(batch) + 1 + number - made,
            )
            for number in batch
        )
        yield body, timestamp
        made += len(batch)
