"""What shard 0 says of rooms' rights: all of it comes back, nothing else is one; whom it lets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.limits import BODY_SIZE_MAX
from appliance.formats.author import AUTHOR_NAME_SIZE_MAX
from appliance.formats.client.rights import ADMIN, IMPORT, MODERATE, READ, SEND
from appliance.formats.room_limits import (
    ALL,
    MODERATORS,
    UNLIMITED,
    Limiting,
    Limits,
    decode_limiting,
    encode_limiting,
    fits,
    whom_of,
    whom_text,
)
from appliance.formats.room_name import room_name_valid

users = st.text(min_size=1, max_size=20).filter(
    lambda name: name.isprintable() and len(name.encode()) <= AUTHOR_NAME_SIZE_MAX
)
lists = st.sets(users, min_size=1, max_size=5).map(lambda names: tuple(sorted(names)))
whoms = st.just(ALL) | st.just(MODERATORS) | lists
limits = st.builds(Limits, whoms, whoms, st.just(ALL) | lists)
counts = st.integers(min_value=1, max_value=(1 << 63) - 1)
names = st.text(min_size=1, max_size=30).filter(room_name_valid)


@given(st.builds(Limiting, names, limits, counts, st.text(max_size=20), st.just(0) | counts))
def test_what_was_said_is_read_as_it_was_said(limiting: Limiting) -> None:
    assert decode_limiting(encode_limiting(limiting)) == limiting


@given(whoms)
def test_whom_a_frame_names_is_read_as_it_was_said(whom: Any) -> None:
    assert whom_of(whom_text(whom)) == whom


@pytest.mark.parametrize(
    "text", ["", "All", "anna", "=", "=anna\n", "=anna\nbob", "=\0", "=x" * 99]
)
def test_what_names_nobody_is_no_whom(text: str) -> None:
    assert whom_of(text) is None
    assert whom_of("=all") == ("all",) and whom_of("=b\n=a\n=b") == ("a", "b")
    assert whom_of(MODERATORS, moderate=True) is None and whom_of(ALL, moderate=True) == ALL


def test_the_bytes_are_those_of_before() -> None:
    said = Limiting("general", Limits(send=MODERATORS, moderate=("anna", "bob")), 3, "anna")
    body = (
        b'{"act":{"do":"limit_room","room":"general","send":"moderators",'
        b'"moderate":["anna","bob"],"number":3},"who":"anna"}'
    )
    assert encode_limiting(said) == body
    assert encode_limiting(said._replace(said_us=77)) == body[:-1] + b',"said_us":77}'


def test_as_many_users_as_a_record_has_room_for_fit_in_it() -> None:
    most = [
        count
        for count in range(1, 400)
        if fits(Limiting("a", Limits(send=tuple(f"u{i:03}" for i in range(count))), 1, "a"))
    ]
    assert most[-1] == len(most) > 200
    said = Limiting("a", Limits(send=tuple(f"u{i:03}" for i in range(most[-1]))), 1, "a")
    assert len(encode_limiting(said._replace(said_us=(1 << 63) - 1))) <= BODY_SIZE_MAX


ACT = '{"act":{"do":"limit_room","room":"a","send":["b"],"number":1},"who":"c"}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"limit_room",
        b"[" * 5000 + b"limit_room",
        b'{"act":"limit_room"}',
        ACT.replace("limit_room", "limit_rooms").encode(),
        ACT.replace('["b"]', "[]").encode(),
        ACT.replace('["b"]', '["b",7]').encode(),
        ACT.replace('["b"]', '["\\u0000"]').encode(),
        ACT.replace('["b"]', '"b"').encode(),
        ACT.replace('["b"]', "null").encode(),
        ACT.replace('"send":["b"]', '"moderate":"moderators"').encode(),
        ACT.replace('"a"', '" a"').encode(),
        ACT.replace(":1}", ":0}").encode(),
        ACT.replace(":1}", ":true}").encode(),
        ACT.replace('"who":"c"', '"who":"c","said_us":-1').encode(),
        ACT.replace(',"who":"c"', "").encode(),
    ],
)
def test_what_limits_no_room_is_none(body: bytes) -> None:
    assert decode_limiting(ACT.encode()) is not None
    assert decode_limiting(body) is None


@given(limits, st.integers(min_value=0, max_value=ADMIN), users)
def test_a_room_takes_rights_away_and_gives_none(given: Limits, bits: int, author: str) -> None:
    left = given.bits(bits, author)
    assert left & ~bits == 0
    assert UNLIMITED.bits(bits, author) == bits
    assert given.bits(ADMIN, author) == ADMIN


def test_whom_a_room_lets() -> None:
    may = READ | SEND | IMPORT | MODERATE
    member = READ | SEND | IMPORT
    for limits, anna, bob in (
        (Limits(send=MODERATORS), may, READ),
        (Limits(read=MODERATORS), may, SEND | IMPORT),
        (Limits(send=("bob",)), READ | MODERATE, member),
        (Limits(read=("anna",)), may, SEND | IMPORT),
        (Limits(moderate=("bob",)), member, member),
        (Limits(send=MODERATORS, moderate=("bob",)), READ, READ),
        (Limits(read=("anna",), send=("anna",), moderate=("anna",)), may, 0),
    ):
        assert (limits.bits(may, "anna"), limits.bits(member, "bob")) == (anna, bob), limits
