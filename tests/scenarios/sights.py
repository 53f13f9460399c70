"""What a story may see: conditions after `expect`, `run until` and `run .. while`."""

import hashlib
from typing import Any

from appliance.base.errors import ChainError, FormatError
from appliance.base.limits import SECTOR_SIZE
from appliance.base.signature import CONTEXT_SNAPSHOT, SigningKey, verify
from appliance.cores.vsr import open as opening
from appliance.cores.vsr import recovery
from appliance.formats import envelope as env
from appliance.formats import segment as seg
from appliance.formats import snapshot
from appliance.formats.geometry import HEADER_SIZE, RECORD_SIZE, whole_sectors
from appliance.formats.record import record_hash
from tests.scenarios.stage import ROOM, Stage
from tests.scenarios.story import Vocabulary

COMMANDS = {name: code for code, name in env.COMMAND_NAMES.items()}
# Fields of a replica that need more than a look at an attribute.
FIELDS = {
    "status": lambda r: r.status.name.lower(),
    "role": lambda r: "standby" if r.is_standby else "primary" if r.is_primary else "backup",
    "checkpoint": lambda r: r.checkpoint_op,
    "faulty": lambda r: r.journal.faulty_count,
    "dirty": lambda r: r.journal.dirty_count,
    "pipeline": lambda r: len(r.pipeline),
    "state_ready": lambda r: int(r.state_ready),
    "abdicating": lambda r: int(r.abdicating),
    "syncing": lambda r: int(r.syncing),
    "session_count": lambda r: len(r.sessions.entries),
    "durable_epoch": lambda r: r.superblock.epoch,
    "epoch_settled": lambda r: int(r.members_old is None),
    "log_seq": lambda r: r.state_machine.log_seq,
}
COMPARISONS = {
    "at least": lambda found, wanted: found >= wanted,
    "at most": lambda found, wanted: found <= wanted,
    "above": lambda found, wanted: found > wanted,
    "not": lambda found, wanted: found != wanted,
}

SNAPSHOT_KEY = SigningKey(b"who exports this" * 2)

sights = Vocabulary()


def holds(stage: Stage, text: str) -> bool:
    """Whether the condition in `text` holds now."""
    function, arguments = sights.find(text)
    return function(stage, **arguments)


# --- the group ----------------------------------------------------------------------------------


@sights.line("{who} agree")
def agree(stage: Stage, who: str) -> bool:
    """Normal in one view, with one log, all of it applied and clean; nothing is being written."""
    return not stage.disagreement(stage.nodes(who))


@sights.line("no primary")
def no_primary(stage: Stage) -> bool:
    return stage.primary() is None


@sights.line("a primary")
def a_primary(stage: Stage) -> bool:
    return stage.primary() is not None


@sights.line("{who} leads", "{who} lead")
def leads(stage: Stage, who: str) -> bool:
    """The normal primary of the newest view is one of these."""
    return stage.primary() in stage.nodes(who)


@sights.line("{who} believes it leads")
def believes(stage: Stage, who: str) -> bool:
    return all(stage.replica(i).normal_primary for i in stage.nodes(who))


@sights.line("a commit of op {op}")
def committed(stage: Stage, op: str) -> bool:
    return stage.checkers.log.op >= stage.number(op)


@sights.line("no commit of op {op}")
def not_committed(stage: Stage, op: str) -> bool:
    return stage.checkers.log.op < stage.number(op)


@sights.line("equal rooms on {who}")
def equal_rooms(stage: Stage, who: str) -> bool:
    """The same rows of the room, hence the same hash over all its records."""
    found = set()
    for machine in stage.machines(who):
        assert machine.rooms is not None
        found.add(
            (
                machine.rooms.log_seq,
                *(machine.rooms.room_row(room) for room in stage.checkers.rooms.rooms),
            )
        )
    return len(found) == 1


@sights.line("{who} stand on one checkpoint")
def one_checkpoint(stage: Stage, who: str) -> bool:
    """The same op, and the same bytes: an id is a hash over all of it."""
    ids = {stage.replica(i).checkpoint.checkpoint_id for i in stage.nodes(who)}
    return len(ids) == 1 and all(stage.replica(i).checkpoint_op for i in stage.nodes(who))


