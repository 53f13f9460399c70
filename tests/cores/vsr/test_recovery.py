"""What two rings say after a crash: the table, the torn tail, the ranges of views, the head."""

from itertools import product
from typing import NamedTuple

import pytest

from appliance.cores.vsr import recovery
from appliance.cores.vsr.journal import Journal
from appliance.cores.vsr.recovery import Decision, Found, Slot, decide, recover
from appliance.formats import envelope as env
from appliance.formats.envelope import Header
from appliance.formats.geometry import SMALL
from tests.cores.vsr.chain import ROOT, blank, chain, prepare
from tests.cores.vsr.group import CLUSTER, SHARD

BAD, NIL, OP = Found
S = SMALL.slot_count
LIMIT = SMALL.prepare_max(0)  # 56
WRITES = SMALL.wal_writes_max  # 4


# --- the table, written a second time -------------------------------------------------------------


class Case(NamedTuple):
    """What a row of the table may look at."""

    witness: Found
    prepare: Found
    a: int  # op of the witness
    b: int  # op of the prepare
    same: bool  # one digest
    limit: int
    top: bool  # the prepare's op is the highest of all


ROWS = {
    1: lambda c: c.witness == BAD and c.prepare == BAD,
    2: lambda c: c.witness == NIL and c.prepare == BAD,
    3: lambda c: c.witness == OP and c.prepare == BAD,
    4: lambda c: c.witness == BAD and c.prepare == NIL,
    5: lambda c: c.witness == BAD and c.prepare == OP and c.b <= c.limit and not c.top,
    6: lambda c: c.witness == BAD and c.prepare == OP and c.b <= c.limit and c.top,
    7: lambda c: c.witness == NIL and c.prepare == OP and c.b <= c.limit,
    8: lambda c: c.prepare == OP and c.b > c.limit,
    9: lambda c: (
        c.witness == OP
        and c.a > c.limit
        and (c.prepare == NIL or c.prepare == OP and c.b <= c.limit)
    ),
    10: lambda c: c.witness == OP and c.a <= c.limit and c.prepare == NIL,
    11: lambda c: c.witness == NIL and c.prepare == NIL,
    12: lambda c: c.witness == OP and c.prepare == OP and c.a < c.b <= c.limit,
    13: lambda c: c.witness == OP and c.prepare == OP and c.limit >= c.a > c.b,
    14: lambda c: c.witness == OP and c.prepare == OP and c.a == c.b <= c.limit and not c.same,
    15: lambda c: c.witness == OP and c.prepare == OP and c.a == c.b <= c.limit and c.same,
}
LOST = "faulty, alone halt"
VERDICTS = {
    1: LOST,
    2: LOST,
    3: LOST,
    4: "faulty, alone fix",
    5: "faulty, alone fix",
    6: "fix",
    7: "fix",
    8: "cut",
    9: "cut",
    10: LOST,
    11: "empty",
    12: "fix",
    13: LOST,
    14: LOST,
    15: "clean",
}


def verdict(row: int, solo: bool) -> Decision:
    words = VERDICTS[row].split(", alone ")
    return Decision[words[-1 if solo else 0].upper()]


INDEX = 5
OLD, MIDDLE, NEW = (prepare(op).header for op in (INDEX, INDEX + S, INDEX + 2 * S))
OLD_B, MIDDLE_B, NEW_B = (prepare(op, view=1).header for op in (INDEX, INDEX + S, INDEX + 2 * S))
RING: list[tuple[Found, Header | None]] = [
    (BAD, None),
    (NIL, None),
    *((OP, h) for h in (OLD, OLD_B, MIDDLE, MIDDLE_B, NEW, NEW_B)),
]
LIMITS = (
    INDEX - 1,
    INDEX,
    INDEX + 1,
    INDEX + S - 1,
    INDEX + S,
    INDEX + S + 1,
    INDEX + 2 * S - 1,
    INDEX + 2 * S,
)


def cases() -> list[tuple[Slot, int, int, Case]]:
    out = []
    for (w, wh), (p, ph), limit, above in product(RING, RING, LIMITS, (0, 1, 100)):
        ops = [h.op for h in (wh, ph) if h is not None]
        op_max = max(ops, default=0) + above
        case = Case(
            w,
            p,
            wh.op if wh else -1,
            ph.op if ph else -1,
            wh is not None and ph is not None and wh.digest == ph.digest,
            limit,
            ph is not None and ph.op == op_max,
        )
        out.append((Slot(w, wh, p, ph), op_max, limit, case))
    return out


