"""What breaks on a disk, is slow there, or is lost with it."""

from dataclasses import replace

from appliance.base.limits import SECTOR_SIZE
from appliance.formats import envelope as env
from appliance.formats import segment as seg
from appliance.formats import superblock as sb
from appliance.formats.geometry import (
    HEADER_SIZE,
    RECORD_SIZE,
    SUPERBLOCK_COPY_SIZE,
    SUPERBLOCK_COPY_STRIDE,
    TABLES,
)
from appliance.simulation import atlas
from tests.scenarios.stage import Stage
from tests.scenarios.story import Vocabulary

words = Vocabulary()
ZONES = {
    "superblock": atlas.SUPERBLOCK,
    "witness": atlas.WITNESS,
    "prepare": atlas.PREPARE,
    "reply": atlas.REPLY,
    "checkpoint": atlas.CHECKPOINT,
    "segment": atlas.SEGMENT,
}


@words.line("{who} {zone} writes take {n} ticks")
def slow_zone(stage: Stage, who: str, zone: str, n: str) -> None:
    """Zones: superblock, witness, prepare, reply, checkpoint, segment."""
    for index in stage.nodes(who):
        stage.write_ticks[index, ZONES[zone]] = stage.number(n)


@words.line("{who} writes are quick again")
def quick(stage: Stage, who: str) -> None:
    for index in stage.nodes(who):
        for zone in ZONES.values():
            stage.write_ticks.pop((index, zone), None)


@words.line("{who} prepare {ops} rots", "{who} prepares {ops} rot")
def rot_prepare(stage: Stage, who: str, ops: str) -> None:
    """A bit of the body flips; of the root, which has none, a bit of the header."""
    for index in stage.nodes(who):
        for op in stage.span(ops):
            stage.rot(index, stage.prepare_at(op) + (HEADER_SIZE + 2 if op else 50))


@words.line("{who} witness {ops} rots", "{who} witnesses {ops} rot")
def rot_witness(stage: Stage, who: str, ops: str) -> None:
    for index in stage.nodes(who):
        for op in stage.span(ops):
            stage.rot(index, stage.witness_at(op) + 50)


@words.line("{who} slot {op} rots")
def rot_slot(stage: Stage, who: str, op: str) -> None:
    """Both rings, whatever they hold."""
    for index in stage.nodes(who):
        stage.rot(index, stage.witness_at(stage.number(op)) + 50)
        stage.rot(index, stage.prepare_at(stage.number(op)) + 50)


@words.line("{who} padding of {ring} {op} rots")
def rot_padding(stage: Stage, who: str, ring: str, op: str) -> None:
    at = {"prepare": stage.prepare_at, "witness": stage.witness_at}[ring](stage.number(op))
    for machine in stage.machines(who):
        end = HEADER_SIZE
        if ring == "prepare":
            found = env.decode_stored(machine.disk.peek(at, HEADER_SIZE))
            assert found is not None
            end += found.body_size
        stage.rot(machine.index, at - (-end // SECTOR_SIZE) * SECTOR_SIZE - 1)


@words.line("{who} {ring} {op} lies at {place}")
def misdirected(stage: Stage, who: str, ring: str, op: str, place: str) -> None:
    """It was written to another op's place; its own still holds what format put there."""
    geometry = stage.geometry
    at, size = {
        "prepare": (stage.prepare_at, geometry.message_size_max),
        "witness": (stage.witness_at, SECTOR_SIZE),
    }[ring]
    home, away = stage.number(op), stage.number(place)
    for machine in stage.machines(who):
        data = machine.disk.peek(at(home), size)
        stage.damaged(machine.index, at(away), data)
        empty = env.reserved(home % geometry.slot_count, stage.cluster.cluster, 0)
        stage.damaged(machine.index, at(home), empty.raw.ljust(size, b"\0"))


@words.line("{who} superblock copies {numbers} rot")
def rot_superblock(stage: Stage, who: str, numbers: str) -> None:
    for index in stage.nodes(who):
        for copy in numbers.split():
            stage.rot(index, int(copy) * SUPERBLOCK_COPY_STRIDE + 200)


@words.line("{who} superblock copies {numbers} name view {n}")
def forge_superblock(stage: Stage, who: str, numbers: str, n: str) -> None:
    """Valid copies of the same sequence that say something else."""
    for machine in stage.machines(who):
        decoded = sb.decode(machine.disk.peek(0, SUPERBLOCK_COPY_SIZE))
        assert decoded is not None
        block = replace(decoded[0], view=stage.number(n), log_view=stage.number(n))
        for copy in map(int, numbers.split()):
            stage.damaged(machine.index, copy * SUPERBLOCK_COPY_STRIDE, sb.encode(block, copy))


@words.line("{who} reply of {whom} rots")
def rot_reply(stage: Stage, who: str, whom: str) -> None:
    client = stage.talkers(whom)[0].session.client_id
    for machine in stage.machines(who):
        entry = stage.replica(machine.index).sessions.get(client)
        assert entry is not None
        at = stage.geometry.replies_offset + entry.row * stage.geometry.reply_size_max
        stage.rot(machine.index, at + HEADER_SIZE + 2)


@words.line("{who} manifest of checkpoint {op} rots")
def rot_manifest(stage: Stage, who: str, op: str) -> None:
    for index in stage.nodes(who):
        stage.rot(index, stage.zone_at(stage.number(op)) + 8)


@words.line("{who} table {name} of checkpoint {op} rots")
def rot_table(stage: Stage, who: str, name: str, op: str) -> None:
    assert name in TABLES
    for index in stage.nodes(who):
        stage.rot(index, stage.zone_at(stage.number(op)) + stage.geometry.table_offset(name) + 1)


@words.line("{who} record {n} rots")
def rot_record(stage: Stage, who: str, n: str) -> None:
    geometry, number = stage.geometry, stage.number(n)
    extent = seg.number_of(geometry, number) % stage.options.segments_max
    for index in stage.nodes(who):
        stage.rot(
            index,
            geometry.data_size
            + extent * geometry.extent_size
            + seg.slot_of(geometry, number) * RECORD_SIZE
            + 90,
        )


@words.line("{who} disk is full")
def full(stage: Stage, who: str) -> None:
    """What is not there yet cannot be made: no further extent."""
    for machine in stage.machines(who):
        machine.disk.full = machine.disk.faults = True


@words.line("{who} disk has room again")
def room(stage: Stage, who: str) -> None:
    for machine in stage.machines(who):
        machine.disk.full = machine.disk.faults = False


@words.line("{who} disk is lost")
def lost(stage: Stage, who: str) -> None:
    """A new one is there, with nothing on it; nobody formats it."""
    for machine in stage.machines(who):
        machine.disk.lose()


@words.line("an operator replaces the disk of {who}")
def replaced(stage: Stage, who: str) -> None:
    """As `docs/operations.md` says: operations first, then a new volume, then a start."""
    stage.replacement.begin(stage.nodes(who)[0])


@words.line("{who} disk is mended")
def mended(stage: Stage, who: str) -> None:
    for index in stage.nodes(who):
        stage.mended(index)