@sights.line("record {n} lies on {who}")
def record_lies(stage: Stage, n: str, who: str) -> bool:
    """On the medium, in its extent, as it was committed."""
    geometry, number = stage.geometry, stage.number(n)
    extent = seg.number_of(geometry, number) % stage.options.segments_max
    at = (
        geometry.data_size
        + extent * geometry.extent_size
        + seg.slot_of(geometry, number) * RECORD_SIZE
    )
    wanted = stage.checkers.rooms.hashes[number - 1]
    return all(
        record_hash(machine.disk.peek(at, RECORD_SIZE)) == wanted for machine in stage.machines(who)
    )


# --- snapshots ----------------------------------------------------------------------------------


@sights.line("the snapshot of segment {n} on {who} has its layout")
def snapshot_layout(stage: Stage, n: str, who: str) -> bool:
    """Field by field, at the offsets of the format, read without the product's reader."""
    number, count = stage.number(n), stage.geometry.segment_records
    places = ((0, 8), (8, 10), (32, 40), (40, 48))
    for machine in stage.machines(who):
        raw, records = _snapshot(stage, machine, number)
        magic, version, op, held = (int.from_bytes(raw[a:b], "little") for a, b in places)
        if (magic, version, op, held) != (0x0054_4947_534E_4150, 1, (number + 1) * count, count):
            return False
        if any(raw[10:32]) or raw[48:-64] != records or len(raw) != 48 + len(records) + 64:
            return False
        digest = hashlib.sha256(raw[:-64]).digest()
        if not verify(SNAPSHOT_KEY.public, CONTEXT_SNAPSHOT, digest, raw[-64:]):
            return False
    return True


@sights.line("the snapshot of segment {n} on {who} verifies")
def snapshot_verifies(stage: Stage, n: str, who: str) -> bool:
    """Its chain ends with the hash of the record that was committed there."""
    count, number = stage.geometry.segment_records, stage.number(n)
    for machine in stage.machines(who):
        found = snapshot.parse(_snapshot(stage, machine, number)[0], SNAPSHOT_KEY.public)
        last = (number + 1) * count
        if (found.first_op, found.last_op) != (last - count + 1, last):
            return False
        if found.last_hash != stage.checkers.rooms.hashes[last - 1]:
            return False
    return True


@sights.line("the snapshot of segment {n} on {who} with a bit changed is refused")
def snapshot_refused(stage: Stage, n: str, who: str) -> bool:
    """Wherever the bit is: in the head, a record, the signature."""
    for machine in stage.machines(who):
        raw = _snapshot(stage, machine, stage.number(n))[0]
        for at in (0, 9, 20, 33, 41, 48, 5_000, len(raw) - 65, len(raw) - 1):
            changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
            try:
                snapshot.parse(changed, SNAPSHOT_KEY.public)
            except (FormatError, ChainError):
                continue
            return False
    return True


def _snapshot(stage: Stage, machine: Any, number: int) -> tuple[bytes, bytes]:
    """A segment of a disk as an exported file, and its bare records."""
    geometry = stage.geometry
    at = geometry.data_size + number % stage.options.segments_max * geometry.extent_size
    count = geometry.segment_records
    records = machine.disk.peek(at, count * RECORD_SIZE)
    parts = snapshot.render(
        [records],
        room_id=snapshot.SEGMENT,
        op=(number + 1) * count,
        record_count=count,
        key=SNAPSHOT_KEY,
    )
    return b"".join(parts), records


# --- one machine --------------------------------------------------------------------------------


@sights.line("{who} is down", "{who} are down")
def down(stage: Stage, who: str) -> bool:
    return all(machine.replica is None for machine in stage.machines(who))


@sights.line("{who} halted {code}")
def halted(stage: Stage, who: str, code: str) -> bool:
    return all(stage.halts.get(i) == code for i in stage.nodes(who))


@sights.line("nobody halted")
def nobody_halted(stage: Stage) -> bool:
    return not stage.halts


@sights.line("{who} knows op {op}", "{who} know op {op}")
def knows(stage: Stage, who: str, op: str) -> bool:
    """The header of what is committed there."""
    number = stage.number(op)
    digest = stage.checkers.log.entries[number].digest
    found = [stage.replica(i).journal.at(number) for i in stage.nodes(who)]
    return all(header is not None and header.digest == digest for header in found)


