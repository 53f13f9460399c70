"""What a simulated chat client takes for an answer to its question, and what not."""

from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.simulation.talker import answers

ROOM = UUID(int=1)


def asked_and_page(first: int, wanted: int, limit: int, backward: bool) -> tuple[Any, ...]:
    """A question about ops `first` and so many more, and its one right answer."""
    last = first + wanted
    asked = SnapshotRequest(
        room_id=ROOM, from_op=first, until_op=last, limit=limit, backward=backward
    )
    ops = list(range(first, last + 1))
    ops = ops[-limit:] if backward else ops[:limit]
    return asked, ops, page(ops[0] - 1 if backward else ops[-1] + 1, len(ops) <= wanted)


def page(cursor: int, has_more: bool) -> SnapshotChunk:
    return SnapshotChunk(room_id=ROOM, has_more=has_more, cursor=cursor, messages=[])


QUESTIONS = (st.integers(1, 50), st.integers(0, 30), st.integers(1, 20), st.booleans())


@given(*QUESTIONS)
def test_the_right_page_answers_and_no_other(first, wanted, limit, backward) -> None:
    asked, ops, right = asked_and_page(first, wanted, limit, backward)
    assert answers(asked, right, ops)
    if not backward:
        shifted = [op + 1 for op in ops]
        assert not answers(asked, page(right.cursor + 1, right.has_more), shifted)
    assert not answers(asked, page(right.cursor + 1, right.has_more), ops)
    assert not answers(asked, page(right.cursor - 1, right.has_more), ops)
    assert not answers(asked, right, [*ops[:1], *ops])
    if len(ops) > 2:
        assert not answers(asked, right, ops[:1] + ops[2:])
        assert not answers(asked, right, ops[::-1])
    if backward or not right.has_more:
        assert not answers(asked, page(right.cursor, not right.has_more), ops)
    if right.has_more:
        longer = [ops[0] - 1, *ops] if backward else [*ops, ops[-1] + 1]
        cursor = longer[0] - 1 if backward else longer[-1] + 1
        assert not answers(asked, page(cursor, True), longer)


@given(*QUESTIONS)
def test_an_empty_page_promises_nothing_more(first, wanted, limit, backward) -> None:
    asked, _, right = asked_and_page(first, wanted, limit, backward)
    assert answers(asked, page(right.cursor, False), [])
    assert not answers(asked, page(right.cursor, True), [])


@given(*QUESTIONS, st.integers(1, 30))
def test_an_edge_that_is_behind_may_lack_the_end_but_not_the_start(
    first, wanted, limit, backward, lacking
) -> None:
    asked, _, _ = asked_and_page(first, wanted, limit, backward)
    known = list(range(first, first + wanted + 1))[:-lacking]
    if known:
        ops = known[-limit:] if backward else known[:limit]
        cursor = ops[0] - 1 if backward else ops[-1] + 1
        assert answers(asked, page(cursor, len(ops) < len(known)), ops)
        if not backward and len(ops) > 1:
            assert not answers(asked, page(cursor, False), ops[1:])
