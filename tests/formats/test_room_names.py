"""Names of rooms that are stated anew: all of them come back, in records as large as may be."""

import random

import pytest

from appliance.base.limits import BODY_SIZE_MAX, ROOM_NAME_SIZE_MAX
from appliance.formats.room_name import room_name_valid
from appliance.formats.room_names import decode_room_names, encode_room_names

LETTERS = 'abcdefghij-./"\\ éøß漢字🙂'


def drawn(chance: random.Random, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        name = "".join(chance.choices(LETTERS, k=chance.randint(1, ROOM_NAME_SIZE_MAX)))
        if room_name_valid(name):
            found.append(name)
    return found


def test_all_names_come_back_in_order_and_no_record_is_too_large(seed: int) -> None:
    chance = random.Random(seed)
    names = drawn(chance, 300) + ["x" * ROOM_NAME_SIZE_MAX, '"' * ROOM_NAME_SIZE_MAX]
    bodies = list(encode_room_names(names, node="node-0", at_us=1_800_000_000_000_000))
    assert [name for body in bodies for name in decode_room_names(body)] == names
    assert all(len(body) <= BODY_SIZE_MAX for body in bodies)
    largest = 2 * ROOM_NAME_SIZE_MAX + 3  # of one name, each letter escaped
    assert all(len(body) > BODY_SIZE_MAX - largest for body in bodies[:-1])
    assert list(encode_room_names([], node="node-0", at_us=0)) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"name_rooms",
        b'{"act":{"do":"revoke_token","rooms":["a"]},"name_rooms":0}',
        b'{"act":"name_rooms"}',
        b'{"act":{"do":"name_rooms","rooms":"general"}}',
        b'{"act":{"do":"name_rooms","rooms":[7,null," a","b\\u0000",""]}}',
        b'{"act":{"do":"name_rooms","rooms":["\xff"]}}',
        b"[" * 5000 + b"name_rooms",
    ],
)
def test_what_states_no_name_gives_none(body: bytes) -> None:
    assert decode_room_names(body) == []
