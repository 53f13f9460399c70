"""The table of sessions: lowest row first, oldest reply out first, equal bytes everywhere."""

import pytest

from appliance.base.prng import Prng
from appliance.cores.vsr.sessions import Sessions
from appliance.formats import envelope as env
from appliance.formats.geometry import SESSION_ROW_SIZE, SMALL
from tests.cores.vsr.group import CLUSTER, SHARD

MAX = SMALL.clients_max


def client(i: int) -> bytes:
    return b"client %9d" % i


def answer(table: Sessions, i: int, op: int) -> None:
    """Op `op` answered client i, as commit does it."""
    entry = table.get(client(i))
    entry.request += 1
    entry.reply = env.make(env.REPLY, cluster=CLUSTER, shard=SHARD, op=op, commit_num=op)
    entry.body = b"reply %d" % op
    entry.dirty = True


def register(table: Sessions, i: int, op: int) -> bytes | None:
    evicted = table.register(client(i), op)
    answer(table, i, op)
    table.get(client(i)).request = 0
    return evicted


def filled() -> Sessions:
    table = Sessions(SMALL)
    for i in range(MAX):
        assert register(table, i, i + 1) is None
    return table


def test_rows_are_taken_lowest_first() -> None:
    table = filled()
    assert [entry.row for entry in table.entries.values()] == list(range(MAX))
    table.remove(client(3))
    table.remove(client(1))
    register(table, 100, 50)
    assert table.get(client(100)).row == 1


def test_a_full_table_evicts_the_one_whose_latest_reply_is_oldest() -> None:
    table = filled()
    answer(table, 0, 20)
    answer(table, 2, 21)
    assert register(table, 100, 30) == client(1)
    assert register(table, 101, 31) == client(3)
    assert table.get(client(1)) is None and table.get(client(100)).row == 1
    assert len(table.entries) == MAX


def test_registering_again_takes_the_same_row_and_evicts_nobody() -> None:
    table = filled()
    assert register(table, 4, 40) is None
    entry = table.get(client(4))
    assert (entry.row, entry.session, entry.request) == (4, 40, 0)


def test_equal_histories_give_equal_bytes_and_survive_encode_and_load() -> None:
    for seed in range(30):
        prng, tables, op = Prng(seed), [Sessions(SMALL), Sessions(SMALL)], 0
        for _ in range(120):
            op += 1
            i, fresh = prng.below(12), prng.chance(1, 3)
            for table in tables:
                if fresh or table.get(client(i)) is None:
                    register(table, i, op)
                else:
                    answer(table, i, op)
            if prng.chance(1, 10):
                raw = tables[1].encode()
                tables[1] = Sessions(SMALL)  # one of them restarts
                tables[1].load(raw)
            assert tables[0].encode() == tables[1].encode()
        left = [
            [(e.client, e.row, e.session, e.request, e.reply.digest) for e in t.rows if e]
            for t in tables
        ]
        assert left[0] == left[1]


def test_a_loaded_table_has_no_bodies_and_nothing_to_write() -> None:
    table = filled()
    assert [m.header.op for _, m in table.dirty_replies()] == list(range(1, MAX + 1))
    other = Sessions(SMALL)
    other.load(table.encode())
    assert all(e.body is None and not e.dirty for e in other.entries.values())
    assert not list(other.dirty_replies())


def test_gaps_and_the_end_of_the_table_are_encoded_as_they_are() -> None:
    table = filled()
    table.remove(client(1))
    table.remove(client(MAX - 1))
    raw = table.encode()
    assert len(raw) == (MAX - 1) * SESSION_ROW_SIZE, "unused rows at the end are not stored"
    assert raw[SESSION_ROW_SIZE : 2 * SESSION_ROW_SIZE] == bytes(SESSION_ROW_SIZE)
    other = Sessions(SMALL)
    other.load(raw)
    assert other.encode() == raw and other.rows[1] is None
    assert Sessions(SMALL).encode() == b""


def test_more_rows_than_the_table_holds_are_refused() -> None:
    with pytest.raises(AssertionError):
        Sessions(SMALL).load(filled().encode() + bytes(SESSION_ROW_SIZE))