@sights.line("{who} holds op {op}", "{who} hold op {op}")
def holds_op(stage: Stage, who: str, op: str) -> bool:
    """Both rings hold what was committed, whole, with nothing but zeros after it."""
    return all(_on_medium(stage, machine, stage.number(op)) for machine in stage.machines(who))


@sights.line("{who} holds no op {op}")
def holds_no_op(stage: Stage, who: str, op: str) -> bool:
    number = stage.number(op)
    return all(not _on_medium(stage, machine, number) for machine in stage.machines(who))


def _on_medium(stage: Stage, machine: Any, op: int) -> bool:
    disk, digest = machine.disk, stage.checkers.log.entries[op].digest
    witness = env.decode_stored(disk.peek(stage.witness_at(op), HEADER_SIZE))
    at = stage.prepare_at(op)
    prepare = env.decode_stored(disk.peek(at, HEADER_SIZE))
    if witness is None or prepare is None or not witness.digest == prepare.digest == digest:
        return False
    end = HEADER_SIZE + prepare.body_size
    data = disk.peek(at, whole_sectors(end))
    return env.body_valid(prepare, data[HEADER_SIZE:end]) and not any(data[end:])


@sights.line("{who} slot {op} {bit}")
def slot_bit(stage: Stage, who: str, op: str, bit: str) -> bool:
    """`faulty`, `dirty`, `clean`, `empty` or `readable`."""
    for index in stage.nodes(who):
        journal = stage.replica(index).journal
        slot = journal.slot(stage.number(op))
        found = {
            "faulty": journal.faulty[slot],
            "dirty": journal.dirty[slot],
            "clean": not journal.dirty[slot] and journal.headers[slot] is not None,
            "empty": not journal.dirty[slot] and journal.headers[slot] is None,
            "readable": journal.present[slot] is not None,
        }[bit]
        if not found:
            return False
    return True


@sights.line("{who} slot {op} with {witness} and {prepare} is row {n} {decision}")
def table_row(
    stage: Stage, who: str, op: str, witness: str, prepare: str, n: str, decision: str
) -> bool:
    """What the loader and the decision table make of a slot that holds this."""
    row, found = _decided(stage, who, op, (witness, prepare), solo=False)
    stage.rows_met.add(row)
    return (row, found) == (int(n), decision)


@sights.line("{who} slot {op} with {witness} and {prepare} is alone {decision}")
def table_alone(stage: Stage, who: str, op: str, witness: str, prepare: str, decision: str) -> bool:
    """The same, for a replica that has no peers."""
    return _decided(stage, who, op, (witness, prepare), solo=True)[1] == decision


@sights.line("every row was met")
def all_rows(stage: Stage) -> bool:
    return stage.rows_met == set(range(1, 16))


def _decided(
    stage: Stage, who: str, op: str, contents: tuple[str, str], *, solo: bool
) -> tuple[int, str]:
    """Put `contents` into the rings of a machine that is down, load, decide, put it back."""
    geometry, number = stage.geometry, stage.number(op)
    machine = stage.machines(who)[0]
    assert machine.replica is None
    places = (stage.witness_at(number), stage.prepare_at(number))
    kept = [machine.disk.peek(at, SECTOR_SIZE) for at in places]
    for at, content in zip(places, contents, strict=True):
        machine.disk.poke(at, _slot_content(stage, number, content))
    loaded = opening.load(geometry, machine.disk.flush_all, machine.disk.read_many)
    for at, data in zip(places, kept, strict=True):
        machine.disk.poke(at, data)
    ops = [h.op for s in loaded.slots for h in (s.witness_header, s.prepare_header) if h]
    row, decision = recovery.decide(
        loaded.slots[number % geometry.slot_count],
        solo=solo,
        op_max=max(o for o in ops if contents[1] == "beyond" or o <= number),
        limit=geometry.prepare_max(loaded.superblock.checkpoint.header.op),
    )
    return row, decision.name.lower()


def _slot_content(stage: Stage, op: int, content: str) -> bytes:
    """A sector of either ring: `bad`, `nil`, or a prepare without a body."""
    count = stage.geometry.slot_count
    if content == "bad":
        return b"?" * SECTOR_SIZE
    if content == "nil":
        header = env.reserved(op % count, stage.cluster.cluster, 0)
    else:
        turn, view = {"older": (-1, 1), "own": (0, 1), "other": (0, 2), "beyond": (1, 1)}[content]
        header = env.make(
            env.PREPARE,
            cluster=stage.cluster.cluster,
            shard=0,
            epoch=0,
            view=view,
            operation=env.OPERATION_NOOP,
            op=op + turn * count,
        )
    return header.raw.ljust(SECTOR_SIZE, b"\0")