def test_recovery_decision_table_exhaustive() -> None:
    met: dict[int, int] = {}
    for slot, op_max, limit, case in cases():
        matching = [row for row, holds in ROWS.items() if holds(case)]
        assert len(matching) == 1, f"rows {matching} for {case}: not exclusive or not exhaustive"
        for solo in (False, True):
            found = decide(slot, op_max=op_max, limit=limit, solo=solo)
            assert found == (matching[0], verdict(matching[0], solo)), case
        met[matching[0]] = met.get(matching[0], 0) + 1
    assert sorted(met) == list(range(1, 16)), "every row is met"


# --- what a decision leaves in the journal --------------------------------------------------------


def ring(clean: dict[int, Header] | int = 0) -> list[Slot]:
    """All slots as format left them, then clean with these headers (or a chain of so many)."""
    slots = [Slot(NIL, None, NIL, None) for _ in range(S)]
    slots[0] = Slot(OP, ROOT, OP, ROOT)
    headers = {op: m.header for op, m in chain(clean).items()} if isinstance(clean, int) else clean
    for op, header in headers.items():
        slots[op % S] = Slot(OP, header, OP, header)
    return slots


def recovered(
    slots: list[Slot],
    *,
    checkpoint: int = 0,
    solo: bool = False,
    view_headers: list[Header] | None = None,
    log_view: int = 0,
) -> recovery.Recovered:
    out = recover(
        slots,
        geometry=SMALL,
        checkpoint=checkpoint,
        view_headers=view_headers or [ROOT],
        log_viewstamp=log_view,
        solo=solo,
    )
    out.journal.check()
    return out


def state(out: recovery.Recovered, slot: int) -> tuple[Header | None, int, int, bool]:
    journal = out.journal
    return journal.headers[slot], journal.dirty[slot], journal.faulty[slot], slot in out.rewrite


@pytest.mark.parametrize(
    "slot, expected, present",
    [
        (Slot(OP, OLD, OP, OLD), (OLD, 0, 0, False), OLD),  # clean
        (Slot(NIL, None, NIL, None), (None, 0, 0, False), None),  # empty
        (Slot(NIL, None, OP, OLD), (OLD, 1, 0, True), OLD),  # fix: dirty until rewritten
        (Slot(BAD, None, OP, OLD), (None, 1, 1, False), OLD),  # faulty, and yet it can be served
        (Slot(OP, OLD, OP, OLD_B), (None, 1, 1, False), OLD_B),
        (Slot(OP, OLD, NIL, None), (None, 1, 1, False), None),
        (Slot(OP, OLD, BAD, None), (None, 1, 1, False), None),
        (Slot(BAD, None, BAD, None), (None, 1, 1, False), None),
        (Slot(OP, MIDDLE, OP, MIDDLE), (None, 0, 0, False), MIDDLE),
    ],
)  # cut, and yet readable
def test_a_decision_leaves_the_slot_as_the_table_says(
    slot: Slot, expected: tuple[object, ...], present: Header | None
) -> None:
    slots = ring(10)
    slots[INDEX] = slot
    out = recovered(slots)
    assert state(out, INDEX) == expected
    assert out.journal.present[INDEX] == (present.digest if present else None)
    assert not out.halted


def test_a_lone_replica_halts_on_what_it_cannot_read_and_mends_a_witness() -> None:
    slots = ring(10)
    slots[INDEX] = Slot(OP, OLD, BAD, None)
    assert recovered(slots, solo=True).halted
    slots[INDEX] = Slot(BAD, None, OP, OLD)
    out = recovered(slots, solo=True)
    assert not out.halted and state(out, INDEX) == (OLD, 1, 0, True)
    slots[INDEX + 20] = Slot(BAD, None, NIL, None)
    out = recovered(slots, solo=True)
    assert not out.halted and state(out, INDEX + 20) == (None, 0, 0, True)


def test_not_one_readable_slot_is_an_invalid_log() -> None:
    slots = [Slot(BAD, None, BAD, None) for _ in range(S)]
    assert recovered(slots).invalid
    slots[7] = Slot(NIL, None, NIL, None)
    assert not recovered(slots).invalid


# --- the torn tail --------------------------------------------------------------------------------


