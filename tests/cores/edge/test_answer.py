"""From the results of a request to acks: of few records one by one, of many by columns."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.cores.edge.answer import COLUMNS_FROM, Answers, by_columns, one_by_one
from appliance.cores.edge.publish import Batch, pack
from appliance.cores.edge.session import Session
from appliance.formats import session as replies
from appliance.formats.client.fields import id_of
from appliance.formats.client.parse import parse_binary_edge, parse_json_edge
from appliance.formats.client.sending import MessageAck
from appliance.formats.geometry import RECORD_SIZE
from tests.cores.edge.world import ENCODINGS

U64 = st.integers(0, (1 << 64) - 1)
RESULT = st.tuples(U64, U64, U64, st.integers(0, 7), st.binary(min_size=32, max_size=32))


@given(st.lists(RESULT, min_size=1, max_size=3 * COLUMNS_FROM), st.binary(min_size=1))
def test_both_ways_make_the_same_of_whatever_was_sent_and_given(
    given_: list[tuple[int, int, int, int, bytes]], salt: bytes
) -> None:
    size = len(given_) * RECORD_SIZE
    records = memoryview(
        (salt * (size // len(salt) + 1))[: size + RECORD_SIZE]
    )  # a free one behind
    results = b"".join(
        replies.RESULT_STRUCT.pack(seq, log_seq, timestamp, code, b"", digest)
        for seq, log_seq, timestamp, code, digest in given_
    )
    expected = by_columns(records, results)
    assert one_by_one(records, results) == expected
    assert one_by_one(records, memoryview(bytearray(results))) == expected
    assert expected[:2] == ([row[3] for row in given_], max(row[1] for row in given_))


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("count", [1, COLUMNS_FROM - 1, COLUMNS_FROM, 2 * COLUMNS_FROM])
def test_an_ack_names_what_was_sent_and_where_it_is(count: int, binary: bool) -> None:
    batch, expected, results = Batch(4 * COLUMNS_FROM), [], b""
    for i in range(count):
        sent: dict[str, Any] = {"room_id": bytes([i]) * 16, "msg_id": bytes([100 + i]) * 16}
        pack(
            batch,
            **sent,
            author_id=9,
            parent_id=bytes(16),
            body=b"x",
            client_id=b"c" * 16,
            client_seq=10 + i,
            kind=0,
        )
        digest = bytes([200 - i]) * 32
        results += replies.RESULT_STRUCT.pack(50 + i, 70 + i, 90 + i, replies.OK, b"", digest)
        named: dict[str, UUID] = {name: id_of(value) for name, value in sent.items()}
        expected.append(
            MessageAck(**named, client_seq=10 + i, op=50 + i, timestamp=90 + i, hash=digest.hex())
        )
    session = Session(number=1, address="", encoding=ENCODINGS[binary], now_ns=0, dirty=[])
    answers = Answers(batch, results)
    assert (answers.accepted, answers.newest) == (True, 70 + count - 1)
    answers.ack(session, 0, count)
    if binary:
        assert [frame for data in session.out for frame in parse_binary_edge(data)] == expected
    else:
        assert [parse_json_edge(data) for data in session.out] == expected
    session.out.clear()
    last = count - 1
    answers.ack(session, last, 1)  # a run of others came before it
    parse = parse_binary_edge if binary else lambda data: [parse_json_edge(data)]
    assert parse(session.out[0]) == expected[last:]
    assert answers.named(last) == {"room_id": expected[last].room_id, "client_seq": 10 + last}
    assert (answers.seq(last), answers.log_seq(last)) == (50 + last, 70 + last)
