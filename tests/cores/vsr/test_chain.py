"""How far down from the head a log is known to be linked, and when that is found anew."""

from appliance.cores.vsr.chain import Chain
from appliance.cores.vsr.journal import Journal
from appliance.formats.envelope import Header
from appliance.formats.geometry import SMALL
from tests.cores.vsr.chain import chain, prepare

HEADS = {op: message.header for op, message in chain(12).items()}


def found(last: int = 10, *, low: int = 1) -> tuple[Chain, Journal]:
    """A chain of which all of `low` .. `last` was found."""
    journal, it = Journal(SMALL), Chain()
    for op in range(low, last + 1):
        journal.install(HEADS[op])
    assert it.reaches(low, HEADS[last], journal) and it.low == low
    return it, journal


def test_it_ends_above_a_header_that_is_missing_or_another_one() -> None:
    it, journal = found(low=4)
    assert not it.reaches(3, HEADS[10], journal) and it.low == 4
    journal.install(prepare(3, view=1).header)
    assert not it.reaches(3, HEADS[10], journal) and it.low == 4


def test_it_goes_on_down_when_the_missing_header_is_here() -> None:
    it, journal = found(low=4)
    journal.install(HEADS[3])
    assert it.reaches(3, HEADS[10], journal)


def test_what_was_found_ends_when_the_journal_loses_a_header() -> None:
    it, journal = found()
    assert it.holds(HEADS[10], journal)
    journal.remove(5)
    assert not it.holds(HEADS[10], journal)
    assert not it.reaches(5, HEADS[10], journal) and it.low == 6


def test_what_was_found_is_of_one_head() -> None:
    it, journal = found()
    other = prepare(10, view=1, parent=prepare(9, view=1).header).header
    journal.remove(10)
    journal.install(other)
    it.removals = journal.removals  # so that the head alone tells
    assert not it.holds(other, journal)
    assert not it.reaches(9, other, journal) and it.low == 10


def test_a_successor_that_names_the_head_keeps_what_was_found_and_no_other_one() -> None:
    named: tuple[tuple[Header, int], ...] = (
        (HEADS[11], 1),
        (prepare(11, view=1).header, 11),
    )
    for successor, low in named:
        it, journal = found()
        journal.install(successor)
        it.extend(successor)
        assert it.holds(successor, journal) == (low == 1)
        it.reaches(11, successor, journal)
        assert it.low == low


def test_nothing_is_known_of_another_log() -> None:
    it, journal = found()
    it.forget()
    assert not it.holds(HEADS[10], journal)
    assert it.reaches(1, HEADS[10], journal)


def test_it_never_reaches_further_than_a_ring() -> None:
    last = SMALL.slot_count + 5
    headers = [message.header for message in chain(last).values()]
    journal, it = Journal(SMALL), Chain()
    for header in headers:
        journal.install(header)
    assert it.reaches(6, headers[-1], journal)
    assert not it.reaches(5, headers[-1], journal) and it.low == 6
    it.low = 1  # found before the ring moved on
    assert not it.reaches(5, headers[-1], journal) and it.low == 6