def tail(
    head: int,
    broken: dict[int, tuple[Found, Header | None]],
    *,
    checkpoint: int = 0,
    clean: dict[int, Header] | int | None = None,
) -> list[int]:
    """Ops that are torn, when these slots hold such a witness and no readable prepare."""
    slots = ring(head if clean is None else clean)
    for op, (found, header) in broken.items():
        slots[op % S] = Slot(found, header, BAD, None)
    journal = recovered(slots, checkpoint=checkpoint).journal
    for op in broken:
        assert journal.headers[op % S] is None
        assert journal.dirty[op % S] == journal.faulty[op % S]
    return [op for op in broken if not journal.faulty[op % S]]


NEVER = (NIL, None)


def test_recovery_torn_tail_one() -> None:
    assert tail(10, {11: NEVER}) == [11]


def test_recovery_torn_tail_all_in_flight() -> None:
    whole = {10 + i: NEVER for i in range(1, WRITES + 1)}
    assert tail(10, whole) == list(whole)


def test_one_more_than_can_be_in_flight_is_not_torn() -> None:
    assert tail(10, {10 + i: NEVER for i in range(1, WRITES + 2)}) == []


def test_a_slot_further_than_writes_can_reach_makes_none_of_them_torn() -> None:
    assert tail(10, {10 + WRITES: NEVER}) == [10 + WRITES]
    assert tail(10, {10 + WRITES + 1: NEVER}) == []
    assert tail(10, {11: NEVER, 10 + WRITES + 1: NEVER}) == []


def test_a_witness_that_cannot_be_read_makes_none_of_them_torn() -> None:
    assert tail(10, {11: (BAD, None)}) == []
    assert tail(10, {11: NEVER, 12: (BAD, None)}) == []


def test_a_witness_of_its_own_prepare_is_a_loss_not_a_tear() -> None:
    lost = prepare(11).header
    assert tail(10, {11: (OP, lost)}) == [], "its witness was durable: it was acknowledged, maybe"
    assert tail(10, {11: (OP, lost), 12: NEVER}) == [12], "the head is 11 then; 12 is torn"


def test_a_witness_of_the_ring_before_is_a_tear_if_the_checkpoint_covers_it() -> None:
    headers = {op: m.header for op, m in chain(66).items() if op > 2}
    old = chain(66)[3].header
    slots = {67: (OP, old)}
    assert tail(66, slots, checkpoint=48, clean=headers) == [67]


def test_an_append_that_a_later_one_overtook_is_torn_if_it_was_never_witnessed() -> None:
    assert tail(10, {9: NEVER}) == [9]
    assert tail(10, {9: NEVER, 11: NEVER}) == [9, 11]
    assert tail(10, {9: (OP, prepare(9).header)}) == [], "it was durable: acknowledged, maybe"
    assert tail(10, {9: (BAD, None)}) == []
    assert tail(20, {20 - WRITES: NEVER}) == [], "so far below nothing was in flight"
    wave = dict.fromkeys((8, 9, *range(11, 10 + WRITES)), NEVER)
    assert tail(10, wave) == [], "more than were in flight: none of them"


def test_what_a_checkpoint_covers_is_not_torn() -> None:
    headers = {op: m.header for op, m in chain(50).items() if op != 47}
    assert tail(50, {47: NEVER}, checkpoint=48, clean=headers) == []


def test_of_two_prepares_of_one_op_that_of_our_own_log_counts() -> None:
    old, new = prepare(7, view=2).header, prepare(7, view=5).header
    slot = Slot(OP, old, OP, new)
    arguments = {"op_max": 7, "limit": LIMIT, "solo": False}
    assert decide(slot, log_viewstamp=5, **arguments) == (14, Decision.FIX)
    assert decide(slot, log_viewstamp=4, **arguments) == (14, Decision.FAULTY)
    assert decide(slot, log_viewstamp=1 << 32 | 5, **arguments) == (14, Decision.FAULTY)
    slots = ring(6)
    slots[7] = slot
    found = recovered(slots, log_view=5)
    assert found.journal.at(7) is new and found.journal.dirty[7] and not found.journal.faulty[7]


def test_beyond_what_the_checkpoint_may_hold_nothing_is_torn() -> None:
    slots = ring(LIMIT)
    slots[(LIMIT + 1) % S] = Slot(NIL, None, BAD, None)
    assert recovered(slots).journal.faulty[(LIMIT + 1) % S]