@sights.line("{who} refused frames of {whom} for {reason}")
def refused(stage: Stage, who: str, whom: str, reason: str) -> bool:
    """The link's checks dropped and counted them."""
    frames = stage.wire.frames
    assert frames is not None
    return all(
        frames.drops[source, target][reason] > 0
        for source in stage.nodes(whom)
        for target in stage.nodes(who)
        if source != target
    )


@sights.line("the damage to {who} is healed")
def healed(stage: Stage, who: str) -> bool:
    """Where the story put wrong bytes, the right ones lie again."""
    found = [item for item in stage.damage if item[0] in stage.nodes(who)]
    return bool(found) and all(
        stage.cluster.machines[i].disk.peek(address, len(before)) == before
        for i, address, before, _ in found
    )


@sights.line("{who} dropped {reason}")
def dropped(stage: Stage, who: str, reason: str) -> bool:
    """Counted since the process started."""
    return all(stage.replica(i).counters.get("dropped_" + reason) for i in stage.nodes(who))


@sights.line("{who} counted {reason}")
def counted(stage: Stage, who: str, reason: str) -> bool:
    return all(stage.replica(i).counters.get(reason) for i in stage.nodes(who))


# --- since `watch` ------------------------------------------------------------------------------


@sights.line("mark {name}")
def mark(stage: Stage, name: str) -> bool:
    """Some replica took this rare path."""
    return stage.cluster.marks.get(name, 0) > stage.mark_from.get(name, 0)


@sights.line("no mark {name}")
def no_mark(stage: Stage, name: str) -> bool:
    return not mark(stage, name)


@sights.line("{who} sent no {command} above op {op}")
def sent_none_above(stage: Stage, who: str, command: str, op: str) -> bool:
    return not any(
        header.op > stage.number(op)
        for i in stage.nodes(who)
        for _, header in stage.sent(i, COMMANDS[command])
    )


@sights.line("{who} sent no {command} of op {op}")
def sent_none_of(stage: Stage, who: str, command: str, op: str) -> bool:
    return not any(
        header.op == stage.number(op)
        for i in stage.nodes(who)
        for _, header in stage.sent(i, COMMANDS[command])
    )


@sights.line("{who} sent {command} of op {op}")
def sent_of(stage: Stage, who: str, command: str, op: str) -> bool:
    return all(
        any(header.op == stage.number(op) for _, header in stage.sent(i, COMMANDS[command]))
        for i in stage.nodes(who)
    )


@sights.line("{who} sent no {command} to {whom}")
def sent_none_to(stage: Stage, who: str, command: str, whom: str) -> bool:
    targets = stage.nodes(whom)
    return not any(
        target in targets
        for i in stage.nodes(who)
        for target, _ in stage.sent(i, COMMANDS[command])
    )


@sights.line("{who} sent {command} to {whom}")
def sent_to(stage: Stage, who: str, command: str, whom: str) -> bool:
    targets = stage.nodes(whom)
    return all(
        any(target in targets for target, _ in stage.sent(i, COMMANDS[command]))
        for i in stage.nodes(who)
    )


@sights.line("{who} sent no {command}")
def sent_none(stage: Stage, who: str, command: str) -> bool:
    return not any(stage.sent(i, COMMANDS[command]) for i in stage.nodes(who))


@sights.line("{who} sent at most {n} {command}")
def sent_few(stage: Stage, who: str, n: str, command: str) -> bool:
    return all(len(stage.sent(i, COMMANDS[command])) <= stage.number(n) for i in stage.nodes(who))


@sights.line("{who} sent {command}")
def sent_some(stage: Stage, who: str, command: str) -> bool:
    return all(stage.sent(i, COMMANDS[command]) for i in stage.nodes(who))


@sights.line("{who} wrote nothing")
def wrote_nothing(stage: Stage, who: str) -> bool:
    """Not a byte reached for the disk."""
    return not any(i in stage.wrote for i in stage.nodes(who))


# --- clients ------------------------------------------------------------------------------------


