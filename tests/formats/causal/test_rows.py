"""Rows of a channel's store: what is kept is what came, in half of its bytes."""

import zlib

import pytest

from appliance.base.limits import CAUSAL_HINT_SIZE_MAX
from appliance.formats.causal import message as sds
from appliance.formats.causal import rows
from appliance.formats.causal.message import HistoryEntry, Message
from appliance.formats.causal.message_id import message_id

NAMES = [
    message_id(channel="room", sender="oslo", lamport=number, content=b"x") for number in range(11)
]


def made(body: bytes = b"hei") -> bytes:
    """A message as sites send it: with the names of ten others."""
    history = tuple(HistoryEntry(name, None, "oslo") for name in NAMES[:10])
    return sds.encode(Message("oslo", NAMES[10], "room", 11, history, content=body))


@pytest.mark.parametrize("wire", [b"", b"?", made()], ids=["unknown", "short", "message"])
@pytest.mark.parametrize("hint", [None, b"", bytes(CAUSAL_HINT_SIZE_MAX)])
@pytest.mark.parametrize("flags", [0, rows.OWN, rows.OWN | rows.LATE])
def test_a_row_of_the_log_is_read_as_it_was_written(
    wire: bytes, hint: bytes | None, flags: int
) -> None:
    row = rows.LogRow(flags, "oslo", hint, wire)
    assert rows.decode_log(rows.encode_log(row)) == row


@pytest.mark.parametrize("text", [b"hei", b"room", b"", b"not in it"])
def test_what_a_row_leaves_out_is_put_back_where_it_was(text: bytes) -> None:
    row = rows.LogRow(rows.LATE, "oslo", b"where", made())
    row.leave_out(7, text)
    assert row.leaves_text == (text in (b"hei", b"room"))
    assert len(row.wire) == len(made()) - (len(text) if row.leaves_text else 0)
    kept = rows.decode_log(rows.encode_log(row))
    assert kept == row and kept.cut is not None and kept.cut.log_seq == 7
    if row.leaves_text:
        kept.put_back(text)
    assert kept.wire == made()


def test_an_earlier_version_takes_what_leaves_a_text_out_for_one_whose_bytes_are_unknown() -> None:
    row = rows.LogRow(0, "oslo", None, made())
    row.leave_out(7, b"hei")
    raw = rows.encode_log(row)
    assert zlib.decompress(raw[raw.index(b"oslo") + 4 :]) == b""


def test_of_a_message_whose_text_cannot_be_read_nothing_is_known() -> None:
    for text in (None, b"", b"heia"):
        row = rows.LogRow(0, "oslo", None, made())
        row.leave_out(7, b"hei")
        row.put_back(text)
        assert row.wire == b"" and row.leaves_text


def test_ids_in_a_message_take_half_of_their_letters() -> None:
    kept = rows.encode_log(rows.LogRow(0, "oslo", None, made()))
    assert len(kept) < 0.65 * len(made())


def test_a_row_of_an_earlier_version_is_read_as_it_lies_there() -> None:
    for hint, size in ((None, b"\xff\xff"), (b"where", b"\x00\x05")):
        raw = b"\x01\x00\x04" + size + b"oslo" + (hint or b"") + made()
        assert rows.decode_log(raw) == rows.LogRow(rows.OWN, "oslo", hint, made())