def test_recovery_solo_torn_tail_does_not_halt() -> None:
    slots = ring(10)
    slots[11] = Slot(NIL, None, BAD, None)
    out = recovered(slots, solo=True)
    assert not out.halted and state(out, 11) == (None, 0, 0, False)


def test_a_lost_acknowledgement_is_never_torn_whatever_was_in_flight() -> None:
    """Every acknowledged op has a durable witness; any of its prepares may be gone as well."""
    for head in (0, 3, 10):
        for lost in range(1, head + 1):
            for torn in range(WRITES + 1):
                slots = ring(head)
                slots[lost] = Slot(OP, slots[lost].witness_header, BAD, None)
                for op in range(head + 1, head + 1 + torn):
                    slots[op] = Slot(NIL, None, BAD, None)
                assert recovered(slots).journal.faulty[lost]


def test_a_witness_above_the_checkpoint_is_no_witness_of_an_earlier_ring() -> None:
    slots = ring(10)
    decisions = [Decision.CLEAN] * S
    for witness, expected in ((prepare(11 + S).header, []), (prepare(11).header, [])):
        slots[11] = Slot(OP, witness, BAD, None)
        decisions[11] = Decision.FAULTY
        found = recovery.torn(
            slots, decisions, op_max=10, limit=LIMIT, checkpoint=0, geometry=SMALL
        )
        assert found == expected
    found = recovery.torn(slots, decisions, op_max=10, limit=LIMIT, checkpoint=11, geometry=SMALL)
    assert found == [11]


# --- headers that cannot belong to the log --------------------------------------------------------


def kept(op: int, view: int, listed: list[tuple[int, int]], log_view: int) -> bool:
    """Whether a prepare of (op, view) stays beside a durable list of (op, view)."""
    headers = [prepare(o, view=v).header if v >= 0 else blank(o) for o, v in listed]
    journal = Journal(SMALL)
    journal.install(prepare(op, view=view).header)
    recovery.drop_foreign(journal, headers, log_view)
    journal.check()
    assert (journal.at(op) is None) == (not journal.dirty[op % S])
    return journal.at(op) is not None


LISTED = [(9, 5), (8, 4), (7, -1), (6, 2)]  # op, view; -1 = a blank


@pytest.mark.parametrize(
    "op, stays",
    [
        (10, {7}),  # above the list: exactly the view of the log
        (9, {5}),
        (8, {4}),
        (6, {2}),  # listed: that view
        (7, {2, 3, 4}),  # between: from the lower one's to the upper one's
        (5, {0, 1, 2}),
        (1, {0, 1, 2}),
    ],
)  # below: at most the lowest one's
def test_recovery_view_range_drops_future_prepares(op: int, stays: set[int]) -> None:
    assert {view for view in range(9) if kept(op, view, LISTED, log_view=7)} == stays


def test_a_dropped_slot_is_empty_and_not_rewritten() -> None:
    slots = ring(5)
    foreign = prepare(6, view=3).header
    slots[6] = Slot(NIL, None, OP, foreign)
    out = recovered(slots, log_view=0)
    assert state(out, 6) == (None, 0, 0, False)
    assert out.journal.present[6] == foreign.digest, "it can still be served to whoever wants it"


def test_the_root_is_never_dropped() -> None:
    journal = Journal(SMALL)
    journal.install(ROOT)
    recovery.drop_foreign(journal, [prepare(9, view=3).header], 3)
    assert journal.at(0) is ROOT


# --- the head -------------------------------------------------------------------------------------


def head_of(
    journal_ops: list[int],
    *,
    view: int = 0,
    log_view: int = 0,
    listed: list[Header] | None = None,
    checkpoint: Header = ROOT,
) -> tuple[int, Journal]:
    journal = Journal(SMALL)
    messages = chain(max([*journal_ops, 1]))
    for op in journal_ops:
        journal.install(messages[op].header if op else ROOT)
    op = recovery.head(
        journal,
        view=view,
        log_view=log_view,
        view_headers=listed or [ROOT],
        checkpoint_header=checkpoint,
        geometry=SMALL,
    )
    journal.check()
    assert journal.at(op) is not None
    assert journal.op_maximum() == op, "nothing lies above the head"
    return op, journal


def test_the_head_is_the_highest_header_of_the_log() -> None:
    assert head_of([0, 1, 2, 3])[0] == 3
    assert head_of([0, 1, 3])[0] == 3, "holes below do not matter"


