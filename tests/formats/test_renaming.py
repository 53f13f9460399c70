"""What shard 0 says of rooms that got other names: all of it comes back, nothing else is one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.limits import BODY_SIZE_MAX, ROOM_NAME_SIZE_MAX
from appliance.formats.author import AUTHOR_NAME_SIZE_MAX
from appliance.formats.renaming import Renaming, decode_renaming, encode_renaming
from appliance.formats.room_name import room_name_valid

names = st.text(min_size=1, max_size=40).filter(room_name_valid)
counts = st.integers(min_value=1, max_value=(1 << 63) - 1)


@given(st.builds(Renaming, names, names, counts, st.text(max_size=40), st.just(0) | counts))
def test_what_was_said_is_read_as_it_was_said(renaming: Renaming) -> None:
    assert decode_renaming(encode_renaming(renaming)) == renaming


def test_the_bytes_are_those_of_before() -> None:
    said = Renaming("general", "plan", 1, "anna")
    body = b'{"act":{"do":"rename_room","room":"general","name":"plan","number":1},"who":"anna"}'
    assert encode_renaming(said) == body
    anew = encode_renaming(said._replace(said_us=77))
    assert anew == body[:-1] + b',"said_us":77}'


def test_the_longest_names_fit() -> None:
    longest = '"' * ROOM_NAME_SIZE_MAX
    said = Renaming(longest, longest, (1 << 63) - 1, '"' * AUTHOR_NAME_SIZE_MAX, (1 << 63) - 1)
    assert len(encode_renaming(said)) <= BODY_SIZE_MAX


ACT = '{"act":{"do":"rename_room","room":"a","name":"b","number":1},"who":"c"}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"rename_room",
        b"[" * 5000 + b"rename_room",
        b'{"act":"rename_room"}',
        ACT.replace('"do":"rename_room"', '"do":"rename_rooms"').encode(),
        ACT.replace('"b"', '"b\\u0000"').encode(),
        ACT.replace('"a"', '" a"').encode(),
        ACT.replace('"b"', "7").encode(),
        ACT.replace(":1}", ":0}").encode(),
        ACT.replace(":1}", ":true}").encode(),
        ACT.replace(":1}", ":9223372036854775808}").encode(),
        ACT.replace('"who":"c"', '"who":7').encode(),
        ACT.replace('"who":"c"', '"who":"c","said_us":-1').encode(),
        ACT.replace(',"who":"c"', "").encode(),
    ],
)
def test_what_gives_no_name_is_none(body: bytes) -> None:
    assert decode_renaming(ACT.encode()) is not None
    assert decode_renaming(body) is None
