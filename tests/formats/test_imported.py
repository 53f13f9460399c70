"""The line before the text of an imported record: whatever an archive says fits into it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.limits import IMPORTED_AUTHOR_SIZE_MAX
from appliance.formats import record
from appliance.formats.client.frame import binary_head
from appliance.formats.client.parse import parse_binary_edge
from appliance.formats.client.records import event_binary, event_of, message_of
from appliance.formats.client.subscribing import MessageEvent
from appliance.formats.client.unfolding import unfolded
from appliance.formats.imported import decode_imported, encode_head

THEN_US = 852_076_800_123_000


@given(
    st.integers(-(1 << 70), 1 << 70), st.text(st.characters(exclude_categories=["Cs"])), st.binary()
)
def test_every_head_is_read_back_and_ends_where_the_text_begins(
    moment: int, author: str, text: bytes
) -> None:
    head = encode_head(moment, author)
    said = decode_imported(head + text)
    assert said is not None and said.head_size == len(head)
    assert said.said_us == min(max(moment, 0), (1 << 63) - 1)
    assert 1 <= len(said.author.encode()) <= IMPORTED_AUTHOR_SIZE_MAX
    kept = " ".join(author.split())
    assert kept.startswith(said.author) or (not kept and said.author == "unknown")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"12 Ada",  # no end of the line
        b"012 Ada\n",
        b"-1 Ada\n",
        b"12 \n",
        b"9223372036854775808 Ada\n",
        b"12 " + b"a" * (IMPORTED_AUTHOR_SIZE_MAX + 1) + b"\n",
        b"12 \xff\n",
    ],
)
def test_other_bodies_are_none(body: bytes) -> None:
    assert decode_imported(body) is None


def stored(body: bytes, kind: int = record.KIND_IMPORTED) -> bytes:
    return record.encode(
        room_id=b"r" * 16,
        msg_id=b"m" * 16,
        author_id=7,
        body=body,
        client_id=b"c" * 16,
        client_seq=1,
        kind=kind,
    )


def test_clients_get_author_and_time_as_fields_in_both_encodings() -> None:
    raw = stored(encode_head(THEN_US, "Ada Lovelace") + "grün".encode())
    event = event_of(raw)
    assert (event.said_at, event.said_by, event.body) == (THEN_US, "Ada Lovelace", "grün")
    page = message_of(raw)
    assert (page.said_at, page.said_by, page.body) == (THEN_US, "Ada Lovelace", "grün")
    (binary,) = parse_binary_edge(binary_head(MessageEvent, 1) + event_binary(raw))
    assert binary.body.startswith(f"{THEN_US} Ada Lovelace\n")
    assert unfolded(binary) == event == unfolded(event)


def test_a_message_that_looks_like_an_imported_one_is_none() -> None:
    raw = stored(encode_head(THEN_US, "Ada") + b"text", record.KIND_MESSAGE)
    event = event_of(raw)
    assert event.said_by is event.said_at is None and event.body == f"{THEN_US} Ada\ntext"
    assert unfolded(event) is event