def test_the_head_is_the_durable_lists_if_that_is_higher() -> None:
    listed = [prepare(5).header, prepare(4).header]
    op, journal = head_of([0, 1, 2], listed=listed)
    assert op == 5 and journal.at(5).digest == listed[0].digest and journal.dirty[5]


def test_with_a_view_promised_only_the_durable_list_is_trusted() -> None:
    listed = [chain(2)[2].header, chain(2)[1].header]
    assert head_of([0, 1, 2, 3, 4], view=2, log_view=1, listed=listed)[0] == 2


def test_blanks_and_what_the_ring_cannot_hold_are_passed_over() -> None:
    listed = [prepare(LIMIT + 2).header, prepare(LIMIT + 1).header, prepare(LIMIT).header]
    assert head_of([0, 1], view=2, log_view=1, listed=listed)[0] == LIMIT
    assert head_of([0, 1, 2], view=2, log_view=1, listed=[blank(5), chain(2)[2].header])[0] == 2


def test_what_lies_here_is_not_trusted_below_a_list_that_is_out_of_reach() -> None:
    """Swarm seed 108: op 2 of a log that was cut lay there, and became the head."""
    listed = [prepare(LIMIT + 2).header, prepare(LIMIT + 1).header]
    for log_view in (1, 2):
        assert head_of([0, 1, 2], view=2, log_view=log_view, listed=listed)[0] == 0
    hook = prepare(LIMIT - 1).header
    op, journal = head_of([0, 1, 2, LIMIT], view=2, log_view=2, listed=[*listed, hook])
    assert op == LIMIT - 1 and journal.at(op).digest == hook.digest


def test_an_empty_journal_starts_at_its_checkpoint() -> None:
    checkpoint = prepare(48).header
    op, journal = head_of([], listed=[prepare(2).header], checkpoint=checkpoint)
    assert op == 48 and journal.at(48).digest == checkpoint.digest


def certain(head: int, faulty: list[int], checkpoint: int = 0) -> bool:
    journal = Journal(SMALL)
    for op in range(max(0, head - S + 1), head + 1):
        journal.install(prepare(op).header if op else ROOT)
    for op in faulty:
        journal.set_faulty(op % S, 1)
    return recovery.head_certain(journal, head, checkpoint, SMALL)


@pytest.mark.parametrize(
    "faulty, verdict",
    [
        ([], True),
        ([9], True),
        ([10], False),
        ([11], False),
        ([LIMIT], False),
        ([LIMIT + 1], True),
        ([1, 5, 9], True),
        ([1, 30], False),
    ],
)
def test_the_head_is_certain_unless_it_or_a_slot_above_it_is_lost(
    faulty: list[int], verdict: bool
) -> None:
    assert certain(10, faulty) == verdict


def test_a_head_at_the_end_of_the_ring_is_certain() -> None:
    assert certain(LIMIT, [LIMIT]) and not certain(LIMIT - 1, [LIMIT])


# --- what counts as bad ---------------------------------------------------------------------------


def evaluated(raw: bytes | None, index: int = INDEX) -> Found:
    return recovery.read_header(raw, index=index, cluster=CLUSTER, shard=SHARD, geometry=SMALL)[0]


def flipped(raw: bytes, bit: int) -> bytes:
    out = bytearray(raw)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def test_a_header_at_another_place_or_of_another_log_is_bad() -> None:
    assert evaluated(OLD.raw) == OP and evaluated(MIDDLE.raw) == OP
    assert evaluated(blank(INDEX).raw) == NIL
    assert evaluated(None) == BAD and evaluated(bytes(128)) == BAD
    assert evaluated(OLD.raw, INDEX + 1) == BAD, "misdirected"
    assert evaluated(blank(INDEX + S).raw) == BAD, "a reserved entry names its slot"
    for cluster, shard in ((b"another cluster ", SHARD), (CLUSTER, SHARD + 1)):
        foreign = env.make(
            env.PREPARE, cluster=cluster, shard=shard, operation=env.OPERATION_NOOP, op=INDEX
        )
        assert evaluated(foreign.raw) == BAD
    other = env.make(env.PREPARE_OK, cluster=CLUSTER, shard=SHARD, op=INDEX)
    assert evaluated(other.raw) == BAD


def test_every_flipped_bit_of_a_header_is_found() -> None:
    assert all(evaluated(flipped(OLD.raw, bit)) == BAD for bit in range(128 * 8))