@sights.line("{who} answered")
def answered(stage: Stage, who: str) -> bool:
    """Nothing that these clients asked waits for its answer."""
    return all(
        not s.in_flight and not s.changes and s.session.core.ready for s in stage.talkers(who)
    )


@sights.line("{who} waits", "{who} wait")
def waits(stage: Stage, who: str) -> bool:
    return all(s.in_flight for s in stage.talkers(who))


@sights.line("{who} was answered op {op}")
def answered_op(stage: Stage, who: str, op: str) -> bool:
    """The op of the newest answer."""
    return all(s.answers[-1][0].op == stage.number(op) for s in stage.talkers(who))


@sights.line("{who} was answered in view {n}")
def answered_in(stage: Stage, who: str, n: str) -> bool:
    """The view in which the request of the newest answer was prepared."""
    return all(s.answers[-1][0].view == stage.number(n) for s in stage.talkers(who))


@sights.line("{who} got its newest reply again")
def got_again(stage: Stage, who: str) -> bool:
    """Since `watch`, byte for byte."""
    for speaker in stage.talkers(who):
        header, results = speaker.answers[-1]
        node = stage.member_count + speaker.session.edge
        found = [
            message
            for _, target, message in stage.wire.sent_log[stage.sent_from :]
            if target == node and message.header.command == env.REPLY
        ]
        if not found or any(
            m.header.digest != header.digest or bytes(m.body[128:]) != results for m in found
        ):
            return False
    return True


@sights.line("the log reads {rest}")
def log_reads(stage: Stage, rest: str) -> bool:
    """Records of the room in order, as `C1:1 C2:1 C1:2`."""
    devices = {s.device.client_id: s.number for s in stage.speakers}
    keys = stage.checkers.rooms.rooms[ROOM].keys
    found = [f"C{devices[k.client_id]}:{k.client_seq}" for k in keys if k.client_id in devices]
    return found == rest.split()


@sights.line("{who} was answered in epoch {n}")
def answered_in_epoch(stage: Stage, who: str, n: str) -> bool:
    """The epoch in which the request of the newest answer was prepared."""
    return all(s.answers[-1][0].epoch == stage.number(n) for s in stage.talkers(who))


@sights.line("{who} was told {rest}")
def was_told(stage: Stage, who: str, rest: str) -> bool:
    """Codes of the newest answer, one a record: `ok`, `duplicate`, `limit`, `storage_full` .."""
    return all(s.codes == rest.split() for s in stage.talkers(who))


@sights.line("{who} was evicted {n} times", "{who} was evicted {n} time")
def evicted(stage: Stage, who: str, n: str) -> bool:
    return all(s.evictions == stage.number(n) for s in stage.talkers(who))


@sights.line("every record once")
def every_record_once(stage: Stage) -> bool:
    """All that was asked was applied, and nothing twice: the room holds as many as were asked."""
    asked = sum(s.device.asked for s in stage.speakers)
    return (
        all(not s.in_flight for s in stage.speakers) and stage.checkers.rooms.log_seq == 1 + asked
    )


# --- fields, last because they fit nearly everything ---------------------------------------------


@sights.line("{who} {what} at least {value}")
def at_least(stage: Stage, who: str, what: str, value: str) -> bool:
    return _compare(stage, who, what, "at least", value)


@sights.line("{who} {what} at most {value}")
def at_most(stage: Stage, who: str, what: str, value: str) -> bool:
    return _compare(stage, who, what, "at most", value)


@sights.line("{who} {what} above {value}")
def above(stage: Stage, who: str, what: str, value: str) -> bool:
    return _compare(stage, who, what, "above", value)


@sights.line("{who} {what} not {value}")
def unequal(stage: Stage, who: str, what: str, value: str) -> bool:
    return _compare(stage, who, what, "not", value)


@sights.line("{who} {what} {value}")
def equal(stage: Stage, who: str, what: str, value: str) -> bool:
    return _compare(stage, who, what, "", value)


def _compare(stage: Stage, who: str, what: str, how: str, value: str) -> bool:
    compare = COMPARISONS.get(how, lambda found, wanted: found == wanted)
    for index in stage.nodes(who):
        replica = stage.replica(index)
        found = FIELDS[what](replica) if what in FIELDS else getattr(replica, what)
        wanted = value if isinstance(found, str) else stage.number(value)
        if not compare(found, wanted):
            return False
    return True
