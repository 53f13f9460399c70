"""What two rings of a write-ahead log say after a crash: the decision table, the torn tail, the
head.

The header ring is a witness, written strictly after its prepare was durable; the acknowledgement
left strictly after the witness. So an unreadable prepare with an older witness was never
acknowledged, while an unreadable prepare with its own witness was durable once and must not be
denied. `docs/protocol.md` has the table.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from appliance.cores.vsr.journal import Journal
from appliance.formats import envelope
from appliance.formats.envelope import Header
from appliance.formats.geometry import HEADER_SIZE, Geometry


class Found(IntEnum):
    """What one ring holds in a slot."""

    BAD = 0  # unreadable, wrong digest, wrong place, or padding that is not zero
    NIL = 1  # reserved: never used since format
    OP = 2  # a prepare's header


class Decision(IntEnum):
    """What becomes of a slot."""

    CLEAN = 0  # both rings agree
    EMPTY = 1  # never used
    FIX = 2  # the prepare stands, its witness is written again
    FAULTY = 3  # something may have been acknowledged here and cannot be read
    CUT = 4  # prepared beyond what this checkpoint may hold: never acknowledged
    TORN = 5  # an append that a crash interrupted: never acknowledged
    HALT = 6  # a lone replica has nobody to ask


@dataclass(slots=True)
class Slot:
    """Both rings of one slot, as the loader read them."""

    witness: Found
    witness_header: Header | None
    prepare: Found
    prepare_header: Header | None


def read_header(
    raw: bytes | None, *, index: int, cluster: bytes, shard: int, geometry: Geometry
) -> tuple[Found, Header | None]:
    """Judge 128 bytes found in slot `index` of either ring."""
    assert 0 <= index < geometry.slot_count
    if raw is None:
        return Found.BAD, None
    header = envelope.decode_stored(raw[:HEADER_SIZE])
    if header is None or header.command != envelope.PREPARE:
        return Found.BAD, None
    if header.cluster != cluster or header.shard != shard:
        return Found.BAD, None
    if header.operation == envelope.OPERATION_RESERVED:
        return (Found.NIL, None) if header.op == index else (Found.BAD, None)
    if header.op % geometry.slot_count != index:
        return Found.BAD, None
    return Found.OP, header


def decide(
    slot: Slot, *, op_max: int, limit: int, solo: bool, log_viewstamp: int = -1
) -> tuple[int, Decision]:
    """(row of the table, decision), FAULTY where rows 2 and 3 may still turn out to be torn.

    Row 14, two prepares of one op: one log has one prepare at an op, so that which was prepared in
    the view of our durable log is the one that log holds. The witness is then of an older log that
    this one replaced, or of a newer one in which nothing was acknowledged, for its log_view is not
    durable. Without that nobody can know which of the two came last.
    """
    assert limit >= 0
    assert (slot.prepare == Found.OP) == (slot.prepare_header is not None)
    assert (slot.witness == Found.OP) == (slot.witness_header is not None)
    w, p = slot.witness, slot.prepare
    w_op = slot.witness_header.op if slot.witness_header is not None else -1
    p_op = slot.prepare_header.op if slot.prepare_header is not None else -1
    lost = Decision.HALT if solo else Decision.FAULTY
    if p == Found.OP and p_op > limit:
        return 8, Decision.CUT
    if w == Found.OP and w_op > limit and p != Found.BAD:
        return 9, Decision.CUT
    if p == Found.BAD:
        if w == Found.BAD:
            return 1, lost
        return (2 if w == Found.NIL else 3), lost
    if p == Found.NIL:
        if w == Found.BAD:
            return 4, Decision.FIX if solo else Decision.FAULTY
        if w == Found.NIL:
            return 11, Decision.EMPTY
        return 10, lost
    if w == Found.BAD:
        if p_op == op_max:
            return 6, Decision.FIX
        return 5, Decision.FIX if solo else Decision.FAULTY
    if w == Found.NIL:
        return 7, Decision.FIX
    assert slot.witness_header is not None
    assert slot.prepare_header is not None
    if w_op < p_op:
        return 12, Decision.FIX
    if w_op > p_op:
        return 13, lost
    if slot.witness_header.digest == slot.prepare_header.digest:
        return 15, Decision.CLEAN
    if slot.prepare_header.viewstamp == log_viewstamp:
        return 14, Decision.FIX
    return 14, lost


def torn(
    slots: list[Slot],
    decisions: list[Decision],
    *,
    op_max: int,
    limit: int,
    checkpoint: int,
    geometry: Geometry,
) -> list[int]:
    """Slots whose unreadable prepares were appends in flight at the crash: in the tail all of them
    or none, and those just below the highest op, whose writes overtook them.
    """
    size = geometry.slot_count
    assert len(slots) == len(decisions) == size
    overtaken = _overtaken(slots, decisions, op_max, checkpoint, geometry)
    tail = [
        op
        for op in range(op_max + 1, limit + 1)
        if decisions[op % size] in (Decision.FAULTY, Decision.HALT)
    ]
    if len(tail) + len(overtaken) > geometry.wal_writes_max:
        return []
    for op in tail:
        slot = slots[op % size]
        if slot.prepare != Found.BAD or slot.witness == Found.BAD:
            return []
        if slot.witness == Found.OP:
            assert slot.witness_header is not None
            if slot.witness_header.op > checkpoint:
                return []
        if op > op_max + geometry.wal_writes_max:
            return []
    return [op % size for op in (*overtaken, *tail)]


def _overtaken(
    slots: list[Slot], decisions: list[Decision], op_max: int, checkpoint: int, geometry: Geometry
) -> list[int]:
    """Ops below the highest one whose append never finished while a later one's did.

    Up to `wal_writes_max` prepares are in flight at once, so one may be torn and the next one
    whole. A witness that is nil, or of the op one ring before, says that this append was never
    witnessed, hence never acknowledged: what an acknowledged one leaves is its own witness.
    """
    size = geometry.slot_count
    found = []
    for op in range(max(checkpoint + 1, op_max - geometry.wal_writes_max + 1), op_max):
        slot = slots[op % size]
        if decisions[op % size] != Decision.FAULTY or slot.prepare != Found.BAD:
            continue
        witnessed = slot.witness_header.op if slot.witness_header is not None else -1
        if slot.witness == Found.NIL or witnessed == op - size:
            found.append(op)
    return found


@dataclass(slots=True)
class Recovered:
    """A journal, and what is to be done about it."""

    journal: Journal
    # slots whose witness must be written again
    rewrite: list[int] = field(default_factory=list)
    halted: bool = False  # a lone replica met a slot that it cannot read
    invalid: bool = False  # not one slot could be read
    rows: dict[int, int] = field(default_factory=dict)  # row of the table -> slots


def recover(
    slots: list[Slot],
    *,
    geometry: Geometry,
    checkpoint: int,
    view_headers: list[Header],
    log_viewstamp: int,
    solo: bool,
) -> Recovered:
    """Apply the table, the torn rule and the view ranges to all slots."""
    assert len(slots) == geometry.slot_count
    assert checkpoint >= 0
    journal = Journal(geometry)
    out = Recovered(journal)
    limit = geometry.prepare_max(checkpoint)
    op_max = max(
        (h.op for s in slots for h in (s.witness_header, s.prepare_header) if h is not None),
        default=0,
    )
    decisions = []
    for slot in slots:
        row, decision = decide(
            slot, op_max=op_max, limit=limit, solo=solo, log_viewstamp=log_viewstamp
        )
        out.rows[row] = out.rows.get(row, 0) + 1
        decisions.append(decision)
    for index in torn(
        slots, decisions, op_max=op_max, limit=limit, checkpoint=checkpoint, geometry=geometry
    ):
        decisions[index] = Decision.TORN
    for index, (slot, decision) in enumerate(zip(slots, decisions, strict=True)):
        if slot.prepare_header is not None:
            journal.present[index] = slot.prepare_header.digest
        if decision == Decision.CLEAN:
            journal.headers[index] = slot.witness_header
        elif decision == Decision.FIX and slot.prepare_header is not None:
            journal.headers[index] = slot.prepare_header
            journal.set_dirty(index, 1)
            out.rewrite.append(index)
        elif decision == Decision.FIX:
            out.rewrite.append(index)
        elif decision in (Decision.FAULTY, Decision.HALT):
            journal.set_faulty(index, 1)
            out.halted = out.halted or decision == Decision.HALT
    out.invalid = journal.faulty_count == geometry.slot_count
    assert sum(out.rows.values()) == geometry.slot_count
    assert 0 <= journal.faulty_count <= journal.dirty_count
    drop_foreign(journal, view_headers, log_viewstamp)
    out.rewrite = [
        i for i in out.rewrite if journal.headers[i] is not None or journal.present[i] is None
    ]
    return out


def drop_foreign(journal: Journal, view_headers: list[Header], log_viewstamp: int) -> None:
    """Empty the slots whose header cannot belong to the log of that epoch and view.

    A crash between joining a view and persisting it leaves prepares of a log this member never
    promised.
    """
    valid = [h for h in view_headers if h.operation != envelope.OPERATION_RESERVED]
    assert valid
    for slot, header in enumerate(journal.headers):
        if header is None or header.op == 0:
            continue
        if not _fits(header, valid, log_viewstamp):
            journal.headers[slot] = None
            journal.set_faulty(slot, 0)
            journal.set_dirty(slot, 0)


def _fits(header: Header, valid: list[Header], log_viewstamp: int) -> bool:
    assert valid
    assert header.op > 0
    if header.op > valid[0].op:
        return header.viewstamp == log_viewstamp
    upper = valid[0]
    for lower in valid:
        if header.op == lower.op:
            return header.viewstamp == lower.viewstamp
        if header.op > lower.op:
            return lower.viewstamp <= header.viewstamp <= upper.viewstamp
        upper = lower
    return header.viewstamp <= valid[-1].viewstamp


def head(
    journal: Journal,
    *,
    view: int,
    log_view: int,
    view_headers: list[Header],
    checkpoint_header: Header,
    geometry: Geometry,
) -> int:
    """The op of the head, after installing what the durable list says of it.

    A list that begins beyond what the ring can hold tells that what lies here may be of a log that
    was cut since: what links the two is not known yet. Then the list's highest header that fits is
    the head, else the checkpoint; a start_view tells the rest.
    """
    assert log_view <= view
    limit = geometry.prepare_max(checkpoint_header.op)
    listed = [h for h in view_headers if h.operation != envelope.OPERATION_RESERVED]
    trusted = view == log_view and listed[0].op <= limit
    candidate = journal.op_maximum() if trusted else -1
    fitting = next((h for h in listed if h.op <= limit), None)
    if fitting is not None and fitting.op >= candidate:
        candidate = fitting.op
        journal.install(fitting)
    if candidate < checkpoint_header.op:
        journal.install(checkpoint_header)
        candidate = checkpoint_header.op
    if candidate == checkpoint_header.op and journal.at(candidate) is None:
        journal.install(checkpoint_header)
    for known in journal.headers:
        if known is not None and known.op > candidate:
            journal.remove(known.op)
    assert journal.at(candidate) is not None
    assert checkpoint_header.op <= candidate
    return candidate


def head_certain(journal: Journal, op: int, checkpoint: int, geometry: Geometry) -> bool:
    """Whether nothing above or at the head may have been acknowledged and lost."""
    assert checkpoint <= op
    limit = geometry.prepare_max(checkpoint)
    if op >= limit:
        return True
    return not any(journal.faulty[journal.slot(n)] for n in range(op, limit + 1))
