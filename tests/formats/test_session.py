"""Session block and result: every offset; a set reserved byte is no session block."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.dtypes import VoidDType

from appliance.base.layout import offset_of
from appliance.formats import session
from appliance.formats.session import RESULT, SESSION_BLOCK, SessionBlock

BLOCK_FIELDS = [
    ("client", 0, 16),
    ("session", 16, 8),
    ("record_count", 24, 4),
    ("reserved_a", 28, 4),
    ("reply_parent", 32, 16),
    ("request_digest", 48, 16),
    ("checkpoint_id", 64, 32),
    ("reserved_b", 96, 32),
]
RESULT_FIELDS = [
    ("seq", 0, 8),
    ("log_seq", 8, 8),
    ("timestamp", 16, 8),
    ("code", 24, 4),
    ("reserved", 28, 4),
    ("hash", 32, 32),
]
EXAMPLE = SessionBlock(b"c" * 16, 9, 468, b"p" * 16, b"q" * 16, b"k" * 32)


@pytest.mark.parametrize(
    ("dtype", "fields", "size"), [(SESSION_BLOCK, BLOCK_FIELDS, 128), (RESULT, RESULT_FIELDS, 64)]
)
def test_every_offset_of_the_layout_is_pinned(
    dtype: VoidDType, fields: list[tuple[str, int, int]], size: int
) -> None:
    found = [(name, offset_of(dtype, name), dtype[name].itemsize) for name in dtype.names]
    assert found == fields
    assert sum(field_size for _, _, field_size in fields) == size


def test_codes_of_a_result_have_their_numbers_and_names() -> None:
    assert (
        session.OK,
        session.DUPLICATE,
        session.DUPLICATE_EXPIRED,
        session.SEQUENCE_GAP,
        session.ROOM_UNKNOWN,
        session.FORBIDDEN,
        session.LIMIT,
        session.STORAGE_FULL,
        session.MSG_ID_TAKEN,
    ) == (0, 1, 2, 3, 4, 5, 6, 7, 8)
    assert len(session.RESULT_NAMES) == 9


@given(
    st.builds(
        SessionBlock,
        *(
            st.binary(min_size=16, max_size=16),
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**32 - 1),
            st.binary(min_size=16, max_size=16),
            st.binary(min_size=16, max_size=16),
            st.binary(min_size=32, max_size=32),
        ),
    ),
    st.binary(max_size=64),
)
def test_a_block_is_read_back_whatever_follows_it(block: SessionBlock, rest: bytes) -> None:
    assert session.decode(session.encode(block) + rest) == block


@pytest.mark.parametrize("at", [28, 31, 96, 127])
def test_a_set_reserved_byte_is_refused(at: int) -> None:
    raw = bytearray(session.encode(EXAMPLE))
    raw[at] = 1
    assert session.decode(raw) is None


def test_a_body_one_byte_too_short_is_refused() -> None:
    assert session.decode(session.encode(EXAMPLE)[:127]) is None
