"""A table's bytes depend on its history alone, and a checkpoint writes what its place lacks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.checksum import sha256
from appliance.base.errors import FormatError
from appliance.base.table import Table

ROW = np.dtype([("id", "<u8"), ("value", "<u8"), ("more", "V8")])
ROWS_MAX, CHUNK_SIZE = 10, 100  # 4 rows of 24 bytes to a chunk


def empty() -> Table:
    return Table(ROW, ROWS_MAX, CHUNK_SIZE)


def put(table: Table, value: int) -> int:
    row = table.take()
    table.row(row)[:8] = value.to_bytes(8, "little")
    return row


def change(table: Table, row: int, value: int) -> None:
    table.touch(row)
    table.row(row)[8:16] = value.to_bytes(8, "little")


def test_rows_are_taken_in_order_and_a_freed_one_again_lowest_first() -> None:
    table = empty()
    assert [put(table, n + 1) for n in range(6)] == [0, 1, 2, 3, 4, 5]
    for row in (4, 1, 3):
        table.release(row)
    assert table.row_count == 3
    assert [put(table, n + 1) for n in range(5)] == [1, 3, 4, 6, 7]
    assert table.row_high_water == 8


def test_the_last_row_is_given_and_then_the_table_is_full() -> None:
    table = empty()
    for n in range(ROWS_MAX):
        assert not table.full
        put(table, n + 1)
    assert table.full
    with pytest.raises(AssertionError):
        table.take()
    table.release(7)
    assert not table.full
    assert put(table, 99) == 7


def test_a_chunk_is_whole_rows_padded_with_zeros() -> None:
    table = empty()
    for n in range(5):
        put(table, n + 1)
    high_water, ids, writes = table.freeze(False)
    assert high_water == 5
    assert [(index, len(data)) for index, data in writes] == [(0, CHUNK_SIZE), (1, CHUNK_SIZE)]
    assert writes[0][1] == b"".join((n + 1).to_bytes(24, "little") for n in range(4)) + bytes(4)
    assert ids == [sha256(data) for _, data in writes]


def test_a_freeze_writes_what_changed_since_the_last_but_one() -> None:
    table = empty()
    for n in range(ROWS_MAX):
        put(table, n + 1)
    assert [index for index, _ in table.freeze(False)[2]] == [0, 1, 2]  # the first writes all
    assert [index for index, _ in table.freeze(False)[2]] == [0, 1, 2]  # into the other place
    assert table.freeze(False)[2] == []
    change(table, 5, 1)
    assert [index for index, _ in table.freeze(False)[2]] == [1]
    change(table, 0, 1)
    assert [index for index, _ in table.freeze(False)[2]] == [0, 1]
    assert [index for index, _ in table.freeze(False)[2]] == [0]
    assert table.freeze(False)[2] == []
    assert [index for index, _ in table.freeze(True)[2]] == [0, 1, 2]


def test_what_was_frozen_does_not_change_with_the_table() -> None:
    table = empty()
    put(table, 1)
    _, ids, writes = table.freeze(False)
    change(table, 0, 7)
    assert sha256(writes[0][1]) == ids[0]
    assert table.freeze(False)[1] != ids


def test_a_cleared_table_is_as_a_new_one() -> None:
    table = empty()
    for n in range(ROWS_MAX):
        put(table, n + 1)
    table.freeze(False)
    table.clear()
    assert (table.row_count, table.row_high_water) == (0, 0)
    assert table.freeze(False) == (0, [], [])
    assert put(table, 5) == 0
    assert not any(table.row(0)[8:])


# A place on disk is written at every second checkpoint; after each it must hold the frozen state.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "change", "release", "freeze", "load"]),
        st.integers(0, ROWS_MAX - 1),
    ),
    max_size=80,
)


@given(STEPS)
def test_the_two_places_of_checkpoints_always_hold_what_their_ids_name(steps) -> None:
    table, twin = empty(), empty()  # the twin writes everything at each freeze
    places: list[dict[int, bytes]] = [{}, {}]
    used: list[int] = []
    saved: tuple[int, list[bytes], list[int]] = (0, [], [])
    for count, (what, n) in enumerate(steps):
        if what == "put" and not table.full:
            used.append(put(table, count + 1))
            assert put(twin, count + 1) == used[-1]
        elif what == "change" and used:
            change(table, used[n % len(used)], n)
            change(twin, used[n % len(used)], n)
        elif what == "release" and used:
            row = used.pop(n % len(used))
            table.release(row)
            twin.release(row)
        elif what == "freeze":
            places.reverse()
            high_water, ids, writes = table.freeze(False)
            places[0].update(writes)
            assert [sha256(places[0][i]) for i in range(len(ids))] == ids
            assert twin.freeze(True)[:2] == (high_water, ids)
            saved = (high_water, ids, list(used))
        elif what == "load":  # a restart from the last freeze
            for loaded in (table, twin):
                loaded.load([places[0][i] for i in range(len(saved[1]))], saved[0])
            used = list(saved[2])
            places[1].clear()  # nothing is known of the other place now
            assert table.row_count == len(used)


def chunks(values: int) -> list[bytes]:
    table = empty()
    for n in range(values):
        put(table, n + 1)
    return [data for _, data in table.freeze(True)[2]]


def test_a_loaded_table_has_the_same_ids_and_the_same_free_rows() -> None:
    first = empty()
    for n in range(9):
        put(first, n + 1)
    for row in (8, 2, 5):
        first.release(row)
    high_water, ids, writes = first.freeze(False)
    second = empty()
    second.load([data for _, data in writes], high_water)
    assert second.freeze(False)[:2] == (9, ids)
    assert [put(second, 1) for _ in range(4)] == [put(first, 1) for _ in range(4)] == [2, 5, 8, 9]


@pytest.mark.parametrize(
    ("high_water", "given_chunks", "reason"),
    [
        (11, chunks(10), "at most 10"),
        (5, chunks(4), "1 chunks for 5 rows"),
        (4, chunks(5), "2 chunks for 4 rows"),
        (5, [chunks(5)[0], chunks(5)[1][:-1]], "99 bytes"),
        (5, [chunks(5)[0], chunks(6)[1]], "not zero behind its 1 rows"),
        (4, [chunks(4)[0][:-1] + b"\1"], "not zero behind its 4 rows"),
    ],
)
def test_chunks_that_do_not_fit_their_rows_are_refused(
    high_water: int, given_chunks: list[bytes], reason: str
) -> None:
    with pytest.raises(FormatError, match=reason):
        empty().load(given_chunks, high_water)
