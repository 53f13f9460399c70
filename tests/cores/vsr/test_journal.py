"""Slots in memory: the three cases of an install, and what may never be denied."""

import pytest

from appliance.cores.vsr.journal import Journal
from appliance.formats.envelope import Header
from appliance.formats.geometry import SMALL
from tests.cores.vsr.chain import prepare

S = SMALL.slot_count
MINE, OTHER, LATER = prepare(7).header, prepare(7, view=1).header, prepare(7 + S).header


def journal(known: Header | None = None, *, dirty: int = 0, faulty: int = 0) -> Journal:
    out = Journal(SMALL)
    out.headers[7] = known
    out.set_faulty(7, faulty)
    out.set_dirty(7, dirty or faulty)
    if known is not None and not dirty and not faulty:
        out.present[7] = known.digest
    return out


@pytest.mark.parametrize("dirty, faulty", [(0, 0), (1, 0), (1, 1)])
def test_the_same_header_changes_nothing(dirty: int, faulty: int) -> None:
    it = journal(MINE, dirty=dirty, faulty=faulty)
    it.install(prepare(7).header)
    assert (it.dirty[7], it.faulty[7]) == (dirty, faulty)
    it.check()


@pytest.mark.parametrize("faulty", [0, 1])
def test_a_header_for_an_unknown_slot_leaves_its_fault(faulty: int) -> None:
    """The lost entry may have been exactly this one."""
    it = journal(None, faulty=faulty)
    it.install(MINE)
    assert (it.dirty[7], it.faulty[7]) == (1, faulty)
    assert it.at(7) is MINE
    it.check()


@pytest.mark.parametrize("header", [OTHER, LATER])
@pytest.mark.parametrize("dirty, faulty", [(0, 0), (1, 0), (1, 1)])
def test_another_header_for_a_known_slot_clears_its_fault(
    header: Header, dirty: int, faulty: int
) -> None:
    """What was lost had the other name, so it cannot have been this one."""
    it = journal(MINE, dirty=dirty, faulty=faulty)
    it.install(header)
    assert (it.dirty[7], it.faulty[7]) == (1, 0)
    assert it.at(header.op) is header
    it.check()


def test_a_lower_op_never_takes_a_slot() -> None:
    it = journal(LATER)
    with pytest.raises(AssertionError):
        it.install(MINE)


def test_becoming_clean_needs_the_slots_own_header() -> None:
    it = journal(MINE, faulty=1)
    with pytest.raises(AssertionError):
        it.set_clean(OTHER)
    it.set_clean(MINE)
    assert it.clean(MINE) and it.readable(MINE) and not it.clean(OTHER)
    assert it.faulty_count == it.dirty_count == 0
    it.check()


def test_what_cannot_be_read_back_is_faulty_and_keeps_its_name() -> None:
    it = journal(MINE)
    it.set_broken(7)
    assert it.at(7) is MINE and it.faulty[7] and it.dirty[7] and not it.readable(MINE)
    it.check()


def test_a_truncated_slot_is_empty_and_still_readable() -> None:
    it = journal(MINE)
    it.remove(7)
    assert it.at(7) is None and not it.dirty[7] and it.readable(MINE)
    it.check()


def test_counts_follow_every_change() -> None:
    it = Journal(SMALL)
    for op in range(1, 40):
        it.install(prepare(op).header)
        it.set_faulty(op % S, op % 3 == 0)
        it.check()
    assert (it.dirty_count, it.faulty_count) == (39, 13)
    for op in range(1, 40):
        it.set_clean(it.at(op))
        it.check()
    assert (it.dirty_count, it.faulty_count) == (0, 0)
    assert it.op_maximum() == 39 and Journal(SMALL).op_maximum() == -1
